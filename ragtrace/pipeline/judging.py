"""Judging of sampled RAG calls: by the judge of this process, or by other processes in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ragtrace.core.types import Evaluation, RagCall, SamplingDecision
from ragtrace.evaluation.sampling import Sampler
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.work_items import CallItem


class Judging(Protocol):
    """Stage that has sampled calls judged, and counts their outcomes. Used on the worker's event loop alone."""

    evaluator: str
    """Id of the evaluator under which the outcomes are counted."""

    async def judge(
        self,
        work: CallItem,
        call: RagCall,
        decision: SamplingDecision,
        evaluations: list[Evaluation],
        on_begin: Callable[[], object] | None,
    ) -> None:
        """Have a sampled call judged here, or hand it over, and count its outcome.

        Args:
            work: the item of the call.
            call: the redacted call.
            decision: why, and with which probability it is judged.
            evaluations: takes the evaluation, if there is one here.
            on_begin: called before a judge is asked; None: nobody wants to know.
        """
        ...

    def count_unjudged(self, call: RagCall) -> None:
        """Note that a call which could have been judged is not: it was not sampled, or there was no room."""
        ...


class OwnJudging:
    """Judging by the judge of this process.

    Args:
        evaluator: the judge, with its metrics.
        sampler: is told what judgements cost.
        outcomes: counts what becomes of each call.
    """

    def __init__(self, evaluator: Evaluator, sampler: Sampler, outcomes: CallOutcomes) -> None:
        self.evaluator = evaluator.id
        self._judge, self._sampler, self._outcomes = evaluator, sampler, outcomes

    async def judge(
        self,
        work: CallItem,
        call: RagCall,
        decision: SamplingDecision,
        evaluations: list[Evaluation],
        on_begin: Callable[[], object] | None,
    ) -> None:
        """Have the judge score a sampled call, as `Judging.judge` says."""
        judged = await evaluate_guarded(work, self._judge, call, decision.probability, on_begin)
        self._sampler.record_cost(judged.cost_usd)
        self._outcomes.count_evaluation(work, judged, evaluations)

    def count_unjudged(self, call: RagCall) -> None:
        """Do nothing, as this process itself has counted the call."""


async def evaluate_guarded(
    work: CallItem, evaluator: Evaluator, call: RagCall, probability: float, on_begin: Callable[[], object] | None
) -> Evaluation:
    """Evaluate a RAG call, or return the evaluation that the guard of the call has had made by *evaluator*."""
    guard = work.step.guard
    if guard is None or guard.evaluator != evaluator.id:
        return await evaluate(evaluator, call, probability, on_begin)
    return await guard.evaluation(call, lambda: evaluate(evaluator, call, probability, on_begin))
