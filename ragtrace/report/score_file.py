"""Turns the output of `ragtrace score` into a history, so that it can be reported on like one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import Claim
from ragtrace.core.types import Evaluation, RagCall, Result, Score, Unscored
from ragtrace.core.unscored_reasons import JUDGE_ERROR, JUDGE_SUSPECT
from ragtrace.history.records import Offered
from ragtrace.history.source import Source
from ragtrace.history.writing import Writer
from ragtrace.metrics import registry
from ragtrace.offline.lines import Lines

_BATCH: Final = 500
_MOST_BYTES: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a first look through a file of scores finds: who judged, and which metrics have the range [0, 1]."""

    judge: str
    estimated: tuple[str, ...]


def write_history(scores: Path, calls: Path | None, path: str, at: float) -> None:
    """Write the rows of a score file into a new history at *path*.

    Args:
        scores: the `.jsonl` output of `ragtrace score`.
        calls: the file that was scored, for the texts; None: the history has none.
        path: file to make.
        at: seconds since the epoch, given to every call, as recorded calls have no times.

    Raises:
        SettingsError: a line of *scores* is no score, or *calls* lacks a line that was scored.
        OSError, sqlite3.Error: a file cannot be read or written.
    """
    found = _look_through(scores)
    source = Source(judge=found.judge, judged=found.estimated)
    with closing(Writer(path, source, most_bytes=_MOST_BYTES, texts=calls is not None)) as writer:
        batch: list[Offered] = []
        for row, call in _paired(scores, calls):
            batch.append(Offered(call, (_evaluation(row),), None, at))
            if len(batch) >= _BATCH:
                writer.write(batch)
                batch = []
        writer.write(batch)


def _look_through(scores: Path) -> _Contents:
    judge = ""
    outside: dict[str, bool] = {}
    for row in _rows(scores):
        judge = judge or str(row["judge"])
        for name, result in row["results"].items():
            value = result.get("score")
            outside[name] = outside.get(name, False) or not (value is None or 0.0 <= value <= 1.0)
    estimated = (name for name, out in outside.items() if not out and _range(name) in (None, (0.0, 1.0)))
    return _Contents(judge, tuple(sorted(estimated)))


def _range(name: str) -> tuple[float, float] | None:
    """Return the range of the metric *name*; None for one that is not registered here, such as a user's own."""
    return registry.get(name).range if name in registry.names() else None


def _rows(scores: Path) -> Iterator[dict[str, Any]]:
    with scores.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                usable = isinstance(row["line"], int) and isinstance(row["results"], dict) and bool(row["judge"])
            except (ValueError, KeyError, TypeError, RecursionError):
                row, usable = None, False
            if not usable:
                raise SettingsError(
                    f"line {number} of {scores} is no score; name a file that `ragtrace score --out SCORES.jsonl` made"
                )
            yield cast("dict[str, Any]", row)


def _paired(scores: Path, calls: Path | None) -> Iterator[tuple[dict[str, Any], RagCall]]:
    """Yield each row with its call. Both files are in the order of the lines, and the calls may have more."""
    if calls is None:
        yield from ((row, RagCall(query=None, contexts=None, answer=None)) for row in _rows(scores))
        return
    lines = iter(Lines(calls, lambda number, what: None))
    line = next(lines, None)
    for row in _rows(scores):
        while line is not None and line.number < row["line"]:
            line = next(lines, None)
        if line is None or line.number != row["line"]:
            raise SettingsError(
                f"{calls} has no call on line {row['line']}, which {scores} has scored; is it that file?"
            )
        yield row, line.call


def _evaluation(row: Mapping[str, Any]) -> Evaluation:
    name, _, version = str(row["judge"]).partition("@")
    claims = tuple(_claim(claim) for claim in row.get("unsupported") or ())
    results = {metric: _result(metric, result, claims) for metric, result in row["results"].items()}
    failed = (result.reason for result in results.values() if isinstance(result, Unscored))
    return Evaluation(
        evaluator=name,
        version=version,
        type="llm_judge" if row.get("n_calls") else "deterministic",
        results=results,
        n_calls=row.get("n_calls") or 0,
        input_tokens=row.get("input_tokens") or 0,
        output_tokens=row.get("output_tokens") or 0,
        cost_usd=row.get("cost_usd"),
        error=next((reason for reason in failed if reason in JUDGE_ERROR | JUDGE_SUSPECT), None),
    )


def _result(metric: str, result: Mapping[str, Any], claims: tuple[Claim, ...]) -> Result:
    shared: dict[str, Any] = {
        "metric": metric,
        "metric_version": str(result.get("version", "")),
        "higher_is_better": registry.get(metric).higher_is_better if metric in registry.names() else True,
        "explanation": result.get("explanation"),
    }
    if "score" in result:
        return Score(float(result["score"]), label=result.get("label"), claims=claims, **shared)
    return Unscored(str(result["reason"]), **shared)


def _claim(claim: Mapping[str, Any]) -> Claim:
    return Claim(
        text=claim["text"],
        start=claim["start"],
        end=claim["end"],
        support=claim["support"],
        evidence=tuple(rank - 1 for rank in claim["chunks"]),
        quote=claim["quote"],
        unsupported=tuple((start, end) for start, end in claim["unsupported"]),
    )
