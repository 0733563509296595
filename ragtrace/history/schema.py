"""Tables of the history file, and the creation and validation of history and spool files."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.system.sqlite_files import SQLiteFile, SQLiteFileError

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS sources (id INTEGER PRIMARY KEY, body TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS evaluators (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, type TEXT NOT NULL, UNIQUE (name, version, type)
);
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, metric TEXT NOT NULL, version TEXT NOT NULL, evaluator INTEGER NOT NULL,
    higher_is_better INTEGER NOT NULL, UNIQUE (metric, version, evaluator, higher_is_better)
);
CREATE TABLE IF NOT EXISTS calls (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    identity BLOB UNIQUE,
    at REAL NOT NULL,
    source INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    model TEXT NOT NULL,
    decision TEXT
);
CREATE INDEX IF NOT EXISTS calls_at ON calls (at);
CREATE TABLE IF NOT EXISTS bodies (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS evaluations (
    number INTEGER NOT NULL, evaluator INTEGER NOT NULL, probability REAL NOT NULL, duration_s REAL NOT NULL,
    n_calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost_usd REAL, error TEXT,
    PRIMARY KEY (number, evaluator)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    number INTEGER NOT NULL, series INTEGER NOT NULL, score REAL, reason TEXT, label TEXT,
    PRIMARY KEY (number, series)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS evidence (number INTEGER NOT NULL, evaluator INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS evidence_number ON evidence (number);
"""
FEEDBACK_TABLE: Final = """
CREATE TABLE IF NOT EXISTS feedback (
    id TEXT PRIMARY KEY, identity BLOB NOT NULL, at REAL NOT NULL, name TEXT NOT NULL, score REAL, label TEXT,
    comment TEXT, correction TEXT, user TEXT
) WITHOUT ROWID
"""
"""SQL of the table with what people said about calls, by the identity of a call, which may not be stored (yet).

The table is created when a history is opened for writing, also in a history of an older release, and older releases
can still read that history.
"""
GUARD_TABLE: Final = """
CREATE TABLE IF NOT EXISTS guard_verdicts (
    number INTEGER PRIMARY KEY, metric TEXT NOT NULL, mode TEXT NOT NULL, verdict TEXT NOT NULL, action TEXT NOT NULL,
    reason TEXT NOT NULL, score REAL, added_s REAL
)
"""
"""SQL of the table with the verdicts of guards on the answers of calls, one a call at most. It is created as
`FEEDBACK_TABLE` is."""
ALERT_TABLE: Final = """
CREATE TABLE IF NOT EXISTS alerts (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, alert TEXT NOT NULL, metric TEXT NOT NULL, problem TEXT NOT NULL,
    direction TEXT NOT NULL, bound REAL NOT NULL, against_baseline INTEGER NOT NULL, workflow TEXT, model TEXT,
    release TEXT NOT NULL, evaluator TEXT NOT NULL, since REAL NOT NULL, seen REAL NOT NULL, ended REAL,
    calls INTEGER NOT NULL, value REAL, low REAL, high REAL, before REAL, is_raw INTEGER NOT NULL
) WITHOUT ROWID
"""
"""SQL of the table with the incidents of alerts, one row for each incident of each process; its columns are the fields
of an `AlertIncident`. It is created as `FEEDBACK_TABLE` is."""
TAG_TABLE: Final = """
CREATE TABLE IF NOT EXISTS tags (
    number INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, type TEXT NOT NULL, PRIMARY KEY (number, name)
) WITHOUT ROWID
"""
TAG_INDEX: Final = "CREATE INDEX IF NOT EXISTS tags_value ON tags (name, value)"
"""SQL of the table with the tags of calls, one row each, and of the index in which the calls with a tag are found. A
value is stored as `tag_text` writes it, beside its type. They are created as `FEEDBACK_TABLE` is."""
TAG_TYPES: Final[Mapping[type, str]] = {bool: "boolean", int: "integer", float: "number", str: "text"}
"""Names under which the types of tags' values are stored. A boolean is an integer for Python, and so comes first."""
OF_A_CALL: Final = ("tags", "guard_verdicts", "results", "evaluations", "evidence", "bodies", "calls")
"""Tables whose rows belong to a call, by `number`. The table of the calls themselves comes last."""
IN_A_BODY: Final = ("query", "answer", "reference", "conversation_id", "error", "cut_chars", "streamed", "abandoned")
"""Fields of a `RagCall` that are stored unchanged in the JSON of a body."""
WHERE_SET: Final = ("answer_cut_chars", "contexts_in_part", "defect")
"""Fields of a `RagCall` that are stored there if they say anything."""


def history_file(path: str) -> SQLiteFile:
    """Return the `SQLiteFile` of the history at *path*, without opening or creating it."""
    return SQLiteFile(path, "history", application=0x52414748, version=1, tables=_TABLES)


def prepare(file: SQLiteFile, origin: str) -> None:
    """Create a history or spool file with its tables, or check that the existing file is one.

    Args:
        file: the file.
        origin: the setting that its path came from, for the error message.

    Raises:
        SettingsError: the file cannot be used.
    """
    try:
        file.create()
    except (OSError, sqlite3.Error, SQLiteFileError) as error:
        raise SettingsError(
            f"the {file.kind} cannot be used: {error}, got {file.path!r} (from {origin}); name a file in a directory "
            "that this process may write to; move a damaged file away"
        ) from error
