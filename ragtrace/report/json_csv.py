"""The report for machines: JSON with everything in it, CSV with every estimate as a row."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict
from io import StringIO
from typing import Final

from ragtrace.estimates import Estimate
from ragtrace.report.model import Change, MetricComparison, MetricReport, Report

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 - as typed in East Asia
COLUMNS: Final = (
    "part", "metric", "evaluator", "name", "start", "end", "calls", "scored", "estimate", "low", "high", "effective_n",
    "note",
)  # fmt: skip


def to_json(report: Report) -> str:
    """The whole report as one JSON object in ASCII; times are seconds since the epoch, estimates as of `Estimate`."""
    return json.dumps({"version": 1, **asdict(report)}, allow_nan=False) + "\n"


def to_csv(report: Report) -> str:
    """Every estimate as a row: of all calls, over time, by workflow and model, before, after and their difference.

    A text that a spreadsheet would run as a formula has a ' before it.
    """
    out = StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in _rows(report):
        writer.writerow([harmless(row.get(name, "")) for name in COLUMNS])
    return out.getvalue()


def harmless(cell: object) -> object:
    """*cell*, with a quote before a text that a spreadsheet would run as a formula; numbers stay numbers."""
    if isinstance(cell, str) and cell.lstrip(" ").startswith(FORMULA_STARTS):
        return f"'{cell}"
    return "" if cell is None else cell


def _rows(report: Report) -> Iterator[dict[str, object]]:
    for item in report.measured:
        yield from _of_one(item, report)
    for row in report.comparison.rows if report.comparison is not None else ():
        yield from _compared(row, report)


def _of_one(item: MetricReport, report: Report) -> Iterator[dict[str, object]]:
    who: dict[str, object] = {"metric": item.metric, "evaluator": item.evaluator}
    times: dict[str, object] = {"start": report.period.start, "end": report.period.end}
    if item.overall is not None:
        yield {"part": "all", **who, **times, "scored": item.judged, **_estimate(item.overall)}
    for point in item.timeline:
        when = {"start": point.period.start, "end": point.period.end}
        yield {"part": "time", **who, **when, "scored": point.judged, **_estimate(point.estimate)}
    for kind, parts in (("workflow", item.by_workflow), ("model", item.by_model)):
        for part in parts:
            yield {
                "part": kind, **who, "name": part.name, **times, "scored": part.judged, **_estimate(part.estimate),
            }  # fmt: skip
            if part.moved is not None and part.moved.change is not None:
                yield {"part": f"{kind} difference", **who, "name": part.name, **_change(part.moved.change)}
    if item.box is not None:
        box = item.box
        shown = {"5%": box.low, "25%": box.first, "50%": box.median, "75%": box.third, "95%": box.high}
        for name, value in shown.items():
            yield {"part": "quantile", **who, "name": name, **times, "scored": box.n, "estimate": value}
    for reason, count in item.unscored.items():
        yield {"part": "unscored", **who, "name": reason, **times, "calls": count}


def _compared(row: MetricComparison, report: Report) -> Iterator[dict[str, object]]:
    two = report.comparison
    if two is None:
        return
    who: dict[str, object] = {"metric": row.metric, "evaluator": row.evaluator}
    for part, name, estimate in (("before", two.before, row.before), ("after", two.after, row.after)):
        if estimate is not None:
            yield {"part": part, **who, "name": name, **_estimate(estimate)}
    difference: dict[str, object] = {"part": "difference", **who, "note": row.reason}
    if row.change is not None:
        difference |= _change(row.change)
    yield difference


def _change(found: Change) -> dict[str, object]:
    return {"estimate": found.value, "low": found.low, "high": found.high, "note": found.direction}


def _estimate(estimate: Estimate) -> dict[str, object]:
    return {
        "calls": estimate.n,
        "estimate": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "effective_n": round(estimate.effective_n, 3),
        "note": estimate.reason or "",
    }
