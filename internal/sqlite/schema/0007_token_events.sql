-- The log has changes to tokens, too: type 4 created, 5 revoked. Such a row has the id 0,
-- and the token after the change, as JSON, as its name.
DROP VIEW plants;
CREATE VIEW plants AS
  SELECT id, name, tag FROM stored
  WHERE id NOT IN (SELECT id FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3)
  UNION ALL
  SELECT id, name, tag FROM log
  WHERE type <> 3 AND seq IN (SELECT max(seq) FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3 GROUP BY id);

-- How many requests the token may make, such as 200/s,burst=400. NULL stands for the
-- server's default.
ALTER TABLE tokens ADD COLUMN rate TEXT;
