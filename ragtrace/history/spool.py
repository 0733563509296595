"""The calls in the file, which several processes may share, within a bounded size.

Each operation opens the file and closes it again, so that nothing is carried through a fork or from thread to thread.

A call is waiting; or claimed, by a process that scores it; or scored, with its scores beside it until they have been
delivered; or gone. Each change is one transaction, and only the owner of a claim can go on from it: what one process
has scored no other will judge again, it can only send the same scores. A claim ends when its process does, or when it
was not renewed for a while.

Every operation may raise `sqlite3.Error`: the file is locked for too long, full, damaged, gone.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from time import time
from typing import Final, TypeAlias

from ragtrace.core.types import Evaluation
from ragtrace.history.spool_codec import decode, encode
from ragtrace.history.spool_database import Database
from ragtrace.history.spool_owners import Owner, is_dead
from ragtrace.history.spool_records import Claimed, Contents, Kept
from ragtrace.history.spool_scores import decode_scores, encode_scores
from ragtrace.system.faults import faults

_MOST_TRIES: Final = 5
"""A call that was being judged at so many crashes is the likely cause of them; one whose scores were refused so often
is never taken.
"""
_SUSPICIOUS_TRIES: Final = 2
"""From so many on a call is tried alone, lest others pay for it."""
_NOBODYS: Final = "owner = NULL, lease = 0, trying = 0"
"""What ends in order was no try."""
_Row: TypeAlias = tuple[int, str, "str | None", "str | None"]
_ROWS_AT_ONCE: Final = 256
_SIZE: Final = "length(body) + coalesce(length(scores), 0)"


class _NotWantedError(Exception):
    """Undoes a transaction."""


class Spool:
    """The calls in one file.

    Args:
        path: the file; it is made if there is none, readable by its owner alone.
        most_calls: calls it may hold.
        most_bytes: bytes that the calls in it may take, for a call to be added.
        lease: seconds after which a claim that was not renewed is anybody's.
        clock: seconds since the epoch, the same for all who share the file.
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
        self._database = Database(path)
        self._most_calls, self._most_bytes, self._lease, self._clock = most_calls, most_bytes, lease, clock
        self._owner = Owner()

    def prepare(self, origin: str) -> None:
        """Make the file, or see that it is one of ours.

        Args:
            origin: where the path came from, for the message.

        Raises:
            SettingsError: it cannot be used.
        """
        self._database.prepare(origin)

    @contextmanager
    def staying_open(self) -> Generator[None, None, None]:
        """While the block runs, what is written stays in the log beside the file: to sort it in waits for the disk."""
        with self._database.connect(0.02) as database:
            database.execute("SELECT 1 FROM calls LIMIT 1").fetchone()
            yield

    # --- calls that nobody has scored --------------------------------------------------------------------------------

    def keep(
        self, calls: Sequence[Kept], timeout: float = 5.0, *, decide: Callable[[list[bool]], bool] = lambda _: True
    ) -> list[bool]:
        """Store *calls* until somebody claims them; for each whether there was room.

        A call without a span has nowhere for its scores to go and is not kept.

        Args:
            decide: told at the last moment what would be returned; False: nothing is stored after all.
        """
        try:
            return self._keep(calls, timeout, decide)
        except _NotWantedError:
            return [False] * len(calls)

    def _keep(self, calls: Sequence[Kept], timeout: float, decide: Callable[[list[bool]], bool]) -> list[bool]:
        with self._database.transaction(timeout) as database:
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
            if not decide(stored):
                raise _NotWantedError
        return stored

    def put_back(self, calls: Mapping[int, Kept], timeout: float = 5.0) -> None:
        """Give claimed calls back, by number, as far as they have come by now."""
        with self._database.transaction(timeout) as database:
            database.executemany(
                f"UPDATE calls SET body = ?, {_NOBODYS} WHERE number = ? AND owner = ? AND scores IS NULL",
                [(encode(call), number, self._owner.name) for number, call in calls.items()],
            )

    def claim(self, limit: int, timeout: float = 0.2) -> list[Claimed]:
        """Take up at most *limit* calls that are nobody's, oldest first."""
        if not self._any_free():
            return []
        with self._database.transaction(timeout) as database:
            self._give_up(database)
            rows = self._next(database, limit)
            mine = (self._owner.name, self._clock() + self._lease)
            database.executemany(
                "UPDATE calls SET owner = ?, lease = ?, tries = tries + trying, trying = 0 WHERE number = ?",
                [(*mine, row[0]) for row in rows],
            )
            return list(_read(database, rows))

    def _next(self, database: sqlite3.Connection, limit: int) -> list[_Row]:
        """At most *limit* calls; suspicious ones after all others, and one at a time."""
        condition, values = self._free(database)
        select = f"SELECT number, body, scores, sent FROM calls WHERE {condition} AND ({{}}) ORDER BY number LIMIT ?"
        others = f"tries + trying < {_SUSPICIOUS_TRIES}"
        rows: list[_Row] = database.execute(select.format(others), (*values, limit)).fetchall()
        if rows:
            return rows
        mine = f"SELECT 1 FROM calls WHERE owner = ? AND lease >= ? AND tries >= {_SUSPICIOUS_TRIES}"
        if database.execute(mine, (self._owner.name, self._clock())).fetchone():
            return []
        return database.execute(select.format("TRUE"), (*values, min(limit, 1))).fetchall()

    def _any_free(self) -> bool:
        """Look without locking anybody out: nearly always there is nothing."""
        with self._database.connect(0.1) as database:
            condition, values = self._free(database)
            return database.execute(f"SELECT 1 FROM calls WHERE {condition} LIMIT 1", values).fetchone() is not None

    def _free(self, database: sqlite3.Connection) -> tuple[str, tuple[object, ...]]:
        """The condition under which a call is nobody's, and its values."""
        owners = database.execute("SELECT DISTINCT owner FROM calls WHERE owner IS NOT NULL").fetchall()
        dead = [owner for (owner,) in owners if is_dead(owner)]
        marks = ", ".join("?" * len(dead))
        return f"(owner IS NULL OR lease < ? OR owner IN ({marks}))", (self._clock(), *dead)

    def _give_up(self, database: sqlite3.Connection) -> None:
        condition, values = self._free(database)
        gone = database.execute(
            f"DELETE FROM calls WHERE tries + trying >= ? AND {condition}", (_MOST_TRIES, *values)
        ).rowcount
        if gone:
            faults.warn_once(
                "spool: given up",
                "a call in the spool was being judged each of %d times that a process died, or its scores were refused "
                "as often, and is given up; every further one is counted in ragtrace.stats().faults",
                _MOST_TRIES,
                count=gone,
            )

    def begin(self, number: int) -> None:
        """Note that a claimed call is being judged from now on: if this process dies, that may be why."""
        with self._database.transaction(0.2) as database:
            database.execute("UPDATE calls SET trying = 1 WHERE number = ? AND owner = ?", (number, self._owner.name))

    def renew(self) -> None:
        """Keep what this process has claimed for another lease."""
        with self._database.transaction(0.2) as database:
            database.execute(
                "UPDATE calls SET lease = ? WHERE owner = ?", (self._clock() + self._lease, self._owner.name)
            )

    def release(self, numbers: Iterable[int], timeout: float = 5.0) -> None:
        """Give claimed calls back, for whoever comes next."""
        with self._database.transaction(timeout) as database:
            database.executemany(
                f"UPDATE calls SET {_NOBODYS} WHERE number = ? AND owner = ?",
                [(number, self._owner.name) for number in numbers],
            )

    def is_mine(self, number: int) -> bool:
        """Whether the call is still claimed by this process: not if it slept through its lease."""
        with self._database.connect(0.2) as database:
            row = database.execute("SELECT owner FROM calls WHERE number = ?", (number,)).fetchone()
        return row is not None and row[0] == self._owner.name

    # --- scores that are not known to be delivered -------------------------------------------------------------------

    def score(self, number: int, evaluations: Sequence[Evaluation], timeout: float = 0.2) -> bool | None:
        """Note what this process found out about a call it has claimed: from now on nobody will judge it again.

        Returns:
            False if it is no longer this process's; None if the file was locked for too long to tell.
        """
        text = encode_scores(evaluations)
        try:
            with self._database.transaction(timeout) as database:
                changed = database.execute(
                    "UPDATE calls SET scores = ?, tries = 0, trying = 0 "
                    "WHERE number = ? AND owner = ? AND scores IS NULL",
                    (text, number, self._owner.name),
                ).rowcount
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            return None
        return changed == 1

    def forget(self, numbers: Iterable[int], timeout: float = 5.0) -> None:
        """Take calls out of the file whose scores have been delivered."""
        with self._database.transaction(timeout) as database:
            self._delete(database, numbers)

    def leave(
        self, gone: Iterable[int], sent: Mapping[int, Iterable[str]], refused: Iterable[int], timeout: float
    ) -> None:
        """The orderly end of this process: nothing in the file is its own any more.

        Args:
            gone: numbers of the calls whose scores have been delivered, or may have been.
            sent: names of the parts of which that is true, for scored calls that also have others; by number.
            refused: of these, calls whose scores were sent and not taken; that counts as a try.
            timeout: seconds to wait for others who write.
        """
        mine = self._owner.name
        with self._database.transaction(timeout) as database:
            self._delete(database, gone)
            database.executemany(
                "UPDATE calls SET sent = ? WHERE number = ? AND owner = ?",
                [(json.dumps(sorted(parts)), number, mine) for number, parts in sent.items()],
            )
            database.executemany(
                "UPDATE calls SET tries = tries + 1 WHERE number = ? AND owner = ?",
                [(number, mine) for number in refused],
            )
            database.execute(f"UPDATE calls SET {_NOBODYS} WHERE owner = ?", (mine,))

    def _delete(self, database: sqlite3.Connection, numbers: Iterable[int]) -> None:
        database.executemany(
            "DELETE FROM calls WHERE number = ? AND owner = ?", [(number, self._owner.name) for number in numbers]
        )

    def contents(self) -> Contents:
        """What is in the file now."""
        with self._database.connect(0.2) as database:
            return _contents(database)


def _read(database: sqlite3.Connection, rows: Iterable[_Row]) -> Generator[Claimed, None, None]:
    for row in rows:
        claimed = _readable(*row)
        if claimed is None:  # whatever wrote it, nobody will ever read it
            database.execute("DELETE FROM calls WHERE number = ?", (row[0],))
        else:
            yield claimed


def _readable(number: int, body: str, scores: str | None, sent: str | None) -> Claimed | None:
    try:
        found = None if scores is None else decode_scores(scores)
        return Claimed(number, decode(body), found, None if sent is None else frozenset(json.loads(sent)))
    except Exception as error:
        faults.record("spool: unreadable call", error)
        return None


def _contents(database: sqlite3.Connection) -> Contents:
    row = database.execute(
        f"SELECT count(*), coalesce(sum({_SIZE}), 0), coalesce(sum(owner IS NOT NULL AND scores IS NULL), 0), "
        "count(scores) FROM calls"
    ).fetchone()
    return Contents(*row)
