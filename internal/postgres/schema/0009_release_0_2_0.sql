-- Text is escaped by escape.go in the order of its bytes: U+0000 is stored as U+0001 U+0001,
-- and U+0001 as U+0001 U+0002. A token in the log is JSON, which has its own escapes.

CREATE TABLE stored_plants (
  id   bigint CONSTRAINT plants_pkey PRIMARY KEY,
  name text NOT NULL,
  tag  text
);

-- The plants, for people to read. The view has a WITH, so that PostgreSQL lets nobody write to it.
CREATE VIEW plants AS WITH stored AS (SELECT id, name, tag FROM stored_plants) SELECT id, name, tag FROM stored;

-- A tag can be longer than an index entry may be, so the index has only its start.
-- COLLATE "C" orders by bytes, the same way on every machine.
CREATE INDEX plants_by_tag ON stored_plants ((left(tag, 100) COLLATE "C"), id) WHERE tag IS NOT NULL;

-- The log of changes, with one row for the events of a batch: one event for each write that
-- changed something, in the order in which they took effect. The arrays have an element for
-- each event; the first event has the number first, and all have the same time. time is Unix
-- microseconds, "by" the public id of the token, type 1 created, 2 replaced, 3 deleted. name
-- and tag are the plant's after the change, or before a deletion. Creating a token is type 4,
-- and revoking one type 5: such an event has the id 0, and the token after the change, as
-- JSON, as its name. bytes is the size of the row, as long as its arrays are not compressed.
CREATE TABLE log (
  first bigint CONSTRAINT log_first PRIMARY KEY,
  time  bigint NOT NULL,
  "by"  text[] NOT NULL,
  type  smallint[] NOT NULL,
  id    bigint[] NOT NULL,
  name  text[] NOT NULL,
  tag   text[] NOT NULL,
  bytes bigint
);

-- The log with a row for each event.
CREATE VIEW events AS
SELECT log.first + e.n - 1 AS seq, log.time, e."by", e.type, e.id, e.name, e.tag
FROM log, unnest(log."by", log.type, log.id, log.name, log.tag) WITH ORDINALITY AS e ("by", type, id, name, tag, n);

-- The end of the log, and how far it has been trimmed, in one row. A transaction that
-- appends to the log updates seq after every other statement that can block, so the
-- order of seq is the order of commits. store identifies this store in cursors. plants is the
-- number of plants, and bytes the sum of the sizes of the log's rows.
--
-- Only a release that supports the schema oldest_writer or a later one may write. Every
-- transaction that writes sets oldest_writer to NULL if its release does not, which fails. A
-- later step that no release before schema N may write to has
--   UPDATE log_state SET oldest_writer = N;
-- and this column and the table plantstore_schema stay as they are in every schema.
CREATE TABLE log_state (
  id            integer PRIMARY KEY,
  store         text NOT NULL,
  seq           bigint NOT NULL,
  time          bigint NOT NULL,
  trimmed       bigint NOT NULL,
  trimmed_time  bigint NOT NULL,
  plants        bigint NOT NULL DEFAULT 0,
  oldest_writer integer NOT NULL DEFAULT 9,
  bytes         bigint NOT NULL DEFAULT 0
);
INSERT INTO log_state VALUES (1, substr(md5(random()::text || clock_timestamp()::text), 1, 10), 0, 0, 0, 0, 0, 9, 0);

-- The results of batches that must not be applied twice, kept for a while. Each is
-- an outcome, or the code of a refusal.
CREATE TABLE batches (
  id      uuid PRIMARY KEY,
  results integer[] NOT NULL,
  at      timestamptz NOT NULL DEFAULT now()
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

-- Times are Unix seconds; NULL stands for never. rate is how many requests the token may
-- make, such as 200/s,burst=400; NULL stands for the server's default.
CREATE TABLE stored_tokens (
  seq     bigint GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME tokens_seq_seq) CONSTRAINT tokens_pkey PRIMARY KEY,
  hash    bytea NOT NULL CONSTRAINT tokens_hash_key UNIQUE CONSTRAINT tokens_hash_check CHECK (length(hash) = 32),
  name    text NOT NULL,
  scopes  text NOT NULL,
  created bigint NOT NULL,
  expires bigint,
  revoked bigint,
  used    bigint,
  rate    text
);

-- Tokens in the order in which they ended or will end, the last those that never will.
CREATE INDEX tokens_by_end ON stored_tokens (coalesce(revoked, expires, 9223372036854775807), seq, revoked);

-- Webhooks, in the order of their creation. value is JSON, in which U+0000 is escaped
-- anyway. It is not jsonb, which rejects it even then.
CREATE TABLE stored_webhooks (
  seq   bigint CONSTRAINT webhooks_pkey PRIMARY KEY,
  id    text NOT NULL CONSTRAINT webhooks_id_key UNIQUE,
  value text NOT NULL
);

-- The last attempts to deliver events to a webhook: a JSON array, the newest first.
CREATE TABLE deliveries (
  webhook text PRIMARY KEY,
  value   text NOT NULL
);
