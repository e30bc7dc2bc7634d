-- The results of batches that must not be applied twice, kept for a while. Each is
-- an outcome, or the code of a refusal.
CREATE TABLE batches (
  id      uuid PRIMARY KEY,
  results integer[] NOT NULL,
  at      timestamptz NOT NULL DEFAULT now()
);
