-- The version of each plant, which is the number and the time of its last event, and when it was
-- created: NULL if that is the same time, and 0 if it is not known. Plants that have not changed
-- since release 0.2.0 have the version 0.
ALTER TABLE stored ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stored ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stored ADD COLUMN created INTEGER;

-- A replacement has when its plant was created, or 0 if that is not known.
ALTER TABLE log ADD COLUMN created INTEGER;

-- Every plant, flushed or not.
DROP VIEW plants;
CREATE VIEW plants AS
  SELECT id, name, tag, seq, updated, created FROM stored
  WHERE id NOT IN (SELECT id FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3)
  UNION ALL
  SELECT id, name, tag, seq, time, CASE type WHEN 2 THEN coalesce(created, 0) END FROM log
  WHERE type <> 3 AND seq IN (SELECT max(seq) FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3 GROUP BY id);
