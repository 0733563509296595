"""SQLite files that several processes share, and that survive forks, deletion and simultaneous creation.

A child that is forked while another thread is inside SQLite gets SQLite's locks, held for ever. A child that is forked
while a connection is open inherits SQLite's list of the file locks that its process holds, though it holds none: it
then writes without a lock, and what it writes disappears when the parent closes the file. So a fork waits a moment
until no thread of ours is inside, and closes the connections that are kept open. Where that is not possible, every use
of SQLite fails in the child, and what was to be kept is counted as lost.

`sqlite3` is imported on use: there are builds of Python without it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache, partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final
from urllib.request import pathname2url

from ragtrace.system.forks import watch_forks

if TYPE_CHECKING:
    import sqlite3

_CREATE_SECONDS: Final = 5.0
"""Longest wait for another process to create a file, which takes milliseconds unless that process was stopped."""
_PAUSE_SECONDS: Final = 0.01
_FORK_SECONDS: Final = 0.2
"""Longest delay of a fork of the application."""


class SQLiteFileError(Exception):
    """Raised when a SQLite file is missing, or belongs to another program or a later version of ragtrace."""


class ForkGate:
    """Lock that delays a fork of the process while threads are using SQLite.

    Args:
        patience: seconds that a fork waits for the threads inside.
    """

    def __init__(self, patience: float = _FORK_SECONDS) -> None:
        self._patience = patience
        self._thread = threading.local()
        self.connections: set[ForkSafeConnection] = set()
        """Open connections, which are closed before a fork."""
        self._open(passable=True)

    def _open(self, *, passable: bool) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside, self._forking, self._passable = 0, False, passable

    @contextmanager
    def delay_forks(self) -> Generator[None, None, None]:
        """Delay forks of the process while a `with` block uses SQLite, for `patience` seconds at most.

        Raises:
            sqlite3.OperationalError: this process was forked while another thread was inside.
        """
        depth: int = getattr(self._thread, "depth", 0)
        if not depth:
            with self._changed:
                if not self._passable:
                    import sqlite3

                    raise sqlite3.OperationalError("this process was forked while SQLite was in use, and cannot use it")
                self._changed.wait_for(lambda: not self._forking)
                self._inside += 1
        self._thread.depth = depth + 1
        try:
            yield
        finally:
            self._thread.depth = depth
            if not depth:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

    def before_fork(self) -> None:
        """Stop threads from starting to use SQLite before a fork, and wait for threads that are using it.

        The lock is held until `go_on`. Open connections are closed.
        """
        self._changed.acquire()
        self._forking = True
        own = int(getattr(self._thread, "depth", 0) > 0)
        if self._changed.wait_for(lambda: self._inside <= own, timeout=self._patience) and not own:
            for connection in list(self.connections):
                connection.close_for_fork()

    def go_on(self, *, child: bool) -> None:
        """Allow threads to use SQLite again after a fork.

        In a *child*, only if no thread was inside and no connection is open.
        """
        if child:
            self._open(passable=self._passable and self._inside == 0 and not self.connections)
            return
        self._forking = False
        self._changed.notify_all()
        self._changed.release()


@cache
def _fork_gate() -> ForkGate:
    gate = ForkGate()
    watch_forks(
        before=gate.before_fork, in_parent=partial(gate.go_on, child=False), in_child=partial(gate.go_on, child=True)
    )
    return gate


def delay_forks() -> AbstractContextManager[None]:
    """Delay forks of the process while a `with` block uses SQLite.

    Raises `sqlite3.OperationalError` if this process cannot use SQLite.
    """
    return _fork_gate().delay_forks()


class ForkSafeConnection:
    """Connection to one SQLite file that stays open between uses and is closed before the process forks.

    Args:
        connect: opens the file; the connection must be usable from any thread (`check_same_thread=False`).
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._database: sqlite3.Connection | None = None

    @contextmanager
    def use(self) -> Generator[sqlite3.Connection, None, None]:
        """Yield the open SQLite connection, and delay forks of the process while it is used.

        Raises:
            sqlite3.Error: the file cannot be opened, or this process cannot use SQLite.
        """
        with delay_forks():
            if self._database is None:
                self._database = self._connect()
                _fork_gate().connections.add(self)
            yield self._database

    @property
    def is_open(self) -> bool:
        """Whether the SQLite connection is open now; a fork closes it."""
        return self._database is not None

    def close(self) -> None:
        """Close the SQLite connection; the next use opens it again."""
        with delay_forks():
            self._close()

    def close_for_fork(self) -> None:
        """Close the SQLite connection just before the process forks, on the thread that forks.

        No other thread uses SQLite meanwhile.
        """
        import sqlite3

        database: Any = self._database
        with suppress(sqlite3.Error):
            if hasattr(database, "setconfig"):  # from Python 3.12 on: a checkpoint would wait for the disk
                database.setconfig(vars(sqlite3)["SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE"], True)
            self._close()

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
            _fork_gate().connections.discard(self)


class SQLiteFile:
    """SQLite file of ragtrace: creates it, opens connections to it and rejects files of other programs.

    Files are recognized by their application id.

    Args:
        path: the file.
        kind: name of such a file in messages: "spool", "history".
        application: `PRAGMA application_id` of such files, by which they are told from other programs'.
        version: latest `PRAGMA user_version` that this release reads.
        tables: statements that create its tables; each is `CREATE ... IF NOT EXISTS`.
    """

    def __init__(self, path: str, kind: str, *, application: int, version: int, tables: str) -> None:
        self.path, self.kind, self._application, self._version = path, kind, application, version
        self._tables = tables

    def create(self) -> None:
        """Create the database file with its tables, or check that the existing file belongs to ragtrace.

        Only the owner of a new file can read it.

        Raises:
            SQLiteFileError: the file is another program's, or of a later version.
            OSError, sqlite3.Error: the file cannot be used.
        """
        import sqlite3

        create_file(self.path)
        deadline = monotonic() + _CREATE_SECONDS
        while True:
            try:
                return self._create_tables()
            except sqlite3.OperationalError as error:
                # Where several processes start at once, the change to WAL fails without waiting for the others.
                if "locked" not in str(error) or monotonic() > deadline:
                    raise
            sleep(_PAUSE_SECONDS)

    def _create_tables(self) -> None:
        with delay_forks(), closing(self.connect()) as database:
            if self.has_tables(database):
                return
            if database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                database.execute("PRAGMA journal_mode = WAL")
            # In one transaction with the ids: a process that looks meanwhile must not take the file for foreign.
            with transaction(database):
                for statement in self._tables.strip().split(";\n"):
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {self._application}")
                database.execute(f"PRAGMA user_version = {self._version}")

    def has_tables(self, database: sqlite3.Connection) -> bool:
        """Return whether *database* has ragtrace's tables; False if it is empty.

        Raises:
            SQLiteFileError: it is another program's, or of a later version.
        """
        # Tables first: a process that creates the tables right now sets the ids in the same transaction.
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if tables and (application != self._application or version > self._version):
            owner = "a later version of ragtrace" if application == self._application else "another program"
            raise SQLiteFileError(f"the {self.kind} is a database of {owner}, got {self.path!r}; name another file")
        return bool(tables)

    def connect(self, timeout: float = 5.0) -> sqlite3.Connection:
        """Return a connection that can write to the existing database file, usable from any thread.

        Args:
            timeout: seconds to wait for other writers.
        """
        import sqlite3

        # Mode rw, as SQLite would create a missing file readable by all. No isolation level: no implicit transaction.
        uri = f"file:{pathname2url(os.path.abspath(self.path))}?mode=rw"
        database = sqlite3.connect(
            uri, timeout=max(0.0, timeout), isolation_level=None, uri=True, check_same_thread=False
        )
        # A commit survives the end of this process; surviving a power failure is not worth a sync each.
        database.execute("PRAGMA synchronous = NORMAL")
        return database

    def connect_to_read(self) -> sqlite3.Connection:
        """Return a read-only connection to the existing database file.

        Raises:
            SQLiteFileError: there is no such file, or it is none of ours.
            sqlite3.Error: the file cannot be read.
        """
        import sqlite3

        if not os.path.isfile(self.path):
            raise SQLiteFileError(f"there is no {self.kind} at {self.path!r}; name the file that configure() got")
        # A file on a read-only disk has no process that writes to it.
        still = not os.access(os.path.dirname(os.path.abspath(self.path)), os.W_OK)
        still = still and not os.path.exists(f"{self.path}-wal")
        uri = f"file:{pathname2url(os.path.abspath(self.path))}?mode=ro{'&immutable=1' * still}"
        database = sqlite3.connect(uri, timeout=5.0, isolation_level=None, uri=True)
        try:
            if not self.has_tables(database):
                raise SQLiteFileError(f"the {self.kind} is empty, got {self.path!r}; it fills when a call was scored")
        except BaseException:
            database.close()
            raise
        return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Generator[None, None, None]:
    """Run a `with` block in one write transaction of *database*, which an exception rolls back."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def create_file(path: str) -> bool:
    """Create an empty database file that only its owner can read; return False if the file exists.

    A file that exists is not opened: closing it would take from this process every lock that SQLite has on it.

    Raises:
        OSError: it cannot be created.
    """
    if os.path.exists(path):
        return False
    with _creation_lock(os.path.dirname(os.path.abspath(path))):
        if os.path.exists(path):
            return False
        # Left by a deleted or renamed database: SQLite would take these files for the new database's.
        for suffix in ("-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                os.unlink(path + suffix)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return True


@contextmanager
def _creation_lock(directory: str) -> Generator[None, None, None]:
    """Lock *directory* while a database file is created there, so that other processes of ragtrace wait.

    They wait for `_CREATE_SECONDS` at most.
    """
    try:
        import fcntl
    except ImportError:  # Windows, where a file that is open cannot be deleted or renamed
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        deadline = monotonic() + _CREATE_SECONDS
        while monotonic() < deadline:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                sleep(_PAUSE_SECONDS)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        # Closing is not enough: a child forked meanwhile has a copy of the handle, which would keep the lock.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
