PRAGMA application_id = 1380009800;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE bodies (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
INSERT INTO "bodies" VALUES(1,'{"query": "question 1?", "answer": "Paris is big.", "reference": null, "conversation_id": null, "error": null, "cut_chars": 0, "streamed": false, "abandoned": false, "input_tokens": 1, "output_tokens": 2, "duration_s": 1.5, "contexts": [{"text": "Paris is a big city.", "id": "1", "score": 0.5, "duplicate": false}, {"text": "Mars is a planet.", "id": null, "score": null, "duplicate": false}]}');
INSERT INTO "bodies" VALUES(2,'{"query": "question 2?", "answer": "Paris is big.", "reference": null, "conversation_id": "c", "error": null, "cut_chars": 0, "streamed": false, "abandoned": false, "input_tokens": 1, "output_tokens": 2, "duration_s": 1.5, "contexts": [{"text": "Paris is a big city.", "id": "1", "score": 0.5, "duplicate": false}, {"text": "Mars is a planet.", "id": null, "score": null, "duplicate": false}]}');
CREATE TABLE calls (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    identity BLOB UNIQUE,
    at REAL NOT NULL,
    source INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    model TEXT NOT NULL,
    decision TEXT
);
INSERT INTO "calls" VALUES(1,X'000000000000000000000000000000010000000000000065',1700000000.0,1,'guide','tiny','sampled');
INSERT INTO "calls" VALUES(2,X'000000000000000000000000000000020000000000000066',1700000060.0,1,'guide','tiny','not_sampled');
CREATE TABLE evaluations (
    number INTEGER NOT NULL, evaluator INTEGER NOT NULL, probability REAL NOT NULL, duration_s REAL NOT NULL,
    n_calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_usd REAL, error TEXT,
    PRIMARY KEY (number, evaluator)
) WITHOUT ROWID;
INSERT INTO "evaluations" VALUES(1,1,0.25,1.5,1,20,30,0.001,NULL);
CREATE TABLE evaluators (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, type TEXT NOT NULL, UNIQUE (name, version, type)
);
INSERT INTO "evaluators" VALUES(1,'judge','1','llm_judge');
CREATE TABLE evidence (number INTEGER NOT NULL, evaluator INTEGER NOT NULL, body TEXT NOT NULL);
INSERT INTO "evidence" VALUES(1,1,'{"claims": [{"start": 0, "end": 13, "support": "supported", "checkable": true, "unsupported": [], "evidence": [0], "score": 0.9, "text": "Paris is big.", "quote": ""}], "explanations": {"answered": "because"}}');
CREATE TABLE results (
    number INTEGER NOT NULL, series INTEGER NOT NULL, score REAL, reason TEXT, label TEXT,
    PRIMARY KEY (number, series)
) WITHOUT ROWID;
INSERT INTO "results" VALUES(1,1,1.0,NULL,NULL);
INSERT INTO "results" VALUES(1,2,NULL,'abstained',NULL);
CREATE TABLE series (
    id INTEGER PRIMARY KEY, metric TEXT NOT NULL, version TEXT NOT NULL, evaluator INTEGER NOT NULL,
    higher_is_better INTEGER NOT NULL, UNIQUE (metric, version, evaluator, higher_is_better)
);
INSERT INTO "series" VALUES(1,'faithfulness','1',1,1);
INSERT INTO "series" VALUES(2,'answered','1',1,1);
CREATE TABLE sources (id INTEGER PRIMARY KEY, body TEXT UNIQUE NOT NULL);
INSERT INTO "sources" VALUES(1,'{"judge": "judge@1", "judged": ["faithfulness"], "release": "1.0", "screen": "embedded@3", "screened": ["consistency"], "service": "shop"}');
CREATE INDEX calls_at ON calls (at);
CREATE INDEX evidence_number ON evidence (number);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('calls',2);
COMMIT;
