"""One connection that writes: batches of calls, each in one transaction, and what the bounds leave no room for."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from ragtrace.errors import faults
from ragtrace.model import Evaluation
from ragtrace.sqlite_use import using_sqlite
from ragtrace.store.records import Offered, body, columns, evidence, identity, series_of, text_of, texts_of
from ragtrace.store.schema import OF_A_CALL, connect, create
from ragtrace.store.source import Source

_PRUNED_AT_ONCE: Final = 500
"""Calls deleted in one transaction: no other writer waits for more."""
_ROOM: Final = 0.95
"""Share of the bound that pruning leaves filled."""
_MOST_ROUNDS: Final = 20
"""Of pruning in a row: the rest comes with the next batch."""
_OF_THE_VALUES: Final = (sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""What SQLite raises for a value of a type that it does not know."""


class Writer:
    """Writes to one file; for one thread. Every method may raise `sqlite3.Error`.

    Args:
        path: the file; it is made if there is none.
        source: what the calls of this process have in common.
        most_bytes: size that the file may have.
        texts: whether to keep what was asked, retrieved and answered.
    """

    def __init__(self, path: str, source: Source, *, most_bytes: int, texts: bool) -> None:
        with using_sqlite():
            create(path)
            self._database = connect(path)
        self._source, self._most_bytes, self._texts = source.encode(), most_bytes, texts
        self._ids: dict[tuple[object, ...], int] = {}

    def close(self) -> None:
        """Close the file."""
        with using_sqlite():
            self._database.close()

    def write(self, calls: Sequence[Offered]) -> int:
        """Keep *calls*, all of them or none; how many could not be put into rows, whatever is wrong with them."""
        unreadable = 0
        with using_sqlite(), self._transaction():
            for call in calls:
                self._database.execute("SAVEPOINT one")
                try:
                    self._write(call)
                except Exception as error:
                    if isinstance(error, sqlite3.Error) and not isinstance(error, _OF_THE_VALUES):
                        raise
                    # A call's names and numbers are the application's, and may be anything.
                    self._database.execute("ROLLBACK TO one")
                    self._ids.clear()
                    faults.record("history: a call", error)
                    unreadable += 1
                self._database.execute("RELEASE one")
        return unreadable

    def _write(self, offered: Offered) -> None:
        number, is_new = self._call(offered)
        if is_new:
            self._database.execute(
                "INSERT INTO bodies (number, body) VALUES (?, ?)", (number, body(offered.call, texts=self._texts))
            )
        for evaluation in offered.evaluations:
            self._evaluation(number, evaluation, is_new=is_new)

    def _call(self, offered: Offered) -> tuple[int, bool]:
        """Number of the call, and whether it is new: one that another process has begun to score is not."""
        call, key, decision = offered.call, identity(offered.call), text_of(offered.decision)
        source = self._id("sources", ("body",), (self._source,))
        cursor = self._database.execute(
            "INSERT OR IGNORE INTO calls (identity, at, source, workflow, model, decision) VALUES (?, ?, ?, ?, ?, ?)",
            (key, offered.at, source, *texts_of((call.workflow, call.model)), decision),
        )
        if cursor.rowcount and cursor.lastrowid is not None:
            return cursor.lastrowid, True
        (number,) = self._database.execute("SELECT number FROM calls WHERE identity = ?", (key,)).fetchone()
        self._database.execute("UPDATE calls SET decision = coalesce(?, decision) WHERE number = ?", (decision, number))
        return number, False

    def _evaluation(self, number: int, evaluation: Evaluation, *, is_new: bool) -> None:
        who = self._id(
            "evaluators",
            ("name", "version", "type"),
            texts_of((evaluation.evaluator, evaluation.version, evaluation.type)),
        )
        self._database.execute(
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
            rows.append((number, self._id("series", names, (metric, version, who, better)), *columns(result)))
        self._database.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", rows)
        if not is_new:
            self._database.execute("DELETE FROM evidence WHERE number = ? AND evaluator = ?", (number, who))
        shown = evidence(evaluation, texts=self._texts)
        if shown is not None:
            self._database.execute("INSERT INTO evidence VALUES (?, ?, ?)", (number, who, shown))

    def _id(self, table: str, names: Sequence[str], values: tuple[object, ...]) -> int:
        """Id of the row of *table* with these values, which is made if there is none."""
        known = self._ids.get((table, *values))
        if known is not None:
            return known
        marks, where = ", ".join("?" * len(names)), " AND ".join(f"{name} = ?" for name in names)
        self._database.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})", values)
        (found,) = self._database.execute(f"SELECT id FROM {table} WHERE {where}", values).fetchone()
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
        """About how many calls are that *part* of all, but no more than can be deleted at once."""
        with using_sqlite():
            (calls,) = self._database.execute("SELECT coalesce(max(number) - min(number), 0) + 1 FROM calls").fetchone()
        return max(1, min(_PRUNED_AT_ONCE, round(part * int(calls))))

    @property
    def size(self) -> int:
        """Bytes that are in use; the file itself never shrinks, what is free in it is used again."""
        with using_sqlite():
            pages, free, each = (
                self._database.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * each)

    def _delete(self, which: str, values: tuple[object, ...]) -> int:
        with using_sqlite():
            numbers = self._database.execute(which, values).fetchall()
            if not numbers:  # as nearly always: nobody is locked out for it
                return 0
            with self._transaction():
                for table in OF_A_CALL:
                    self._database.executemany(f"DELETE FROM {table} WHERE number = ?", numbers)
            return len(numbers)

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            self._ids.clear()  # of rows that are undone
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
