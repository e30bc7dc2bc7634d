-- SQLite appends the id to every entry, so the plants of one tag are in order of id.
CREATE INDEX plants_by_tag ON plants (tag) WHERE tag IS NOT NULL;
