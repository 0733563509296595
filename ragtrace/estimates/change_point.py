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

**Rhythm.** Where the mean has a rhythm of days and weeks (`rhythm`), the sums are those of the scores less what is
usual at their time, and each part is held against the mean that is usual there. If the share q of what the scores tell
of a change is left with the rhythm, which has taken a part of it, the distance is divided by q, and L multiplied by q.
The lesser of that and of the normal L, q d^2 / (2 phi m (1 - m)) W1 W2 / W with d the difference of the means, counts.

**Episode.** A change that has ended has the mean m1 outside the scores from the j-th to before the k-th and m2 inside;
L(j, k) and its sets for the beginning and the end are as above, each with the largest L over the other.

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
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.estimates.ordered_sums import OrderedSums

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ragtrace.estimates.rhythm import Rhythm

    Floats: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]

FEWEST: Final = 10.0
"""Fewest effective scores on each side of a change: with fewer, a single bad one would look like a change."""
_MOST_STEPS: Final = 300
"""Most places between which an episode is looked for first."""
DROP: Final = -math.log(1.0 - math.sqrt(0.95))
"""Largest drop of the log-likelihood ratio below its maximum within the 95 % confidence set, 3.68."""


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


@dataclass(frozen=True, slots=True)
class Episode:
    """Most likely stretch of scores with another mean than those before and after it, which have the same."""

    first: int
    """First block of it."""
    earliest: int
    """Lowest value of `first` in its 95 % confidence set."""
    latest: int
    end: int
    """First block after it."""
    earliest_end: int
    latest_end: int
    outside: float
    """Mean score before and after it."""
    inside: float
    evidence: float
    """Log-likelihood ratio of it and of no change."""


def find_change(sums: OrderedSums, rhythm: Rhythm | None = None) -> ChangePoint | None:
    """Return the most likely change of the mean score, or None if there are too few scores, or all are the same.

    Args:
        sums: the sums; with a rhythm, of the scores less what is usual.
        rhythm: rhythm of the scores, if it is known.
    """
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
    kept = np.ones_like(w1) if rhythm is None else rhythm.kept(candidates + 1)
    usual = _usual(sums, rhythm)
    of_one = usual[1:-1][candidates]
    gain = _gain((w1, y1, of_one), (w2, y2, usual[-1] - of_one), kept)
    best = int(gain.argmax())
    # Equal scores have no change; what is left of their sums is rounding.
    if gain[best] <= 1e-9 * weight[-1]:
        return None
    before, after = float(y1[best] / w1[best]), float(y2[best] / w2[best])
    first = int(candidates[best]) + 1
    ratio = gain / dispersion((sums.part(0, first), before), (sums.part(first, len(sums.w)), after))
    within = candidates[ratio >= ratio[best] - DROP] + 1
    ends = weight[candidates[[0, -1]]] / weight[-1]
    return ChangePoint(
        first, int(within[0]), int(within[-1]), before, after, float(ratio[best]),
        _p_value(float(ratio[best]), float(ends[0]), float(ends[1])),
    )  # fmt: skip


class _Episodes:
    """Log-likelihood ratios of episodes, not divided by the dispersion, from sums over the blocks before each block."""

    def __init__(self, sums: OrderedSums, rhythm: Rhythm | None) -> None:
        self._w, self._wy, self._ww = (np.concatenate(([0.0], np.cumsum(each))) for each in (sums.w, sums.wy, sums.ww))
        self._rhythm, self._usual = rhythm, _usual(sums, rhythm)

    def gain(self, first: Ints, end: Ints) -> Floats:
        """Return the ratio of each episode from one of *first* (rows) to one of *end* (columns); 0: it is none."""
        i, j = first[:, None], end[None, :]
        w, wy, ww = ((each[i], each[j], each[-1]) for each in (self._w, self._wy, self._ww))
        (before, until, all_w), (_, _, all_wy) = w, wy
        inside, inside_y = until - before, wy[1] - wy[0]
        outside, outside_y = all_w - inside, all_wy - inside_y
        enough = (inside > 0.0) & (_effective(before, ww[0]) >= FEWEST)
        enough &= _effective(np.maximum(inside, 0.0), ww[1] - ww[0]) >= FEWEST
        enough &= _effective(all_w - until, ww[2] - ww[1]) >= FEWEST
        kept = np.ones_like(inside) if self._rhythm is None else self._rhythm.kept(i, j)
        inside, outside = (np.where(enough, each, 1.0) for each in (inside, outside))
        usual = self._usual[j] - self._usual[i]
        gain = _gain((outside, outside_y, self._usual[-1] - usual), (inside, inside_y, usual), kept)
        return np.where(enough, gain, 0.0)

    def means(self, first: int, end: int) -> tuple[float, float]:
        """Return the mean scores outside and inside an episode."""
        inside, inside_y = self._w[end] - self._w[first], self._wy[end] - self._wy[first]
        return float((self._wy[-1] - inside_y) / (self._w[-1] - inside)), float(inside_y / inside)


def find_episode(sums: OrderedSums, rhythm: Rhythm | None = None) -> Episode | None:
    """Return the most likely stretch with another mean than before and after it, or None if there is none.

    Args:
        sums: the sums; with a rhythm, of the scores less what is usual.
        rhythm: rhythm of the scores, if it is known.
    """
    count = len(sums.w)
    if count < 3 or sums.w.sum() <= 0.0:
        return None
    episodes = _Episodes(sums, rhythm)
    step = np.unique(np.linspace(0, count, min(count, _MOST_STEPS) + 1).astype(np.int64))
    coarse = episodes.gain(step, step)
    row, column = np.unravel_index(int(coarse.argmax()), coarse.shape)
    if coarse[row, column] <= 1e-9 * sums.w.sum():
        return None
    firsts, ends = (_between(step, int(place), int(place)) for place in (row, column))
    fine = episodes.gain(firsts, ends)
    at_first, at_end = np.unravel_index(int(fine.argmax()), fine.shape)
    first, end = int(firsts[at_first]), int(ends[at_end])
    outside, inside = episodes.means(first, end)
    around = OrderedSums(*(np.concatenate((each[:first], each[end:])) for each in sums))
    phi = dispersion((around, outside), (sums.part(first, end), inside))
    most = float(fine.max())
    least = most - DROP * phi

    def within(profile: Floats, one: Callable[[Ints], Floats], best: int) -> tuple[int, int]:
        """Return the confidence set of one end: coarsely by the *profile*, and then block by block."""
        near = np.flatnonzero(profile >= least)
        lowest, highest = (int(near[0]), int(near[-1])) if len(near) else (0, len(step) - 1)
        finer = _between(step, lowest, highest)
        found = finer[one(finer) >= least]
        return min(best, int(found[0])) if len(found) else best, max(best, int(found[-1])) if len(found) else best

    of_end, of_first = np.append(step, end), np.append(step, first)
    earliest, latest = within(coarse.max(axis=1), lambda i: episodes.gain(i, of_end).max(axis=1), first)
    earliest_end, latest_end = within(coarse.max(axis=0), lambda j: episodes.gain(of_first, j).max(axis=0), end)
    return Episode(first, earliest, latest, end, earliest_end, latest_end, outside, inside, most / phi)


def _between(steps: Ints, lowest: int, highest: int) -> Ints:
    """Return the blocks from the step before the *lowest* to the one after the *highest*."""
    first, last = int(steps[max(0, lowest - 1)]), int(steps[min(len(steps) - 1, highest + 1)])
    return np.arange(first, last + 1, dtype=np.int64)


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


def _usual(sums: OrderedSums, rhythm: Rhythm | None) -> Floats:
    """Return the sums of weight * usual over the blocks before each block, and before the end."""
    usual = np.zeros_like(sums.w) if rhythm is None else sums.w * rhythm.expected
    return np.concatenate(([0.0], np.cumsum(usual)))


def _gain(one: tuple[Floats, Floats, Floats], other: tuple[Floats, Floats, Floats], kept: Floats) -> Floats:
    """Return the log-likelihood ratio of two means and of one, not divided by the dispersion.

    Args:
        one: of the one part, the weights, the sums of weight * score, less what is usual, and those of weight * usual.
        other: the same of the other part.
        kept: share of what the scores tell of the difference that is left with the rhythm; 0: the ratio is 0.
    """
    mean = (one[1] + other[1]) / (one[0] + other[0])
    gain: Floats = np.zeros_like(kept)
    for w, y, usual in (one, other):
        expected = np.clip(mean + usual / w, 1e-9, 1.0 - 1e-9)
        # What the rhythm takes of a difference is given back.
        found = np.clip(expected + np.divide(y / w - mean, kept, out=np.zeros_like(kept), where=kept > 0.0), 0.0, 1.0)
        gain += w * (_entropy(found) - found * np.log(expected) - (1.0 - found) * np.log1p(-expected))
    gain = kept * gain
    if (kept == 1.0).all():
        return gain
    # The rhythm makes the parts' means extreme where it has taken much: a normal likelihood does not mind.
    part = np.divide((other[1] / other[0] - one[1] / one[0]) ** 2, kept, out=np.zeros_like(kept), where=kept > 0.0)
    normal = part * one[0] * other[0] / (one[0] + other[0]) / (2.0 * np.maximum(mean * (1.0 - mean), 1e-9))
    return np.minimum(gain, normal)


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
