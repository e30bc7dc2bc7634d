-- The log has changes to tokens, too: type 4 created, 5 revoked. Such a row has the id 0,
-- and the token after the change, as JSON, as its name.

-- How many requests the token may make, such as 200/s,burst=400. NULL stands for the
-- server's default.
ALTER TABLE tokens ADD COLUMN rate text;
