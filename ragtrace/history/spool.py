"""The spool file: unscored calls that several processes may share, within a bounded size, delivered at least once.

A call is in the file from the end of the process that did not score it until another process has delivered its scores.
To score it, a process claims its row for a lease, which it renews while it works, and deletes the row afterwards. A
process that is killed in between leaves the row behind: the call is scored, and its scores are sent, a second time
under the same score ids.

Each operation opens the file and closes it again, so that nothing is carried through a fork or from thread to thread.
Every operation may raise `sqlite3.Error`: the file is locked for too long, full, damaged or gone.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, time
from typing import Final

from ragtrace.history.schema import prepare
from ragtrace.history.spool_codec import ClaimedCall, SpoolContents, UnscoredCall, decode, encode
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import SQLiteFile, transaction, using_sqlite

# The columns trying, scores and sent are of earlier releases, which may share the file.
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
_SUSPECT_TRIES: Final = 2
"""From so many crashes on a call is scored alone and after all others: its judge may be what crashes the process."""
QUARANTINE_TRIES: Final = 5
"""From so many crashes on a call is not tried again before its lease has expired, which doubles with each try."""
_MOST_TRIES: Final = 16
"""With a lease of a minute the last tries are a day apart."""
_ROWS_AT_ONCE: Final = 256


class Spool:
    """The calls in one spool file.

    Args:
        path: the file; created if there is none, readable by its owner alone.
        most_calls: calls that the file may hold.
        most_bytes: bytes of the calls in the file beyond which no call is added.
        lease: seconds after which a claim that was not renewed is void.
        clock: seconds since the epoch, the same for all processes that share the file.
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
        self.reset()

    def reset(self) -> None:
        """Forget what this process has claimed: after a fork the claims are the parent's."""
        self._suspect: int | None = None

    def prepare(self, origin: str) -> None:
        """Create the file, or check that it is a spool.

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
            self._file.create()
        with using_sqlite(), closing(self._file.connect(timeout)) as database:
            yield database

    @contextmanager
    def _writing(self, timeout: float) -> Generator[sqlite3.Connection, None, None]:
        with self._connection(timeout) as database, transaction(database):
            yield database

    @contextmanager
    def kept_open(self) -> Generator[None, None, None]:
        """While the block runs, what is written stays in the log beside the file: a checkpoint waits for the disk."""
        with self._connection(0.02) as database:
            database.execute("SELECT 1 FROM calls LIMIT 1").fetchone()
            yield

    def add(self, calls: Sequence[UnscoredCall], timeout: float = 5.0) -> list[bool]:
        """Store *calls*; return for each whether there was room, and a span for its scores to go to.

        Raises:
            sqlite3.OperationalError: *timeout* seconds were not enough; nothing is stored then.
        """
        deadline = monotonic() + timeout
        with self._writing(timeout) as database:
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
            # Few statements: for each one the interpreter is let go, and may have to be waited for.
            for start in range(0, len(rows), 2 * _ROWS_AT_ONCE):
                some = rows[start : start + 2 * _ROWS_AT_ONCE]
                marks = ", ".join(["(?, ?)"] * (len(some) // 2))
                database.execute(f"INSERT OR REPLACE INTO calls (identity, body) VALUES {marks}", some)
            if monotonic() > deadline:  # the caller has counted them as dropped by now
                raise sqlite3.OperationalError(
                    f"{sum(stored)} calls could not be stored within {timeout:g} s; give shutdown more time"
                )
        return stored

    def claim(self, limit: int, timeout: float = 0.2) -> list[ClaimedCall]:
        """Claim at most *limit* calls that no process is scoring, oldest first, those with crashes behind them last."""
        with self._connection(timeout) as database:  # without a lock: nearly always there is nothing
            free, values = self._free(database)
            if not database.execute(f"SELECT 1 FROM calls WHERE {free} LIMIT 1", values).fetchone():
                return []
        with self._writing(timeout) as database:
            free, values = self._free(database)
            self._give_up(database, free, values)
            chosen = f"SELECT number, tries FROM calls WHERE {free} ORDER BY tries, number LIMIT ?"
            rows = database.execute(chosen, (*values, limit)).fetchall()
            numbers = [number for number, tries in rows if tries < _SUSPECT_TRIES]
            if not numbers and rows and self._suspect is None:
                numbers = [self._suspect] = [rows[0][0]]
            mine = (self._owner, self._clock() + self._lease)
            database.executemany(
                "UPDATE calls SET owner = ?, lease = max(lease, ?) WHERE number = ?",
                [(*mine, number) for number in numbers],
            )
            return [call for number in numbers if (call := _read(database, number)) is not None]

    def _free(self, database: sqlite3.Connection) -> tuple[str, tuple[object, ...]]:
        """Return the condition under which no process scores a call, and the values in it."""
        owners = database.execute("SELECT DISTINCT owner FROM calls WHERE owner IS NOT NULL").fetchall()
        dead = [owner for (owner,) in owners if _is_dead(owner)]
        unowned = f"(owner IS NULL OR owner IN ({', '.join('?' * len(dead))})) AND tries < {QUARANTINE_TRIES}"
        return f"(lease < ? OR {unowned})", (self._clock(), *dead)

    def _give_up(self, database: sqlite3.Connection, free: str, values: tuple[object, ...]) -> None:
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

    def begin(self, number: int) -> None:
        """Count one more try of a claimed call: if this process is killed from now on, the call may be the reason."""
        with self._writing(0.2) as database:
            database.execute(
                "UPDATE calls SET tries = tries + 1, lease = max(lease, ? + ? * (1 << max(0, tries - ?))) "
                "WHERE number = ? AND owner = ?",
                (self._clock(), self._lease, QUARANTINE_TRIES - 1, number, self._owner),
            )

    @property
    def has_suspect(self) -> bool:
        """Whether a claimed call is one that was being scored at several crashes: it is the only one of these."""
        return self._suspect is not None

    def survived(self, number: int) -> None:
        """Note that the claimed call *number* has been scored without a crash."""
        if self._suspect == number:
            self._suspect = None

    def renew(self) -> None:
        """Extend the claims of this process by another lease."""
        with self._writing(0.2) as database:
            database.execute(
                "UPDATE calls SET lease = max(lease, ?) WHERE owner = ?", (self._clock() + self._lease, self._owner)
            )

    def delete(self, numbers: Iterable[int], timeout: float = 0.2) -> None:
        """Delete claimed calls whose scores have been delivered."""
        with self._writing(timeout) as database:
            database.executemany(
                "DELETE FROM calls WHERE number = ? AND owner = ?", [(number, self._owner) for number in numbers]
            )

    def release(self, untried: Iterable[int], timeout: float = 5.0) -> None:
        """Give every claim of this process back.

        Args:
            untried: numbers of calls that were begun and broken off in order, which counts as no try.
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

    def contents(self) -> SpoolContents:
        """Return counts of what is in the file now."""
        with self._connection(0.2) as database:
            return _contents(database)

    @property
    def _owner(self) -> str:
        """Name of this process as the owner of claims; a forked child has another."""
        return f"{_process_namespace()}/{os.getpid()}/{self._nonce}"


def _read(database: sqlite3.Connection, number: int) -> ClaimedCall | None:
    (body,) = database.execute("SELECT body FROM calls WHERE number = ?", (number,)).fetchone()
    try:
        return ClaimedCall(number, decode(body))
    except Exception as error:  # whatever wrote it, no process will ever read it
        faults.record("spool: unreadable call", error)
        database.execute("DELETE FROM calls WHERE number = ?", (number,))
        return None


def _contents(database: sqlite3.Connection) -> SpoolContents:
    row = database.execute("SELECT count(*), coalesce(sum(length(body)), 0), count(owner) FROM calls").fetchone()
    return SpoolContents(*row)


def _is_dead(owner: str) -> bool:
    """Return whether the process named *owner* is certainly gone; False if that cannot be known from here."""
    namespace, _, rest = owner.partition("/")
    number = rest.partition("/")[0]
    # On Windows the same call would end the process; its claims expire.
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
    """Return host, boot and process id namespace: within them a process id means one process."""
    boot = namespace = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{platform.node()}+{boot}+{namespace}".replace("/", "-")
