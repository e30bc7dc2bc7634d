-- Webhooks, in the order of their creation. value is JSON.
CREATE TABLE webhooks (
  seq   INTEGER PRIMARY KEY,
  id    TEXT NOT NULL UNIQUE,
  value TEXT NOT NULL
) STRICT;

-- The last attempts to deliver events to a webhook: a JSON array, the newest first.
CREATE TABLE deliveries (
  webhook TEXT PRIMARY KEY,
  value   TEXT NOT NULL
) STRICT;
