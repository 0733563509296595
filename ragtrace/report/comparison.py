"""Comparison of metrics between two groups of RAG calls: two periods, two releases or two models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import Estimate, difference
from ragtrace.history.reading import CallColumns
from ragtrace.report.comparability import why_not_comparable
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
    from typing import TypeAlias

    from ragtrace.history.segments import Ints
    from ragtrace.report.series import Mask

    Watched: TypeAlias = Callable[[ScoreSeries, Change], Change]

_MOST_NAMES_IN_ERROR: Final = 10
_LATEST_S: Final = 3600.0
_LATEST_SHARE: Final = 1 / 6
_RECENT_SHARE: Final = 0.25
MOST_ROWS: Final = 500
"""Most workflows or models with estimates: those with the most calls."""
MOST_AT_SOME_LOOK: Final = 3.6 / 1.96
"""Widening of a 95 % interval with which the difference of two periods in a row, such as the last 24 hours and those
before, does not contain 0 at any of a week's hourly looks in at most 5 % of weeks without a change."""
_ROLLOUT_LEVEL: Final = 0.05
"""Probability that a release is called worse at any look, ever, where it is not."""
_ROLLOUT_SCORES: Final = 60.0
"""Number of scores at which a roll-out is judged with least loss; at ten times as many the loss is as small."""
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


class ComparedSeries(NamedTuple):
    """Scores of a metric with its estimates for the two groups of calls that a report compares."""

    series: ScoreSeries
    before: Estimate
    after: Estimate

    @classmethod
    def of(cls, series: ScoreSeries, groups: ComparedGroups) -> ComparedSeries:
        """Return *series* with its estimates for both groups."""
        return cls(series, *series.split(groups.calls_before, groups.calls_after))

    def values_of_counted(self, groups: ComparedGroups) -> list[float | None]:
        """Return the estimate for all calls that count, in each of the two groups.

        Every breakdown of the metric has the same two.
        """
        series = self.series
        if series.eligible[series.judged_calls()].all():  # as usual: the screen scored each call that the judge saw
            return [self.before.value, self.after.value]
        return [series.estimate(side & series.eligible).value for side in (groups.calls_before, groups.calls_after)]


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
        this = "this" if length == "1 hour" else "these"
        return ComparedGroups("periods", f"the {length} before", f"{this} {length}", ~within, within)
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


def compare_metrics(
    columns: CallColumns, found: Sequence[ComparedSeries], groups: ComparedGroups, watched: Watched | None = None
) -> Comparison:
    """Compare the estimate of every metric between the two groups of calls.

    Args:
        columns: the calls.
        found: the metrics.
        groups: the groups.
        watched: gives the direction of a metric's change with respect to what is usual at that time.
    """
    return Comparison(
        groups.kind,
        groups.before,
        groups.after,
        int(groups.calls_before.sum()),
        int(groups.calls_after.sum()),
        tuple(_compare(each, groups, watched) for each in found),
        release_names(columns, groups.calls_before),
        release_names(columns, groups.calls_after),
    )


def _compare(compared: ComparedSeries, groups: ComparedGroups, watched: Watched | None) -> MetricComparison:
    series, before, after = compared
    reason = why_not_comparable(series, groups.calls_before, groups.calls_after)
    change = None
    if not reason:
        widening = MOST_AT_SOME_LOOK if groups.kind == "periods" else rollout_widening(before, after)
        change = change_between(before, after, higher_is_better=series.higher_is_better, widening=widening)
        if change is not None and watched is not None:
            change = watched(series, change)
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
    change = Change(value, low, high, "unclear")
    return replace(change, direction=direction_of(change, higher_is_better, widening=widening))


def direction_of(change: Change, higher_is_better: bool, *, widening: float, usual: float = 0.0) -> Direction:
    """Return the direction of a change beyond what is usual, which is unclear if the widened interval contains 0."""
    value = change.value - usual
    if value - widening * (change.value - change.low) <= 0.0 <= value + widening * (change.high - change.value):
        return "unclear"
    return "better" if (value > 0.0) == higher_is_better else "worse"  # `is` would fail a number of numpy's


def rollout_widening(before: Estimate, after: Estimate) -> float:
    """Return the widening of the 95 % interval of a difference that is looked at again and again while calls come.

    A release that is no worse is called worse at any look, ever, with a probability of about 5 % at most.

    Source: the mixture sequential probability ratio test of Robbins 1970, "Statistical methods related to the law of
    the iterated logarithm", Annals of Mathematical Statistics 41:1397, one-sided.
    """
    if before.effective_n <= 0.0 or after.effective_n <= 0.0:
        return 1.0
    scores = 1.0 / (1.0 / before.effective_n + 1.0 / after.effective_n)
    share = scores / _ROLLOUT_SCORES
    squared = (1.0 + 1.0 / share) * (math.log1p(share) + 2.0 * math.log(0.5 / _ROLLOUT_LEVEL))
    return math.sqrt(squared) / 1.96


def recent_change(columns: CallColumns, series: ScoreSeries, period: Period) -> RecentChange | None:
    """Compare a metric's estimate in the newest quarter of *period* with the rest of the period.

    Returns None if no call was judged in one of these parts.
    """
    since = period.end - _RECENT_SHARE * (period.end - period.start)
    within, newest = (columns.at >= period.start) & (columns.at < period.end), columns.at >= since
    if why_not_comparable(series, within & ~newest, within & newest):
        return None
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
        overall: estimates for all calls that count, in each of the two groups; nothing if there are none.
    """
    counted = chosen & series.eligible
    calls = np.bincount(codes[counted], minlength=len(names))
    largest = np.argsort(-calls, kind="stable")[:MOST_ROWS]
    row_of = np.full(len(names), -1, np.int16)
    row_of[largest] = np.arange(len(largest), dtype=np.int16)
    rows = row_of[codes]
    changes: Sequence[BreakdownChange | None] = [None] * len(largest)
    if groups is None or why_not_comparable(series, groups.calls_before, groups.calls_after):
        (of_chosen,) = _breakdown(series, rows, [chosen], len(largest))
    else:
        before, after = _breakdown(series, rows, [groups.calls_before, groups.calls_after], len(largest))
        changes = _changes(series, before, after, overall)
        if np.array_equal(groups.calls_after, chosen):
            of_chosen = after
        else:
            (of_chosen,) = _breakdown(series, rows, [chosen], len(largest))
    codes_of: list[int] = largest.tolist()
    found = [
        BreakdownRow(names[code], int(calls[code]), of_chosen.judged[row], of_chosen.estimates[row], changes[row])
        for row, code in enumerate(codes_of)
        if calls[code]
    ]

    def share(row: BreakdownRow) -> float:
        return float("inf") if row.moved is None or row.moved.share is None else row.moved.share

    return tuple(sorted(found, key=share, reverse=True))


class _Breakdown(NamedTuple):
    """Calls that count, judged calls and estimate of each workflow or model, of one group of calls."""

    calls: list[int]
    judged: list[int]
    estimates: list[Estimate]


def _breakdown(series: ScoreSeries, rows: Ints, sides: Sequence[Mask], count: int) -> list[_Breakdown]:
    """Return the breakdown of a metric for each of several groups that have no call in common, in one pass.

    Args:
        rows: workflow or model of each call, as a row from 0 to *count*; -1: none.
        sides: the groups.
    """
    group, counted = np.full(len(rows), -1, np.int16), series.eligible & (rows >= 0)  # the rows are few
    for number, side in enumerate(sides):
        np.add(rows, number * count, out=group, where=side & counted)
    whole = count * len(sides)
    calls = np.bincount(group[group >= 0], minlength=whole).tolist()
    judged, estimates = series.count_judged(group, whole), series.estimates(group, whole)
    starts = range(0, whole, count) if count else [0] * len(sides)
    return [_Breakdown(calls[at : at + count], judged[at : at + count], estimates[at : at + count]) for at in starts]


def _changes(
    series: ScoreSeries, before: _Breakdown, after: _Breakdown, overall: Sequence[float | None]
) -> list[BreakdownChange]:
    """Compare the estimate of a metric for each workflow or model between two groups of calls.

    Args:
        before: breakdown of the one group.
        after: breakdown of the other.
        overall: estimates of all rows together in both.
    """
    sides, count, up = (before, after), len(before.calls), series.higher_is_better
    known = [value for value in overall if value is not None]
    shares = [None] * count if len(known) < 2 else _shares(sides, *known)
    return [
        BreakdownChange(
            before=before.estimates[row],
            after=after.estimates[row],
            judged_before=before.judged[row],
            judged_after=after.judged[row],
            change=change_between(before.estimates[row], after.estimates[row], higher_is_better=up),
            share=shares[row],
        )
        for row in range(count)
    ]


def _shares(sides: Sequence[_Breakdown], before: float, after: float) -> list[float | None]:
    """Return the share of each workflow or model in a metric's overall change.

    All shares are None if the rows do not add up to the overall change.

    On either side, a row adds (its calls / all calls) * (its mean - the overall mean before) to the overall mean. The
    sum of these is the overall change, except that each estimate is corrected by the screen on its own.
    """
    totals = [max(1, sum(side.calls)) for side in sides]

    def contribution(side: int, row: int) -> float | None:
        value, calls = sides[side].estimates[row].value, sides[side].calls[row]
        if value is None:
            return None if calls else 0.0
        return calls / totals[side] * (value - before)

    found: list[float] = []
    for row in range(len(sides[0].calls)):
        was, became = contribution(0, row), contribution(1, row)
        if was is None or became is None:
            return [None] * len(sides[0].calls)
        found.append(became - was)
    whole, change = sum(found), after - before
    agree = change != 0 and _LEAST_AGREEMENT <= whole / change <= 1 / _LEAST_AGREEMENT
    return [each / whole if agree else None for each in found]
