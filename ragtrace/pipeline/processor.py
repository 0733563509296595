"""Processing of finished steps and RAG calls on the worker thread: write spans, score calls, count outcomes.

A call is scored by up to three evaluators (`ragtrace.evaluation.scoring.Evaluators`): one that measures without labels
("measure"), one that is cheap and sees every call ("screen"), and one that sees a sample ("judge"). In place of the
judge there may be a fleet, to whose queue sampled calls are handed over.

A call's root span may be held: a `HoldProcessor` then keeps the ended span back from export until the scores are added
to it. Scores of a call whose span is not held go onto an extra, linked span.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from sys import maxsize
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from opentelemetry.context import Context

from ragtrace.capture import mark_duplicates
from ragtrace.capture.redact import FAILED, Redact, redact_evaluation, redact_step
from ragtrace.core import semconv
from ragtrace.core.ledger import FLEET, Ledger, Outcome
from ragtrace.core.step import CallBuilder
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision
from ragtrace.estimates.calibration import Calibrations
from ragtrace.estimates.moments import NEVER_RULE
from ragtrace.evaluation.sampling import Sampler
from ragtrace.evaluation.scoring import Evaluator, Evaluators, evaluate
from ragtrace.pipeline.health import MOST_OUTCOMES, RecentOutcomes, failure_detail, unscored_metrics
from ragtrace.pipeline.parts import Parts
from ragtrace.pipeline.shutdown import AT_LEAST_SECONDS, ShutdownBudget
from ragtrace.pipeline.spooling import Spooling
from ragtrace.pipeline.work_items import CallItem, Job, SpanItem, StepItem, WorkItem
from ragtrace.pipeline.worker import Worker
from ragtrace.recording.conversations import Conversations, needs_turns
from ragtrace.system.faults import faults, guarded
from ragtrace.system.threads import run_bounded, start_in_thread
from ragtrace.telemetry.export.telemetry import Telemetry
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.telemetry.scores.score_sender import ScoreSender
from ragtrace.telemetry.spans.hold import HoldProcessor, held_span_count
from ragtrace.telemetry.spans.writer import SpanWriter

if TYPE_CHECKING:
    from ragtrace.core.unscored_call import UnscoredCall
    from ragtrace.fleet.publisher import FleetPublisher

_AN_INSTANT: Final = 0.001
"""Shortest time to wait that makes the worker continue a coroutine in a task."""
_SPOOL_SECONDS: Final = 1.0
"""Longest wait for other writers of the spool file, when a call that the broker does not take is stored."""
_AVAILABLE_POLL_SECONDS: Final = 0.25
"""Longest pause before checking again whether a judge that failed is available."""
_STORED_AT_ONCE: Final = 128
"""Most calls that are written to the spool file in one batch."""
_STORED_AT_LEAST: Final = 16
"""Number of calls in a batch that are stored without checking whether the time suffices."""
_STORE_SECONDS: Final = 0.005
"""Typical time for writing a batch of calls to the spool file."""
_STORE_GRACE_SECONDS: Final = 0.02
"""Extra time for a batch that is being written at the deadline, for which the shutdown waits `AT_LEAST_SECONDS`."""
_COMMIT_SECONDS: Final = 0.5
"""Longest time for which a shutdown waits for a commit to the spool file that is in progress at the deadline."""
_ENCODE_SECONDS: Final = 0.000_1
"""Typical time for encoding a call as JSON."""


class JudgedCall(NamedTuple):
    """Outcome of one attempt to judge a RAG call that another process has handed over to the fleet."""

    status: Literal["scored", "failed", "retried", "judge_unavailable", "taken_over"]
    """Status of the attempt. `scored`, or `failed` at the last try: the scores were sent. `retried`: the judge failed.
    `judge_unavailable`: the judge was not asked, as it failed on other calls or asked for a pause. `taken_over`:
    another process judges the call."""
    reason: str
    """Reason why the judge failed, or empty."""


class CallProcessor:
    """Processor of finished steps and RAG calls, which writes spans, has calls scored, and counts the outcomes in the
    ledger.

    It has the worker, and is its handler. It runs on the worker's thread, except for spans that are written at once,
    and the end of unscored calls at shutdown.

    Args:
        parts: parts of the runtime, whose periodic work is done on the worker's thread.
        evaluators: the evaluators of every call.
        spooling: stores unscored calls at shutdown; None if there is no spool file.
        score_head_dropped: whether calls are scored whose trace the head sampler dropped.
        capacity: most calls that wait to be scored.
        most_bytes: most bytes of all items that wait.
        publisher: puts sampled calls into the queue of a fleet, in place of a judge; None: there is no fleet.
    """

    def __init__(
        self,
        parts: Parts,
        telemetry: Telemetry,
        writer: SpanWriter,
        instruments: Instruments,
        score_sender: ScoreSender,
        evaluators: Evaluators,
        sampler: Sampler,
        redact: Redact,
        ledger: Ledger,
        outcomes: RecentOutcomes,
        spooling: Spooling | None,
        *,
        score_head_dropped: bool,
        capacity: int,
        most_bytes: int,
        publisher: FleetPublisher | None = None,
        calibrations: Calibrations | None = None,
    ) -> None:
        self._parts, self._capacity = parts, capacity
        self.worker: Worker[WorkItem] = Worker(self, capacity=capacity, most_bytes=most_bytes)
        """Worker, which yields the interpreter between pieces of work, and limits how many calls wait for the judge."""
        self._calibrations = Calibrations() if calibrations is None else calibrations
        self._telemetry, self._writer, self._instruments = telemetry, writer, instruments
        self._score_sender, self._sampler, self._redact, self._ledger = score_sender, sampler, redact, ledger
        self._has_rules = redact.has_rules
        self._may_be_plain = not redact.has_rules and redact.ids is None
        self._most_chars = maxsize if redact.max_chars is None else redact.max_chars
        self._evaluators, self._publisher = evaluators, publisher
        self._judge_id = evaluators.judge.id if evaluators.judge is not None else "" if publisher is None else FLEET
        self._is_scoring = publisher is not None or any(evaluator is not None for evaluator in evaluators)
        self._outcomes, self._spooling, self._score_head_dropped = outcomes, spooling, score_head_dropped
        # Earlier turns are kept for two purposes: metrics of whole conversations, and judges that are shown the latest
        # ones. A judge that only computes asks no model, and is shown none.
        metrics = chain.from_iterable(evaluator.metrics for evaluator in evaluators if evaluator is not None)
        whole = any(map(needs_turns, metrics))
        asking = [each for each in evaluators if each is not None and not each.judge_client.computes]
        turns_shown = [each.judge_turns for each in asking] + ([] if publisher is None else [publisher.judge_turns])
        latest = max(turns_shown, default=0)
        self._conversations = Conversations(whole=whole, latest=latest) if whole or latest else None
        self.interrupted: list[CallItem] = []
        """Calls whose scoring the shutdown cancelled."""

    async def handle(self, item: WorkItem) -> None:
        """Process the work item *item*: write its span and, if it is a RAG call and there are evaluators, score it."""
        if isinstance(item, Job):
            # HTTP clients must run in a task: the worker continues a coroutine in one once it has awaited something.
            await asyncio.sleep(_AN_INSTANT)
            await item.run()
        elif isinstance(item, StepItem):
            if item.dropped:
                self.drop(item, item.dropped)
            else:
                self.write(item)
        else:
            await self._handle_call(item)

    async def _handle_call(self, item: CallItem) -> None:
        for step in item.claim_deferred_steps():
            self.write(step)
            self.worker.throttle.yield_interpreter()
        try:
            if item.spool_row is not None and item.call is not None:
                await self._score_spooled(item, item.call)
            elif item.dropped:
                self.drop(item, item.dropped)
            elif item.builder is not None and self._is_scoring:
                await self._score(item, item.builder)
            else:
                self.write(item)
        finally:
            if item.builder is not None:
                item.builder.close()

    def weigh(self, item: WorkItem) -> int:
        """Return the memory in bytes that *item* keeps alive."""
        return item.bytes

    def reject(self, item: WorkItem, reason: str = "queue_full") -> None:
        """Count a RAG call that does not fit into the queue as dropped, and release its texts.

        The call's span is still ended. A job is done all the same.
        """
        if isinstance(item, Job):
            return
        item.dropped = reason
        if isinstance(item, CallItem):  # the texts of a step stay with its call, which may still be scored
            self.count_pending_as(item, "dropped", reason)
            item.step.clear_texts()

    def remaining_capacity(self) -> int:
        """Return how many queued items the worker may handle before it must check the export queues for room."""
        return self._telemetry.remaining_capacity(held_span_count())

    def tick(self) -> None:
        """Do the periodic work of all parts, and queue calls of the spool file."""
        self._parts.tick()
        if self._spooling is not None and not self.worker.closed:
            self._spooling.tick()
            if self._spooling.is_due() and not self._fleet_is_away:
                self._queue_spooled(self._spooling)

    async def aclose(self) -> None:
        """Close the judges and what the parts have on the event loop, so that they release their connections."""
        await self._parts.aclose()
        await self._evaluators.aclose()

    # --- calls of the spool file --------------------------------------------------------------------------------------

    def score_spooled(self, budget: ShutdownBudget) -> bool:
        """Score the calls of the spool file for a flush, and return whether nothing waits in the queue at its end."""
        spooling, scored = self._spooling, True
        more = spooling is not None and not self._fleet_is_away
        while more and scored and spooling is not None:
            queued = self._queue_spooled(spooling, budget.seconds_left())
            more = queued > 0 or (spooling.is_scoring_suspect and self.worker.size > 0)
            scored = self.worker.wait_idle(budget.deadline - monotonic())  # for calls the worker claimed, too
        return scored

    @property
    def _fleet_is_away(self) -> bool:
        """Whether the broker of the fleet cannot be reached, so that spooled calls have to wait."""
        return self._publisher is not None and self._publisher.is_away

    def _queue_spooled(self, spooling: Spooling, timeout: float = 0.0) -> int:
        """Queue unscored calls from the spool file to be scored, and return their number.

        They may fill half of the queue at most, as calls of this process go first.
        """
        queued = 0
        known = {evaluator.id for evaluator in self._evaluators if evaluator is not None}
        if self._publisher is not None:
            known.add(FLEET)
        with spooling.claim(self._capacity // 2 - self.worker.size, timeout) as calls:
            for claimed in calls:
                work = CallItem.from_spooled(claimed)
                if not self._ledger.count_offered(work.pending_evaluators, work.step.workflow):
                    continue  # the call stays in the file
                for evaluator in work.pending_evaluators - known:
                    self.count_outcome(work, evaluator, "dropped", "not_configured")
                if self.worker.offer(work):
                    queued += 1
                else:
                    # The call stays in the file, and is released for another process at shutdown.
                    self.count_pending_as(work, "dropped", "spooled")
        return queued

    # --- the ledger ---------------------------------------------------------------------------------------------------

    def count_pending_as(self, work: CallItem, outcome: Outcome, reason: str = "") -> None:
        """Count *outcome* as the outcome of a RAG call for every evaluator that has not finished the call."""
        for evaluator in list(work.pending_evaluators):
            self.count_outcome(work, evaluator, outcome, reason)

    def count_outcome(
        self,
        work: CallItem,
        evaluator: str,
        outcome: Outcome,
        reason: str = "",
        *,
        probability: float | None = None,
        detail: str = "",
    ) -> bool:
        """Count a RAG call's outcome at one evaluator, and return False if an outcome was counted before.

        Later outcomes are ignored.
        """
        step = work.step
        # A shutdown may enter outcomes of calls that the worker is still scoring.
        if not self._ledger.count_finished_once(work.pending_evaluators, evaluator, step.workflow, outcome, reason):
            return False
        self._outcomes.add(step.span_context, step.workflow, evaluator, outcome, reason, probability, detail)
        return True

    def _count_evaluation(self, work: CallItem, evaluation: Evaluation, evaluations: list[Evaluation]) -> Evaluation:
        """Count a finished evaluation in the ledger, append it to *evaluations*, and return it as it was appended.

        Count and append nothing if a shutdown has counted the call as dropped or spooled meanwhile.
        """
        if self._has_rules:  # redacted before it is counted, as `ragtrace.doctor()` shows the error messages
            evaluation = redact_evaluation(evaluation, self._redact)
        evaluation = self._calibrations.calibrate(evaluation)
        outcome, reason = evaluation.outcome
        probability = evaluation.probability
        detail = failure_detail(evaluation) if reason else unscored_metrics(evaluation)
        if self.count_outcome(work, evaluation.evaluator, outcome, reason, probability=probability, detail=detail):
            evaluations.append(evaluation)
        return evaluation

    # --- the span ----------------------------------------------------------------------------------------------------

    def drop(self, work: SpanItem, reason: str = "") -> None:
        """Count a RAG call as dropped, and end its span.

        The span gets the call's texts only if the call was stored in the spool file. Of a step, the
        span is ended without content. A span that was written before is left as it is.

        Args:
            work: the call or step.
            reason: why it is dropped; empty: the reason that *work* has, or "shutdown".
        """
        reason = reason or work.dropped or "shutdown"
        if work.step.guard is not None:
            work.step.guard.close(reason)
        is_call = isinstance(work, CallItem)
        if isinstance(work, CallItem):
            self.count_pending_as(work, "dropped", reason)
        span = work.step.span
        if span is None or work.step.written:
            if is_call and work.dropped:  # a scoring blocks the worker, so that the shutdown could not cancel it
                status = semconv.STATUS_DEFERRED if work.dropped == "spooled" else semconv.STATUS_DROPPED
                self._score_sender.release_with_status(work.step, status)
            return
        if reason == "spooled":  # the call's texts have been read and redacted, and its scores will follow
            self.write(work)
            return
        work.step.written = True
        if is_call:
            span.set_attribute(semconv.EVAL_STATUS, semconv.STATUS_DROPPED)
            span.set_attribute(semconv.REASON, reason)
        faults.warn_once(
            f"dropped: {reason}",
            "a finished step or call was dropped before its span was written (%s): the span has no content, and a call "
            "has no scores; every further loss is counted in ragtrace.stats(). Raise Limits(capacity=) or "
            "Limits(queue_bytes=), or give shutdown more time",
            reason,
        )
        span.end(end_time=work.step.end_ns)
        work.step.release_context()

    def write(self, work: SpanItem) -> None:
        """Write the span of a finished step: redact its texts, set them as attributes, end the span and record metrics.

        A span that has been written before is left alone, as its duration must not be counted twice.
        """
        if work.step.written:
            return
        try:
            try:
                self._prepare(work)
            finally:
                status = semconv.STATUS_DEFERRED if self._is_scoring else semconv.STATUS_NOT_SAMPLED
                self._writer.finish(work.step, status=status if isinstance(work, CallItem) else "")
        except Exception as error:
            faults.record("writing a span", error)
        try:
            self._instruments.record_step(work.step)
        except Exception as error:
            faults.record("metrics of a step", error)
        work.step.release_context()

    def _prepare(self, work: SpanItem) -> None:
        """Read and redact the texts of a step, or of all steps of a RAG call, before its span is written."""
        builder = work.builder if isinstance(work, CallItem) else None
        for step in (work.step, *(() if builder is None else (*builder.steps, *builder.orphans))):
            if (step.ended or step is work.step) and not step.redacted:
                step.complete()
                if self._may_be_plain and step.is_plain(self._most_chars):
                    step.redacted = True
                else:
                    redact_step(step, self._redact)
        if builder is not None:
            builder.show_contexts()

    # --- the scores --------------------------------------------------------------------------------------------------

    def build_guarded(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Build and redact the RAG call of a guarded function, before its span is written and the call is scored.

        Returns:
            The call, and the reason why it must not be judged, or an empty text.
        """
        self._prepare(CallItem(builder.root, builder))
        call = self._call(builder)
        end = self._end_without_scores(call)
        return call, "" if end is None else end[1]

    def build_partial(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Build and redact a RAG call for a part of an answer that is still being streamed.

        Args:
            builder: builder of that call alone, whose root stands for the root step of the call in progress.

        Returns:
            The call, and the reason why it must not be judged, or an empty text.
        """
        self._prepare(CallItem(builder.root, builder))
        call = builder.build()  # which no conversation takes up
        call = call if call.contexts is None else replace(call, contexts=mark_duplicates(call.contexts))
        end = self._end_without_scores(call)
        return call, "" if end is None else end[1]

    def count_partial(self, evaluation: Evaluation) -> None:
        """Count the cost of judging a part of an answer, whose scores are not sent."""
        self._sampler.record_cost(evaluation.cost_usd)
        self._instruments.record_judging(evaluation, Context())

    async def _run_scoring(
        self,
        evaluate: Callable[[], Awaitable[None]],
        *,
        cancelled: Callable[[], object],
        failed: Callable[[], None],
        send: Callable[[], None],
    ) -> None:
        """Score a RAG call: the flow of calls of this process, of the spool file and of the queue of a fleet.

        Args:
            evaluate: has the call evaluated, and counts the outcomes.
            cancelled: says what becomes of a call whose scoring the shutdown cancels.
            failed: counts a call whose scoring raised.
            send: sends the scores; called in any case.
        """
        try:
            await evaluate()
        except asyncio.CancelledError:
            cancelled()
            raise
        except BaseException as error:  # whatever a user's redaction or id generator raises, the call is counted
            faults.record("scoring of a call", error)
            failed()
        finally:
            with guarded("attaching scores"):
                send()

    async def _score(self, work: CallItem, builder: CallBuilder) -> None:
        """Score a RAG call of this process, whose root span may be held back until its scores are on it."""
        holding: HoldProcessor | None = None
        call = RagCall(query=None, contexts=None, answer=None, span=work.step.span_context)
        evaluations: list[Evaluation] = []
        status: str | None = None
        decision: SamplingDecision | None = None

        async def evaluate_call() -> None:
            nonlocal holding, call, status, decision
            asked = self._score_sender.request_hold(work.step)
            if work.step.written and not work.step.redacted:  # a call that was read from spans
                self._prepare(work)
            self.write(work)
            holding = self._score_sender.find_holder(work.step, asked)
            self.worker.throttle.yield_interpreter()
            work.call = call = self._call(builder)
            decision = await self._evaluate(work, call, evaluations, holding)
            if self._skip_reason(call) == "call_failed":
                status = semconv.STATUS_CALL_FAILED
            elif work.published:
                status = semconv.STATUS_HANDED_OVER

        def keep_or_drop() -> None:
            nonlocal status
            status = self._interrupt(work)

        def fail() -> None:
            nonlocal status
            status = semconv.STATUS_ERROR
            self.count_pending_as(work, "failed", "internal")

        def send() -> None:
            self.worker.throttle.yield_interpreter()
            shown = _status_of_dropped(work.dropped, evaluations) if work.dropped else status
            self._score_sender.send(
                work.step, call, evaluations, holding, shown, decision, work.n_sent_early, reason=work.dropped
            )

        await self._run_scoring(evaluate_call, cancelled=keep_or_drop, failed=fail, send=send)

    async def _score_spooled(self, work: CallItem, call: RagCall) -> None:
        """Score a RAG call from the spool file.

        Its root span has ended, so the scores go onto an extra, linked span.
        """
        evaluations: list[Evaluation] = []

        async def evaluate_call() -> None:
            await self._evaluate(work, call, evaluations, None)

        def send() -> None:
            # A call that has not been scored by all stays in the file, and another process scores it again.
            if work.pending_evaluators or work.dropped:
                return
            if evaluations:
                self._score_sender.send(work.step, call, evaluations, None)
            if self._spooling is not None and work.spool_row is not None:
                self._spooling.mark_sent(work.spool_row)

        await self._run_scoring(
            evaluate_call,
            cancelled=partial(self._interrupt, work),
            failed=lambda: self.count_pending_as(work, "failed", "internal"),
            send=send,
        )

    async def judge(
        self, unscored: UnscoredCall, *, last_try: bool, taken_over: Callable[[], Awaitable[bool]]
    ) -> JudgedCall:
        """Have the judge score a RAG call from the queue of the fleet, and send the scores.

        Runs in a worker of the fleet. A call whose judgement does not end here has the outcome `handed_over`, as in the
        process that published it: it goes back into the queue, or another worker has it.

        While the judge is not available (open circuit, Retry-After), the call waits for it, for as long as judging a
        call may take.

        Args:
            unscored: the redacted call; its own span has ended in another process.
            last_try: whether the scores of a failed evaluation, which are reasons only, are sent.
            taken_over: returns whether another process judges the call, so that no scores are sent.
        """
        work, call = CallItem.from_unscored(unscored), unscored.call
        evaluator = self._evaluators.judge
        if evaluator is None:
            raise RuntimeError("no judge is configured in this process")
        offered = self._ledger.count_offered((evaluator.id,), work.step.workflow)
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
                self._count_evaluation(work, evaluation, evaluations)
                judged = JudgedCall("scored" if evaluation.error is None else "failed", evaluation.error or "")
                return
            self.count_pending_as(work, "handed_over", judged.status)

        def send() -> None:
            if evaluations:
                self._score_sender.send(work.step, call, evaluations, None, decision=_decision_elsewhere(unscored))

        await self._run_scoring(
            evaluate_call,
            cancelled=lambda: self.count_pending_as(work, "handed_over", "shutdown"),
            failed=lambda: self.count_pending_as(
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

    def _interrupt(self, work: CallItem) -> str:
        """Handle a cancelled scoring: keep the RAG call for the spool file, or count it as dropped.

        Returns:
            The evaluation status for its span.
        """
        if self._spooling is None or not self.worker.closed:
            self.count_pending_as(work, "dropped", "shutdown")
            return semconv.STATUS_DROPPED
        self.interrupted.append(work)
        return semconv.STATUS_DEFERRED

    def _end_without_scores(self, call: RagCall) -> tuple[Outcome, str] | None:
        """Return the outcome and reason of a RAG call that is not to be scored, or None for other calls."""
        texts = [call.query, call.answer, call.reference, *(document.text for document in call.contexts or ())]
        if FAILED in texts or FAILED in [turn.text for turn in call.turns or ()]:
            return "failed", "redaction"
        skip = self._skip_reason(call)
        return ("sampled_out", skip) if skip else None

    async def _evaluate(
        self, work: CallItem, call: RagCall, evaluations: list[Evaluation], holding: HoldProcessor | None
    ) -> SamplingDecision | None:
        """Have the configured evaluators score *call*.

        The judge scores it only if the call is sampled.

        Args:
            work: the item of the call.
            call: the call.
            evaluations: to which every finished evaluation is appended.
            holding: the processor that keeps the root span back until its scores are attached; None: none does.

        Returns:
            The sampler's decision about the judge; None if it made none.
        """
        end = self._end_without_scores(call)
        if end is not None:
            self.count_pending_as(work, *end)
            return None
        count_attempt = None
        if self._spooling is not None and work.spool_row is not None:
            count_attempt = partial(self._spooling.count_attempt, work.spool_row)
        screened: Evaluation | None = None
        for evaluator in (self._evaluators.measure, self._evaluators.screen):
            if evaluator is not None and evaluator.id in work.pending_evaluators:
                evaluation = await _evaluate_guarded(work, evaluator, call, 1.0, count_attempt)
                evaluation = self._count_evaluation(work, evaluation, evaluations)
                screened = evaluation if evaluator is self._evaluators.screen else None
        if not self._judge_id or self._judge_id not in work.pending_evaluators:
            return None
        if work.step.guard is not None and work.step.guard.evaluator == self._judge_id:
            decision = self._sampler.decide_guarded()
        elif work.probability is None:
            decision = self._sampler.decide(call, screened)
        else:  # decided before the call went into the spool
            decision = SamplingDecision(True, work.probability, work.sampling_reason or "sampled")
        if not decision.included:
            self.count_outcome(work, self._judge_id, "sampled_out", decision.reason, probability=decision.probability)
            if decision.reason != NEVER_RULE:
                self._tell_fleet_of_unjudged(call)
            return decision
        # A call from the spool file keeps its slot of the queue's capacity: it was only claimed because there was room.
        if work.spool_row is None and not self.worker.move_to_waiting():
            self._drop_as_queue_full(work, self._judge_id, decision)
            self._tell_fleet_of_unjudged(call)
            return decision
        work.probability, work.sampling_reason = decision.probability, decision.reason
        if work.spool_row is None:
            work.n_sent_early = self._score_sender.send_early_scores(work.step, call, evaluations, holding, decision)
        judge = self._evaluators.judge
        if judge is None:
            await self._publish_or_spool(work, call, decision)
            return decision
        judged = await _evaluate_guarded(work, judge, call, decision.probability, count_attempt)
        self._sampler.record_cost(judged.cost_usd)
        self._count_evaluation(work, judged, evaluations)
        return decision

    async def _publish_or_spool(self, work: CallItem, call: RagCall, decision: SamplingDecision) -> None:
        """Publish a sampled RAG call to the queue of the fleet.

        While the broker cannot be reached, store the call in the spool file, if there is one.
        """
        from ragtrace.core.unscored_call import UnscoredCall  # only where there is a fleet
        from ragtrace.fleet.call_message import CallMessage

        if self._publisher is None:
            return
        probability = decision.probability
        unscored = UnscoredCall(call, (FLEET,), work.step.response_id, probability, decision.reason)
        spoolable = self._spooling is not None and work.spool_row is None
        result = await self._publisher.publish(CallMessage.of(unscored), spoolable=spoolable)
        if result == "away" and self._spooling is not None:
            add = partial(self._spooling.add, [work], [unscored], _SPOOL_SECONDS)
            await asyncio.get_running_loop().run_in_executor(None, add)
            if work.is_spooled:
                work.dropped = "spooled"
                self.count_outcome(work, FLEET, "dropped", work.dropped, probability=probability)
                return
            # Not spoolable, the call waits for the broker: the result is never "away" again.
            result = await self._publisher.publish(CallMessage.of(unscored), spoolable=False)
        if result == "published":
            work.published = self.count_outcome(work, FLEET, "handed_over", probability=probability)
            return
        self._publisher.count_unjudged(call.workflow)
        work.dropped = result  # "too_large"
        self.count_outcome(work, FLEET, "dropped", work.dropped, probability=probability)
        faults.warn_once(
            "dropped: too large for the fleet",
            "the texts of a call are too large for the queue of the fleet (4 MiB), and it is counted as dropped "
            "(too_large) in ragtrace.stats(), as every further one is. Lower Limits(max_chars=)",
        )

    def _tell_fleet_of_unjudged(self, call: RagCall) -> None:
        """Have the next message to the fleet say that *call* happened, and that it is not judged."""
        if self._publisher is not None:
            self._publisher.count_unjudged(call.workflow)

    def _drop_as_queue_full(self, work: CallItem, judge: str, decision: SamplingDecision) -> None:
        """Count a sampled RAG call as dropped instead of judging it, because too many calls wait for the judge."""
        work.dropped = "queue_full"
        self.count_outcome(work, judge, "dropped", work.dropped, probability=decision.probability)
        faults.warn_once(
            "dropped: the judge's queue is full",
            "calls come faster than the judge %r answers, and no more can wait for it: they have the scores of the "
            "screen only, and are counted as dropped (queue_full) in ragtrace.stats(). Lower Sampling(rate=), or raise "
            "JudgeLimits(concurrency=), Limits(capacity=) or Limits(queue_bytes=)",
            judge,
        )

    def _skip_reason(self, call: RagCall) -> str:
        """Return the reason for leaving *call* unscored (`head_dropped`, `call_failed`), or an empty text."""
        if call.span is None or not (call.span.trace_flags.sampled or self._score_head_dropped):
            return "head_dropped"
        # The application failed before there was an answer to score; its span shows the error.
        return "call_failed" if call.error is not None and not call.answer else ""

    def _call(self, builder: CallBuilder) -> RagCall:
        guard = builder.root.guard
        if guard is not None and guard.call is not None:  # a conversation takes up each call once
            return guard.call
        call = builder.build()
        if self._conversations is not None:
            call = self._conversations.follow(call)
        return call if call.contexts is None else replace(call, contexts=mark_duplicates(call.contexts))

    # --- at shutdown -------------------------------------------------------------------------------------------------

    def store_or_drop(self, works: Sequence[CallItem], budget: ShutdownBudget) -> None:
        """At shutdown, store all unscored RAG calls in the spool file or drop them, and count their outcomes.

        Args:
            works: items that were never begun, or that block the worker; calls whose scoring was cancelled are added.
            budget: time budget of the shutdown; calls for which it leaves no time are counted as dropped.
        """
        # From here on, scores that the worker may still finish for these calls are neither counted nor sent.
        works = [*works, *self.interrupted]
        claimed = {work: names for work in dict.fromkeys(works) if (names := work.claim_pending_evaluators())}
        ends: dict[CallItem, tuple[Outcome, str]] = {}
        undecided: set[object] = set()
        for work in claimed:
            work.dropped = work.dropped or ("spooled" if self._spooling is not None else "shutdown")
        if (spooling := self._spooling) is not None:
            until = budget.until_stored()
            store = partial(self._store, spooling, claimed, ends, until)
            if claimed:
                run_bounded(store, until + AT_LEAST_SECONDS)  # a user's redaction or a disk may hang
            undecided.update(spooling.commits.close(_COMMIT_SECONDS))
        later = {work: names for work, names in claimed.items() if work in undecided}
        self._count_unscored({work: names for work, names in claimed.items() if work not in later}, ends)
        if later and spooling is not None:  # a disk does not answer; these calls are pending until it does
            close, count = partial(spooling.commits.close, None), partial(self._count_unscored, later, ends)
            start_in_thread(lambda: (close(), count()))

    def _count_unscored(
        self, claimed: Mapping[CallItem, tuple[str, ...]], ends: Mapping[CallItem, tuple[Outcome, str]]
    ) -> None:
        """Count the outcomes of RAG calls that a shutdown has left unscored.

        Args:
            claimed: the calls, each with the ids of the evaluators that have not scored it.
            ends: outcomes and reasons of calls that were handled but not stored in the spool file.
        """
        lost = "shutdown" if self._spooling is None else "not_spooled"
        counts: Counter[tuple[str, str, Outcome, str]] = Counter()
        last: deque[tuple[CallItem, tuple[Outcome, str]]] = deque(maxlen=MOST_OUTCOMES)
        for work, names in claimed.items():
            # A call that was read from the spool file is still in it.
            is_in_file = work.is_spooled or work.spool_row is not None
            end: tuple[Outcome, str] = ("dropped", "spooled") if is_in_file else ends.get(work, ("dropped", lost))
            outcome, reason = end
            work.dropped = reason if outcome == "dropped" else work.dropped
            counts.update((name, work.step.workflow, outcome, reason) for name in names)
            last.append((work, end))
        # One entry for all calls with the same workflow and outcome, as there may be thousands, and little time.
        for (name, workflow, outcome, reason), calls in counts.items():
            self._ledger.count_finished(name, workflow, outcome, reason, calls=calls)
        for work, (outcome, reason) in last:
            for name in claimed[work]:
                self._outcomes.add(work.step.span_context, work.step.workflow, name, outcome, reason)

    def _store(
        self,
        spooling: Spooling,
        claimed: Mapping[CallItem, tuple[str, ...]],
        ends: dict[CallItem, tuple[Outcome, str]],
        until: float,
    ) -> None:
        """Store unscored RAG calls in the spool file in batches until the monotonic time *until*.

        Args:
            spooling: the spool.
            claimed: the calls, each with the ids of the evaluators that have not scored it.
            ends: filled with the outcome and reason of every call that was handled, for the case that it is not stored.
            until: monotonic seconds.
        """
        from ragtrace.core.unscored_call import UnscoredCall  # only where there is a spool

        left = [work for work in claimed if work.spool_row is None and not work.is_spooled][::-1]
        with spooling.keep_open():
            while left:
                works: list[CallItem] = []
                calls: list[UnscoredCall] = []
                while left and len(works) < _STORED_AT_ONCE:
                    if len(works) >= _STORED_AT_LEAST and (
                        monotonic() > until - _STORE_SECONDS - _ENCODE_SECONDS * len(works)
                    ):
                        break
                    work = left.pop()
                    call, ends[work] = self._prepare_for_spool(work)
                    if call is not None:
                        works.append(work)
                        step = work.step
                        calls.append(
                            UnscoredCall(call, claimed[work], step.response_id, work.probability, work.sampling_reason)
                        )
                spooling.add(works, calls, until + _STORE_GRACE_SECONDS - monotonic())
                if monotonic() > until - _STORE_SECONDS:
                    return

    def _prepare_for_spool(self, work: CallItem) -> tuple[RagCall | None, tuple[Outcome, str]]:
        """Build and redact the RAG call of a queued work item, so that it can be stored in the spool file.

        Returns:
            The call, None if it must not be stored; and the outcome and reason to count if it is not stored.
        """
        try:
            if work.call is None and work.builder is not None:
                self._prepare(work)
                work.call = self._call(work.builder)
            end = None if work.call is None else self._end_without_scores(work.call)
            return (work.call, ("dropped", "not_spooled")) if end is None else (None, end)
        except Exception as error:
            faults.record("spool", error)
            return None, ("dropped", "not_spooled")


async def _evaluate_guarded(
    work: CallItem, evaluator: Evaluator, call: RagCall, probability: float, on_begin: Callable[[], object] | None
) -> Evaluation:
    """Evaluate a RAG call, or return the evaluation that the guard of the call has had made by *evaluator*."""
    guard = work.step.guard
    if guard is None or guard.evaluator != evaluator.id:
        return await evaluate(evaluator, call, probability, on_begin)
    return await guard.evaluation(call, lambda: evaluate(evaluator, call, probability, on_begin))


def _decision_elsewhere(unscored: UnscoredCall) -> SamplingDecision | None:
    """Return the sampling decision that another process made for a RAG call, or None if its reason is not known."""
    if unscored.probability is None or not unscored.reason:
        return None
    return SamplingDecision(True, unscored.probability, unscored.reason)


def _status_of_dropped(reason: str, evaluations: Sequence[Evaluation]) -> str:
    """Return the evaluation status that is set on the span of a dropped RAG call.

    Args:
        reason: why it was dropped.
        evaluations: what evaluators had given before.
    """
    if reason == "spooled":
        return semconv.STATUS_DEFERRED
    scored = any(evaluation.outcome[0] in ("scored", "partial") for evaluation in evaluations)
    return semconv.STATUS_PARTIAL if scored and reason == "queue_full" else semconv.STATUS_DROPPED
