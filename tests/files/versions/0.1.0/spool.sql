PRAGMA application_id = 1380009812;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE calls (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    identity TEXT UNIQUE NOT NULL,
    body TEXT NOT NULL,
    owner TEXT,
    lease REAL NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    trying INTEGER NOT NULL DEFAULT 0,
    scores TEXT,
    sent TEXT
);
INSERT INTO "calls" VALUES(1,'00000000000000000000000000000abc0000000000000def','{"call": {"query": "How tall is it?", "contexts": [{"text": "It is 330 metres tall.", "id": "d1", "score": 0.5, "duplicate": false, "cut_chars": 0}], "answer": "330 metres.", "reference": null, "workflow": "support", "conversation_id": "c-1", "model": "small-1", "timing": {"duration_s": 1.0, "first_s": 0.5, "last_s": null, "consumer_wait_s": 0.0}, "usage": {"input_tokens": 3, "output_tokens": 4}, "error": null, "streamed": false, "abandoned": false, "cut_chars": 0, "answer_cut_chars": 0, "contexts_in_part": false, "reasoning_chars": 0, "reference_contexts": null, "turns": [{"role": "user", "text": "Hello"}, {"role": "assistant", "text": "Hi"}], "runs": null, "parts": null, "total_usage": null, "context_source": "", "defect": "", "earlier_turns": null, "answer_captured": true, "tags": {}, "route": ""}, "span": {"trace": "abc", "span": "def", "flags": 1, "state": ""}, "open": ["judge"], "response_id": "response-1", "probability": 0.25, "reason": ""}',NULL,0.0,0,0,NULL,NULL);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('calls',1);
COMMIT;
