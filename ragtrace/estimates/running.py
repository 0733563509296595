"""Running moments of this process: totals since the start, and slices of the last hour."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable
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
"""Workflow that calls are counted under once there are `MOST_SERIES` series."""


class Series(NamedTuple):
    """Key of one series of sums: metric, evaluator, workflow and model."""

    metric: str
    evaluator: str
    workflow: str
    model: str = ""
    """Model that answered, which is not exported; empty: not known."""


class _Account:
    """Sums of one series: slices of the last hour, and the sum of all but the newest slice since the start."""

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


def _zeros() -> array[float]:
    return array("d", bytes(8 * len(NAMES)))


class RunningMoments:
    """Sums of the moments of finished calls. Thread-safe; reset in a forked child.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.reset()
        # A fork copies our lock, perhaps held, and the parent's sums, which the parent exports itself.
        in_child(self.reset)

    def reset(self) -> None:
        """Set all sums to 0."""
        self._lock = threading.RLock()
        self._accounts: dict[Series, _Account] = {}

    def add(self, series: Series, moments: Moments) -> None:
        """Add the moments of one call, atomically for all readers."""
        with self._lock:
            self._account(series).add(moments, self._slice_at(0.0))

    def mean_screen(self, series: Series) -> float:
        """Return the mean score of the screen over all calls of *series* so far; 0 without calls."""
        with self._lock:
            account = self._accounts.get(series)
            n, f = (0.0, 0.0) if account is None else list(account.total())[:2]
            return f / n if n else 0.0

    def totals(self) -> dict[tuple[str, str, str], Moments]:
        """Return the sums since the start by metric, evaluator and workflow, read at one moment, for the exporter."""
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
        model: str | None = None,
    ) -> Moments:
        """Return the moments of *metric*.

        Args:
            metric: name of the metric.
            workflow: the workflow; None: all.
            window: seconds that the calls were scored in, up to now, rounded up to slices of 30; None: since the start.
            model: the model that answered; None: all.

        Raises:
            SettingsError: the window is not positive, or longer than what is kept.
        """
        if window is not None and not 0 < window <= KEPT_SECONDS:
            raise SettingsError(
                f"window must be more than 0 and at most {KEPT_SECONDS:g} seconds, got {window!r}; leave it out for "
                "all calls since the start, or ask your metrics backend about longer times"
            )
        total = Moments()
        with self._lock:
            first = self._slice_at(-(window or 0.0))
            for series, account in self._accounts.items():
                if (
                    series.metric != metric
                    or workflow not in (None, series.workflow)
                    or model not in (None, series.model)
                ):
                    continue
                slices = [sums for at, sums in account.slices if at >= first]
                for sums in slices if window is not None else [account.total()]:
                    total += Moments(*sums)
        return total

    def _slice_at(self, offset: float) -> int:
        return int((self._clock() + offset) // SLICE_SECONDS)

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
