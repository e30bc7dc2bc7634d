-- Plants that came lately, in the order in which they came. They are not in plants
-- yet: they are moved there in passes over all ids, many at once and in order, which
-- touches far fewer pages. pass is the one that moves the plant. What has been moved
-- stays here for a while, because it is removed in the order in which it came.
CREATE TABLE recent (
  seq  INTEGER PRIMARY KEY,
  pass INTEGER NOT NULL,
  id   INTEGER NOT NULL,
  name TEXT NOT NULL,
  tag  TEXT
) STRICT;

-- How far that has come, in one row. All plants of earlier passes have been moved,
-- and those of this pass whose ids are below next_id. The pass began when seq was
-- first_seq, and nothing before dead_seq is needed any more. The version changes
-- whenever one of the two tables does.
CREATE TABLE moving (
  version   INTEGER NOT NULL,
  pass      INTEGER NOT NULL,
  next_id   INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  dead_seq  INTEGER NOT NULL
) STRICT;
INSERT INTO moving VALUES (0, 0, -9223372036854775808, 0, 0);
