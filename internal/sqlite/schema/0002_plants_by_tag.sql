-- SQLite appends the id to every entry, so one tag's plants come in order of id.
CREATE INDEX plants_by_tag ON plants (tag) WHERE tag IS NOT NULL;
