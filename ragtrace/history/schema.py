"""The file: its tables, and whether a file is one of ours."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from time import monotonic, sleep
from typing import Final
from urllib.request import pathname2url

from ragtrace.core.errors import RagtraceError
from ragtrace.system.sqlite_files import create_file, using_sqlite

APPLICATION: Final = 0x52414748
"""`application_id` of the database, by which it is told from other programs'."""
VERSION: Final = 1
TABLES: Final = f"""
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
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""
OF_A_CALL: Final = ("results", "evaluations", "evidence", "bodies", "calls")
"""Tables with rows of one call, by `number`; the call itself last."""
IN_A_BODY: Final = ("query", "answer", "reference", "conversation_id", "error", "cut_chars", "streamed", "abandoned")
"""Fields of a `RagCall` that are kept as they are."""
_PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.02


class StoreError(RagtraceError):
    """A file is no history of ours, or cannot be read or written."""


def create(path: str) -> None:
    """Make the file, readable by its owner alone, or see that it is one of ours.

    Raises:
        StoreError: it is another program's, or of a later version.
        OSError, sqlite3.Error: it cannot be used.
    """
    create_file(path)
    deadline = monotonic() + _PATIENCE_SECONDS
    while not _created(path, deadline):
        sleep(_PAUSE_SECONDS)


def _created(path: str, deadline: float) -> bool:
    """Whether it is there; False if somebody else is at it, before *deadline*."""
    try:
        _create(path)
    except sqlite3.OperationalError as error:
        # Where several processes start at once, the change to WAL fails without waiting for the others.
        if "locked" not in str(error) or monotonic() > deadline:
            raise
        return False
    return True


def _create(path: str) -> None:
    with using_sqlite(), closing(connect(path)) as database:
        if check(database, path):
            return
        if database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            database.execute("PRAGMA journal_mode = WAL")
        # Two processes that start at once must not both find it missing.
        database.execute("BEGIN IMMEDIATE")
        for statement in TABLES.strip().split(";\n"):
            database.execute(statement)
        database.execute("COMMIT")


def check(database: sqlite3.Connection, path: str) -> bool:
    """Whether *database* is a history of ours; False if it is empty.

    Raises:
        StoreError: it is something else.
    """
    # Tables first: who makes them sets the others in the same transaction, perhaps at this very moment.
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if tables and (application != APPLICATION or version > VERSION):
        whose = "of a later version of ragtrace" if application == APPLICATION else "another program's"
        raise StoreError(f"the history is a database {whose}, got {path!r}; name another file")
    return bool(tables)


def connect(path: str, timeout: float = 5.0) -> sqlite3.Connection:
    """A connection for writing to a file that exists, from any thread; *timeout*: seconds to wait for other writers."""
    # Not made if it is missing: SQLite would make it readable by all. No transaction but those that we begin.
    uri = f"file:{pathname2url(os.path.abspath(path))}?mode=rw"
    database = sqlite3.connect(uri, timeout=timeout, isolation_level=None, uri=True, check_same_thread=False)
    # What a transaction has written outlives this process; that it outlives the machine is not worth a sync.
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def connect_to_read(path: str) -> sqlite3.Connection:
    """A connection that cannot change anything.

    Raises:
        StoreError: there is no such file, or it is no history of ours.
        sqlite3.Error: it cannot be read.
    """
    if not os.path.isfile(path):
        raise StoreError(f"there is no history, got {path!r}; name the file that configure(store=...) was given")
    # A file on a read-only disk has nobody who writes to it.
    still = not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK) and not os.path.exists(f"{path}-wal")
    uri = f"file:{pathname2url(os.path.abspath(path))}?mode=ro{'&immutable=1' * still}"
    database = sqlite3.connect(uri, timeout=5.0, isolation_level=None, uri=True)
    try:
        if not check(database, path):
            raise StoreError(f"the file holds no history yet, got {path!r}; it does once a call was scored")
    except BaseException:
        database.close()
        raise
    return database
