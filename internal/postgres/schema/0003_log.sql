-- The log of changes: one row for each write that changed something, in the order in
-- which they took effect. time is Unix microseconds, "by" the public id of the token,
-- type 1 created, 2 replaced, 3 deleted. name and tag are the plant's after the change,
-- or before a deletion.
CREATE TABLE log (
  seq  bigint PRIMARY KEY,
  time bigint NOT NULL,
  "by" text NOT NULL,
  type smallint NOT NULL,
  id   bigint NOT NULL,
  name text NOT NULL,
  tag  text
);

-- The end of the log, and how far it has been trimmed, in one row. A transaction that
-- appends to the log updates seq after every other statement that can block, so the
-- order of seq is the order of commits. store identifies this store in cursors.
CREATE TABLE log_state (
  id           integer PRIMARY KEY,
  store        text NOT NULL,
  seq          bigint NOT NULL,
  time         bigint NOT NULL,
  trimmed      bigint NOT NULL,
  trimmed_time bigint NOT NULL
);
INSERT INTO log_state VALUES (1, substr(md5(random()::text || clock_timestamp()::text), 1, 10), 0, 0, 0, 0);
