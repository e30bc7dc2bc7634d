-- How many plants there are. Changing the table waits for every transaction that has
-- updated the row, and whoever has not yet adds its own afterwards.
ALTER TABLE log_state ADD COLUMN plants bigint NOT NULL DEFAULT 0;
UPDATE log_state SET plants = (SELECT count(*) FROM plants);
