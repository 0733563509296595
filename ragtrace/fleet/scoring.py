"""Scoring of RAG calls from the queue of a fleet, in the worker process that has the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from opentelemetry.context import Context

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision
from ragtrace.evaluation.sampling import Sampler
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.scoring_flow import run_scoring
from ragtrace.pipeline.work_items import CallItem
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.telemetry.scores.score_sender import ScoreSender

if TYPE_CHECKING:
    from ragtrace.core.unscored_call import UnscoredCall
    from ragtrace.fleet.judge_process import JudgeProcess

_AVAILABLE_POLL_SECONDS: Final = 0.25
"""Longest pause before checking again whether a judge that failed is available."""


class JudgedCall(NamedTuple):
    """Outcome of one attempt to judge a RAG call that another process has handed over to the fleet."""

    status: Literal["scored", "failed", "retried", "judge_unavailable", "taken_over"]
    """Status of the attempt. `scored`, or `failed` at the last try: the scores were sent. `retried`: the judge failed.
    `judge_unavailable`: the judge was not asked, as it failed on other calls or asked for a pause. `taken_over`:
    another process judges the call."""
    reason: str
    """Reason why the judge failed, or empty."""


class FleetScoring:
    """Scoring of RAG calls from the queue of a fleet by the judge of this process.

    It has no queue: `Broker.consume` bounds how many calls a process has at a time. Used on the worker's event loop
    alone.

    Args:
        evaluator: the judge.
        outcomes: counts each call as offered, and its outcome.
        sampler: is told what judgements cost.
        instruments: record judgements whose scores are not sent.
        score_sender: sends the scores.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        outcomes: CallOutcomes,
        sampler: Sampler,
        instruments: Instruments,
        score_sender: ScoreSender,
    ) -> None:
        self._evaluator, self._outcomes, self._sampler = evaluator, outcomes, sampler
        self._instruments, self._score_sender = instruments, score_sender

    @classmethod
    def of(cls, runtime: JudgeProcess) -> FleetScoring:
        """Create the scoring by the judge of *runtime*.

        Raises:
            SettingsError: it has none.
        """
        judge, processor = runtime.evaluators.judge, runtime.processor
        if judge is None:
            raise SettingsError("a worker of a fleet judges calls, and has no judge; configure judge=")
        outputs = processor.outputs
        return cls(judge, processor.outcomes, runtime.sampler, outputs.instruments, outputs.score_sender)

    async def judge(
        self, unscored: UnscoredCall, *, last_try: bool, taken_over: Callable[[], Awaitable[bool]]
    ) -> JudgedCall:
        """Have the judge score a RAG call from the queue of the fleet, and send the scores.

        A call whose judgement does not end here has the outcome `handed_over`, as in the process that published it: it
        goes back into the queue, or another worker has it.

        While the judge is not available (open circuit, Retry-After), the call waits for it, for as long as judging a
        call may take.

        Args:
            unscored: the redacted call; its own span has ended in another process.
            last_try: whether the scores of a failed evaluation, which are reasons only, are sent.
            taken_over: returns whether another process judges the call, so that no scores are sent.
        """
        work, call, evaluator = CallItem.from_unscored(unscored), unscored.call, self._evaluator
        offered = self._outcomes.count_offered((evaluator.id,), work.step.workflow)
        work.pending_evaluators = {evaluator.id} if offered else set()
        evaluations: list[Evaluation] = []
        judged = JudgedCall("failed" if last_try else "retried", "internal")

        async def evaluate_call() -> None:
            nonlocal judged
            evaluation = await self._judge_when_available(evaluator, call, unscored.probability or 1.0)
            self._sampler.record_cost(evaluation.cost_usd)
            if await taken_over():
                self._instruments.record_judging(evaluation, Context())  # paid for, though no scores are sent
                judged = JudgedCall("taken_over", "")
            elif evaluation.error is not None and (evaluation.deferred or not last_try):
                if evaluation.n_calls or not evaluation.deferred:  # else the judge was not asked
                    self._instruments.record_judging(evaluation, Context())
                judged = JudgedCall("judge_unavailable" if evaluation.deferred else "retried", evaluation.error)
            else:
                self._outcomes.count_evaluation(work, evaluation, evaluations)
                judged = JudgedCall("scored" if evaluation.error is None else "failed", evaluation.error or "")
                return
            self._outcomes.count_pending(work, "handed_over", judged.status)

        def send() -> None:
            if evaluations:
                self._score_sender.send(work.step, call, evaluations, None, decision=_decision_elsewhere(unscored))

        await run_scoring(
            evaluate_call,
            cancelled=lambda: self._outcomes.count_pending(work, "handed_over", "shutdown"),
            failed=lambda: self._outcomes.count_pending(
                work, *(("failed", "internal") if last_try else ("handed_over", "retried"))
            ),
            send=send,
        )
        return judged

    async def _judge_when_available(self, evaluator: Evaluator, call: RagCall, probability: float) -> Evaluation:
        """Have the judge score *call* as soon as the judge is available, and return the evaluation."""
        client = evaluator.judge_client
        until = monotonic() + (evaluator.timeout or 0.0)  # without a time limit, one attempt is made at once
        while True:
            while (waits_s := client.status.waits_s) > 0 and monotonic() < until:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(min(waits_s, _AVAILABLE_POLL_SECONDS))
            evaluation = await evaluate(evaluator, call, probability)
            if not evaluation.deferred or monotonic() >= until:
                return evaluation
            await asyncio.sleep(_AVAILABLE_POLL_SECONDS)


def _decision_elsewhere(unscored: UnscoredCall) -> SamplingDecision | None:
    """Return the sampling decision that another process made for a RAG call, or None if its reason is not known."""
    if unscored.probability is None or not unscored.reason:
        return None
    return SamplingDecision(True, unscored.probability, unscored.reason)
