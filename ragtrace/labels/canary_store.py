"""Storage of how well judges agree with their canaries (calls with known labels), shared by all processes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final, TypeVar

from ragtrace.history.schema import history_file
from ragtrace.history.stored_json import needed_object
from ragtrace.system.sqlite_files import delay_forks, transaction

T = TypeVar("T")
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS canaries (
    metric TEXT NOT NULL, evaluator TEXT NOT NULL, canaries TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (metric, evaluator, canaries)
) WITHOUT ROWID
"""
"""SQL of the table with the states of agreement monitors. A history of an older release gets the table when canaries
are first judged; older releases can still read the file."""


class CanaryStore:
    """Store for the agreement of judges with their canaries (calls with known labels), in a history file.

    Every method opens the file and closes it again, as canaries are judged rarely, and may raise `sqlite3.Error`,
    `OSError` or `SQLiteFileError`.
    """

    def __init__(self, path: str) -> None:
        self._file = history_file(path)

    def read(self, metric: str, evaluator: str, canaries: str) -> Mapping[str, Any] | None:
        """Return the stored agreement of a judge with its canaries (labelled calls), or None if nothing is stored.

        Args:
            metric: name of the metric.
            evaluator: id@version of the judge.
            canaries: hash of the canaries and their labels.
        """
        with delay_forks(), closing(self._connect()) as database:
            return _body(database, (metric, evaluator, canaries))

    def update(
        self,
        metric: str,
        evaluator: str,
        canaries: str,
        change: Callable[[Mapping[str, Any] | None], tuple[Mapping[str, Any], T]],
    ) -> T:
        """Update the stored agreement of a judge with its canaries (calls with known labels) in one transaction.

        Args:
            metric: name of the metric.
            evaluator: id@version of the judge.
            canaries: hash of the canaries and their labels.
            change: returns, for the stored state (None: there is none), the new state and any result.

        Returns:
            The result of *change*.
        """
        key = metric, evaluator, canaries
        with delay_forks(), closing(self._connect()) as database, transaction(database):
            state, result = change(_body(database, key))
            database.execute("INSERT OR REPLACE INTO canaries VALUES (?, ?, ?, ?)", (*key, json.dumps(state)))
        return result

    def _connect(self) -> sqlite3.Connection:
        database = self._file.connect()
        database.execute(_TABLE)
        return database


def _body(database: sqlite3.Connection, key: tuple[str, str, str]) -> Mapping[str, Any] | None:
    row = database.execute(
        "SELECT body FROM canaries WHERE metric = ? AND evaluator = ? AND canaries = ?", key
    ).fetchone()
    return None if row is None else needed_object(row[0], "score of canaries")
