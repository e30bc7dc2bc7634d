-- How many plants there are as of the log's row flushed. Those after it are counted when
-- the store is opened.
ALTER TABLE log_state ADD COLUMN plants INTEGER NOT NULL DEFAULT 0;
UPDATE log_state SET plants = (SELECT count(*) FROM plants) - (
  SELECT count(*) FILTER (WHERE type = 1) - count(*) FILTER (WHERE type = 3) FROM log WHERE seq > flushed
);
