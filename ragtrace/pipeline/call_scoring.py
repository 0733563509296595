"""The way of a RAG call from the end of its root step to its scores.

    score -> _prepare_and_evaluate -> _evaluate: measure, screen -> _decide -> _count_sampled_out
                                                                   or _take_place_at_judge -> _drop_as_queue_full
                                                                                           or Judging.judge
    then in any case _send: what the root span says is decided by `status_on_span` in `call_ends.py`

A call that another process has kept goes the same way by `score_kept`, without a span of its own. Everything here runs
on the worker's thread, in tasks of its event loop; `processor.py` says what else may have the call meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ragtrace.core.step import CallBuilder
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision
from ragtrace.estimates.moments import NEVER_RULE
from ragtrace.evaluation.sampling import Sampler
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.pipeline.call_ends import (
    CANCELLED,
    HANDED_OVER,
    SCORING_RAISED,
    SHUT_DOWN,
    SPOOLED,
    CallEnd,
    status_on_span,
)
from ragtrace.pipeline.elsewhere import Engine
from ragtrace.pipeline.judging import Judging, evaluate_guarded
from ragtrace.pipeline.outputs import Outputs
from ragtrace.pipeline.scoring_flow import run_scoring
from ragtrace.pipeline.step_spans import StepSpans
from ragtrace.pipeline.unscored_calls import UnscoredCalls
from ragtrace.pipeline.work_items import CallItem
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.hold import HoldProcessor


@dataclass(slots=True, eq=False)
class _Scoring:
    """Scoring of one RAG call in progress, with what is known of it so far; used on the worker's thread alone."""

    work: CallItem
    call: RagCall
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    """Evaluations that have finished and were counted, in the order of the evaluators."""
    holding: HoldProcessor | None = None
    """Processor that keeps the root span back until its scores are attached; None: none does."""
    decision: SamplingDecision | None = None
    """Sampler's decision about the judge; None if it made none, or the evaluation did not come to its end."""
    end: CallEnd | None = None
    """How the call ended without all its scores; None: it has them, and its status follows from `evaluations`."""


class CallScoring:
    """Scoring of RAG calls: by the evaluators that see every call, and of sampled ones by the judge.

    Args:
        engine: the worker, what makes a call of its steps, and what counts its outcomes.
        outputs: take the scores.
        spans: writes the root span.
        evaluators: the evaluators of every call.
        sampler: decides which calls are judged.
        judging: has sampled calls judged; None: there is no judge.
        unscored: keeps calls whose scoring a shutdown cancels.
    """

    def __init__(
        self,
        engine: Engine,
        outputs: Outputs,
        spans: StepSpans,
        *,
        evaluators: Evaluators,
        sampler: Sampler,
        judging: Judging | None,
        unscored: UnscoredCalls,
    ) -> None:
        self._worker, self._preparation, self._outcomes = engine.worker, engine.preparation, engine.outcomes
        self._score_sender, self._spans = outputs.score_sender, spans
        self._evaluators, self._sampler, self._judging, self._unscored = evaluators, sampler, judging, unscored

    async def score(self, work: CallItem, builder: CallBuilder) -> None:
        """Score a RAG call of this process, whose root span may be held back until its scores are on it."""
        call = RagCall(query=None, contexts=None, answer=None, span=work.step.span_context)  # until it is built
        scoring = _Scoring(work, call)
        await run_scoring(
            partial(self._prepare_and_evaluate, scoring, builder),
            cancelled=partial(self._keep_or_drop_interrupted, scoring),
            failed=partial(self._count_as_failed, scoring),
            send=partial(self._send, scoring),
        )

    async def score_kept(self, work: CallItem, call: RagCall) -> None:
        """Score a RAG call that another process has kept.

        Its root span has ended, so the scores go onto an extra, linked span.
        """
        scoring = _Scoring(work, call)
        await run_scoring(
            partial(self._evaluate_kept, scoring),
            cancelled=partial(self._keep_or_drop_interrupted, scoring),
            failed=partial(self._count_as_failed, scoring),
            send=partial(self._send_kept, scoring),
        )

    async def _prepare_and_evaluate(self, scoring: _Scoring, builder: CallBuilder) -> None:
        """Write the root span of a RAG call, build the call, and have it evaluated unless nobody is to see it."""
        work = scoring.work
        asked = self._score_sender.request_hold(work.step)  # before `write` ends the span, when it would be exported
        if work.step.written and not work.step.redacted:  # a call that was read from spans
            self._preparation.prepare(work)
        self._spans.write(work)
        scoring.holding = self._score_sender.find_holder(work.step, asked)
        self._worker.throttle.yield_interpreter()
        work.call = scoring.call = self._preparation.build(builder)
        scoring.end = self._count_if_unscorable(work, scoring.call)
        if scoring.end is None:
            await self._evaluate(scoring)
            scoring.end = HANDED_OVER if work.published else None

    async def _evaluate_kept(self, scoring: _Scoring) -> None:
        if self._count_if_unscorable(scoring.work, scoring.call) is None:
            await self._evaluate(scoring)

    def _keep_or_drop_interrupted(self, scoring: _Scoring) -> None:
        """Keep a RAG call whose scoring the shutdown has cancelled for another process, or else count it as dropped.

        Without a shutdown, code of a judge or metric has cancelled it: there it has failed.
        """
        if self._worker.closed and self._unscored.keep_interrupted(scoring.work):
            scoring.end = SPOOLED
            return
        scoring.end = SHUT_DOWN if self._worker.closed else CANCELLED
        self._outcomes.count_pending(scoring.work, scoring.end.outcome, scoring.end.reason)

    def _count_as_failed(self, scoring: _Scoring) -> None:
        """Count a RAG call whose scoring raised."""
        scoring.end = SCORING_RAISED
        self._outcomes.count_pending(scoring.work, SCORING_RAISED.outcome, SCORING_RAISED.reason)

    def _send(self, scoring: _Scoring) -> None:
        """Send the scores of a RAG call of this process, or what its root span shows in their place."""
        self._worker.throttle.yield_interpreter()
        work = scoring.work
        shown = status_on_span(work.dropped, scoring.end, scoring.evaluations)
        self._score_sender.send(
            work.step,
            scoring.call,
            scoring.evaluations,
            hold=scoring.holding,
            status=shown.status,
            decision=scoring.decision,
            n_sent_early=work.n_sent_early,
            reason=shown.reason,
        )

    def _send_kept(self, scoring: _Scoring) -> None:
        """Send the scores of a RAG call that was kept, and let the call leave the place where it is kept.

        A call that has not been scored by all stays there, and another process scores it again. One that is too large
        for the queue of a fleet leaves as well, as no process could hand it over.
        """
        work = scoring.work
        if work.pending_evaluators or work.dropped not in ("", "too_large"):
            return
        if scoring.evaluations:
            self._score_sender.send(work.step, scoring.call, scoring.evaluations, hold=None)
        self._unscored.mark_sent(work)

    def _count_if_unscorable(self, work: CallItem, call: RagCall) -> CallEnd | None:
        """Count a RAG call that no evaluator is to see, and return its end, or None for any other call."""
        end = self._preparation.end_without_scores(call)
        if end is not None:
            self._outcomes.count_pending(work, end.outcome, end.reason)
        return end

    async def _evaluate(self, scoring: _Scoring) -> None:
        """Have the configured evaluators score a RAG call, the judge only if the call is sampled.

        Every finished evaluation is appended to `scoring.evaluations`, and the sampler's decision becomes
        `scoring.decision`.
        """
        work, call, evaluations = scoring.work, scoring.call, scoring.evaluations
        count_attempt = None if work.spool_row is None else partial(self._unscored.count_attempt, work)
        screened: Evaluation | None = None
        for evaluator in (self._evaluators.measure, self._evaluators.screen):
            if evaluator is not None and evaluator.id in work.pending_evaluators:
                evaluation = await evaluate_guarded(work, evaluator, call, 1.0, count_attempt)
                evaluation = self._outcomes.count_evaluation(work, evaluation, evaluations)
                screened = evaluation if evaluator is self._evaluators.screen else None
        judging = self._judging
        if judging is None or judging.evaluator not in work.pending_evaluators:
            return
        decision = self._decide(work, call, screened)
        if not decision.included:
            self._count_sampled_out(work, call, decision, judging)
        elif not self._take_place_at_judge(work):
            self._drop_as_queue_full(work, call, decision, judging)
        else:
            work.probability, work.sampling_reason = decision.probability, decision.reason
            if work.spool_row is None:
                work.n_sent_early = self._score_sender.send_early_scores(
                    work.step, call, evaluations, scoring.holding, decision
                )
            await judging.judge(work, call, decision, evaluations, count_attempt)
        scoring.decision = decision  # now, as the span of a call whose scoring raises or is cancelled shows none

    def _decide(self, work: CallItem, call: RagCall, screened: Evaluation | None) -> SamplingDecision:
        """Return the decision whether the judge is to score *call*."""
        if work.step.guard is not None and self._judging and work.step.guard.evaluator == self._judging.evaluator:
            return self._sampler.decide_guarded()
        if work.probability is None:
            return self._sampler.decide(call, screened)
        # Decided before the call went into the spool.
        return SamplingDecision(True, work.probability, work.sampling_reason or "sampled")

    def _count_sampled_out(self, work: CallItem, call: RagCall, decision: SamplingDecision, judging: Judging) -> None:
        """Count a RAG call that the sampler keeps from the judge, or from other processes that judge in its place."""
        self._outcomes.count(work, judging.evaluator, "sampled_out", decision.reason, probability=decision.probability)
        if decision.reason != NEVER_RULE:
            judging.count_unjudged(call)

    def _take_place_at_judge(self, work: CallItem) -> bool:
        """Take a place among the calls that wait for the judge, or the fleet, and return False if none is free.

        Two kinds of calls need none: one from the spool file keeps its place of the queue's capacity, as it was only
        claimed because there was room, and one that a guard has had judged does not wait, and its score is paid for.
        """
        guard = work.step.guard
        if work.spool_row is not None or (guard is not None and guard.has_evaluation):
            return True
        return self._worker.move_to_judging()

    def _drop_as_queue_full(self, work: CallItem, call: RagCall, decision: SamplingDecision, judging: Judging) -> None:
        """Count a sampled RAG call as dropped instead of judging it, because too many calls wait for the judge."""
        work.dropped_in_handling = "queue_full"
        self._outcomes.count(work, judging.evaluator, "dropped", "queue_full", probability=decision.probability)
        judging.count_unjudged(call)
        faults.warn_once(
            "dropped: the judge's queue is full",
            "calls come faster than the judge %r answers, and no more can wait for it: they have the scores of the "
            "screen only, and are counted as dropped (queue_full) in ragtrace.stats(). Lower Sampling(rate=), or raise "
            "JudgeLimits(concurrency=), Limits(capacity=) or Limits(queue_bytes=)",
            judging.evaluator,
        )
