-- The version of each plant, which is the number and the time of its last event, and when it was
-- created: NULL if that is the same time, and 0 if it is not known. Plants that have not changed
-- since release 0.2.0 have the version 0.
ALTER TABLE stored ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stored ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stored ADD COLUMN created INTEGER;

-- A replacement has when its plant was created, or 0 if that is not known.
ALTER TABLE log ADD COLUMN created INTEGER;

-- A replacement or deletion has the number of the plant's event before it, or 0 if that is not known.
-- A creation has 0. Rows of release 0.2.0 have NULL.
ALTER TABLE log ADD COLUMN prev INTEGER;

-- The events to which no later one and no plant leads: deletions, and those of release 0.2.0. Where
-- an event does not have the one before it, that is the last of these before it.
CREATE INDEX log_unlinked ON log (id) WHERE type = 3 OR prev IS NULL AND type < 3;

-- The index of names: search is 0 if there is none, 1 while it is built, and 2 when it is complete.
-- While it is built, it has the plants with ids before search_next, and search_plants is how many
-- the build has added. It is the FTS5 table names, which a server makes when it needs it. Its rowid
-- is a plant's id, and it has the names of stored.
ALTER TABLE log_state ADD COLUMN search INTEGER NOT NULL DEFAULT 0;
ALTER TABLE log_state ADD COLUMN search_next INTEGER NOT NULL DEFAULT 0;
ALTER TABLE log_state ADD COLUMN search_plants INTEGER NOT NULL DEFAULT 0;

-- Every plant, flushed or not.
DROP VIEW plants;
CREATE VIEW plants AS
  SELECT id, name, tag, seq, updated, created FROM stored
  WHERE id NOT IN (SELECT id FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3)
  UNION ALL
  SELECT id, name, tag, seq, time, CASE type WHEN 2 THEN coalesce(created, 0) END FROM log
  WHERE type <> 3 AND seq IN (SELECT max(seq) FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3 GROUP BY id);
