-- What releases with labels added to a history with feedback.
CREATE TABLE picks (
    identity BLOB NOT NULL, metric TEXT NOT NULL, evaluator TEXT NOT NULL, probability REAL NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (identity, metric)
) WITHOUT ROWID;
CREATE TABLE labels (
    identity BLOB NOT NULL, metric TEXT NOT NULL, reviewer TEXT NOT NULL, label TEXT NOT NULL, comment TEXT,
    statements TEXT, at REAL NOT NULL, PRIMARY KEY (identity, metric, reviewer)
) WITHOUT ROWID;
INSERT INTO picks VALUES(X'000000000000000000000000000000010000000000000065','faithfulness','judge@1',0.5,1700000100.0);
INSERT INTO labels VALUES(X'000000000000000000000000000000010000000000000065','faithfulness','ada','good',NULL,NULL,1700000110.0);
