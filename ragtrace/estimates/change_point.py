"""Onset of a change: the point in a sequence of scores from which on their mean is another one, with a confidence set.

**Model.** The scores y in [0, 1] have one mean before the change and another one after it. Each stands for w calls of
the traffic. The sums of both parts are W1, W2 (weights) and m1, m2 (weighted means); W and m are those of all scores.

**Estimate.** With h(m) = m ln m + (1 - m) ln(1 - m), the log-likelihood ratio of a change after the k-th score is
    L(k) = (W1 h(m1) + W2 h(m2) - W h(m)) / phi
and the estimated change is where L is largest. For scores of 0 and 1 with equal weights, phi is 1 and L is exact. Else
it is a quasi-likelihood: phi is the variance of the weighted scores around the means of the two parts, relative to
that of scores of 0 and 1:
    phi = sum of w^2 (y - mean of its part)^2 / sum of w m(1 - m), with m the mean of its part.

**Confidence set.** All k with L(k) >= max L - 3.68. Near the change, L behaves as a random walk that falls to both
sides, whose largest rise above its value at the true change exceeds x with probability exp(-x) on each side: so the set
holds the true change with probability (1 - exp(-3.68))^2 = 95 %, or more, as scores come one by one.

**Test.** Without any change, sqrt(2 max L) exceeds b with a probability that is near
    4 f(b) / b + f(b) (b - 1 / b) ln(t1 (1 - t0) / (t0 (1 - t1))),
with f the normal density, where the change is looked for from the share t0 to the share t1 of the scores.

**Sources.** Siegmund 1988, "Confidence sets in change-point problems", International Statistical Review 56:31 (the
set); Miller and Siegmund 1982, "Maximally selected chi square statistics", Biometrics 38:1011 (the test). Confirmed by
simulation: `tests/simulation/test_change_point.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

FEWEST: Final = 10.0
"""Fewest effective scores on each side of a change: with fewer, a single bad one would look like a change."""
_DROP: Final = -math.log(1.0 - math.sqrt(0.95))
"""Largest drop of the log-likelihood ratio below its maximum within the 95 % confidence set, 3.68."""


class OrderedSums(NamedTuple):
    """Sums over blocks of scores in order of time, as arrays with one element per block; a block may be one score."""

    w: Floats
    """Sum of the weights."""
    wy: Floats
    """Sum of weight * score."""
    ww: Floats
    """Sum of weight^2."""
    wwy: Floats
    wwyy: Floats

    @classmethod
    def of(cls, weights: Floats, scores: Floats) -> OrderedSums:
        """Return the sums of blocks of one score each."""
        square = weights * weights
        return cls(weights, weights * scores, square, square * scores, square * scores * scores)

    def part(self, first: int, end: int) -> OrderedSums:
        """Return the blocks from *first* to before *end*."""
        return OrderedSums(*(each[first:end] for each in self))


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """Most likely change of the mean in a sequence of scores, with a 95 % confidence set of its position."""

    first: int
    """First block after the change."""
    earliest: int
    """Lowest value of `first` in the confidence set."""
    latest: int
    """Highest value of `first` in the confidence set."""
    before: float
    """Mean score before the change."""
    after: float
    evidence: float
    """Log-likelihood ratio of this change and of no change."""
    p_value: float
    """Probability of as much evidence for some change where there is none."""


def find_change(sums: OrderedSums) -> ChangePoint | None:
    """Return the most likely change of the mean score, or None if there are too few scores, or all are the same."""
    weight, total = np.cumsum(sums.w), np.cumsum(sums.wy)
    square = np.cumsum(sums.ww)
    if not len(weight) or weight[-1] <= 0.0:
        return None
    w1, y1 = weight[:-1], total[:-1]
    w2, y2 = weight[-1] - w1, total[-1] - y1
    enough = _effective(w1, square[:-1]) >= FEWEST
    enough &= _effective(w2, square[-1] - square[:-1]) >= FEWEST
    candidates = np.flatnonzero(enough)  # of the last block before the change
    if not len(candidates):
        return None
    w1, y1, w2, y2 = (each[candidates] for each in (w1, y1, w2, y2))
    gain = w1 * _entropy(y1 / w1) + w2 * _entropy(y2 / w2) - weight[-1] * _entropy(total[-1:] / weight[-1])
    best = int(gain.argmax())
    # Equal scores have no change; what is left of their sums is rounding.
    if gain[best] <= 1e-9 * weight[-1]:
        return None
    before, after = float(y1[best] / w1[best]), float(y2[best] / w2[best])
    first = int(candidates[best]) + 1
    ratio = gain / dispersion((sums.part(0, first), before), (sums.part(first, len(sums.w)), after))
    within = candidates[ratio >= ratio[best] - _DROP] + 1
    ends = weight[candidates[[0, -1]]] / weight[-1]
    return ChangePoint(
        first, int(within[0]), int(within[-1]), before, after, float(ratio[best]),
        _p_value(float(ratio[best]), float(ends[0]), float(ends[1])),
    )  # fmt: skip


def evidence_of_difference(one: OrderedSums, other: OrderedSums) -> float:
    """Return the log-likelihood ratio of two sets of scores having different means and having the same mean."""
    (w1, y1), (w2, y2) = ((each.w.sum(), each.wy.sum()) for each in (one, other))
    if w1 <= 0.0 or w2 <= 0.0:
        return 0.0
    w, y = np.array([w1, w2, w1 + w2]), np.array([y1, y2, y1 + y2])
    of_one, of_other, of_both = (w * _entropy(y / w)).tolist()
    return float(of_one + of_other - of_both) / dispersion((one, y1 / w1), (other, y2 / w2))


def dispersion(*parts: tuple[OrderedSums, float]) -> float:
    """Return the variance of weighted scores around the means of their parts, relative to that of scores of 0 and 1.

    Args:
        parts: the sums and the mean of each part.
    """
    spread = expected = weights = squares = 0.0
    for sums, mean in parts:
        w, ww, wwy, wwyy = (float(each.sum()) for each in (sums.w, sums.ww, sums.wwy, sums.wwyy))
        spread += wwyy - 2.0 * mean * wwy + mean * mean * ww
        expected += w * mean * (1.0 - mean)
        weights, squares = weights + w, squares + ww
    alike = squares / weights  # as of scores of 0 and 1, where each part has one of them alone
    return max(spread / expected, 1e-6 * alike) if expected > 1e-9 * weights else alike


def _effective(weight: Floats, square: Floats) -> Floats:
    """Return the effective number of scores: of equal weights, the number of scores."""
    return np.divide(weight * weight, square, out=np.zeros_like(weight), where=square > 0.0)


def _entropy(mean: Floats) -> Floats:
    """Return m ln m + (1 - m) ln(1 - m), which is 0 for 0 and 1."""
    m = np.clip(mean, 0.0, 1.0)  # sums of blocks are off by rounding
    return m * np.log(np.where(m > 0.0, m, 1.0)) + (1.0 - m) * np.log(np.where(m < 1.0, 1.0 - m, 1.0))


def _p_value(evidence: float, t0: float, t1: float) -> float:
    b = math.sqrt(2.0 * evidence)
    if b <= 1.0:  # where the approximation does not hold, and no change is believed
        return 1.0
    density = math.exp(-evidence) / math.sqrt(2.0 * math.pi)
    span = math.log(max(1.0, t1 * (1.0 - t0) / (t0 * (1.0 - t1))))
    return min(1.0, density * (4.0 / b + (b - 1.0 / b) * span))
