"""The decision about one call, and its inclusion probability."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import SystemRandom
from time import monotonic
from typing import Final

from ragtrace.core.types import Evaluation, RagCall, SamplingDecision
from ragtrace.evaluation.budget import Budget
from ragtrace.evaluation.policy import Sampling
from ragtrace.evaluation.prices import Prices
from ragtrace.evaluation.rules import is_suspicious, matches

_SALT: Final = b"ragtrace evaluation sampling"
_MINUTE_SECONDS: Final = 60.0
_DAY_SECONDS: Final = 86_400.0
_CALLS_SLACK_SECONDS: Final = 5.0
_USD_SLACK_SECONDS: Final = 300.0


class Sampler:
    """Decides about the calls of one process, in their order. For one thread.

    Args:
        sampling: what the user said.
        clock: monotonic seconds.
    """

    def __init__(self, sampling: Sampling, clock: Callable[[], float] = monotonic) -> None:
        self._sampling, self._prices = sampling, Prices()
        ruled, shares = bool(sampling.always), sampling.replicas or 1
        self._calls = self._usd = None
        if sampling.per_minute is not None:
            per_second = sampling.per_minute / _MINUTE_SECONDS / shares
            self._calls = Budget(per_second, _CALLS_SLACK_SECONDS, ruled=ruled, clock=clock)
        if sampling.usd_per_day is not None:
            per_second = sampling.usd_per_day / _DAY_SECONDS / shares
            self._usd = Budget(per_second, _USD_SLACK_SECONDS, ruled=ruled, clock=clock)

    def decide(self, call: RagCall, screen: Evaluation | None) -> SamplingDecision:
        """Whether the judge sees *call*, of which *screen* is all that is known (None: it was not screened)."""
        if matches(self._sampling.never, call, screen):
            return SamplingDecision(False, 0.0, "never_rule")
        if matches(self._sampling.always, call, screen):
            wanted, why = 1.0, "always_rule"
        else:
            suspicious = is_suspicious(screen)
            wanted = self._sampling.probability(suspicious=suspicious)
            why = "suspicious" if suspicious and self._sampling.suspicious_rate is not None else "sampled"
        least = self._least()
        probability = self._within_budgets(wanted, ruled=why == "always_rule")
        draw = _draw(call)
        if draw < probability:
            return SamplingDecision(True, probability, why, least)
        return SamplingDecision(False, probability, "budget" if draw < wanted else "not_sampled", least)

    def _least(self) -> float:
        ordinary = self._sampling.rate or self._sampling.suspicious_rate or 0.0
        possible = [ordinary * self._factor(ruled=False)]
        if self._sampling.always:
            possible.append(self._factor(ruled=True))
        return min([probability for probability in possible if probability > 0.0], default=0.0)

    def _factor(self, *, ruled: bool) -> float:
        """What the budgets multiply a probability with at this moment."""
        budgets = ((self._calls, 1.0), (self._usd, self._prices.mean))
        return min((each.factor(cost, ruled=ruled) for each, cost in budgets if each is not None), default=1.0)

    def _within_budgets(self, wanted: float, *, ruled: bool) -> float:
        probability = wanted * self._factor(ruled=ruled)
        for budget, cost in ((self._calls, 1.0), (self._usd, self._prices.mean)):
            if budget is not None:
                budget.charge(probability, cost, ruled=ruled)
        return probability

    def spent(self, cost_usd: float | None) -> None:
        """One call was judged at that cost; None: the judge did not say."""
        if self._usd is not None:
            self._prices.add(cost_usd)

    def reset(self) -> None:
        """In a forked child: it starts its share of the budgets level, and keeps what is known of the costs."""
        for budget in (self._calls, self._usd):
            if budget is not None:
                budget.reset()


def included(trace_id: int, probability: float) -> bool:
    """Whether the call of that trace is included: the same answer in every process.

    The hash is salted, so that it is independent of a head sampler that looks at the bits of the trace id.
    """
    return _hashed(trace_id) < probability


def _hashed(trace_id: int) -> float:
    """A number in [0, 1): 53 bits, so that the division is exact and never rounds up to 1."""
    digest = hashlib.blake2b(trace_id.to_bytes(16, "big"), digest_size=8, key=_SALT).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _draw(call: RagCall) -> float:
    """Without a trace there is nothing to agree on with other processes; the system's chance survives a fork."""
    return SystemRandom().random() if call.span is None or not call.span.is_valid else _hashed(call.span.trace_id)
