"""Shiryaev-Roberts e-detector: detects that the mean of scores in [0, 1] exceeds a bound, at a stated false-alarm rate.

**Evidence.** While the mean score, given all earlier scores, is at most the expected one, the factor
`1 + bet * (score - expected)` has a mean of at most 1 for every bet in [0, 1 / expected]: betting like that on "the
rate is too high" does not win in the mean. The statistic of one bet sums the winnings of bets that were started at each
call so far, `M = (M + 1) * factor`. After n calls its mean is at most n above its start, also where the scores decide
about n. The same holds for a mixture over bets with weights that sum to 1. So the mixture needs at least B calls, in
the mean, to grow by B: for scores in [0, 1] of any distribution.

**Expected score.** It is the bound, except soon after a bad call. Bad calls come in runs: the same question in other
words, or a broken document that is asked about for a minute. Up to three calls after a bad one, the detector expects
the mean score that this stream has had in that situation, but at least the bound and at most 1/2; at first it expects
1/2 for the call that directly follows. A short run then counts about as much as its first call, a run without an end
raises an alarm within a dozen calls, and a stream with scattered bad calls is tested at full strength once these have
been seen. Where bad calls are independent this costs a few calls of delay and nothing of the stated rate, as a larger
expectation only makes the bet smaller.

**Assumption, in plain words**: given all earlier calls, a call is bad with a probability of at most the bound, or, soon
after a bad call, of at most what was usual there. A question that is repeated within ten calls counts once. Long bursts
with good calls among the bad ones raise more alarms than stated until a few of them have been seen.

**Head start.** A change that is there from the first call should not wait for evidence to build up: the statistic
starts at 1 % of the calls asked for, and B is larger by as much. There is no head start where the bound was learned
from the calls just before.

**Batches.** The mean of a batch takes the place of the score, so that dependence among its calls does no harm, and only
the bound is expected. An alarm that the rest of a batch cannot prevent, whatever its scores, is raised at once; B is
larger by one batch for that.

**Sampling.** A call with inclusion probability p gets the share c / p of its place, where c is the smallest probability
that any call could have had at that moment. As c is known before the call, its factor is in the mean that of a sample
of all calls with the same probability c, and no factor falls to 0. Whether a call repeats a question is known before
its score, too. Calls that were not judged change nothing and are not counted. So the bet is on the rate of the whole
traffic, not on that of the judged calls, many of which may be suspicious.

Sources: Shin, Ramdas, Rinaldo, "E-detectors: a nonparametric framework for sequential change detection",
arXiv:2203.03532 (Shiryaev-Roberts e-detectors, their average run length, mixtures, and bounded observations); Lucas,
Crosier, "Fast initial response for CUSUM quality-control schemes", Technometrics 24 (1982) (the start with some
evidence). The expected score after a bad call, the batches and the share under sampling are our own.
"""

from __future__ import annotations

from collections import deque
from typing import Final

FRACTIONS: Final = (0.03, 0.1, 0.3, 0.7)
WEIGHTS: Final = (1.0, 2.0, 2.0, 2.0)
"""Weights for single calls. Like the fractions and the first expectations, they were chosen on streams that appear in
no report."""
_LONG_BATCH: Final = 5
FRACTIONS_OF_BATCHES: Final = (0.15, 0.3, 0.6, 0.95)
WEIGHTS_OF_BATCHES: Final = (1.0, 2.0, 3.0, 3.0)
"""Weights for batches of five or more, whose means vary less."""
HEAD_START: Final = 0.01
"""Share of the calls asked for that the statistic starts with."""
REACH: Final = 3
"""Number of calls after a bad one in which more bad ones are expected."""
DIRECTLY_AFTER: Final = (0.5, 3.0)
"""First expectation of the score directly after a bad call, and its weight in calls."""
SOON_AFTER: Final = (0.5, 20.0)
"""First expectation for the other calls within `REACH`, as a share of the bound, and its weight in calls."""
MOST_EXPECTED: Final = 0.5
"""Largest expected score soon after a bad call, so that a run without an end counts as a change of the rate."""
MEMORY: Final = 1_000.0
"""Number of calls after bad ones beyond which older ones count less and less, as traffic may change."""
_REPEATED_WITHIN: Final = 10
_OVERFLOW: Final = 1e300


def alternatives(bound: float, batch: int = 1) -> list[float]:
    """Return the means above *bound* that the detector tests for, each with an e-process of its own."""
    fractions = FRACTIONS_OF_BATCHES if batch >= _LONG_BATCH else FRACTIONS
    return [bound + fraction * (1.0 - bound) for fraction in fractions]


def weights(batch: int = 1) -> list[float]:
    """Return the weight of each of `alternatives` in the detector's mixture of e-processes; their sum is 1."""
    raw = WEIGHTS_OF_BATCHES if batch >= _LONG_BATCH else WEIGHTS
    return [weight / sum(raw) for weight in raw]


def bet(alternative: float, expected: float) -> float:
    """Return the stake per unit of score that grows the e-process fastest if the mean rises from *expected*.

    Args:
        alternative: the mean after the rise; with one not above *expected* the stake is 0.
        expected: the mean before it.
    """
    return max(0.0, alternative - expected) / (expected * (1.0 - expected)) if expected < 1.0 else 0.0


def threshold(mean_calls: float, batch: int = 1, head_start: float = HEAD_START) -> float:
    """Return the evidence at which an alarm is raised, for *mean_calls* calls between two false alarms."""
    return (1.0 + head_start) * mean_calls / batch + (1.0 if batch > 1 else 0.0)


class _Expectation:
    """Expected mean score of the next call: the bound, or more within *reach* calls after a bad one."""

    def __init__(self, bound: float, reach: int) -> None:
        self._bound, self._reach = bound, reach
        self._after_bad = reach + 1
        (directly, first), (share, second) = DIRECTLY_AFTER, SOON_AFTER
        self._totals = [directly * first, share * bound * second]
        self._calls = [first, second]

    @property
    def mean(self) -> float:
        if self._after_bad > self._reach:
            return self._bound
        at = self._situation
        return max(self._bound, min(MOST_EXPECTED, self._totals[at] / self._calls[at]))

    def add(self, total: float, calls: float) -> None:
        """Update the expectation with *calls* further calls whose scores sum to *total*; both are weighted by share."""
        if self._after_bad <= self._reach:
            at = self._situation
            self._totals[at] += total
            self._calls[at] += calls
            if self._calls[at] > MEMORY:
                self._totals[at] /= 2.0
                self._calls[at] /= 2.0
        self._after_bad = 1 if total > calls * (1.0 + self._bound) / 2.0 else self._after_bad + 1

    @property
    def _situation(self) -> int:
        return 0 if self._after_bad == 1 else 1


class Detector:
    """Detector of a rise of one stream's mean above *bound*. For one thread at a time.

    Args:
        mean_calls: scored calls between two false alarms, in the mean, at least.
        batch: scored calls of which the mean counts, 1 or more.
        head_start: share of *mean_calls* that the evidence starts with.
    """

    def __init__(self, bound: float, mean_calls: float, batch: int = 1, head_start: float = HEAD_START) -> None:
        self.bound, self.mean_calls, self.batch = bound, mean_calls, batch
        self.threshold = threshold(mean_calls, batch, head_start)
        """Evidence that raises an alarm."""
        self._alternatives = alternatives(bound, batch)
        self._weights = weights(batch)
        self._head_start = head_start * mean_calls / batch
        self._expectation = _Expectation(bound, REACH if batch == 1 else 0)
        self._asked: deque[object] = deque(maxlen=max(batch, _REPEATED_WITHIN))
        self.reset()

    def reset(self) -> None:
        """Start again without evidence of a rise; keep what was learned of scores that follow bad calls."""
        self.calls = 0
        """Calls since the start, or the last `reset`."""
        self._sums = [self._head_start] * len(self._alternatives)
        self._best = [1.0] * len(self._alternatives)
        self._since = [0] * len(self._alternatives)
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._place, self._total, self._counted = 0, 0.0, 0.0
        self._expected = self._expectation.mean
        self._bets = [bet(each, self._expected) for each in self._alternatives]

    def add(self, score: float, share: float = 1.0, question: object = None) -> bool:
        """Add the *score* of a call, in [0, 1], to the evidence.

        Args:
            share: of its place in the batch that this call gets, in (0, 1]: the smallest probability that a call could
                have had, over the one it had.
            question: the question, or anything that is equal for equal questions; None: unlike all others.

        Returns:
            Whether the evidence raises an alarm.
        """
        self.calls += 1
        self._place += 1
        repeated = question is not None and question in self._asked
        self._asked.append(None if repeated else question)
        if not repeated:
            self._total += share * score
            self._counted += share
        # The rest of the batch takes away most if each call fills its place with a score of 0.
        rest = self.batch - self._place
        gained = (self._total - (self._counted + rest) * self._expected) / self.batch
        factors = [1.0 + bet * gained for bet in self._bets]
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
        if self._counted:
            self._expectation.add(self._total, self._counted)
        self._begin_batch()

    @property
    def evidence(self) -> float:
        """Evidence, up to the last complete batch, that the mean exceeds the bound; `threshold` raises an alarm."""
        return sum(weight * total for weight, total in zip(self._weights, self._sums, strict=True))

    @property
    def calls_since_change(self) -> int:
        """Number of calls since the likeliest change point: that of the alternative with the most evidence."""
        strongest = max(range(len(self._alternatives)), key=lambda at: self._weights[at] * self._sums[at])
        return self.calls - self._since[strongest]
