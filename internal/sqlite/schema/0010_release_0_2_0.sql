-- The size of the log's rows up to the flushed one, in bytes: 32 for each, and its text.
ALTER TABLE log_state ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE log_state SET bytes = (
  SELECT coalesce(sum(32 + octet_length("by") + octet_length(name) + coalesce(octet_length(tag), 0) + coalesce(octet_length(was), 0)), 0)
  FROM log WHERE seq <= flushed
);

-- Tokens in the order in which they ended or will end, the last those that never will.
CREATE INDEX tokens_by_end ON tokens (coalesce(revoked, expires, 9223372036854775807), seq, revoked);

-- Plants are counted by tag when someone asks, from stored_by_tag.
DROP VIEW tags;
DROP TABLE stored_tags;
ALTER TABLE log_state DROP COLUMN tags_seq;
ALTER TABLE log_state DROP COLUMN tags_next;
