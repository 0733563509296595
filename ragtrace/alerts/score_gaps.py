"""Gaps between the scores of an alert, by which a stop of the scores is told apart from a usual night or weekend.

A gap is unusual if it is longer than 1.75 times the longest usual one, and than 20 times the mean gap, which
independent calls exceed once in 400 million gaps. Gaps are learned over a week before the first can be unusual, so that
nights and one weekend are among them, and are forgotten after eight weeks. A gap that was unusual is usual once another
has been about as long: one stop must not hide the next.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

_WEEK: Final = 7 * 86_400.0
_KEPT_WEEKS: Final = 8
_LONGEST_FACTOR: Final = 1.75
"""A night of 12 hours is exceeded within a day, and a weekend of 62 is not by one of four days without work."""
_MEAN_FACTOR: Final = 20.0


@dataclass(slots=True)
class _Week:
    """Gaps that ended in one week."""

    number: int
    """Whole weeks from the first score on."""
    count: int = 0
    longest_usual: float = 0.0
    longest: list[float] = field(default_factory=list[float])
    """The longest two gaps, usual or not."""


class ScoreGaps:
    """Memory of the gaps between the scores of an alert. Not thread-safe.

    Args:
        least: seconds that an unusual gap has at least.
        fixed: seconds from which on a gap is unusual, instead of what is learned; None: learned.
    """

    def __init__(self, least: float, fixed: float | None = None) -> None:
        self._least, self._fixed = least, fixed
        self._first_at = self._last_at = math.inf
        self._weeks: deque[_Week] = deque(maxlen=_KEPT_WEEKS)

    def add(self, now: float) -> None:
        """Add a score at the monotonic time *now*."""
        if self._first_at == math.inf:
            self._first_at = self._last_at = now
            return
        gap, unusual = now - self._last_at, self.is_unusual(now)
        number = int((now - self._first_at) / _WEEK)
        if not self._weeks or self._weeks[-1].number != number:
            self._weeks.append(_Week(number))
        week = self._weeks[-1]
        week.count += 1
        week.longest = sorted([*week.longest, gap])[-2:]
        if not unusual:
            week.longest_usual = max(week.longest_usual, gap)
        self._last_at = now

    @property
    def limit(self) -> float:
        """Seconds after which a gap is unusual; infinite while that is not known."""
        if self._fixed is not None:
            return self._fixed
        if not self._weeks or self._last_at - self._first_at < _WEEK:
            return math.inf
        longest = sorted(gap for week in self._weeks for gap in week.longest)
        usual = max(longest[-2:][0], *(week.longest_usual for week in self._weeks))
        since = self._first_at + self._weeks[0].number * _WEEK
        mean = (self._last_at - since) / sum(week.count for week in self._weeks)
        return max(self._least, _LONGEST_FACTOR * usual, _MEAN_FACTOR * mean)

    def seconds_since_last(self, now: float) -> float:
        """Return the seconds since the last score at the monotonic time *now*; -inf if there was none."""
        return now - self._last_at

    def is_unusual(self, now: float) -> bool:
        """Return whether there has been no score for unusually long at the monotonic time *now*."""
        return self.seconds_since_last(now) > self.limit
