-- Webhooks, in the order of their creation. value is JSON, in which U+0000 is escaped
-- anyway. It is not jsonb, which rejects it even then.
CREATE TABLE webhooks (
  seq   bigint PRIMARY KEY,
  id    text NOT NULL UNIQUE,
  value text NOT NULL
);

-- The last attempts to deliver events to a webhook: a JSON array, the newest first.
CREATE TABLE deliveries (
  webhook text PRIMARY KEY,
  value   text NOT NULL
);
