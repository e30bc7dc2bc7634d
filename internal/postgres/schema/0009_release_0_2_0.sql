-- The tables that earlier releases write get other names: their servers that still run do not
-- look at the schema again, and must fail instead of writing what this release would misread.
-- Without tokens they refuse every request. The view is for people to read. It has a WITH, so
-- that PostgreSQL lets nobody write to it.
ALTER TABLE plants RENAME TO stored_plants;
ALTER TABLE tokens RENAME TO stored_tokens;
ALTER TABLE webhooks RENAME TO stored_webhooks;
CREATE VIEW plants AS WITH stored AS (SELECT id, name, tag FROM stored_plants) SELECT id, name, tag FROM stored;

-- Only a release that supports the schema oldest_writer or a later one may write. Every
-- transaction that writes sets oldest_writer to NULL if its release does not, which fails. A
-- later step that no release before schema N may write to has
--   UPDATE log_state SET oldest_writer = N;
-- and this column and the table plantstore_schema stay as they are in every schema.
ALTER TABLE log_state ADD COLUMN oldest_writer integer NOT NULL DEFAULT 9;

-- The number of plants per tag is counted when it is asked for.
ALTER TABLE log DROP COLUMN tag_key, DROP COLUMN tag_text, DROP COLUMN tag_plants, DROP COLUMN tag_size;
DROP TABLE tags, tags_state;

-- Text is escaped by escape.go in the order of its bytes: U+0000 is stored as U+0001 U+0001,
-- and U+0001 as U+0001 U+0002. So far, U+241B U+241B, U+241B U+2400 and U+2400 stood for
-- U+241B, U+2400 and U+0000. The innermost replacement comes first. A token in the log is JSON,
-- which has its own escapes.
CREATE FUNCTION new_escape(stored text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT replace(replace(replace(replace(replace(replace(replace(stored,
    chr(1), chr(1) || chr(2)),
    chr(9243) || chr(9243), chr(1) || chr(3)),
    chr(9243) || chr(9216), chr(1) || chr(4)),
    chr(9216), chr(1) || chr(5)),
    chr(1) || chr(3), chr(9243)),
    chr(1) || chr(4), chr(9216)),
    chr(1) || chr(5), chr(1) || chr(1))
$$;
UPDATE stored_plants SET name = new_escape(name), tag = new_escape(tag)
WHERE name <> new_escape(name) OR tag <> new_escape(tag);
UPDATE stored_tokens SET name = new_escape(name) WHERE name <> new_escape(name);
UPDATE log SET (name, tag) = (
  SELECT array_agg(CASE WHEN e.type < 4 THEN new_escape(e.name) ELSE e.name END ORDER BY n), array_agg(new_escape(e.tag) ORDER BY n)
  FROM unnest(log.type, log.name, log.tag) WITH ORDINALITY AS e (type, name, tag, n)
)
WHERE EXISTS (
  SELECT FROM unnest(log.type, log.name, log.tag) AS e (type, name, tag)
  WHERE e.type < 4 AND (e.name <> new_escape(e.name) OR e.tag <> new_escape(e.tag))
);
DROP FUNCTION new_escape;

-- The size of each row of the log in bytes, as long as its arrays are not compressed, and the
-- sum of them. Rows that exist have none: they are not written again, and do not change.
ALTER TABLE log ADD COLUMN bytes bigint;
ALTER TABLE log_state ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
UPDATE log_state SET bytes = (
  SELECT coalesce(sum(70 + pg_column_size("by") + pg_column_size(type) + pg_column_size(id) + pg_column_size(name) + pg_column_size(tag)), 0) FROM log
);

-- create_plants adds plants and appends that to the log, as one batch. It locks what others lock
-- in the same order, and inserts plants in the order of their ids, so that two transactions never
-- deadlock. If one of the ids is taken, it changes nothing: it returns false if there is no other,
-- and fails with unique_violation if there are. A single plant needs no sort and no set of rows,
-- which take nearly as long as the insert. If log_state has no row, the event has no number, and
-- the insert fails. The caller's release supports schemas up to supported.
CREATE FUNCTION create_plants(new_id bigint[], new_name text[], new_tag text[], new_by text[], supported integer)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  n integer := cardinality(new_id);
  new_type smallint[] := array_fill(1::smallint, ARRAY[n]);
  size bigint := 70 + pg_column_size(new_by) + pg_column_size(new_type) + pg_column_size(new_id) + pg_column_size(new_name) + pg_column_size(new_tag);
  last_seq bigint;
  last_time bigint;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF n = 1 THEN
    INSERT INTO stored_plants (id, name, tag) VALUES (new_id[1], new_name[1], new_tag[1]) ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
      RETURN false;
    END IF;
  ELSE
    INSERT INTO stored_plants (id, name, tag)
    SELECT id, name, tag FROM unnest(new_id, new_name, new_tag) AS new (id, name, tag) ORDER BY id;
  END IF;
  UPDATE log_state SET oldest_writer = CASE WHEN oldest_writer <= supported THEN oldest_writer END,
    seq = seq + n, plants = plants + n, bytes = bytes + size,
    time = greatest(time, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
  WHERE id = 1 RETURNING seq, time INTO last_seq, last_time;
  INSERT INTO log (first, time, "by", type, id, name, tag, bytes)
  VALUES (last_seq - n + 1, last_time, new_by, new_type, new_id, new_name, new_tag, size);
  RETURN true;
END
$$;

-- Tokens in the order in which they ended or will end, the last those that never will.
CREATE INDEX tokens_by_end ON stored_tokens (coalesce(revoked, expires, 9223372036854775807), seq, revoked);
