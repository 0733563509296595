"""State shared by the workers of a fleet: the judge's budget, Retry-After pauses, and claims of RAG calls."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragtrace.fleet.broker import is_redis
from ragtrace.fleet.budget import BudgetLimits, BudgetReader, JudgeBudget
from ragtrace.fleet.claims import RedisClaims, WorkerClaims
from ragtrace.system.faults import log_safely

if TYPE_CHECKING:
    from ragtrace.evaluation.sampling import Sampling
    from ragtrace.evaluation.scoring import Evaluator


@dataclass(frozen=True, slots=True)
class SharedState:
    """State that a worker shares with the other workers of its fleet."""

    claims: WorkerClaims
    budget: JudgeBudget | None
    """Budget of the judge; None: there is none, and no Redis through which workers could share a Retry-After."""
    reader: BudgetReader | None
    """Reader of the remaining budget; None: there is no budget, or it is not in Redis."""


def share_state(
    evaluator: Evaluator,
    sampling: Sampling,
    *,
    broker: str,
    store: str | None,
    tokens_per_day: float | None,
    claim_seconds: float,
) -> SharedState:
    """Make the judge share its budget with the other workers, and return the shared state.

    Args:
        evaluator: the judge.
        sampling: settings with the budgets, and with the number of processes that share them where Redis does not.
        broker: URL of the broker.
        store: URL of the Redis that the workers share; None: the broker, if it is Redis.
        tokens_per_day: tokens that the judge reads and writes in 24 hours; None: no limit.
        claim_seconds: time for which a call may be held by a worker that does not confirm its claim.

    Raises:
        SettingsError: the store or a budget cannot be used.
    """
    redis = store or (broker if is_redis(broker) else None)
    limits = BudgetLimits(sampling.per_minute, tokens_per_day, sampling.usd_per_day)
    budget: JudgeBudget | None = None
    reader: BudgetReader | None = None
    judge = evaluator.identity
    if redis is not None:
        budget = JudgeBudget(limits, redis, judge=judge)
        reader = BudgetReader(limits, redis, judge=judge) if limits else None
    elif limits:
        workers = sampling.replicas or 1
        budget = JudgeBudget(limits.share_of(workers), None, judge=judge)
        log_safely(
            logging.WARNING,
            "the judge's budget is not shared with other workers, as there is no Redis to count in: this worker keeps "
            "1/%d of it. Set RAGTRACE_REPLICAS to the number of workers, or give --store redis://...",
            workers,
        )
    evaluator.judge_client.shared_limits = budget
    claims = None if redis is None else RedisClaims(redis)
    return SharedState(WorkerClaims(claims, evaluator.judge.id, evaluator.judge.version, claim_seconds), budget, reader)
