"""The moments of this process: for ever as counters, and of the last hour in slices of time."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from operator import add
from time import monotonic
from typing import Final, NamedTuple

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.moments import NAMES, Moments
from ragtrace.system.faults import faults
from ragtrace.system.forks import in_child

SLICE_SECONDS: Final = 30.0
KEPT_SECONDS: Final = 3600.0
MOST_SERIES: Final = 500
OTHER: Final = "other"
"""Workflow under which the calls of further series are counted when there are too many."""


class Series(NamedTuple):
    """Whose scores of what are summed."""

    metric: str
    evaluator: str
    workflow: str
    labels: tuple[tuple[str, str], ...] = ()
    """Further labels by name, sorted; few values each. Not on the wire."""


class _Account:
    """The sums of one series, in slices of time, and what the slices before the newest one add up to."""

    __slots__ = ("past", "slices")

    def __init__(self) -> None:
        self.past = _zeros()
        self.slices: deque[tuple[int, array[float]]] = deque(maxlen=round(KEPT_SECONDS / SLICE_SECONDS) + 1)

    def add(self, moments: Moments, now: int) -> None:
        if not self.slices or self.slices[-1][0] != now:
            self.past = array("d", self.total())
            self.slices.append((now, _zeros()))
        recent = self.slices[-1][1]
        for index, value in enumerate(moments.values()):
            recent[index] += value

    def total(self) -> Iterable[float]:
        return map(add, self.past, self.slices[-1][1]) if self.slices else self.past

    def since(self, first: int | None) -> Iterable[Iterable[float]]:
        return [self.total()] if first is None else [sums for at, sums in self.slices if at >= first]


def _zeros() -> array[float]:
    return array("d", bytes(8 * len(NAMES)))


class RunningMoments:
    """Adds up the moments of finished calls; safe from any thread, empty again in a forked child.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.reset()
        # A fork copies our lock, perhaps held, and the parent's sums, which the parent exports itself.
        in_child(self.reset)

    def reset(self) -> None:
        """Start at 0."""
        self._lock = threading.RLock()
        self._accounts: dict[Series, _Account] = {}

    def add(self, series: Series, moments: Moments) -> None:
        """Count what one call adds: all of it is in any later reading, or none."""
        with self._lock:
            self._account(series).add(moments, self._slice(0.0))

    def mean_screen(self, series: Series) -> float:
        """Mean score of the screen over all calls of *series* so far; 0 if it has seen none."""
        with self._lock:
            account = self._accounts.get(series)
            n, f = (0.0, 0.0) if account is None else list(account.total())[:2]
            return f / n if n else 0.0

    def totals(self) -> dict[tuple[str, str, str], Moments]:
        """Since the start, by metric, evaluator and workflow, all of one moment: what the exported counter reads."""
        with self._lock:
            read = [(series[:3], Moments(*account.total())) for series, account in self._accounts.items()]
        sums: dict[tuple[str, str, str], Moments] = {}
        for key, moments in read:
            sums[key] = sums[key] + moments if key in sums else moments
        return sums

    def sum(
        self,
        metric: str,
        *,
        workflow: str | None = None,
        window: float | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Moments:
        """The moments of *metric*.

        Args:
            metric: its name.
            workflow: of that workflow alone; None: of all.
            window: of the calls that were scored in the last so many seconds, rounded up to slices of 30; None: since
                the start.
            labels: of the series that have these labels alone.

        Raises:
            SettingsError: the window is not positive, or longer than what is kept.
        """
        if window is not None and not 0 < window <= KEPT_SECONDS:
            raise SettingsError(
                f"window must be more than 0 and at most {KEPT_SECONDS:g} seconds, got {window!r}; leave it out for "
                "all calls since the start, or ask your metrics backend about longer times"
            )
        wanted = frozenset((labels or {}).items())
        total = Moments()
        with self._lock:
            first = None if window is None else self._slice(-window)
            for series, account in self._accounts.items():
                here = series.metric == metric and workflow in (None, series.workflow)
                if here and wanted <= set(series.labels):
                    for sums in account.since(first):
                        total += Moments(*sums)
        return total

    def workflows(self, metric: str) -> list[str]:
        """The workflows in which *metric* was met, sorted."""
        with self._lock:
            return sorted({series.workflow for series in self._accounts if series.metric == metric})

    def labels(self, metric: str, name: str) -> list[str]:
        """The values of the label *name* that were met with *metric*, sorted."""
        with self._lock:
            found = {dict(series.labels).get(name) for series in self._accounts if series.metric == metric}
        return sorted(value for value in found if value is not None)

    def _slice(self, ahead: float) -> int:
        return int((self._clock() + ahead) // SLICE_SECONDS)

    def _account(self, series: Series) -> _Account:
        account = self._accounts.get(series)
        if account is None:
            if len(self._accounts) >= MOST_SERIES:
                series = Series(series.metric, series.evaluator, OTHER)
                faults.warn_once(
                    "too many series of moments",
                    "more than %d combinations of metric, workflow and label are estimated: calls of further ones are "
                    "counted under the workflow %r. Are workflow names unique to a call? Give @trace a name=",
                    MOST_SERIES,
                    OTHER,
                )
            account = self._accounts.setdefault(series, _Account())
        return account
