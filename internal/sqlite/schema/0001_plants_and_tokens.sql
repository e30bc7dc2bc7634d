CREATE TABLE plants (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  tag  TEXT
) STRICT;

-- Times are Unix seconds; NULL stands for never.
CREATE TABLE tokens (
  seq     INTEGER PRIMARY KEY,
  hash    BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  name    TEXT NOT NULL,
  scopes  TEXT NOT NULL,
  created INTEGER NOT NULL,
  expires INTEGER,
  revoked INTEGER,
  used    INTEGER
) STRICT;
