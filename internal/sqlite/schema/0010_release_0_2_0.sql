-- The plants as of the log's row flushed. Some may already be as of a later row.
CREATE TABLE stored (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  tag  TEXT
) STRICT;

-- The plants of stored that have a tag, in order of tag and id. An index would be brought
-- up to date with every plant that is flushed. This table is brought up to date once for
-- every generation, after its plants and in its own order. So it may be behind stored, but
-- only for plants that the log has after the row flushed.
CREATE TABLE stored_by_tag (
  tag TEXT NOT NULL,
  id  INTEGER NOT NULL,
  PRIMARY KEY (tag, id)
) STRICT, WITHOUT ROWID;

-- The log of changes: one row for each write that changed something, in the order in
-- which they took effect. time is Unix microseconds, "by" the public id of the token,
-- type 1 created, 2 replaced, 3 deleted. name and tag are the plant's after the change,
-- or before a deletion, and was is the tag before a replacement. Creating a token is type 4,
-- and revoking one type 5: such a row has the id 0, and the token after the change, as JSON,
-- as its name. Old rows are trimmed once they have been flushed.
CREATE TABLE log (
  seq  INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  "by" TEXT NOT NULL,
  type INTEGER NOT NULL,
  id   INTEGER NOT NULL,
  name TEXT NOT NULL,
  tag  TEXT,
  was  TEXT
) STRICT;

-- How far the log has been flushed to stored and trimmed, in one row. store identifies
-- this store in cursors. trimmed_time is the time of the row trimmed last. plants is the
-- number of plants as of the row flushed, and bytes the size of the log's rows up to it: 32
-- for each, and its text.
CREATE TABLE log_state (
  store        TEXT NOT NULL,
  flushed      INTEGER NOT NULL,
  trimmed      INTEGER NOT NULL,
  trimmed_time INTEGER NOT NULL,
  plants       INTEGER NOT NULL DEFAULT 0,
  bytes        INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO log_state VALUES (lower(hex(randomblob(5))), 0, 0, 0, 0, 0);

-- Every plant, flushed or not.
CREATE VIEW plants AS
  SELECT id, name, tag FROM stored
  WHERE id NOT IN (SELECT id FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3)
  UNION ALL
  SELECT id, name, tag FROM log
  WHERE type <> 3 AND seq IN (SELECT max(seq) FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3 GROUP BY id);

-- Times are Unix seconds; NULL stands for never. rate is how many requests the token may
-- make, such as 200/s,burst=400; NULL stands for the server's default.
CREATE TABLE tokens (
  seq     INTEGER PRIMARY KEY,
  hash    BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  name    TEXT NOT NULL,
  scopes  TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER,
  revoked INTEGER,
  used    INTEGER,
  rate    TEXT
) STRICT;

-- Tokens in the order in which they ended or will end, the last those that never will.
CREATE INDEX tokens_by_end ON tokens (coalesce(revoked, expires, 9223372036854775807), seq, revoked);

-- Webhooks, in the order of their creation. value is JSON.
CREATE TABLE webhooks (
  seq   INTEGER PRIMARY KEY,
  id    TEXT NOT NULL UNIQUE,
  value TEXT NOT NULL
) STRICT;

-- The last attempts to deliver events to a webhook: a JSON array, the newest first.
CREATE TABLE deliveries (
  webhook TEXT PRIMARY KEY,
  value   TEXT NOT NULL
) STRICT;
