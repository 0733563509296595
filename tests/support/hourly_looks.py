"""Traffic of judged calls that is looked at again and again, as on a first page that is left open."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragtrace.estimates.ordered_sums import OrderedSums
from ragtrace.estimates.rhythm import DAY, MOST_PAST_S, TimedSums
from ragtrace.report.comparison import ComparedGroups, ComparedSeries, compare_metrics
from ragtrace.report.model import Change, Onset
from ragtrace.report.onset import ChangeSearch
from ragtrace.report.past_scores import NO_PAST
from ragtrace.report.series import ScoreSeries

Floats: TypeAlias = NDArray[np.float64]
T0: Final = 1_800_000_000.0
HOUR: Final = 3_600.0


class Traffic(NamedTuple):
    """Judged calls in order of time."""

    at: Floats
    bad: Floats
    weight: Floats

    def part(self, first: int, end: int) -> Traffic:
        return Traffic(*(each[first:end] for each in self))


class Look(NamedTuple):
    """What the first page says at one look: the change of 24 hours against the 24 before, and the onset."""

    change: Change | None
    onset: Onset | None

    @property
    def says_something(self) -> bool:
        """Whether it says that something went up or down."""
        return self.onset is not None or (self.change is not None and self.change.direction != "unclear")

    @property
    def is_red(self) -> bool:
        """Whether it says that something is worse, and not over."""
        if self.onset is not None and self.onset.end is not None and self.onset.direction == "worse":
            return False
        worse = self.change is not None and self.change.direction == "worse"
        return worse or (self.onset is not None and self.onset.direction == "worse")


def drawn(
    rng: np.random.Generator, days: float, per_day: float, rate: Callable[[Floats], Floats], kind: str = "all"
) -> Traffic:
    """Calls of some days from `T0` on, of which *kind* are judged: all, or more of those that look suspicious.

    Args:
        rng: random numbers.
        days: length of the time.
        per_day: calls a day.
        rate: probability that a call is bad, of the days since `T0`.
        kind: `all` or `suspicious`.
    """
    number = rng.poisson(per_day * days)
    at = np.sort(rng.random(number)) * days
    bad, weight = (rng.random(number) < rate(at)).astype(float), np.ones(number)
    if kind == "suspicious":
        chance = np.where(rng.random(number) < np.where(bad > 0.0, 0.6, 0.1), 1.0, 0.1)
        seen = rng.random(number) < chance
        at, bad, weight = at[seen], bad[seen], 1.0 / chance[seen]
    return Traffic(T0 + at * DAY, bad, weight)


def between(begin: float, end: float, within: float, outside: float, days: Floats) -> Floats:
    """The rate of the calls *within* a time, of days since `T0`, and *outside* it."""
    return np.where((days >= begin) & (days < end), within, outside)


def look(traffic: Traffic, now: float) -> Look:
    """What the first page says at the time *now* of the calls until then."""
    past, first, _, last = np.searchsorted(traffic.at, [now - 2 * DAY - MOST_PAST_S, now - 2 * DAY, now - DAY, now])
    seen = traffic.part(int(first), int(last))
    columns, series = _columns(seen)
    search = ChangeSearch(columns, series, _hourly(traffic.part(int(past), int(first))))
    groups = ComparedGroups("periods", "before", "now", seen.at < now - DAY, seen.at >= now - DAY)
    compared = [ComparedSeries.of(series, groups)]
    found = compare_metrics(columns, compared, groups, lambda _, change: search.watched(change, now - DAY))
    return Look(found.rows[0].change, search.onset(found))


def _columns(seen: Traffic) -> tuple[Any, ScoreSeries]:
    count = len(seen.at)
    none = np.zeros(count, np.int32)

    class Columns(SimpleNamespace):
        def __len__(self) -> int:
            return count

    columns = Columns(
        at=seen.at, workflow=none, model=none, source=none, workflows=["ask"], models=[""],
        sources={0: SimpleNamespace(release="")},
    )  # fmt: skip
    series = ScoreSeries(
        "hallucinated", "judge@1", False, np.arange(count, dtype=np.int32), seen.bad, seen.weight,
        np.zeros(count, bool), np.ones(count, bool), np.zeros(count), True, True,
    )  # fmt: skip
    return columns, series


def _hourly(past: Traffic) -> TimedSums:
    if not len(past.at):
        return NO_PAST
    _, place, count = np.unique((past.at - T0) // HOUR, return_inverse=True, return_counts=True)
    sums = np.array([np.bincount(place, weights=each) for each in OrderedSums.of(past.weight, past.bad)])
    return TimedSums(np.bincount(place, weights=past.at - T0) / count + T0, OrderedSums(*sums))
