-- The plants of stored that have a tag, in order of tag and id. An index would be brought
-- up to date with every plant that is flushed. This table is brought up to date once for
-- every generation, after its plants and in its own order. So it may be behind stored, but
-- only for plants that the log has after the row flushed.
CREATE TABLE stored_by_tag (
  tag TEXT NOT NULL,
  id  INTEGER NOT NULL,
  PRIMARY KEY (tag, id)
) STRICT, WITHOUT ROWID;
INSERT INTO stored_by_tag SELECT tag, id FROM stored WHERE tag IS NOT NULL ORDER BY tag, id;
DROP INDEX plants_by_tag;
