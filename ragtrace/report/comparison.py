"""Comparison of two groups of calls: two periods, two releases or two models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import Estimate, difference
from ragtrace.history.reading import Columns
from ragtrace.report.model import (
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
    from ragtrace.history.reading import Ints
    from ragtrace.report.series import Mask

_MOST_NAMES_IN_ERROR: Final = 10
_LATEST_S: Final = 3600.0
_LATEST_SHARE: Final = 1 / 6
_RECENT_SHARE: Final = 0.25
_WIDER: Final = 2.5758 / 1.96
"""Ratio of a 99 % interval's width to that of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class ComparedGroups:
    """The two groups of calls that a report compares, as masks over the calls of the history."""

    kind: ComparisonKind
    before: str
    after: str
    calls_before: Mask
    calls_after: Mask


def compared_groups(columns: Columns, compare: str, period: Period) -> ComparedGroups | None:
    """Return the two groups that *compare* names: `previous`, or `A:B`; None for `none`.

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


def compare_metrics(columns: Columns, found: Sequence[ScoreSeries], groups: ComparedGroups) -> Comparison:
    """Return every estimated metric in both groups of calls."""
    return Comparison(
        groups.kind,
        groups.before,
        groups.after,
        int(groups.calls_before.sum()),
        int(groups.calls_after.sum()),
        tuple(_compare(series, groups) for series in found if series.estimated),
        releases_of(columns, groups.calls_before),
        releases_of(columns, groups.calls_after),
    )


def _compare(series: ScoreSeries, groups: ComparedGroups) -> MetricComparison:
    before, after = series.split(groups.calls_before, groups.calls_after)
    change = change_between(before, after, higher_is_better=series.higher_is_better)
    missing = "before" if before.value is None else "after"
    reason = "" if change else f"nothing was judged by {series.evaluator} {missing}"
    return MetricComparison(series.metric, series.evaluator, series.higher_is_better, before, after, change, reason)


def releases_of(columns: Columns, chosen: Mask) -> tuple[str, ...]:
    """Return the sorted releases of the *chosen* calls."""
    found = {columns.sources[number].release for number in np.unique(columns.source[chosen]).tolist()}
    return tuple(sorted(found - {""}))


def change_between(
    before: Estimate, after: Estimate, *, higher_is_better: bool, widening: float = 1.0
) -> Change | None:
    """Return after - before with its 95 % interval; None if one of the estimates is unknown.

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


def recent_change(columns: Columns, series: ScoreSeries, period: Period) -> RecentChange | None:
    """Compare the newest quarter of *period* with the rest of it; None if nothing was judged in one of them."""
    since = period.end - _RECENT_SHARE * (period.end - period.start)
    within, newest = (columns.at >= period.start) & (columns.at < period.end), columns.at >= since
    before, after = series.split(within & ~newest, within & newest)
    change = change_between(before, after, higher_is_better=series.higher_is_better, widening=_WIDER)
    return None if change is None else RecentChange(since, before, after, change)


def latest_estimate(columns: Columns, series: ScoreSeries, period: Period) -> TimelinePoint | None:
    """Return the estimate of the last hour of *period*, or of its last sixth if that is shorter; None without calls."""
    newest = Period(period.end - min(_LATEST_S, _LATEST_SHARE * (period.end - period.start)), period.end)
    group = np.where((columns.at >= newest.start) & (columns.at < newest.end), 0, -1)
    estimate = series.estimates(group, 1)[0]
    return None if estimate.value is None else TimelinePoint(newest, estimate, series.judged(group, 1)[0])
