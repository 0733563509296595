"""Breakdown of a metric by workflow or model: the estimate of each, and how much of the change comes from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.estimates import Estimate
from ragtrace.report.comparison import ComparedGroups, change_between
from ragtrace.report.model import BreakdownChange, BreakdownRow
from ragtrace.report.series import ScoreSeries

if TYPE_CHECKING:
    from ragtrace.history.reading import Ints
    from ragtrace.report.series import Mask

MOST_ROWS: Final = 500
"""Workflows or models that are estimated."""
_LEAST_AGREEMENT: Final = 0.5
"""Shares of the change are shown only if the sum over the rows is at least this share of the overall change."""


def break_down(
    series: ScoreSeries, codes: Ints, names: Sequence[str], chosen: Mask, groups: ComparedGroups | None
) -> tuple[BreakdownRow, ...]:
    """Return the estimate of each workflow or model, those that contribute most to the change first.

    Args:
        codes: workflow or model of each call, as a position in *names*.
        chosen: the calls that are counted.
        groups: the groups that are compared; None: nothing is compared, and those with most calls come first.
    """
    counted = chosen & (series.eligible > 0)
    calls = np.bincount(codes[counted], minlength=len(names))
    largest = np.argsort(-calls, kind="stable")[:MOST_ROWS]
    row_of = np.full(len(names), -1)
    row_of[largest] = np.arange(len(largest))
    rows = row_of[codes]
    group = np.where(counted, rows, -1)
    judged, estimates = series.judged(group, len(largest)), series.estimates(group, len(largest))
    changes = [None] * len(largest) if groups is None else _changes(series, rows, len(largest), groups)
    codes_of: list[int] = largest.tolist()
    found = [
        BreakdownRow(names[code], int(calls[code]), judged[row], estimates[row], changes[row])
        for row, code in enumerate(codes_of)
        if calls[code]
    ]
    return tuple(sorted(found, key=_share, reverse=True))


def _share(row: BreakdownRow) -> float:
    return float("inf") if row.moved is None or row.moved.share is None else row.moved.share


def _changes(series: ScoreSeries, rows: Ints, count: int, groups: ComparedGroups) -> list[BreakdownChange]:
    """Return the estimates of each workflow or model in both groups of calls, and their change."""
    calls, judged = list[list[int]](), list[list[int]]()
    estimates, overall = list[list[Estimate]](), list[float | None]()
    for side in (groups.calls_before, groups.calls_after):
        here = side & (series.eligible > 0)
        group = np.where(here, rows, -1)
        calls.append(np.bincount(group[group >= 0], minlength=count).tolist())
        judged.append(series.judged(group, count))
        estimates.append(series.estimates(group, count))
        overall.append(series.estimate(here).value)
    before, after = overall
    shares = [None] * count if before is None or after is None else _shares(estimates, calls, before, after)
    return [
        BreakdownChange(
            before=estimates[0][row],
            after=estimates[1][row],
            judged_before=judged[0][row],
            judged_after=judged[1][row],
            change=change_between(estimates[0][row], estimates[1][row], higher_is_better=series.higher_is_better),
            share=shares[row],
        )
        for row in range(count)
    ]


def _shares(
    estimates: Sequence[Sequence[Estimate]], calls: Sequence[Sequence[int]], before: float, after: float
) -> list[float | None]:
    """Return each row's share of the overall change; all None where the rows do not add up to it.

    On either side, a row adds (its calls / all calls) * (its mean - the overall mean before) to the overall mean. The
    sum of these is the overall change, except that each estimate is corrected by the screen on its own.
    """
    totals = [max(1, sum(side)) for side in calls]

    def contribution(side: int, row: int) -> float | None:
        value = estimates[side][row].value
        if value is None:
            return None if calls[side][row] else 0.0
        return calls[side][row] / totals[side] * (value - before)

    found: list[float] = []
    for row in range(len(calls[0])):
        was, became = contribution(0, row), contribution(1, row)
        if was is None or became is None:
            return [None] * len(calls[0])
        found.append(became - was)
    whole, change = sum(found), after - before
    agree = change != 0 and _LEAST_AGREEMENT <= whole / change <= 1 / _LEAST_AGREEMENT
    return [each / whole if agree else None for each in found]
