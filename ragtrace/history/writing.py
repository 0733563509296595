"""Writing of a history file: batches of calls, each in one transaction, and pruning of old calls."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from ragtrace.core.types import Evaluation
from ragtrace.history.records import Offered, body, columns, evidence, identity, series_of, text_of, texts_of
from ragtrace.history.schema import OF_A_CALL, history_file
from ragtrace.history.source import Source
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import ForkSafeConnection, transaction

_PRUNED_AT_ONCE: Final = 500
"""Calls deleted in one transaction: no other writer waits for more."""
_ROOM: Final = 0.95
"""Share of the bound that pruning leaves filled."""
_MOST_ROUNDS: Final = 20
"""Of pruning in a row: the rest comes with the next batch."""
_TRIES: Final = 3
"""Of a batch during which the file was deleted."""
_OF_THE_VALUES: Final = (sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""Errors of SQLite for a value of a type that it does not know."""


class Writer:
    """Writer of one history file, for one thread; every method may raise `sqlite3.Error`.

    Args:
        path: the file; it is made if there is none.
        source: what the calls of this process have in common.
        most_bytes: size that the file may have.
        texts: whether to keep what was asked, retrieved and answered.
    """

    def __init__(self, path: str, source: Source, *, most_bytes: int, texts: bool) -> None:
        self._path, self._most_bytes, self._texts = path, most_bytes, texts
        self._database_file = history_file(path)
        self._source = source.encode()
        self._ids: dict[tuple[object, ...], int] = {}
        self._file = (0, 0)
        self._kept = ForkSafeConnection(self._connect)
        with self._kept.use():
            pass

    def _connect(self) -> sqlite3.Connection:
        self._database_file.create()
        before = _file_at(self._path)
        database = self._database_file.connect()
        if before is None or _file_at(self._path) != before:
            database.close()
            raise sqlite3.OperationalError("the file was deleted or replaced while it was opened")
        self._file = before
        self._ids.clear()
        return database

    def close(self) -> None:
        """Close the file."""
        self._kept.close()

    def write(self, calls: Sequence[Offered]) -> int:
        """Store *calls*, all of them or none; return how many could not be put into rows.

        Where the file was deleted or renamed since it was opened, a new one is made.
        """
        self._follow()
        for _ in range(_TRIES):
            unreadable = self._write_batch(calls)
            if not self._follow():  # else perhaps before these were written
                return unreadable
        raise sqlite3.OperationalError("the file was deleted or replaced again and again")

    def _follow(self) -> bool:
        """Close the file if another one is at its path; return False if it is still the same."""
        with self._kept.use() as database:
            if _file_at(self._path) == self._file:
                return False
            # Into the file, wherever it is now: its log keeps the old name, and would be lost with it.
            with suppress(sqlite3.Error):
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._kept.close()
        faults.warn_once(
            "history: file replaced",
            "the history %r was deleted, renamed or replaced while it was in use; calls are kept in a new file from "
            "now on; every further time is counted in ragtrace.stats().faults",
            self._path,
        )
        return True

    def _write_batch(self, calls: Sequence[Offered]) -> int:
        unreadable = 0
        with self._transaction() as database:
            for call in calls:
                database.execute("SAVEPOINT one")
                try:
                    self._write(database, call)
                except Exception as error:
                    if isinstance(error, sqlite3.Error) and not isinstance(error, _OF_THE_VALUES):
                        raise
                    # A call's names and numbers are the application's, and may be anything.
                    database.execute("ROLLBACK TO one")
                    self._ids.clear()
                    faults.record("history: a call", error)
                    unreadable += 1
                database.execute("RELEASE one")
        return unreadable

    def _write(self, database: sqlite3.Connection, offered: Offered) -> None:
        number, is_new = self._call(database, offered)
        if is_new:
            database.execute(
                "INSERT INTO bodies (number, body) VALUES (?, ?)", (number, body(offered.call, texts=self._texts))
            )
        for evaluation in offered.evaluations:
            self._evaluation(database, number, evaluation, is_new=is_new)

    def _call(self, database: sqlite3.Connection, offered: Offered) -> tuple[int, bool]:
        """Return the number of the call, and whether it is new: another process may have scored it in part."""
        call, key, decision = offered.call, identity(offered.call), text_of(offered.decision)
        source = self._id(database, "sources", ("body",), (self._source,))
        cursor = database.execute(
            "INSERT OR IGNORE INTO calls (identity, at, source, workflow, model, decision) VALUES (?, ?, ?, ?, ?, ?)",
            (key, offered.at, source, *texts_of((call.workflow, call.model)), decision),
        )
        if cursor.rowcount and cursor.lastrowid is not None:
            return cursor.lastrowid, True
        (number,) = database.execute("SELECT number FROM calls WHERE identity = ?", (key,)).fetchone()
        database.execute("UPDATE calls SET decision = coalesce(?, decision) WHERE number = ?", (decision, number))
        return number, False

    def _evaluation(self, database: sqlite3.Connection, number: int, evaluation: Evaluation, *, is_new: bool) -> None:
        who = self._id(
            database,
            "evaluators",
            ("name", "version", "type"),
            texts_of((evaluation.evaluator, evaluation.version, evaluation.type)),
        )
        database.execute(
            "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number, who, evaluation.probability, evaluation.duration_s, evaluation.n_calls,
                evaluation.input_tokens, evaluation.output_tokens, evaluation.cost_usd, text_of(evaluation.error),
            ),
        )  # fmt: skip
        rows: list[tuple[object, ...]] = []
        for name, result in evaluation.results.items():
            metric, version, better = series_of(name, result)
            names = ("metric", "version", "evaluator", "higher_is_better")
            rows.append((number, self._id(database, "series", names, (metric, version, who, better)), *columns(result)))
        database.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", rows)
        if not is_new:
            database.execute("DELETE FROM evidence WHERE number = ? AND evaluator = ?", (number, who))
        shown = evidence(evaluation, texts=self._texts)
        if shown is not None:
            database.execute("INSERT INTO evidence VALUES (?, ?, ?)", (number, who, shown))

    def _id(self, database: sqlite3.Connection, table: str, names: Sequence[str], values: tuple[object, ...]) -> int:
        """Return the id of the row of *table* with *values*; insert the row if there is none."""
        known = self._ids.get((table, *values))
        if known is not None:
            return known
        marks, where = ", ".join("?" * len(names)), " AND ".join(f"{name} = ?" for name in names)
        database.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})", values)
        (found,) = database.execute(f"SELECT id FROM {table} WHERE {where}", values).fetchone()
        self._ids[(table, *values)] = found
        return int(found)

    def prune(self, before: float) -> int:
        """Delete calls older than *before* (seconds since the epoch), and the oldest where the file is too large.

        Returns:
            How many of those that were not old had to go for the size.
        """
        for _ in range(_MOST_ROUNDS):
            if not self._delete("SELECT number FROM calls WHERE at < ? ORDER BY at LIMIT ?", (before, _PRUNED_AT_ONCE)):
                break
        if self.size <= self._most_bytes:
            return 0
        early = 0
        for _ in range(_MOST_ROUNDS):
            excess = 1.0 - _ROOM * self._most_bytes / self.size
            if excess <= 0.0:
                break
            early += self._delete("SELECT number FROM calls ORDER BY at LIMIT ?", (self._share(excess),))
        return early

    def _share(self, part: float) -> int:
        """Return about how many calls are the share *part* of all, at most as many as are deleted at once."""
        with self._kept.use() as database:
            (calls,) = database.execute("SELECT coalesce(max(number) - min(number), 0) + 1 FROM calls").fetchone()
        return max(1, min(_PRUNED_AT_ONCE, round(part * int(calls))))

    @property
    def newest(self) -> float | None:
        """Time of the newest call, in seconds since the epoch; None if there is none."""
        with self._kept.use() as database:
            (at,) = database.execute("SELECT max(at) FROM calls").fetchone()
        return None if at is None else float(at)

    @property
    def size(self) -> int:
        """Bytes that are in use; the file itself never shrinks, what is free in it is used again."""
        with self._kept.use() as database:
            pages, free, each = (
                database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * each)

    def _delete(self, which: str, values: tuple[object, ...]) -> int:
        with self._kept.use() as database:
            numbers = database.execute(which, values).fetchall()
            if not numbers:  # as nearly always: no other writer is locked out for it
                return 0
            with self._transaction():
                for table in OF_A_CALL:
                    database.executemany(f"DELETE FROM {table} WHERE number = ?", numbers)
            return len(numbers)

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection, None, None]:
        with self._kept.use() as database:
            try:
                with transaction(database):
                    yield database
            except BaseException:
                self._ids.clear()  # of rows that are undone
                raise


def _file_at(path: str) -> tuple[int, int] | None:
    """Return device and inode of the file at *path*; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
