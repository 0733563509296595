"""The file itself: made once by whoever comes first, opened for each operation and closed again."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from time import monotonic, sleep
from typing import Final
from urllib.request import pathname2url

from ragtrace.core.errors import SettingsError
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import create_file, using_sqlite

_APPLICATION: Final = 0x52414754
"""`application_id` of the database, by which it is told from other programs'."""
_VERSION: Final = 2
_PATIENCE_SECONDS: Final = 5.0
"""How long other processes may take to make the file."""
_PAUSE_SECONDS: Final = 0.02
_SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS calls (
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
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""
_FROM_VERSION_1: Final = """
ALTER TABLE calls ADD COLUMN trying INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN scores TEXT;
ALTER TABLE calls ADD COLUMN sent TEXT;
"""


class Database:
    """An SQLite database at *path*, shared with other processes."""

    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(self, origin: str) -> None:
        """Make the file, or see that it is one of ours.

        Args:
            origin: where the path came from, for the message.

        Raises:
            SettingsError: it cannot be used.
        """
        try:
            self._make(origin)
        except (OSError, sqlite3.Error) as error:
            raise SettingsError(
                f"the spool cannot be used: {error}, got {self.path!r} (from {origin}); name a file in a directory "
                "that this process may write to; move a damaged file away"
            ) from error

    def _make(self, origin: str) -> None:
        create_file(self.path)
        deadline = monotonic() + _PATIENCE_SECONDS
        while not self._made(origin, deadline):
            sleep(_PAUSE_SECONDS)

    def _made(self, origin: str, deadline: float) -> bool:
        """Whether the tables are there; False if another process is making them, before *deadline*."""
        try:
            with self._connect(5.0) as database:
                self._check(database, origin)
                database.execute("PRAGMA journal_mode = WAL")
                # In one transaction: whoever looks in between must not take the file for another program's.
                database.execute("BEGIN IMMEDIATE")
                (version,) = database.execute("PRAGMA user_version").fetchone()
                for statement in ((_FROM_VERSION_1 if version == 1 else "") + _SCHEMA).split(";"):
                    database.execute(statement)
                database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            # Where several processes start at once, the change to WAL fails without waiting for the others.
            if "locked" not in str(error) or monotonic() > deadline:
                raise
            return False
        return True

    def _check(self, database: sqlite3.Connection, origin: str) -> None:
        # Tables first: who makes them sets the others in the same transaction, perhaps at this very moment.
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if tables and (application != _APPLICATION or version > _VERSION):
            whose = "a later version of ragtrace" if application == _APPLICATION else "another program"
            raise SettingsError(
                f"the spool is a database of {whose}, got {self.path!r} (from {origin}); name another file"
            )

    @contextmanager
    def connect(self, timeout: float) -> Generator[sqlite3.Connection, None, None]:
        """A connection for reading; the file is made again if it was deleted."""
        if not os.path.exists(self.path):
            faults.warn_once(
                "spool: deleted",
                "the spool %r was deleted while it was in use, with the calls in it, and is made anew; every further "
                "time is counted in ragtrace.stats().faults",
                self.path,
            )
            self._make("spool=")
        with self._connect(timeout) as database:
            yield database

    @contextmanager
    def _connect(self, timeout: float) -> Generator[sqlite3.Connection, None, None]:
        # Not made if it is missing: SQLite would make it readable by all. No transaction but those that we begin.
        uri = f"file:{pathname2url(os.path.abspath(self.path))}?mode=rw"
        with (
            using_sqlite(),
            closing(sqlite3.connect(uri, timeout=max(0.0, timeout), isolation_level=None, uri=True)) as database,
        ):
            yield database

    @contextmanager
    def transaction(self, timeout: float) -> Generator[sqlite3.Connection, None, None]:
        """A connection for writing, which nobody else may meanwhile; an exception undoes what was written.

        Args:
            timeout: seconds to wait for others who write.
        """
        with self.connect(timeout) as database:
            # What a transaction has written outlives this process; that it outlives the machine is not worth a sync.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
