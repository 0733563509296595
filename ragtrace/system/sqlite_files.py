"""SQLite files under forks and deletion.

A child that is forked while another thread is inside SQLite gets SQLite's locks, held for ever. A child that is forked
while a connection is open inherits SQLite's list of the file locks that its process holds, though it holds none: it
then writes without a lock, and what it writes disappears when the parent closes the file. So a fork waits a moment
until no thread of ours is inside, and closes the connections that are kept open. Where that is not possible, every use
of SQLite fails in the child, and what was to be kept is counted as lost.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3

_PATIENCE_SECONDS: Final = 5.0
"""For another process that makes a file: it takes milliseconds, unless it was stopped in the middle of it."""
_PAUSE_SECONDS: Final = 0.01
MOST_SECONDS: Final = 0.2
"""How long a fork of the application is held up at most."""


class Gate:
    """Lets threads in, except while the process forks. Forks are announced by `before_fork` and `after_fork`.

    Args:
        patience: seconds that a fork waits for those who are inside.
    """

    def __init__(self, patience: float = MOST_SECONDS) -> None:
        self._patience = patience
        self._thread = threading.local()
        self._kept: set[KeptOpen] = set()
        self._open(passable=True)

    def _open(self, *, passable: bool) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside, self._forking, self._passable = 0, False, passable

    @contextmanager
    def inside(self) -> Generator[None, None, None]:
        """While the block runs, no fork takes place, unless it takes too long.

        Raises:
            sqlite3.OperationalError: this process was forked while another thread was inside.
        """
        depth: int = getattr(self._thread, "depth", 0)
        if not depth:
            self._enter()
        self._thread.depth = depth + 1
        try:
            yield
        finally:
            self._thread.depth = depth
            if not depth:
                self._leave()

    def _enter(self) -> None:
        with self._changed:
            if not self._passable:
                import sqlite3

                raise sqlite3.OperationalError("this process was forked while SQLite was in use, and cannot use it")
            self._changed.wait_for(lambda: not self._forking)
            self._inside += 1

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def before_fork(self) -> None:
        """Let nobody in any more, and wait for those who are inside; holds the lock until `after_fork`."""
        self._changed.acquire()
        self._forking = True
        own = int(getattr(self._thread, "depth", 0) > 0)
        if self._changed.wait_for(lambda: self._inside <= own, timeout=self._patience) and not own:
            for connection in tuple(self._kept):
                connection.close_for_fork()

    def keep(self, connection: KeptOpen) -> None:
        """Close *connection*, which is open from now on, before the next fork. For a thread that is inside."""
        self._kept.add(connection)

    def let_go(self, connection: KeptOpen) -> None:
        """Forget *connection*, which has been closed."""
        self._kept.discard(connection)

    def after_fork(self, *, child: bool) -> None:
        """Let them in again; in a *child* only if nobody was inside, and no file is open."""
        if child:
            self._open(passable=self._passable and self._inside == 0 and not self._kept)
            return
        self._forking = False
        self._changed.notify_all()
        self._changed.release()


@cache
def _gate() -> Gate:
    gate = Gate()
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(
            before=gate.before_fork,
            after_in_parent=partial(gate.after_fork, child=False),
            after_in_child=partial(gate.after_fork, child=True),
        )
    return gate


def using_sqlite() -> AbstractContextManager[None]:
    """Around whatever calls SQLite, be it to close a file; raises what SQLite raises where it cannot be used."""
    return _gate().inside()


class KeptOpen:
    """Connection to one SQLite file that is kept open between uses, except through a fork.

    Args:
        connect: opens the file; the connection must be usable from any thread (`check_same_thread=False`).
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._database: sqlite3.Connection | None = None

    @contextmanager
    def use(self) -> Generator[sqlite3.Connection, None, None]:
        """The open connection, during which no fork takes place, unless it takes too long.

        Raises:
            sqlite3.Error: the file cannot be opened, or this process cannot use SQLite.
        """
        with using_sqlite():
            if self._database is None:
                self._database = self._connect()
                _gate().keep(self)
            yield self._database

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with using_sqlite():
            self._close()

    def close_for_fork(self) -> None:
        """Close the file on the thread that forks, while no other thread uses SQLite."""
        import sqlite3

        database: Any = self._database
        with suppress(sqlite3.Error):
            if hasattr(database, "setconfig"):  # from Python 3.12 on: to sort the log in would wait for the disk
                database.setconfig(vars(sqlite3)["SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE"], True)
            self._close()

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
            _gate().let_go(self)


def create_file(path: str) -> bool:
    """Make an empty file for a database, readable by its owner alone; False if there is one.

    A file that exists is not opened: closing it would take from this process every lock that SQLite has on it.

    Raises:
        OSError: it cannot be made.
    """
    if os.path.exists(path):
        return False
    with _creating(os.path.dirname(os.path.abspath(path))):
        if os.path.exists(path):
            return False
        # Of a database that was deleted or renamed: SQLite would take them for the new one's.
        for suffix in ("-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                os.unlink(path + suffix)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return True


@contextmanager
def _creating(directory: str) -> Generator[None, None, None]:
    """While the block runs, no other process of ours makes a file in *directory*."""
    try:
        import fcntl
    except ImportError:  # Windows, where a file that is open cannot be deleted or renamed
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        _lock(handle)
        yield
    finally:
        # Not by closing alone: a child that was forked meanwhile has a copy of the handle, and would wait for itself.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock the directory *handle*; after `_PATIENCE_SECONDS`, or on a file system without locks, go on without."""
    deadline = monotonic() + _PATIENCE_SECONDS
    while not _try_lock(handle) and monotonic() < deadline:
        sleep(_PAUSE_SECONDS)


def _try_lock(handle: int) -> bool:
    """Return False if another process has the lock of the directory *handle*."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
