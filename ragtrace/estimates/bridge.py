"""Bridge over a change of a judge's model: how far its mean score moved, from calls that both models have scored.

When another model answers behind the judge's name, its scores are not those that labels calibrated. Calls scored by
both say how much the judge's own mean has moved. With d the difference of the two scores of a call, the 95 % interval
of the mean difference is
    mean d +- 1.96 sqrt(sum of (d - mean d)^2 + a) / n,  a = 0.25, or 1 for verdicts of 0 and 1,
and (1.96 sd / 0.01)^2 calls make it one point on either side; 300 are asked at least. It is the offset of the judge's
rate alone: the rate that labels would show needs the labelled calls scored anew, and a curve fitted to these scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final, NamedTuple

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.formulas import Z

FEWEST: Final = 300
"""Fewest calls that both models must have scored."""
MOST: Final = 3_000
"""Number of calls that suffices for one point at another model's scores; verdicts may need up to 6,400."""
WANTED: Final = 0.01
_EXTRA: Final = 0.25
_EXTRA_OF_VERDICTS: Final = 1.0


class Offset(NamedTuple):
    """Mean difference of the scores of two models, later minus earlier, with its 95 % interval."""

    n: int
    value: float
    low: float
    high: float
    deviation: float
    """Standard deviation of the difference."""

    @property
    def half_width(self) -> float:
        """Half of the width of the interval."""
        return (self.high - self.low) / 2.0


def score_offset(before: Sequence[float], after: Sequence[float]) -> Offset:
    """Return how far the mean score moved from one model to another, with its 95 % interval.

    Args:
        before: scores by the earlier model, in [0, 1].
        after: scores of the same calls by the later model.

    Raises:
        SettingsError: there are fewer than two pairs, the lengths differ, or a score is not in [0, 1].
    """
    if len(before) < 2 or len(before) != len(after):
        raise SettingsError(f"before and after must be equally many and at least two, got {len(before)}, {len(after)}")
    if not all(0.0 <= score <= 1.0 for score in (*before, *after)):
        raise SettingsError("scores must be in [0, 1], got others; leave out calls without a score")
    found = [second - first for first, second in zip(before, after, strict=True)]
    n, mean = len(found), fmean(found)
    square = math.fsum((each - mean) ** 2 for each in found)
    verdicts = all(score in (0.0, 1.0) for score in (*before, *after))
    half = Z * math.sqrt(square + (_EXTRA_OF_VERDICTS if verdicts else _EXTRA)) / n
    return Offset(n, mean, mean - half, mean + half, math.sqrt(square / (n - 1)))


def calls_needed(offset: Offset, wanted: float = WANTED) -> int:
    """Return how many calls both models must score for an interval of *wanted* on either side, at least `FEWEST`."""
    return max(FEWEST, math.ceil((Z * offset.deviation / wanted) ** 2))
