-- What releases with feedback added to a history of version 1.
CREATE TABLE feedback (
    id TEXT PRIMARY KEY, identity BLOB NOT NULL, at REAL NOT NULL, name TEXT NOT NULL, score REAL, label TEXT,
    comment TEXT, correction TEXT, user TEXT
) WITHOUT ROWID;
INSERT INTO feedback VALUES('f1',X'000000000000000000000000000000010000000000000065',1700000090.0,'user_feedback',1.0,'thumbs_up','good',NULL,'u');
