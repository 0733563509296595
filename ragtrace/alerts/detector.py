"""Shiryaev-Roberts e-detector that finds when a mean score rises above a bound, with a stated false-alarm rate.

**Evidence.** While the mean score, given all earlier scores, is at most the expected one, the factor
`1 + bet * (score - expected)` has a mean of at most 1 for every bet in [0, 1 / expected]: a bet on
a rate that is too high does not win in the mean. The statistic of one bet sums the winnings of bets that were started
at each call so far, `M = (M + 1) * factor`. After n calls its mean is at most n above its start, also where the scores
decide about n. The same holds for a mixture over bets with weights that sum to 1. So the mixture needs at least B
calls, in the mean, to grow by B: for scores in [0, 1] of any distribution. Therefore an alarm is raised when it has
grown by B, the mean number of calls between two false alarms that the user asked for (`mean_calls`). The value at which
that happens is the threshold.

**Expected score.** It is the bound, except soon after a bad call. Bad calls come in runs: the same question in other
words, or a broken document that is asked about for a minute. Up to three calls after a bad one, the detector expects
the mean score that this stream has had in that situation, but at least the bound and at most 1/2; at first it expects
1/2 for the call that directly follows. A short run then counts about as much as its first call, a run without an end
raises an alarm within a dozen calls, and a stream with scattered bad calls is tested at full strength once these have
been seen. Where bad calls are independent this costs a few calls of delay and nothing of the stated rate, as a larger
expectation only makes the bet smaller.

**Assumption, in plain words**: given all earlier calls, a call is bad with a probability of at most the bound, or, soon
after a bad call, of at most what was usual there or 1/2. A question that is repeated within ten calls counts once.
Longer runs raise more alarms than stated, however many have been seen: a run that does not end could not be told from
them. To expect what is usual of them, too, was tried: in streams with runs of ten the false alarms all but ended, and a
rise from 5 to 15 % bad was no longer noticed.

**Head start.** A change that is there from the first call should not wait for evidence to build up: the statistic
starts at 1 % of B, and the threshold is higher by as much. There is no head start where the bound was learned from the
calls just before.

**Batches.** The mean of a batch takes the place of the score, so that dependence among its calls does no harm. The
expected score is then always the bound. The statistic counts batches, so B is divided by the calls in a batch. An alarm
that the rest of a batch cannot prevent, whatever its scores, is raised at once. As the unfinished batch then counts as
a whole one, the threshold is higher by 1.

**Gate.** Where the bound comes from a baseline, an alarm also waits until scores have been worse than the bound by more
than the baseline itself has shown (`estimates/adjustment.py`). Evidence goes on to grow meanwhile; the gate can only
delay an alarm.

**Sampling.** Suspicious calls may be judged with a higher probability than others. A call that was judged with
probability p counts only by the share c / p: its score and the score expected of it are multiplied with that share. c
is the smallest probability that any call could have had at that moment. As c is known before the call, the factor is in
the mean that of a sample of all calls with the same probability c, and no factor falls to 0. Whether a call repeats a
question is known before its score, too. Calls that were not judged change nothing and are not counted. So the bet is on
the rate of the whole traffic, not on that of the judged calls.

Sources: Shin, Ramdas, Rinaldo, "E-detectors: a nonparametric framework for sequential change detection",
arXiv:2203.03532 (Shiryaev-Roberts e-detectors, their average run length, mixtures, and bounded observations); Lucas,
Crosier, "Fast initial response for CUSUM quality-control schemes", Technometrics 24 (1982) (the start with some
evidence). The expected score after a bad call, the batches and the share under sampling are our own.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ragtrace.estimates.adjustment import Excess

FRACTIONS: Final = (0.03, 0.1, 0.3, 0.7)
"""Raised mean scores that are tested for with single calls, as fractions of the way from the bound to 1."""
WEIGHTS: Final = (1.0, 2.0, 2.0, 2.0)
"""Weights in the evidence of the mean scores in `FRACTIONS`. Fractions, weights and the first expected scores below
were chosen on streams of scores that no reported result was measured on."""
_LONG_BATCH: Final = 5
FRACTIONS_OF_BATCHES: Final = (0.15, 0.3, 0.6, 0.95)
WEIGHTS_OF_BATCHES: Final = (1.0, 2.0, 3.0, 3.0)
"""Weights of `FRACTIONS_OF_BATCHES`, the raised means for batches of five or more calls, which vary less."""
HEAD_START: Final = 0.01
"""Evidence at the start, as a share of the mean number of calls between false alarms."""
REACH: Final = 3
"""Number of calls after a bad one among which more bad ones are expected."""
DIRECTLY_AFTER: Final = (0.5, 3.0)
"""First expected score of the call directly after a bad one, and the number of calls that this guess counts as."""
SOON_AFTER: Final = (0.5, 20.0)
"""First expected score of the other calls within `REACH` after a bad one, as a share of the bound (0.5: half of it),
and the number of calls that this guess counts as."""
MOST_EXPECTED: Final = 0.5
"""Largest expected score soon after a bad call, so that a run without an end counts as a change of the rate."""
MEMORY: Final = 1_000.0
"""Number of calls after bad ones at which the counts are halved, so that older calls count less as traffic changes."""
_REPEATED_WITHIN: Final = 10
_OVERFLOW: Final = 1e300


def raised_means(bound: float, batch: int = 1) -> list[float]:
    """Return the mean scores above *bound* that the detector looks for, as alternatives to a mean within the bound.

    Each has an e-process (a record of winnings) of its own.
    """
    fractions = FRACTIONS_OF_BATCHES if batch >= _LONG_BATCH else FRACTIONS
    return [bound + fraction * (1.0 - bound) for fraction in fractions]


def mean_weights(batch: int = 1) -> list[float]:
    """Return the weights of the alternative mean scores (`raised_means`) in a drift detector; the weights sum to 1."""
    raw = WEIGHTS_OF_BATCHES if batch >= _LONG_BATCH else WEIGHTS
    return [weight / sum(raw) for weight in raw]


def optimal_bet(alternative: float, expected: float) -> float:
    """Return the bet with which evidence grows fastest if the mean score rises from *expected* to *alternative*.

    Args:
        alternative: the mean after the rise; if it is not above *expected*, the bet is 0.
        expected: the mean before the rise.
    """
    return max(0.0, alternative - expected) / (expected * (1.0 - expected)) if expected < 1.0 else 0.0


def alarm_threshold(mean_calls: float, batch: int = 1, head_start: float = HEAD_START) -> float:
    """Return the threshold of evidence for an alarm, with false alarms *mean_calls* calls apart on average."""
    return (1.0 + head_start) * mean_calls / batch + (1.0 if batch > 1 else 0.0)


class _ExpectedScore:
    """Running estimate of the next call's score.

    It is the bound, or more within *reach* calls after a bad call.
    """

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
        """Update the expected score with the scores of a batch of calls.

        Args:
            total: sum of the scores, each multiplied with the share by which its call counts (see `Detector.add`).
            calls: sum of these shares.
        """
        if self._after_bad <= self._reach:
            at = self._situation
            self._totals[at] += total
            self._calls[at] += calls
            if self._calls[at] > MEMORY:
                self._totals[at] /= 2.0
                self._calls[at] /= 2.0
        # A call is bad if its score is nearer to 1, the worst, than to the bound. Of scores that are 0 or 1, that is 1;
        # a graded score slightly above the bound is not bad.
        self._after_bad = 1 if total > calls * (1.0 + self._bound) / 2.0 else self._after_bad + 1

    @property
    def _situation(self) -> int:
        return 0 if self._after_bad == 1 else 1


class Detector:
    """Detector that finds when the mean of a stream of scores rises above *bound*. Not thread-safe.

    Args:
        mean_calls: least number of scored calls between two false alarms, in the mean.
        batch: number of scored calls whose mean counts as one observation, 1 or more.
        head_start: evidence at the start, as a share of *mean_calls*.
        gate: excess of the scores over the bound that an alarm waits for (see `Excess`).
    """

    def __init__(
        self, bound: float, mean_calls: float, batch: int = 1, head_start: float = HEAD_START, gate: float = 0.0
    ) -> None:
        self.bound, self.mean_calls, self.batch, self._gate = bound, mean_calls, batch, gate
        self.threshold = alarm_threshold(mean_calls, batch, head_start)
        """Evidence at which an alarm is raised."""
        self._alternatives = raised_means(bound, batch)
        self._weights = mean_weights(batch)
        self._head_start = head_start * mean_calls / batch
        self._expectation = _ExpectedScore(bound, REACH if batch == 1 else 0)
        self._asked: deque[object] = deque(maxlen=max(batch, _REPEATED_WITHIN))
        self.restart()

    def restart(self) -> None:
        """Restart the detection, without evidence of a rise.

        What was learned of scores that follow bad calls is kept.
        """
        self.calls = 0
        """Number of calls since the start or the last `restart`."""
        self._sums = [self._head_start] * len(self._alternatives)
        self._best = [1.0] * len(self._alternatives)
        """Most that a bet on each alternative, begun at any one call, has won so far, in multiples of the stake."""
        self._since = [0] * len(self._alternatives)
        """Number of calls before each bet in `_best` was begun, the likeliest moment at which a rise began."""
        self._excess = Excess(self.bound)
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._place, self._total, self._counted = 0, 0.0, 0.0
        self._expected = self._expectation.mean
        self._bets = [optimal_bet(each, self._expected) for each in self._alternatives]

    def add(self, score: float, share: float = 1.0, question: object = None) -> bool:
        """Add the *score* of a call to the evidence of a rise, and return whether to raise an alarm.

        Args:
            score: score of the call, in [0, 1]; high is bad.
            share: factor in (0, 1] by which the call counts: the smallest probability of being judged that a call could
                have had at that time, divided by the probability that this call had.
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
            self._excess.add(score, share)
        # Evidence that this batch has at least: its calls still to come are given the score 0 and the full share 1.
        rest = self.batch - self._place
        gained = (self._total - (self._counted + rest) * self._expected) / self.batch
        factors = [1.0 + bet * gained for bet in self._bets]
        sums = [min(_OVERFLOW, (total + 1.0) * factor) for total, factor in zip(self._sums, factors, strict=True)]
        evidence = sum(weight * total for weight, total in zip(self._weights, sums, strict=True))
        alarm = evidence >= self.threshold and self._excess.value >= self._gate
        if self._place == self.batch or alarm:
            self._end_batch(sums, factors)
        return alarm

    def _end_batch(self, sums: list[float], factors: list[float]) -> None:
        self._sums = sums
        for at, factor in enumerate(factors):
            if self._best[at] <= 1.0:  # the bet has won nothing so far, so one begun at this batch is as good
                self._since[at], self._best[at] = self.calls - self._place, 1.0
            self._best[at] = min(_OVERFLOW, self._best[at] * factor)
        if self._counted:
            self._expectation.add(self._total, self._counted)
        self._begin_batch()

    @property
    def evidence(self) -> float:
        """Evidence so far that the mean score exceeds the bound, which raises an alarm at `alarm_threshold`.

        The calls of an unfinished batch are not included.
        """
        return sum(weight * total for weight, total in zip(self._weights, self._sums, strict=True))

    @property
    def calls_since_change(self) -> int:
        """Number of calls since the most likely moment at which the mean score rose.

        It is the moment that fits best with the raised mean for which there is the most evidence.
        """
        strongest = max(range(len(self._alternatives)), key=lambda at: self._weights[at] * self._sums[at])
        return self.calls - self._since[strongest]
