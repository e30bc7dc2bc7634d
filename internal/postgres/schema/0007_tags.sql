-- How many plants have each tag. Only a transaction that has updated log_state may change
-- it. A tag is stored so that its order is that of its bytes, with U+0000 as U+0001
-- U+0001, and U+0001 as U+0001 U+0002. It can be longer than an index entry may be, so its
-- key is the start of the SHA-256 of what is stored. The free space is for updates in
-- place.
CREATE TABLE tags (
  key    bytea PRIMARY KEY,
  tag    text COLLATE "C" NOT NULL,
  plants bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX tags_in_order ON tags (left(tag, 500));

-- The innermost replacement comes first: U+241B U+241B, U+241B U+2400 and U+2400 stand
-- for U+241B, U+2400 and U+0000 in the table plants.
INSERT INTO tags (key, tag, plants)
SELECT substring(sha256(convert_to(tag, 'UTF8')) FROM 1 FOR 16), tag, plants FROM (
  SELECT
    replace(replace(replace(replace(replace(replace(replace(tag,
      chr(1), chr(1) || chr(2)),
      chr(9243) || chr(9243), chr(1) || chr(3)),
      chr(9243) || chr(9216), chr(1) || chr(4)),
      chr(9216), chr(1) || chr(5)),
      chr(1) || chr(3), chr(9243)),
      chr(1) || chr(4), chr(9216)),
      chr(1) || chr(5), chr(1) || chr(1)) AS tag,
    plants
  FROM (SELECT tag, count(*) AS plants FROM plants WHERE tag IS NOT NULL GROUP BY tag) AS counted
) AS stored;
