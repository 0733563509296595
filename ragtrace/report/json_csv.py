"""Rendering of a report for programs: as JSON with all contents, or as CSV with one row for each estimate."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict
from io import StringIO
from typing import Final

from ragtrace.estimates import Estimate
from ragtrace.offline.score_rows import without_formula
from ragtrace.report import wording
from ragtrace.report.model import Change, Grouping, MetricReport, Report

COLUMNS: Final = (
    "part", "metric", "evaluator", "name", "start", "end", "calls", "scored", "estimate", "low", "high", "effective_n",
    "note",
)  # fmt: skip


def to_json(report: Report) -> str:
    """Render the whole report as one JSON object in ASCII. Times are in seconds since the epoch."""
    record = asdict(report)
    for item, shown in zip(report.measured, record["measured"], strict=True):
        shown["unscored_shares"] = dict(item.unscored_shares)
    return json.dumps({"version": 1, **record}, allow_nan=False) + "\n"


def to_csv(report: Report) -> str:
    """Render the report as CSV, with one row for each estimate.

    There are estimates for all calls, each part of the period, each workflow and each model.

    A text that a spreadsheet would run as a formula has a ' before it.
    """
    out = StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in _rows(report):
        writer.writerow([without_formula(row.get(name, "")) for name in COLUMNS])
    return out.getvalue()


def _rows(report: Report) -> Iterator[dict[str, object]]:
    groups = report.comparison
    for item in report.measured:
        yield from _metric_rows(item, report)
    if report.grouping is not None:
        yield from _group_rows(report.grouping)
    for each in report.feedback:
        counts = f"{each.low} below 0.5; {each.corrections} corrections"
        yield {"part": "feedback", "name": each.name, "scored": each.ratings, "estimate": each.mean, "note": counts}
    if groups is None:
        return
    for row in groups.rows:
        key: dict[str, object] = {"metric": row.metric, "evaluator": row.evaluator}
        for part, name, estimate in (("before", groups.before, row.before), ("after", groups.after, row.after)):
            yield {"part": part, **key, "name": name, **_estimate(estimate)}
        yield {"part": "difference", **key, "note": row.reason, **(_change(row.change) if row.change else {})}


def _metric_rows(item: MetricReport, report: Report) -> Iterator[dict[str, object]]:
    key: dict[str, object] = {"metric": item.metric, "evaluator": item.evaluator}
    period: dict[str, object] = {"start": report.period.start, "end": report.period.end}
    if item.overall is not None:
        yield {"part": "all", **key, **period, "scored": item.judged, **_estimate(item.overall)}
    if item.corrected is not None:
        unsure = f"{item.corrected.unsure} unsure" if item.corrected.unsure else ""
        known = f"{item.corrected.labels} labels", unsure, item.corrected.estimate.stale, item.corrected.doubt
        basis = "; ".join(filter(None, known))
        corrected = _estimate(item.corrected.estimate)
        yield {"part": "corrected", **key, **period, **corrected, "note": f"{basis} {corrected['note']}".strip()}
    for point in item.timeline:
        when = {"start": point.period.start, "end": point.period.end}
        yield {"part": "time", **key, **when, "scored": point.judged, **_estimate(point.estimate)}
    for kind, breakdown in (("workflow", item.by_workflow), ("model", item.by_model)):
        for row in breakdown:
            named = {**key, "name": row.name}
            yield {"part": kind, **named, **period, "scored": row.judged, **_estimate(row.estimate)}
            if row.moved is not None and row.moved.change is not None:
                yield {"part": f"{kind} difference", **named, **_change(row.moved.change)}
    if (box := item.box) is not None:
        quantiles = {"5%": box.low, "25%": box.first, "50%": box.median, "75%": box.third, "95%": box.high}
        for name, value in quantiles.items():
            yield {"part": "quantile", **key, "name": name, **period, "scored": box.n, "estimate": value}
    for reason, count in item.unscored.items():
        share = item.unscored_shares[reason]
        yield {"part": "unscored", **key, "name": reason, **period, "calls": count, "estimate": share}


def _group_rows(found: Grouping) -> Iterator[dict[str, object]]:
    key: dict[str, object] = {"metric": found.metric, "evaluator": found.evaluator}
    for row in found.worse:
        named = {**key, "name": wording.group_name(row)}
        yield {"part": "group", **named, "scored": row.judged, **_estimate(row.estimate)}
        yield {"part": "group difference", **named, **_change(row.change)}
    for each in found.defects:
        yield {"part": "defect", **key, "name": each.kind, "scored": each.judged, **_estimate(each.share)}


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
