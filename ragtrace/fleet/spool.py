"""The spool file: a bounded SQLite file of unscored RAG calls, kept until a process has scored them.

Several processes may share the file, and each call is scored at least once. A call is in the file from the time at
which its process could not have it scored until a process, mostly another one, has delivered its scores. To score it, a
process claims its row for a lease, which it renews while it works, and deletes the row afterwards. A process that is
killed in between leaves the row behind: the call is scored, and its scores are sent, a second time under the same score
ids.

Each operation opens the file and closes it again, so that nothing is carried through a fork or from thread to thread. A
process with claims keeps one more connection open, which does nothing and is closed before a fork.
Every operation may raise `sqlite3.Error`: the file is locked for too long, full, damaged or gone.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import threading
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Final, NamedTuple

from ragtrace.core.unscored_call import UnscoredCall, decode, encode
from ragtrace.history.schema import prepare
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import ForkSafeConnection, SQLiteFile, delay_forks, transaction

# Older releases, which may share the file, use the columns trying, scores and sent.
_TABLES: Final = """
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
)
"""
QUARANTINE_TRIES: Final = 5
"""Number of crashes from which a call is retried only when its lease has ended; the lease doubles with each try."""
_MOST_TRIES: Final = 16
"""Number of tries after which a call is deleted unscored; with a lease of a minute, the last are a day apart."""
_ROWS_AT_ONCE: Final = 256
_WRITE_SECONDS: Final = 1.0
"""Seconds to wait for other writers where nobody but the worker's thread waits."""


class ClaimedCall(NamedTuple):
    """Unscored RAG call that this process has claimed from the spool file, with its row number there."""

    number: int
    unscored: UnscoredCall


class SpoolContents(NamedTuple):
    """Number and size of the calls in the spool file, and how many of them are claimed by processes."""

    calls: int
    bytes: int
    claimed: int
    """Number of calls that a process has claimed, even if the process was killed."""


class Spool:
    """Store of unscored RAG calls in a spool file, from which each process claims the calls that it will score.

    Args:
        path: the file; created if there is none, readable by its owner alone.
        most_calls: calls that the file may hold.
        most_bytes: bytes of the calls in the file beyond which no call is added.
        lease: seconds after which a claim that was not renewed is void.
        clock: returns seconds since the epoch, the same for all processes that share the file.
    """

    def __init__(
        self,
        path: str,
        *,
        most_calls: int = 10_000,
        most_bytes: int = 64 * 2**20,
        lease: float = 60.0,
        clock: Callable[[], float] = time,
    ) -> None:
        self.path = path
        self._file = SQLiteFile(path, "spool", application=0x52414754, version=2, tables=_TABLES)
        self._most_calls, self._most_bytes, self._lease, self._clock = most_calls, most_bytes, lease, clock
        self._nonce = uuid.uuid4().hex
        self._suspect: int | None = None
        # Open while this process has claims. When the last connection to a file closes, SQLite locks the file, copies
        # the log into it and waits for the disk; if each use of the file did that, a slow disk would make others fail.
        self._idle_connection = ForkSafeConnection(partial(self._file.connect, 0.2))
        self._idle_lock = threading.Lock()
        self._keeps_open = False

    def prepare(self, origin: str) -> None:
        """Create the spool file, or check that the existing file is one.

        Args:
            origin: where the path came from, for the message.

        Raises:
            SettingsError: it cannot be used.
        """
        prepare(self._file, origin)

    @contextmanager
    def _connection(self, timeout: float) -> Generator[sqlite3.Connection, None, None]:
        if not os.path.exists(self.path):
            faults.warn_once(
                "spool: deleted",
                "the spool %r was deleted while it was in use, with the calls in it, and is made anew; every further "
                "time is counted in ragtrace.stats().faults",
                self.path,
            )
            with delay_forks(), self._idle_lock:
                self._idle_connection.close()  # it is open on the deleted file
            self._file.create()
        with delay_forks():
            self._open_idle_connection()  # also after a fork, which has closed it
            with closing(self._file.connect(timeout)) as database:
                yield database

    @contextmanager
    def _writing(self, timeout: float) -> Generator[sqlite3.Connection, None, None]:
        with self._connection(timeout) as database, transaction(database):
            yield database

    def _open_idle_connection(self) -> None:
        """Open the idle connection while this process has claims, if it is closed and the file can be used."""
        with delay_forks(), self._idle_lock:
            if not self._keeps_open or self._idle_connection.is_open:
                return
            try:
                with self._idle_connection.use() as database:
                    database.execute("SELECT 1 FROM calls LIMIT 1").fetchone()  # SQLite opens the file only now
            except sqlite3.Error:  # without it, the next uses of the file are only slower
                self._idle_connection.close()

    @contextmanager
    def keep_open(self) -> Generator[None, None, None]:
        """Keep a connection to the spool file open for the duration of a `with` block, to make several writes faster.

        SQLite then leaves what is written in the log beside the file, and need not wait for the disk.
        """
        with self._connection(0.02) as database:
            database.execute("SELECT 1 FROM calls LIMIT 1").fetchone()
            yield

    def add(
        self,
        calls: Sequence[UnscoredCall],
        timeout: float = 5.0,
        commit: Callable[[Sequence[bool]], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> list[bool]:
        """Store unscored RAG calls in the spool file, and return for each call whether it was stored.

        A call is not stored if the file is full, or if the call has no span that its scores could be linked to.

        Args:
            calls: the calls.
            timeout: seconds; after them no commit begins.
            commit: returns a context manager that is entered just before the commit, and left just after it; given
                for each call whether it will be stored. If entering it raises, nothing is stored.

        Raises:
            sqlite3.OperationalError: *timeout* seconds were not enough; nothing is stored then.
        """
        deadline = monotonic() + timeout
        with self._connection(timeout) as database, ExitStack() as committing, transaction(database):
            stored = self._insert(database, calls)
            if monotonic() > deadline:
                raise sqlite3.OperationalError(
                    f"{sum(stored)} calls could not be stored within {timeout:g} s; give shutdown more time"
                )
            committing.enter_context(commit(stored))
        return stored

    def _insert(self, database: sqlite3.Connection, calls: Sequence[UnscoredCall]) -> list[bool]:
        """Insert the calls for which there is room, and return for each call whether it was inserted."""
        held = _contents(database)
        count, size = held.calls, held.bytes
        stored: list[bool] = []
        rows: list[str] = []
        for call in calls:
            body = encode(call)
            fits = call.identity != "" and count < self._most_calls and size + len(body) <= self._most_bytes
            if fits:
                rows += (call.identity, body)
                count, size = count + 1, size + len(body)
            stored.append(fits)
        # Few statements, as each one releases the GIL and may then wait until other threads give it back.
        for start in range(0, len(rows), 2 * _ROWS_AT_ONCE):
            some = rows[start : start + 2 * _ROWS_AT_ONCE]
            marks = ", ".join(["(?, ?)"] * (len(some) // 2))
            database.execute(f"INSERT OR REPLACE INTO calls (identity, body) VALUES {marks}", some)
        return stored

    def claim(self, limit: int, timeout: float = 0.2) -> list[ClaimedCall]:
        """Claim and return at most *limit* calls in the spool file that no process is scoring.

        The oldest come first; a call during which processes have crashed comes last and alone.
        """
        with self._connection(timeout) as database:  # a read without lock first, as there is nearly always no call
            free, values = self._claimable_condition(database)
            if not database.execute(f"SELECT 1 FROM calls WHERE {free} LIMIT 1", values).fetchone():
                return []
        with self._writing(timeout) as database:
            free, values = self._claimable_condition(database)
            self._delete_hopeless(database, free, values)
            chosen = f"SELECT number, tries FROM calls WHERE {free} ORDER BY tries, number LIMIT ?"
            rows = database.execute(chosen, (*values, limit)).fetchall()
            # Number of crashes from which a call is suspected of crashing the judge, and so is scored alone and last.
            numbers = [number for number, tries in rows if tries < 2]
            if not numbers and rows and self._suspect is None:
                numbers = [self._suspect] = [rows[0][0]]
            mine = (self._owner, self._clock() + self._lease)
            database.executemany(
                "UPDATE calls SET owner = ?, lease = max(lease, ?) WHERE number = ?",
                [(*mine, number) for number in numbers],
            )
            claimed = [call for number in numbers if (call := _read(database, number)) is not None]
            if claimed:
                self._keeps_open = True
                self._open_idle_connection()
            return claimed

    def _claimable_condition(self, database: sqlite3.Connection) -> tuple[str, tuple[object, ...]]:
        """Return an SQL condition for the calls that can be claimed, and the values of its parameters."""
        owners = database.execute("SELECT DISTINCT owner FROM calls WHERE owner IS NOT NULL").fetchall()
        dead = [owner for (owner,) in owners if _is_dead(owner)]
        unowned = f"(owner IS NULL OR owner IN ({', '.join('?' * len(dead))})) AND tries < {QUARANTINE_TRIES}"
        return f"(lease < ? OR {unowned})", (self._clock(), *dead)

    def _delete_hopeless(self, database: sqlite3.Connection, free: str, values: tuple[object, ...]) -> None:
        gone = database.execute(f"DELETE FROM calls WHERE tries >= {_MOST_TRIES} AND {free}", values).rowcount
        if gone:
            faults.warn_once(
                "spool: given up",
                "a call in the spool was begun %d times, and each time the process was killed or the scores were not "
                "delivered: it is deleted without scores; every further one is counted in ragtrace.stats().faults. "
                "Does the judge crash on it?",
                _MOST_TRIES,
                count=gone,
            )

    def count_attempt(self, number: int) -> None:
        """Count one more scoring attempt for a call in the spool file.

        This process begins the attempt now. If the process is killed from now on, the call may be the reason. The lease
        of its claim is extended.

        Args:
            number: row number of the call.
        """
        with self._writing(_WRITE_SECONDS) as database:
            database.execute(
                "UPDATE calls SET tries = tries + 1, lease = max(lease, ? + ? * (1 << max(0, tries - ?))) "
                "WHERE number = ? AND owner = ?",
                (self._clock(), self._lease, QUARANTINE_TRIES - 1, number, self._owner),
            )

    @property
    def has_suspect(self) -> bool:
        """Whether this process has claimed a suspect call: a call that was being scored at several crashes."""
        return self._suspect is not None

    def clear_suspicion(self, number: int) -> None:
        """Note that the claimed call *number* was scored without a crash, so that it is no longer suspect."""
        if self._suspect == number:
            self._suspect = None

    def renew_leases(self) -> None:
        """Extend the leases of the calls claimed by this process, so that no other process claims them."""
        with self._writing(_WRITE_SECONDS) as database:
            database.execute(
                "UPDATE calls SET lease = max(lease, ?) WHERE owner = ?", (self._clock() + self._lease, self._owner)
            )

    def delete(self, numbers: Iterable[int], timeout: float = 5.0) -> None:
        """Delete claimed calls from the spool file, because their scores have been delivered.

        Args:
            numbers: row numbers of the calls.
            timeout: seconds to wait for other writers.
        """
        with self._writing(timeout) as database:
            database.executemany(
                "DELETE FROM calls WHERE number = ? AND owner = ?", [(number, self._owner) for number in numbers]
            )

    def release_claims(self, untried: Iterable[int], timeout: float = 5.0) -> None:
        """Release all calls claimed by this process, so that another process can score them.

        Args:
            untried: row numbers of those of the calls whose last try does not count, because their scoring was begun
                but cancelled in order.
            timeout: seconds to wait for other writers.
        """
        self._suspect = None
        with self._writing(timeout) as database:
            database.executemany(
                "UPDATE calls SET tries = tries - 1, lease = 0 WHERE number = ? AND owner = ?",
                [(number, self._owner) for number in untried],
            )
            database.execute(
                f"UPDATE calls SET owner = NULL, lease = lease * (tries >= {QUARANTINE_TRIES}) WHERE owner = ?",
                (self._owner,),
            )

    def close(self) -> None:
        """Close the connection that was kept open for the claims of this process; the next claim opens it again."""
        with delay_forks(), self._idle_lock:
            self._keeps_open = False
            self._idle_connection.close()

    def contents(self, timeout: float = 5.0) -> SpoolContents:
        """Return the number and size of the calls in the spool file.

        Args:
            timeout: seconds to wait while another process locks the file.
        """
        with self._connection(timeout) as database:
            return _contents(database)

    @property
    def _owner(self) -> str:
        """Name under which this process claims calls. A forked child has another name."""
        return f"{_process_namespace()}/{os.getpid()}/{self._nonce}"


def _read(database: sqlite3.Connection, number: int) -> ClaimedCall | None:
    (body,) = database.execute("SELECT body FROM calls WHERE number = ?", (number,)).fetchone()
    try:
        return ClaimedCall(number, decode(body))
    except Exception as error:  # the row is unreadable for every process
        faults.record("spool: unreadable call", error)
        database.execute("DELETE FROM calls WHERE number = ?", (number,))
        return None


def _contents(database: sqlite3.Connection) -> SpoolContents:
    row = database.execute("SELECT count(*), coalesce(sum(length(body)), 0), count(owner) FROM calls").fetchone()
    return SpoolContents(*row)


def _is_dead(owner: str) -> bool:
    """Return whether the process that claimed calls under the name *owner* is certainly dead.

    The result is False if that cannot be known, as for a process on another host.
    """
    namespace, _, rest = owner.partition("/")
    number = rest.partition("/")[0]
    # On Windows `os.kill` would end the process; there, its claims expire instead.
    if os.name != "posix" or namespace != _process_namespace() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _process_namespace() -> str:
    """Return a text that identifies the host, its boot and its process id namespace."""
    boot = namespace = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{platform.node()}+{boot}+{namespace}".replace("/", "-")
