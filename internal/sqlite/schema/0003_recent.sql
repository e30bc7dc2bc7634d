-- Staged plants, in the order in which they were created. They are not in the table
-- plants yet: they are flushed to it in sweeps over all ids, many at once and in order
-- of id, which touches far fewer pages. pass is the number of the sweep that flushes
-- the plant. Rows of flushed plants stay for a while, because rows are deleted in the
-- order of seq.
CREATE TABLE recent (
  seq  INTEGER PRIMARY KEY,
  pass INTEGER NOT NULL,
  id   INTEGER NOT NULL,
  name TEXT NOT NULL,
  tag  TEXT
) STRICT;

-- The flush state, in one row. All plants of earlier sweeps have been flushed, and
-- those of the sweep pass whose ids are below next_id. The sweep began when seq was
-- first_seq, and no row before dead_seq is needed. The version changes whenever one of
-- the two tables does.
CREATE TABLE moving (
  version   INTEGER NOT NULL,
  pass      INTEGER NOT NULL,
  next_id   INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  dead_seq  INTEGER NOT NULL
) STRICT;
INSERT INTO moving VALUES (0, 0, -9223372036854775808, 0, 0);
