"""Sampler: decides which calls the judge sees, each with a known inclusion probability."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import SystemRandom
from time import monotonic
from typing import Final

from ragtrace.core.types import Evaluation, RagCall, SamplingDecision, Score
from ragtrace.evaluation.budget import Budget, JudgementCosts
from ragtrace.evaluation.policy import SUSPICIOUS, Sampling, matches

_SALT: Final = b"ragtrace evaluation sampling"
_MINUTE_SECONDS: Final = 60.0
_DAY_SECONDS: Final = 86_400.0
_CALLS_SLACK_SECONDS: Final = 5.0
_USD_SLACK_SECONDS: Final = 300.0


class Sampler:
    """Sampler of the calls of one process. For one thread.

    Args:
        sampling: the sampling settings.
        clock: monotonic seconds.
    """

    def __init__(self, sampling: Sampling, clock: Callable[[], float] = monotonic) -> None:
        self._sampling, self._costs = sampling, JudgementCosts()
        ruled, shares = bool(sampling.always), sampling.replicas or 1
        self._calls = self._usd = None
        if sampling.per_minute is not None:
            per_second = sampling.per_minute / _MINUTE_SECONDS / shares
            self._calls = Budget(per_second, _CALLS_SLACK_SECONDS, ruled=ruled, clock=clock)
        if sampling.usd_per_day is not None:
            per_second = sampling.usd_per_day / _DAY_SECONDS / shares
            self._usd = Budget(per_second, _USD_SLACK_SECONDS, ruled=ruled, clock=clock)

    def decide(self, call: RagCall, screen: Evaluation | None) -> SamplingDecision:
        """Return whether the judge sees *call*, and with what probability.

        Args:
            call: the call.
            screen: the screen's evaluation; None: the call was not screened.
        """
        sampling = self._sampling
        if matches(sampling.never, call, screen):
            return SamplingDecision(False, 0.0, "never_rule")
        ruled = matches(sampling.always, call, screen)
        result = None if screen is None else screen.results.get(SUSPICIOUS)
        suspicious = sampling.suspicious_rate is not None and isinstance(result, Score) and result.value > 0
        wanted, reason = sampling.probability(suspicious=suspicious), "suspicious" if suspicious else "sampled"
        if ruled:
            wanted, reason = 1.0, "always_rule"
        ordinary = (sampling.rate or sampling.suspicious_rate or 0.0) * self._factor(ruled=False)
        possible = [ordinary, self._factor(ruled=True)] if sampling.always else [ordinary]
        least = min([probability for probability in possible if probability > 0.0], default=0.0)
        probability = wanted * self._factor(ruled=ruled)
        for budget, cost in self._budgets():
            budget.charge(probability, cost, ruled=ruled)
        # Without a trace no other process decides about the call; the system's random numbers differ after a fork.
        has_trace = call.span is not None and call.span.is_valid
        draw = _fraction(call.span.trace_id) if has_trace and call.span is not None else SystemRandom().random()
        if draw < probability:
            return SamplingDecision(True, probability, reason, least)
        return SamplingDecision(False, probability, "budget" if draw < wanted else "not_sampled", least)

    def _budgets(self) -> list[tuple[Budget, float]]:
        """Return each budget with the cost of a call in its unit."""
        budgets = ((self._calls, 1.0), (self._usd, self._costs.mean_usd))
        return [(budget, cost) for budget, cost in budgets if budget is not None]

    def _factor(self, *, ruled: bool) -> float:
        """Return the factor of the budgets for a probability at this moment."""
        return min((budget.factor(cost, ruled=ruled) for budget, cost in self._budgets()), default=1.0)

    def spent(self, cost_usd: float | None) -> None:
        """Record the cost of one judgement; None: the judge did not report it."""
        if self._usd is not None:
            self._costs.add(cost_usd)

    def reset(self) -> None:
        """Start the budgets anew, in a forked child with its own share; the known costs are kept."""
        for budget in (self._calls, self._usd):
            if budget is not None:
                budget.reset()


def included(trace_id: int, probability: float) -> bool:
    """Return whether the call with that trace id is sampled at *probability*: the same answer in every process.

    The hash is salted, so that it is independent of a head sampler that reads the bits of the trace id.
    """
    return _fraction(trace_id) < probability


def _fraction(trace_id: int) -> float:
    """Return a hash of *trace_id* in [0, 1): 53 bits, so that the division is exact and never rounds up to 1."""
    digest = hashlib.blake2b(trace_id.to_bytes(16, "big"), digest_size=8, key=_SALT).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53
