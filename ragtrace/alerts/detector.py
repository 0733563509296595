"""A Shiryaev-Roberts e-detector: when has the mean of scores in [0, 1] left a bound? With a stated false-alarm rate.

Scored calls are taken in batches, of which the mean counts. While the mean score of a batch, given all that came before
it, is within the bound, the factor `1 + bet * (mean - bound)` has a mean of at most 1 for every bet in [0, 1 / bound]:
betting like that on "the rate is too high" does not win. The statistic of one bet adds up what was won by starting to
bet at each batch so far, `M = (M + 1) * factor`; its mean after n batches is at most n, also where n is decided by what
was seen. The same holds of a mixture over bets with weights that add up to 1. So the first time that the mixture
reaches B comes, in the mean, after at least B batches: for any scores in [0, 1] of any distribution.

**What is assumed, in plain words**: given all that came before, a call is bad with a probability of at most the bound.
Calls that do not depend on each other fulfil that if the rate is within the bound. Bursts do not: after one bad answer
the next is more likely bad, too (the same question in other words, a broken document that is asked about for a
minute). Within a batch that does no harm, as only the batch's mean counts. Bursts that are longer than a batch, or
that come again and again within a few batches, raise alarms more often than stated: they are changes of the rate.
A question that is repeated within a batch counts once, by its first call.

Under sampling, a call that was included with probability p gets the share c / p of its place in the batch, where c is
the smallest probability that any call could have had at that moment. As c is known before the call, what is won on it
is in the mean what a sample of all calls with the same probability c would have won; and no factor falls to 0. Whether
a call repeats a question is known before its score, too. Calls that were not judged change nothing and are not counted.
So a bet is on the rate of the whole traffic, not on that of the judged calls, of which many may be suspicious.

An alarm that the rest of a batch cannot prevent any more, whatever its scores, is raised at once; one batch is added to
B for that.

Source: Shin, Ramdas, Rinaldo, "E-detectors: a nonparametric framework for sequential change detection",
arXiv:2203.03532: Shiryaev-Roberts e-detectors, their average run length, mixtures, and bounded observations. Batches
and the share under sampling are ours.
"""

from __future__ import annotations

from typing import Final

_FRACTIONS: Final = (0.15, 0.3, 0.6, 0.95)
"""Of the largest bet that a bound allows. With all of it, one good batch would throw away all evidence."""
_SMALL_BATCH: Final = 5
_FRACTIONS_OF_SMALL: Final = (0.03, 0.1, 0.3, 0.95)
"""For smaller batches, whose means vary more."""
_WEIGHTS: Final = (1.0, 2.0, 3.0, 3.0)
"""Chosen, like the fractions, by the delay on streams of scores that no report is made of."""
_OVERFLOW: Final = 1e300


def bets(bound: float, batch: int = 10) -> list[float]:
    """Return the bets that are mixed for a *bound* in (0, 1) and batches of that many calls."""
    return [fraction / bound for fraction in (_FRACTIONS if batch >= _SMALL_BATCH else _FRACTIONS_OF_SMALL)]


def weights() -> list[float]:
    """Return what each bet of the mixture weighs, 1 in all."""
    return [weight / sum(_WEIGHTS) for weight in _WEIGHTS]


class Detector:
    """Detector of a rise of one stream's mean above a bound. For one thread at a time.

    Args:
        bound: the largest mean that is all right, in (0, 1).
        mean_calls: scored calls between two false alarms, in the mean, at least.
        batch: scored calls of which the mean counts, 1 or more.
    """

    def __init__(self, bound: float, mean_calls: float, batch: int = 10) -> None:
        self.bound, self.mean_calls, self.batch = bound, mean_calls, batch
        self.threshold = mean_calls / batch + (1.0 if batch > 1 else 0.0)
        """Evidence at which there is reason for an alarm."""
        self._bets = bets(bound, batch)
        self._weights = weights()
        self.reset()

    def reset(self) -> None:
        """Forget all evidence."""
        self.calls = 0
        """Since the start, or the last `reset`."""
        self._sums = [0.0] * len(self._bets)
        self._best = [1.0] * len(self._bets)
        self._since = [0] * len(self._bets)
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._place, self._total = 0, 0.0
        self._asked: set[object] = set()

    def add(self, score: float, share: float = 1.0, question: object = None) -> bool:
        """Take a call's *score* in [0, 1] into account.

        Args:
            share: of its place in the batch that this call gets, in (0, 1]: the smallest probability that a call could
                have had, over the one it had.
            question: what was asked, or anything that is equal where the question is; None: another than all others.

        Returns:
            Whether there is reason for an alarm.
        """
        self.calls += 1
        self._place += 1
        if question is None or question not in self._asked:
            self._asked.add(question)
            self._total += share * (score - self.bound)
        # What the rest of the batch takes away at most: each call all of its place, with a score of 0.
        rest = (self.batch - self._place) * self.bound
        factors = [1.0 + bet * (self._total - rest) / self.batch for bet in self._bets]
        sums = [min(_OVERFLOW, (total + 1.0) * factor) for total, factor in zip(self._sums, factors, strict=True)]
        evidence = sum(weight * total for weight, total in zip(self._weights, sums, strict=True))
        alarm = evidence >= self.threshold
        if self._place == self.batch or alarm:
            self._end_batch(sums, factors)
        return alarm

    def _end_batch(self, sums: list[float], factors: list[float]) -> None:
        self._sums = sums
        for at, factor in enumerate(factors):
            if self._best[at] <= 1.0:
                self._since[at], self._best[at] = self.calls - self._place, 1.0
            self._best[at] = min(_OVERFLOW, self._best[at] * factor)
        self._begin_batch()

    @property
    def evidence(self) -> float:
        """Against "the mean is within the bound", of the batches so far; an alarm is due at `threshold`."""
        return sum(weight * total for weight, total in zip(self._weights, self._sums, strict=True))

    @property
    def stretch(self) -> int:
        """How many calls, the last one included, make the strongest case: the change came about before them."""
        strongest = max(range(len(self._bets)), key=lambda at: self._weights[at] * self._sums[at])
        return self.calls - self._since[strongest]
