-- What became of the writes of a batch that must not be applied twice, kept for
-- a while: an outcome, or the code of a refusal.
CREATE TABLE batches (
  id      uuid PRIMARY KEY,
  results integer[] NOT NULL,
  at      timestamptz NOT NULL DEFAULT now()
);
