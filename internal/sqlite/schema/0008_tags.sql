-- Flush everything, so that what follows can start with the table alone: rows of the log
-- up to here do not say which tag a replaced plant had.
DELETE FROM stored WHERE id IN (
  SELECT id FROM log WHERE type = 3 AND seq IN (
    SELECT max(seq) FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3 GROUP BY id
  )
);
INSERT OR REPLACE INTO stored (id, name, tag)
  SELECT id, name, tag FROM log WHERE type <> 3 AND seq IN (
    SELECT max(seq) FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3 GROUP BY id
  ) ORDER BY id;
UPDATE log_state SET
  plants = plants + (
    SELECT count(*) FILTER (WHERE type = 1) - count(*) FILTER (WHERE type = 3) FROM log WHERE seq > flushed
  ),
  flushed = max(flushed, coalesce((SELECT max(seq) FROM log), 0));

-- The tag before a replacement.
ALTER TABLE log ADD COLUMN was TEXT;

-- How many plants have each tag as of the log's row flushed. While a later part of the
-- log is flushed, tags before tags_next are as of the row tags_seq.
CREATE TABLE stored_tags (
  tag    TEXT PRIMARY KEY,
  plants INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO stored_tags SELECT tag, count(*) FROM stored WHERE tag IS NOT NULL GROUP BY tag;
ALTER TABLE log_state ADD COLUMN tags_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE log_state ADD COLUMN tags_next TEXT NOT NULL DEFAULT '';

-- Every tag, flushed or not.
CREATE VIEW tags AS
  SELECT tag, sum(n) AS plants FROM (
    SELECT tag, plants AS n FROM stored_tags
    UNION ALL
    SELECT tag, iif(type = 3, -1, 1) FROM log, log_state
    WHERE tag IS NOT NULL AND seq > flushed AND NOT (seq <= tags_seq AND tag < tags_next)
    UNION ALL
    SELECT was, -1 FROM log, log_state
    WHERE was IS NOT NULL AND seq > flushed AND NOT (seq <= tags_seq AND was < tags_next)
  ) GROUP BY tag HAVING sum(n) <> 0;
