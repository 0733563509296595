"""Good answers that a guard would block: how many of the labelled ones, at each threshold, and how many of all at most.

A guard blocks an answer whose badness, from 0 (good) to 1 (bad), is above a threshold. The labels say of how many good
answers that is true, and with 95 % confidence, of what share of all good answers at most.

**Weights.** A labelled call stands for as many calls as its weight says. Kept with a probability in proportion to its
weight, each good call would be in the sample with the same probability; so the sample counts as the number of calls
that would be kept, which is the sum of the weights divided by the largest. The number is rounded down, that of the
blocked ones among them up.

**Choice of a threshold.** From the highest threshold of `THRESHOLDS` down, each is tested at the level of 5 % for a
share of good answers blocked above the limit, until one is not rejected: the one before is chosen. As the share
can only grow on the way down, the chosen one exceeds the limit with a probability of at most 5 %, however many
thresholds are tested (a fixed sequence of hypotheses).

Source: Clopper and Pearson 1934, Biometrika 26:404 (the bound); Maurer, Hothorn and Lehmacher 1995 (fixed sequences).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import ge
from typing import Any, Final, NamedTuple

THRESHOLDS: Final[tuple[float, ...]] = tuple(step / 100 for step in range(100))
"""Thresholds of badness that are considered, from 0.00 to 0.99."""
LEVEL: Final = 0.05
"""Probability with which a bound or a chosen threshold may be wrong."""
FEWEST_BAD: Final = 10
"""Fewest labelled bad calls from which the share of them that a guard would block is told."""
_SAME: Final = 9
"""Decimal places to which scores are compared: 1 - 0.58 is not 0.42 in binary arithmetic."""


class LabelledAnswer(NamedTuple):
    """Badness of one answer by the judge, and whether people have labelled the answer as bad."""

    badness: float
    """The judge's score converted to badness, from 0 (good) to 1 (bad)."""
    is_bad: bool
    weight: float = 1.0
    """Number of calls of the traffic that the call stands for."""


@dataclass(frozen=True, slots=True)
class FalseBlocks:
    """Numbers of labelled answers, good and bad, that a guard would block at each of `THRESHOLDS`."""

    good: int
    """Number of labelled good answers, as if all had been labelled with the same probability."""
    good_blocked: tuple[int, ...]
    """Of these, the number above each threshold."""
    bad: int
    bad_blocked: tuple[int, ...]
    labelled_bad: int
    """Number of labelled bad answers, whatever their probabilities."""

    def bound(self, threshold: float) -> float:
        """Return the share of good answers above *threshold* that is not exceeded with 95 % confidence."""
        return upper_bound(self.good_blocked[_step(threshold)], self.good)

    def share(self, threshold: float) -> float | None:
        """Return the share of the labelled good answers above *threshold*, or None if none is labelled."""
        return self.good_blocked[_step(threshold)] / self.good if self.good else None

    def recall(self, threshold: float) -> tuple[float, float, float] | None:
        """Return the share of bad answers above *threshold* with its 90 % interval, or None for too few bad labels."""
        if self.labelled_bad < FEWEST_BAD or not self.bad:
            return None
        caught = self.bad_blocked[_step(threshold)]
        low = 1.0 - upper_bound(self.bad - caught, self.bad)
        return caught / self.bad, low, upper_bound(caught, self.bad)

    def threshold(self, limit: float) -> float | None:
        """Return the lowest threshold that blocks at most *limit* of the good answers, with 95 % confidence.

        None if the labels allow none: `missing` says how many more it takes.

        Args:
            limit: share of good answers that may be blocked, in (0, 1).
        """
        chosen = None
        for threshold in reversed(THRESHOLDS):
            if not self._holds(threshold, limit):
                break
            chosen = threshold
        return chosen

    def missing(self, limit: float) -> int:
        """Return how many more labels of good answers allow a threshold for *limit*, if none of them is above it."""
        number = self.good
        while binomial_tail(self.good_blocked[-1], number, limit) > LEVEL:
            number += 1
        return number - self.good

    def _holds(self, threshold: float, limit: float) -> bool:
        return self.good > 0 and binomial_tail(self.good_blocked[_step(threshold)], self.good, limit) <= LEVEL


NO_LABELS: Final = FalseBlocks(0, (0,) * len(THRESHOLDS), 0, (0,) * len(THRESHOLDS), 0)
"""Numbers where nothing is labelled."""


def read_false_blocks(record: Mapping[str, Any]) -> FalseBlocks:
    """Return the numbers in *record*, a part of a calibration file.

    Raises:
        ValueError: they cannot be numbers of labelled answers.
    """
    found = FalseBlocks(
        record["good"],
        tuple(record["good_blocked"]),
        record["bad"],
        tuple(record["bad_blocked"]),
        record["labelled_bad"],
    )
    for number, above in ((found.good, found.good_blocked), (found.bad, found.bad_blocked)):
        whole = all(type(each) is int for each in (number, *above))
        if not whole or len(above) != len(THRESHOLDS) or not all(map(ge, (number, *above), (*above, 0))):
            raise ValueError("it is damaged (the numbers of blocked answers cannot be those of labelled calls)")
    return found


def count_false_blocks(answers: Sequence[LabelledAnswer]) -> FalseBlocks:
    """Count the labelled answers that a guard would block at each threshold."""
    good, good_blocked = _count([each for each in answers if not each.is_bad], up=True)
    bad, bad_blocked = _count([each for each in answers if each.is_bad], up=False)
    return FalseBlocks(good, good_blocked, bad, bad_blocked, sum(each.is_bad for each in answers))


def _count(answers: Sequence[LabelledAnswer], *, up: bool) -> tuple[int, tuple[int, ...]]:
    """Return the effective number of *answers*, and how many of them are above each threshold, rounded *up* or down."""
    heaviest = max((each.weight for each in answers), default=1.0)
    number = math.floor(sum(each.weight for each in answers) / heaviest + 1e-9)
    ordered = sorted((round(each.badness, _SAME), each.weight) for each in answers)
    scores = [score for score, _ in ordered]
    up_to = list(accumulate((weight for _, weight in ordered), initial=0.0))
    above: list[int] = []
    for threshold in THRESHOLDS:
        share = (up_to[-1] - up_to[bisect_right(scores, threshold)]) / heaviest
        count = math.ceil(share - 1e-9) if up else math.floor(share + 1e-9)
        above.append(min(number, count))
    return number, tuple(above)


def _step(threshold: float) -> int:
    return min(max(round(threshold * 100), 0), len(THRESHOLDS) - 1)


def binomial_tail(successes: int, number: int, share: float) -> float:
    """Return the probability of at most *successes* in *number* trials that each succeed with probability *share*."""
    if successes >= number or share <= 0.0:
        return 1.0
    if share >= 1.0:
        return 0.0
    log_share, log_rest, all_ways = math.log(share), math.log1p(-share), math.lgamma(number + 1)
    terms = (
        all_ways - math.lgamma(k + 1) - math.lgamma(number - k + 1) + k * log_share + (number - k) * log_rest
        for k in range(successes + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))


def upper_bound(successes: int, number: int) -> float:
    """Return the upper 95 % bound on a share of which *successes* of *number* were seen (Clopper and Pearson)."""
    if successes >= number:
        return 1.0
    low, high = successes / number, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(successes, number, middle) > LEVEL else (low, middle)
    return high
