-- The log of changes: one row for each write that changed something, in the order in
-- which they took effect. time is Unix microseconds, "by" the public id of the token,
-- type 1 created, 2 replaced, 3 deleted. name and tag are the plant's after the change,
-- or before a deletion. Old rows are trimmed once they have been flushed.
CREATE TABLE log (
  seq  INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  "by" TEXT NOT NULL,
  type INTEGER NOT NULL,
  id   INTEGER NOT NULL,
  name TEXT NOT NULL,
  tag  TEXT
) STRICT;

-- The plants as of the log's row flushed. Some may already be as of a later row.
ALTER TABLE plants RENAME TO stored;

-- Flush what schema 3 had staged.
INSERT INTO stored (id, name, tag)
  SELECT recent.id, recent.name, recent.tag FROM recent, moving
  WHERE recent.pass > moving.pass OR (recent.pass = moving.pass AND recent.id >= moving.next_id);
DROP TABLE recent;
DROP TABLE moving;

-- How far the log has been flushed to stored and trimmed, in one row. store identifies
-- this store in cursors. trimmed_time is the time of the row trimmed last.
CREATE TABLE log_state (
  store        TEXT NOT NULL,
  flushed      INTEGER NOT NULL,
  trimmed      INTEGER NOT NULL,
  trimmed_time INTEGER NOT NULL
) STRICT;
INSERT INTO log_state VALUES (lower(hex(randomblob(5))), 0, 0, 0);

-- Every plant, flushed or not.
CREATE VIEW plants AS
  SELECT id, name, tag FROM stored
  WHERE id NOT IN (SELECT id FROM log WHERE seq > (SELECT flushed FROM log_state))
  UNION ALL
  SELECT id, name, tag FROM log
  WHERE type <> 3 AND seq IN (SELECT max(seq) FROM log WHERE seq > (SELECT flushed FROM log_state) GROUP BY id);
