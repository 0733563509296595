"""Comparison of metrics between two groups of RAG calls: two periods, two releases or two models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import NOT_A_RATE
from ragtrace.estimates import Estimate, difference
from ragtrace.history.reading import CallColumns
from ragtrace.report.model import (
    BreakdownChange,
    BreakdownRow,
    Change,
    Comparison,
    ComparisonKind,
    Direction,
    MetricComparison,
    Period,
    RecentChange,
    TimelinePoint,
)
from ragtrace.report.series import ScoreSeries
from ragtrace.report.wording import format_length

if TYPE_CHECKING:
    from ragtrace.history.segments import Ints
    from ragtrace.report.series import Mask

_MOST_NAMES_IN_ERROR: Final = 10
_LATEST_S: Final = 3600.0
_LATEST_SHARE: Final = 1 / 6
_RECENT_SHARE: Final = 0.25
MOST_ROWS: Final = 500
"""Most workflows or models with estimates: those with the most calls."""
_LEAST_AGREEMENT: Final = 0.5
"""Lowest ratio, either way, of the rows' total change to the overall change at which shares of the change are shown."""


@dataclass(frozen=True, slots=True)
class ComparedGroups:
    """The two groups of RAG calls that a report compares, as boolean masks with one element per call."""

    kind: ComparisonKind
    before: str
    after: str
    calls_before: Mask
    calls_after: Mask


def compared_groups(columns: CallColumns, compare: str, period: Period) -> ComparedGroups | None:
    """Return the two groups of RAG calls selected by the option `--compare`, or None if its value is `none`.

    `previous` selects the period and the one before it, `A:B` two releases or two models.

    Raises:
        SettingsError: there are no calls of that name.
    """
    within = columns.at >= period.start
    if compare == "none":
        return None
    if compare == "previous":
        length = format_length(period.end - period.start)
        return ComparedGroups("periods", f"the {length} before", f"these {length}", ~within, within)
    releases = {number: source.release for number, source in columns.sources.items()}
    models = dict(enumerate(columns.models))
    kinds: tuple[tuple[ComparisonKind, dict[int, str], Ints], ...] = (
        ("releases", releases, columns.source),
        ("models", models, columns.model),
    )
    for kind, names, codes in kinds:
        known = set(names.values()) - {""}
        # Names may contain colons, so every colon is tried as the separator.
        pairs = ((compare[:at], compare[at + 1 :]) for at, char in enumerate(compare) if char == ":")
        for before, after in pairs:
            if before in known and after in known:
                masks = [
                    np.isin(codes, [code for code, name in names.items() if name == side]) for side in (before, after)
                ]
                return ComparedGroups(kind, before, after, masks[0] & within, masks[1] & within)
    found = sorted({*releases.values(), *models.values()} - {""})
    raise SettingsError(
        f"--compare must be previous, none, or two versions or models A:B, got {compare!r}; in this time there are: "
        f"{', '.join(found[:_MOST_NAMES_IN_ERROR]) or 'none (versions are the resource attribute service.version)'}"
    )


def compare_metrics(columns: CallColumns, found: Sequence[ScoreSeries], groups: ComparedGroups) -> Comparison:
    """Compare the estimate of every metric between the two groups of calls."""
    return Comparison(
        groups.kind,
        groups.before,
        groups.after,
        int(groups.calls_before.sum()),
        int(groups.calls_after.sum()),
        tuple(_compare(series, groups) for series in found if series.estimated),
        release_names(columns, groups.calls_before),
        release_names(columns, groups.calls_after),
    )


def _compare(series: ScoreSeries, groups: ComparedGroups) -> MetricComparison:
    before, after = series.split(groups.calls_before, groups.calls_after)
    change = change_between(before, after, higher_is_better=series.higher_is_better)
    missing = "before" if before.value is None else "after"
    why = NOT_A_RATE if series.is_raw else f"nothing was judged by {series.evaluator} {missing}"
    reason = "" if change else why
    return MetricComparison(series.metric, series.evaluator, series.higher_is_better, before, after, change, reason)


def release_names(columns: CallColumns, chosen: Mask) -> tuple[str, ...]:
    """Return the sorted names of the application releases that made the selected calls."""
    found = {columns.sources[number].release for number in np.unique(columns.source[chosen]).tolist()}
    return tuple(sorted(found - {""}))


def change_between(
    before: Estimate, after: Estimate, *, higher_is_better: bool, widening: float = 1.0
) -> Change | None:
    """Return the difference of two estimates (after - before) with its 95 % interval, or None if either is unknown.

    Args:
        widening: factor by which the interval is widened before it decides on the direction.
    """
    found = difference(after, before)
    if found is None:
        return None
    value, low, high = found
    direction: Direction = "better" if (value > 0) is higher_is_better else "worse"
    if value - widening * (value - low) <= 0.0 <= value + widening * (high - value):
        direction = "unclear"
    return Change(value, low, high, direction)


def recent_change(columns: CallColumns, series: ScoreSeries, period: Period) -> RecentChange | None:
    """Compare a metric's estimate in the newest quarter of *period* with the rest of the period.

    Returns None if no call was judged in one of these parts.
    """
    since = period.end - _RECENT_SHARE * (period.end - period.start)
    within, newest = (columns.at >= period.start) & (columns.at < period.end), columns.at >= since
    before, after = series.split(within & ~newest, within & newest)
    # Ratio of the width of a 99 % interval to the width of a 95 % interval.
    change = change_between(before, after, higher_is_better=series.higher_is_better, widening=(2.5758 / 1.96))
    return None if change is None else RecentChange(since, before, after, change)


def latest_estimate(columns: CallColumns, series: ScoreSeries, period: Period) -> TimelinePoint | None:
    """Return a metric's estimate over the last hour of *period*, or None if no call was judged in the hour.

    Of a period shorter than six hours, it is the last sixth.
    """
    newest = Period(period.end - min(_LATEST_S, _LATEST_SHARE * (period.end - period.start)), period.end)
    group = np.where((columns.at >= newest.start) & (columns.at < newest.end), 0, -1)
    estimate = series.estimates(group, 1)[0]
    return None if estimate.value is None else TimelinePoint(newest, estimate, series.count_judged(group, 1)[0])


def estimate_by_group(
    series: ScoreSeries,
    codes: Ints,
    names: Sequence[str],
    chosen: Mask,
    groups: ComparedGroups | None,
    overall: Sequence[float | None],
) -> tuple[BreakdownRow, ...]:
    """Estimate a metric for each workflow or model, largest contributor to the overall change first.

    Args:
        codes: workflow or model of each call, as a position in *names*.
        chosen: the calls that are counted.
        groups: the groups that are compared; None: nothing is compared, and those with most calls come first.
        overall: `overall_values` of the groups.
    """
    counted = chosen & series.eligible
    calls = np.bincount(codes[counted], minlength=len(names))
    largest = np.argsort(-calls, kind="stable")[:MOST_ROWS]
    row_of = np.full(len(names), -1)
    row_of[largest] = np.arange(len(largest))
    rows = row_of[codes]
    group = np.where(counted, rows, -1)
    judged, estimates = series.count_judged(group, len(largest)), series.estimates(group, len(largest))
    judged_in_both = groups is not None and all(
        (side & (series.weight > 0)).any() for side in (groups.calls_before, groups.calls_after)
    )
    changes: Sequence[BreakdownChange | None] = [None] * len(largest)
    if groups and judged_in_both:
        changes = _changes(series, rows, (judged, estimates), chosen, groups, overall)
    codes_of: list[int] = largest.tolist()
    found = [
        BreakdownRow(names[code], int(calls[code]), judged[row], estimates[row], changes[row])
        for row, code in enumerate(codes_of)
        if calls[code]
    ]

    def share(row: BreakdownRow) -> float:
        return float("inf") if row.moved is None or row.moved.share is None else row.moved.share

    return tuple(sorted(found, key=share, reverse=True))


def overall_values(series: ScoreSeries, groups: ComparedGroups | None) -> list[float | None]:
    """Return the estimate of a metric for all calls that count, in each of the two groups; nothing if there are none.

    Every breakdown of the metric has the same two.
    """
    sides = () if groups is None else (groups.calls_before, groups.calls_after)
    return [series.estimate(side & series.eligible).value for side in sides]


def _changes(
    series: ScoreSeries,
    rows: Ints,
    of_chosen: tuple[list[int], list[Estimate]],
    chosen: Mask,
    groups: ComparedGroups,
    overall: Sequence[float | None],
) -> list[BreakdownChange]:
    """Compare the estimate of a metric for each workflow or model between the two groups of calls.

    Args:
        rows: row of each call.
        of_chosen: judged calls and estimate of each row, of the calls *chosen*.
        chosen: usually one of the groups.
        groups: the two groups.
        overall: estimates of all rows together in both.
    """
    count = len(of_chosen[0])
    calls, judged, estimates = list[list[int]](), list[list[int]](), list[list[Estimate]]()
    for side in (groups.calls_before, groups.calls_after):
        group = np.where(side & series.eligible, rows, -1)
        calls.append(np.bincount(group[group >= 0], minlength=count).tolist())
        same = np.array_equal(side, chosen)
        judged.append(of_chosen[0] if same else series.count_judged(group, count))
        estimates.append(of_chosen[1] if same else series.estimates(group, count))
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
    """Return the share of each workflow or model in a metric's overall change.

    All shares are None if the rows do not add up to the overall change.

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
