"""Search of a history for the verdicts that a guard had in shadow mode, by which its blocks can be judged."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from ragtrace.history.reading import HistoryReader

_MOST_VERDICTS: Final = 10_000
"""Most verdicts whose evaluator is looked at, the newest, so that a large history does not hold up the start."""


def has_shadow_verdicts(path: str, workflow: str, metric: str, evaluator: str) -> bool:
    """Return whether a history has verdicts of a shadow guard that were found by scores of one metric and evaluator.

    Such scores say what a guard with any bound would have done.

    Args:
        path: the history file.
        workflow: workflow of the guarded function.
        metric: name of the metric that the guard reads.
        evaluator: evaluator that computes it, as `id@version`.

    Raises:
        SQLiteFileError, sqlite3.Error, OSError: the file cannot be read.
    """
    with closing(HistoryReader(path)) as reader:
        if not reader.has_table("guard_verdicts"):
            return False
        found = reader.database.execute(
            "SELECT EXISTS (SELECT 1 FROM (SELECT number FROM guard_verdicts JOIN calls USING (number)"
            "  WHERE mode = 'shadow' AND metric = ? AND guard_verdicts.score IS NOT NULL AND workflow = ?"
            "  ORDER BY number DESC LIMIT ?)"
            " JOIN results USING (number) WHERE series IN (SELECT series.id FROM series JOIN evaluators"
            "  ON series.evaluator = evaluators.id WHERE metric = ? AND name || '@' || evaluators.version = ?))",
            (metric, workflow, _MOST_VERDICTS, metric, evaluator),
        )
        return bool(found.fetchone()[0])
