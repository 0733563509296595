"""Conversion of the output file of `ragtrace score` into a local history, from which a report can be built."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import RagCall
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.offline.call_records import CallFile, CallLine
from ragtrace.offline.score_rows import ScoreRow, evaluation_from_row, row_values
from ragtrace.report.series import has_unit_range

_BATCH: Final = 500
_MOST_BYTES: Final = 1 << 40


def write_history(scores: Path, calls: Path | None, path: str, at: float) -> None:
    """Write the scores in an output file of `ragtrace score` to a new local history at *path*.

    Args:
        scores: the `.jsonl` output of `ragtrace score`.
        calls: the file that was scored, for the texts; None: the history has none.
        path: file to make.
        at: seconds since the epoch, given to every call, as recorded calls have no times.

    Raises:
        SettingsError: a line of *scores* is no score, or *calls* lacks a line that was scored.
        OSError, sqlite3.Error: a file cannot be read or written.
    """
    with closing(HistoryWriter(path, _call_origin(scores), most_bytes=_MOST_BYTES, texts=calls is not None)) as writer:
        batch: list[QueuedCall] = []
        for row, call in _rows_with_calls(scores, calls):
            batch.append(QueuedCall(call, (evaluation_from_row(row),), None, at))
            if len(batch) >= _BATCH:
                writer.write(batch)
                batch = []
        writer.write(batch)


def _call_origin(scores: Path) -> CallOrigin:
    """Return the origin of the calls in a score file: the judge, and the metrics with scores in [0, 1]."""
    judge, in_unit_range = "", dict[str, bool]()
    for row in _rows(scores):
        judge = judge or str(row["judge"])
        for name, value in row_values(row).items():
            inside = not isinstance(value, (int, float)) or 0.0 <= value <= 1.0
            in_unit_range[name] = in_unit_range.get(name, has_unit_range(name)) and inside
    return CallOrigin(judge=judge, judged=tuple(sorted(name for name, inside in in_unit_range.items() if inside)))


def _rows(scores: Path) -> Iterator[ScoreRow]:
    with scores.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row: Any = json.loads(line)
                usable = isinstance(row["line"], int) and isinstance(row["results"], dict) and bool(row["judge"])
            except (ValueError, KeyError, TypeError, RecursionError):
                row, usable = None, False
            if not usable:
                raise SettingsError(
                    f"line {number} of {scores} is no score; name a file that `ragtrace score --out SCORES.jsonl` made"
                )
            yield cast("ScoreRow", row)


def _rows_with_calls(scores: Path, calls: Path | None) -> Iterator[tuple[ScoreRow, RagCall]]:
    """Yield each row of a score file with the RAG call that the row belongs to.

    A row has the line number of its call in the file *calls*.

    The line numbers increase in both files.
    """
    if calls is None:
        yield from ((row, RagCall(query=None, contexts=None, answer=None)) for row in _rows(scores))
        return
    lines = (line for line in CallFile(calls) if isinstance(line, CallLine))
    line = next(lines, None)
    for row in _rows(scores):
        while line is not None and line.number < row["line"]:
            line = next(lines, None)
        if line is None or line.number != row["line"]:
            raise SettingsError(
                f"{scores} has a score for line {row['line']}, but {calls} has no call there; pass the file of calls "
                f"that {scores} was made from"
            )
        yield row, line.call
