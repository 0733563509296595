"""How many calls an alert with a baseline needs to notice that the mean score has become worse.

The course of the baseline's own scores (`Adjustment.course`) is repeated with the change added, and passes through the
two conditions of an alarm: the evidence (`Detector`) and the gate (`Excess`). Within a batch scores vary around the
course with the variance v that it does not explain, so a bet t multiplies evidence by about
    exp(log(1 + t g) - t^2 v / (2 batch (1 + t g)^2)),  g the mean badness minus the bound,
for each batch. The number of calls is the mean over ten places of the course at which the change might begin, divided
by the share with which a call counts (`Adjustment.counted`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pvariance
from typing import TYPE_CHECKING, Final, NamedTuple

from ragtrace.alerts.detector import alarm_threshold, mean_weights, optimal_bet, raised_means
from ragtrace.estimates import Adjustment, Distribution, baseline_bound
from ragtrace.estimates.adjustment import ALLOWANCE, COURSE_CALLS

if TYPE_CHECKING:
    from ragtrace.alerts.alert import Alert

MOST_CALLS: Final = 20_000
"""Number of calls after which a change counts as not noticed."""
SLOW: Final = 2_000
"""Number of calls from which on an alert is called slow."""
SHOWN_CHANGE: Final = 0.05
"""Change of the mean score of which doctor and notifications say after how many calls it is noticed."""
SLOW_REASON: Final = (
    "usual scores swing with topics that neither the documents nor the length of the contexts tell, as where documents "
    "hardly ever come again. A workflow for each topic, or a judge with a fixed bound, is sooner"
)
_BEGINNINGS: Final = 10


class Sensitivity(NamedTuple):
    """What an alert can notice with a baseline."""

    alert: Alert
    baseline: Distribution
    """Distribution of the usual scores, adjusted if there is an `adjustment`."""
    adjustment: Adjustment | None
    """Usual effects of documents and lengths; None: the baseline is provisional."""

    def calls_to_notice(self, change: float = SHOWN_CHANGE) -> int | None:
        """Return after about how many scored calls the alert notices that the mean is worse by *change*, in (0, 1).

        It is `MOST_CALLS` for that many or more, and None if the baseline is of a version of ragtrace that did not keep
        what this is computed from.
        """
        alert, adjustment = self.alert, self.adjustment
        if adjustment is not None and not adjustment.course:
            return None
        bound = alert.badness(baseline_bound(self.baseline, alert.direction))
        means = adjustment.course if adjustment else (self.baseline.mean,)
        course = [alert.badness(mean) + change for mean in means]
        gate = 0.0 if adjustment is None else adjustment.gate(alert.direction)
        left = max(0.0, self.baseline.variance - pvariance(course)) * COURSE_CALLS / (COURSE_CALLS - 1)
        counted = 1.0 if adjustment is None else adjustment.counted
        return min(MOST_CALLS, round(_calls(alert, course, bound, gate, left) / counted))

    def is_slow(self, change: float = SHOWN_CHANGE) -> bool:
        """Return whether it takes thousands of calls to notice that the mean is worse by *change*."""
        return (self.calls_to_notice(change) or 0) >= SLOW

    def describe(self, change: float = SHOWN_CHANGE) -> str:
        """Return in words after how many calls a mean that is worse by *change* is noticed; empty: not known."""
        calls = self.calls_to_notice(change)
        if calls is None:
            return ""
        what = f"a {'fall' if self.alert.direction == 'below' else 'rise'} of the mean by {change:g}"
        if calls >= MOST_CALLS:
            return f"{what} is not noticed within {MOST_CALLS:,} scored calls"
        only = "only " if calls >= SLOW else ""
        return f"{what} is noticed {only}after about {float(f'{calls:.2g}'):,.0f} scored calls"


def _calls(alert: Alert, course: list[float], bound: float, gate: float, left: float) -> int:
    """Return the number of calls until an alarm, if badness takes its *course* with the variance *left* around it.

    It is the mean over several beginnings.
    """
    batch = alert.calls_in_batch
    threshold = alarm_threshold(alert.mean_calls_between_false_alarms, batch, 0.0)
    bets = [optimal_bet(raised, bound) for raised in raised_means(bound, batch)]
    weights = mean_weights(batch)
    blocks = [_Block.of(badness - bound, bets, left / batch, COURSE_CALLS / batch) for badness in course]

    def calls(first: int) -> int:
        sums, excess = [0.0] * len(bets), 0.0
        for at in range(MOST_CALLS // COURSE_CALLS):
            block = blocks[(first + at) % len(blocks)]
            excess = max(0.0, excess + block.excess)
            sums = [
                min(1e300, total * factor + begun)
                for total, factor, begun in zip(sums, block.factors, block.begun, strict=True)
            ]
            if excess >= gate and sum(w * each for w, each in zip(weights, sums, strict=True)) >= threshold:
                return (at + 1) * COURSE_CALLS
        return MOST_CALLS

    beginnings = sorted({at * len(course) // _BEGINNINGS for at in range(_BEGINNINGS)})
    return round(fmean(map(calls, beginnings)))


class _Block(NamedTuple):
    """What `COURSE_CALLS` calls in a row add to excess and evidence."""

    excess: float
    factors: list[float]
    """Factor by which they multiply the evidence of each bet."""
    begun: list[float]
    """Evidence of the bets that are begun within the block."""

    @classmethod
    def of(cls, gained: float, bets: Sequence[float], variance: float, batches: float) -> _Block:
        """Return the block of calls whose badness is *gained* above the bound, with that *variance* between batches."""
        grown = [_growth(bet, gained, variance) for bet in bets]
        begun = [math.fsum(math.exp(each * count) for count in range(1, math.ceil(batches) + 1)) for each in grown]
        return cls(COURSE_CALLS * (gained - ALLOWANCE), [math.exp(each * batches) for each in grown], begun)


def _growth(bet: float, gained: float, variance: float) -> float:
    """Return the mean growth of the logarithm of a bet's evidence by a batch."""
    won = max(1e-9, 1.0 + bet * gained)
    return math.log(won) - bet * bet * variance / (2.0 * won * won)
