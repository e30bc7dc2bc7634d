-- The version of each plant: updated is the time of its last event, and n the place of that event in
-- its row of the log, from 0 on. created is when the plant was created: NULL if that is the same
-- time, and 0 if it is not known. Plants that have not changed since release 0.2.0 have the version 0.
ALTER TABLE stored_plants ADD COLUMN updated bigint NOT NULL DEFAULT 0, ADD COLUMN n integer NOT NULL DEFAULT 0,
  ADD COLUMN created bigint;
CREATE OR REPLACE VIEW plants AS WITH stored AS (SELECT id, name, tag, updated, coalesce(created, updated) AS created FROM stored_plants)
  SELECT id, name, tag, created, updated FROM stored;

-- What a search compares of a plant: its folded name, escaped. It is NULL if that is the name with its
-- ASCII letters in lower case, if the name is too long for the index of names, and, until the index is
-- built, for plants that have not changed since release 0.2.0.
ALTER TABLE stored_plants ADD COLUMN folded text;

-- The time of the events of a batch, if it has any.
ALTER TABLE batches ADD COLUMN time bigint;

-- Nothing is rewritten for each batch: while a transaction stays open, PostgreSQL can remove none
-- of the old versions of a row, and each batch would walk over all of them. So a row of the log
-- also has the number of plants and the bytes that were ever appended, with this row. Rows of
-- the schema before do not, except the newest.
ALTER TABLE log ADD COLUMN plants bigint, ADD COLUMN total_bytes bigint;
UPDATE log SET plants = log_state.plants, total_bytes = log_state.bytes
FROM log_state WHERE first = (SELECT max(first) FROM log);

-- Each replacement and deletion leads to the plant's event before it: prev has its number, and is NULL
-- for creations, and for events whose plant did not have its version yet. A batch that only creates has
-- no array. A plant leads to its last event by its time, which is that of one batch.
ALTER TABLE log ADD COLUMN prev bigint[];
CREATE UNIQUE INDEX log_time ON log (time) WHERE total_bytes IS NOT NULL;

-- The events to which no later one and no plant leads: deletions, and those of release 0.2.0, of which
-- linked_after is the last. Where an event has no prev, the last of these before it is the one before.
CREATE TABLE unlinked_events (
  id  bigint,
  seq bigint
);
INSERT INTO unlinked_events SELECT id, seq FROM events WHERE type BETWEEN 1 AND 3;
ALTER TABLE unlinked_events ADD CONSTRAINT unlinked_events_pkey PRIMARY KEY (id, seq);
ALTER TABLE log_state ADD COLUMN linked_after bigint NOT NULL DEFAULT 0;
UPDATE log_state SET linked_after = seq;

-- The same for the last event that was trimmed, in one row. Trimming increases its key, so that
-- its last version is found at the end of the index. plants is NULL if that event is in a row of
-- the schema before.
CREATE TABLE log_start (
  seq         bigint PRIMARY KEY,
  time        bigint NOT NULL,
  plants      bigint,
  total_bytes bigint NOT NULL
);
INSERT INTO log_start (seq, time, plants, total_bytes)
SELECT trimmed, trimmed_time, CASE WHEN seq = trimmed THEN plants END, 0 FROM log_state;

-- Every transaction that appends to the log locks the row of log_state, which does not change,
-- after everything else that can block, and reads the end of the log in a statement after that.
-- The lock lasts until the commit is visible, so the order of seq is the order of commits.
ALTER TABLE log_state DROP COLUMN seq, DROP COLUMN time, DROP COLUMN trimmed, DROP COLUMN trimmed_time,
  DROP COLUMN plants, DROP COLUMN bytes;
UPDATE log_state SET oldest_writer = 10;

-- log_end has one row: what the store and its log are after the last event, and where the log
-- starts. It has none if log_state or log_start has none. It looks at the ends of indexes: a plan
-- that was made while a table was tiny would read all of it.
CREATE FUNCTION log_end()
RETURNS TABLE (store text, seq bigint, "time" bigint, plants bigint, total_bytes bigint, trimmed bigint, trimmed_time bigint, bytes bigint)
LANGUAGE plpgsql STABLE ROWS 1 SET enable_seqscan = off AS $$
DECLARE
  start log_start;
BEGIN
  SELECT * INTO start FROM log_start ORDER BY log_start.seq DESC LIMIT 1;
  SELECT log_state.store INTO store FROM log_state WHERE id = 1;
  IF start.seq IS NULL OR store IS NULL THEN
    RETURN;
  END IF;
  SELECT log.first + cardinality(log.type) - 1, log.time, log.plants, log.total_bytes INTO seq, time, plants, total_bytes
  FROM log WHERE log.first > start.seq ORDER BY log.first DESC LIMIT 1;
  IF NOT FOUND THEN
    seq := start.seq;
    time := start.time;
    plants := start.plants;
    total_bytes := start.total_bytes;
  END IF;
  trimmed := start.seq;
  trimmed_time := start.time;
  bytes := total_bytes - start.total_bytes;
  RETURN NEXT;
END
$$;

-- append_log appends the events of a batch to the log, in their order, and returns their time,
-- which is later than that of all others. Their time is to be new_time: plants with it get the time that they
-- have. A plant without a name is taken from the table. added is how many more plants there are.
-- The lock MUST come before everything that follows, in a transaction that is READ COMMITTED:
-- each statement then sees what was appended while the function waited for it.
CREATE FUNCTION append_log(new_by text[], new_type smallint[], new_id bigint[], new_name text[], new_tag text[], prev_time bigint[], prev_n integer[], added integer, new_time bigint, batch uuid)
RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  last record;
  later bigint;
  size bigint;
  new_prev bigint[];
BEGIN
  PERFORM FROM log_state WHERE id = 1 FOR UPDATE;
  SELECT * INTO STRICT last FROM log_end();
  IF array_position(new_name, NULL) IS NOT NULL THEN
    SELECT array_agg(coalesce(new.name, (SELECT name FROM stored_plants WHERE id = new.id)) ORDER BY new.n),
      array_agg(CASE WHEN new.name IS NULL THEN (SELECT tag FROM stored_plants WHERE id = new.id) ELSE new.tag END ORDER BY new.n)
    INTO new_name, new_tag FROM unnest(new_id, new_name, new_tag) WITH ORDINALITY AS new (id, name, tag, n);
  END IF;
  IF last.time >= new_time THEN
    later := last.time + 1;
    IF batch IS NOT NULL THEN -- or it is about a token
      UPDATE stored_plants SET updated = later WHERE id = ANY (new_id) AND updated = new_time;
    END IF;
    new_time := later;
  END IF;
  size := 70 + pg_column_size(new_by) + pg_column_size(new_type) + pg_column_size(new_id) + pg_column_size(new_name) + pg_column_size(new_tag);
  IF prev_n IS NOT NULL THEN
    SELECT array_agg(CASE WHEN prev.time IS NULL THEN last.seq + 1 ELSE (SELECT first FROM log WHERE log.time = prev.time AND log.total_bytes IS NOT NULL) END + prev.n ORDER BY i)
    INTO new_prev FROM unnest(prev_time, prev_n) WITH ORDINALITY AS prev (time, n, i);
    size := size + pg_column_size(new_prev);
    INSERT INTO unlinked_events SELECT id, last.seq + i FROM unnest(new_id, new_type) WITH ORDINALITY AS new (id, type, i) WHERE type = 3;
  END IF;
  INSERT INTO log (first, time, "by", type, id, name, tag, prev, bytes, plants, total_bytes)
  VALUES (last.seq + 1, new_time, new_by, new_type, new_id, new_name, new_tag, new_prev, size, last.plants + added, last.total_bytes + size);
  UPDATE batches SET time = new_time WHERE id = batch;
  RETURN new_time;
END
$$;

-- create_plants adds plants and appends that to the log, as one batch, and returns the time of its
-- events, which is earliest or later. It locks what others lock in the same order, and inserts plants in
-- the order of their ids, so that two transactions never deadlock. If one of the ids is taken, it
-- changes nothing: it returns NULL if there is no other, and fails with unique_violation if there are.
-- It also fails so in a transaction with one snapshot that is older than the end of the log. A single
-- plant needs no sort and no set of rows, which take nearly as long as the insert, and a call of
-- log_end would take as long. The time is chosen before the plants are inserted, and is rarely too
-- early once the log is locked. The caller's release supports schemas up to supported: if it may not
-- write, it fails as [fence] does. new_folded is NULL if every folded is.
DROP FUNCTION create_plants(bigint[], text[], text[], text[], integer);
CREATE FUNCTION create_plants(new_id bigint[], new_name text[], new_tag text[], new_folded text[], new_by text[], earliest bigint, supported integer)
RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  count integer := cardinality(new_id);
  new_type smallint[] := array_fill(1::smallint, ARRAY[count]);
  size bigint := 70 + pg_column_size(new_by) + pg_column_size(new_type) + pg_column_size(new_id) + pg_column_size(new_name) + pg_column_size(new_tag);
  new_time bigint := greatest(earliest, (date_part('epoch', clock_timestamp()) * 1000000)::bigint);
  oldest integer;
  last_seq bigint;
  last_time bigint;
  last_plants bigint;
  last_bytes bigint;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF count = 1 THEN
    INSERT INTO stored_plants (id, name, tag, folded, updated) VALUES (new_id[1], new_name[1], new_tag[1], new_folded[1], new_time) ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
  ELSE
    INSERT INTO stored_plants (id, name, tag, folded, updated, n)
    SELECT new.id, new.name, new.tag, new.folded, new_time, new.n - 1
    FROM unnest(new_id, new_name, new_tag, new_folded) WITH ORDINALITY AS new (id, name, tag, folded, n) ORDER BY new.id;
  END IF;
  SELECT oldest_writer INTO STRICT oldest FROM log_state WHERE id = 1 FOR UPDATE;
  IF oldest > supported THEN
    UPDATE log_state SET oldest_writer = NULL WHERE id = 1;
  END IF;
  SELECT first + cardinality(type) - 1, time, plants, total_bytes INTO last_seq, last_time, last_plants, last_bytes
  FROM log ORDER BY first DESC LIMIT 1;
  IF NOT FOUND THEN
    SELECT seq, time, plants, total_bytes INTO last_seq, last_time, last_plants, last_bytes FROM log_start ORDER BY seq DESC LIMIT 1;
  END IF;
  IF last_time >= new_time THEN
    new_time := last_time + 1;
    UPDATE stored_plants SET updated = new_time WHERE id = ANY (new_id);
  END IF;
  INSERT INTO log (first, time, "by", type, id, name, tag, bytes, plants, total_bytes)
  VALUES (last_seq + 1, new_time, new_by, new_type, new_id, new_name, new_tag, size, last_plants + count, last_bytes + size);
  RETURN new_time;
END
$$;

-- A batch that must not be applied twice has a row with the number of the attempt that was
-- committed. The server that applies it has the results of each attempt.
ALTER TABLE batches DROP COLUMN results, ADD COLUMN attempt integer NOT NULL DEFAULT 0;
ALTER TABLE batches ALTER COLUMN attempt DROP DEFAULT;
