"""Paired comparison: the mean difference of two scores of the same cases, with an exact interval.

**Interval.** The means of random subsets of the differences, each difference in or out with probability 1/2, are
typical values: the mean difference lies below each of them with equal probability where the differences are
independent and symmetric about it. The interval runs from the k-th smallest to the k-th largest of them. It excludes 0
where a test by random signs rejects, with ties counted against rejection. If the same application, judged by the same
noisy judge, runs twice, then the two scores of a case are exchangeable and their difference is symmetric about 0:
however the scores are distributed and however few the cases are, the interval then excludes 0 no more often than it
says.

**Source.** Hartigan 1969, "Using subsample values as typical values", Journal of the American Statistical Association
64:1303; Fisher 1935, "The Design of Experiments", section 21 (the test).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONFIDENCE: Final = 0.95
_SUBSETS: Final = 3_999


class PairedDifference(NamedTuple):
    """Mean difference of paired scores, after - before, with its interval."""

    n: int
    """Number of pairs."""
    value: float
    low: float | None
    """Lower end of the interval; None: the pairs are too few for an interval of this confidence."""
    high: float | None


def least_pairs(confidence: float = CONFIDENCE) -> int:
    """Return the least number of score pairs for which the confidence interval of their mean difference is finite."""
    return math.ceil(-math.log2((1.0 - confidence) / 2.0))


def paired_difference(
    before: Sequence[float], after: Sequence[float], *, confidence: float = CONFIDENCE
) -> PairedDifference:
    """Return the mean of after - before over the cases, with its interval.

    Args:
        before: scores of the cases in the earlier run.
        after: scores of the same cases, in the same order.
        confidence: probability with which the interval holds the true mean difference.

    Raises:
        SettingsError: there are no pairs, the lengths differ, a score is not finite, or the confidence is not between
            0 and 1.

    Source: see the module.
    """
    if not before or len(before) != len(after):
        raise SettingsError(f"before and after must be equally many and at least one, got {len(before)}, {len(after)}")
    if not 0.0 < confidence < 1.0:
        raise SettingsError(f"confidence must be between 0 and 1, got {confidence!r}; write for instance 0.95")
    found = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    if not np.isfinite(found).all():
        raise SettingsError("scores must be finite numbers, got others; leave out calls without a score")
    n, value = len(found), float(found.mean())
    if n < least_pairs(confidence):
        return PairedDifference(n, value, None, None)
    # Fixed seed, so that equal differences have the same interval in each run.
    random = np.random.default_rng(20_260_101)
    means: list[NDArray[np.float64]] = []
    # Number of differences of subsets that are in memory at the same time.
    rows = max(1, min(_SUBSETS, 1_000_000 // n))
    for first in range(0, _SUBSETS, rows):
        count = min(rows, _SUBSETS - first)
        bits = np.frombuffer(random.bytes(count * -(-n // 8)), dtype=np.uint8).reshape(count, -1)
        chosen = np.unpackbits(bits, axis=1, count=n).astype(np.float64)
        size = chosen.sum(axis=1)
        # The empty subset has no mean; counted as outside the interval on either side, it can only widen the interval.
        means.append(np.where(size > 0, chosen @ found / np.maximum(size, 1.0), np.nan))
    ordered = np.sort(np.concatenate(means))
    ordered = ordered[~np.isnan(ordered)]
    k = math.floor((1.0 - confidence) / 2.0 * (_SUBSETS + 1)) - (_SUBSETS - len(ordered))
    if k < 1:
        return PairedDifference(n, value, None, None)
    return PairedDifference(n, value, min(value, float(ordered[k - 1])), max(value, float(ordered[-k])))
