-- The size of each row of the log in bytes, as long as its arrays are not compressed, and the
-- sum of them. Rows that exist have none: they are not written again, and do not change.
ALTER TABLE log ADD COLUMN bytes bigint;
ALTER TABLE log_state ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
UPDATE log_state SET bytes = (
  SELECT coalesce(sum(70 + pg_column_size("by") + pg_column_size(type) + pg_column_size(id) + pg_column_size(name) + pg_column_size(tag)), 0) FROM log
);

-- Tokens in the order in which they ended or will end, the last those that never will.
CREATE INDEX tokens_by_end ON tokens (coalesce(revoked, expires, 9223372036854775807), seq);
