-- The log of changes again, with one row for the events of a batch instead of one row for
-- each. The arrays have an element for each event, in order; the first event has the
-- number first, and all have the same time. The last columns say what the row changes
-- about the number of plants per tag, and approximately how large that is. A tag that only
-- becomes rarer has no text.
ALTER TABLE log RENAME TO old_log;
CREATE TABLE log (
  first      bigint,
  time       bigint NOT NULL,
  "by"       text[] NOT NULL,
  type       smallint[] NOT NULL,
  id         bigint[] NOT NULL,
  name       text[] NOT NULL,
  tag        text[] NOT NULL,
  tag_key    bytea[],
  tag_text   text[],
  tag_plants bigint[],
  tag_size   bigint NOT NULL,
  CONSTRAINT log_first PRIMARY KEY (first)
);
INSERT INTO log (first, time, "by", type, id, name, tag, tag_size)
SELECT seq, time, ARRAY["by"], ARRAY[type], ARRAY[id], ARRAY[name], ARRAY[tag], 0 FROM old_log;
DROP TABLE old_log;

-- The log with a row for each event.
CREATE VIEW events AS
SELECT log.first + e.n - 1 AS seq, log.time, e."by", e.type, e.id, e.name, e.tag
FROM log, unnest(log."by", log.type, log.id, log.name, log.tag) WITH ORDINALITY AS e ("by", type, id, name, tag, n);

-- The table tags has the changes up to this event. Only a transaction that has locked the
-- row may change the two.
CREATE TABLE tags_state (
  id     integer PRIMARY KEY,
  folded bigint NOT NULL
);
INSERT INTO tags_state SELECT 1, seq FROM log_state;
