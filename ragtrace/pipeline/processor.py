"""Processing of finished steps and RAG calls: write spans, have calls scored, and see that each call is counted.

A call is scored by up to three evaluators (`ragtrace.evaluation.scoring.Evaluators`): one that measures without labels
("measure"), one that is cheap and sees every call ("screen"), and one that sees a sample ("judge"). In place of the
judge there may be a fleet, to whose queue sampled calls are handed over.

A call's root span may be held: a `HoldProcessor` then keeps the ended span back from export until the scores are added
to it. Scores of a call whose span is not held go onto an extra, linked span.

**Order of the file.** `Outputs`; `_Scoring`; `CallProcessor`, whose methods stand by who calls them: the worker, other
parts of the runtime, then the span (`drop`, `write`), and the scores. There `_score` and `_score_spooled` are the two
ways of a call, and `_evaluate` is what both share:

    _prepare_and_evaluate -> _evaluate: measure, screen -> _decide -> _count_sampled_out
                                                                   or _take_place_at_judge -> _drop_as_queue_full
                                                                                           or _judge_or_publish
    then in any case _send: what the root span says is decided by `status_on_span` in `call_ends.py`

**Invariants**, each with the test that guards it, in `tests/unit/pipeline/test_processor.py` where no file is named.

- A call gets one outcome at each evaluator, and its span says the same:
  `test_each_way_to_the_scores_is_counted_once_and_stands_on_the_span`. A call of the spool file leaves the file with
  its outcome: `test_each_way_of_a_spooled_call_is_counted_once_and_ends_in_the_file`. Over the whole life of a process,
  every call that was offered is counted: `tests/process/test_accounting.py`.
- Two threads that drop a call count it once, and the span has the reason that is counted:
  `test_a_call_that_two_threads_drop_has_the_reason_that_is_counted`.
- A span is written once, by the first of `write` and `drop`: `test_a_span_that_has_been_written_stays_as_it_is`.
- A judgement that a guard has had made is not made again: `test_a_guarded_call_is_judged_once_and_whatever_the_rate`.
- What the span says when several things happened to a call: `test_call_ends.py`.

**How to change it.** A new reason to end a call without scores: `core/unscored_reasons.py`, an entry of `call_ends.py`,
and where it is found, in `CallPreparation.end_without_scores` or here. A new step on a call's way: a method that takes
the `_Scoring`, called where it has its place above. State that changes belongs into a class of its own, with a row in
the second table below.

**Threads.** `CallProcessor` has no lock, and assigns no attribute after its construction
(`test_a_processor_assigns_nothing_after_its_construction`). An item belongs to one thread at a time: to the thread of
the application that offers it, then to the worker's thread, and to the shutdown's once `Worker.stop` has returned it.
One that is rejected while the shutdown empties the queue stays the worker's, as `reject` takes its texts. Only items in
flight while one of them blocks the worker's thread at a shutdown, by calling it there for instance, are seen by two:
then the set `CallItem.pending_evaluators` decides who counts a call, and `Step.written` who ends its span.

| Method | Thread |
|---|---|
| `handle`, `weigh`, `remaining_capacity`, `tick`, `aclose` | the worker's |
| `judge`, `build_guarded`, `build_partial`, `count_partial` | the worker's, in tasks of its event loop |
| `write`: as a rule | the worker's |
| `write`: spans of a user's provider without a `HoldProcessor` | the application's, which ends the step |
| `write`: a call that the shutdown has prepared for the spool file | that of the shutdown's `drop` |
| `reject`: an item that is too large for the queue's memory | the worker's |
| `reject`: an item that the full or closed queue refuses | the application's |
| `drop`: an item that was rejected | the worker's; the application's, if the queue refuses it once more |
| `drop`: an item that the shutdown has left | one that the shutdown waits for within its time (`run_bounded`) |
| `score_spooled` | the application's, which flushes |
| `store_or_drop` | the shutdown's (`ShutdownTask`), and two that it starts (`ShutdownSpooling`) |

The application's thread is any that ends a step or a call, one that flushes, one on which garbage collection ends a
stream, and that of a gateway's server. Calls that are made of the spans of other instrumentations are offered by the
worker's `tick` and, the last ones, by the shutdown: there, what the table says of the application's thread holds for
these. A shutdown that is called on the worker's thread runs there.

| State | Guarded by |
|---|---|
| items and places in `ItemQueue` | its lock |
| counts in `Ledger`, and removal from `pending_evaluators` with them | the ledger's lock |
| removal from `pending_evaluators` by a shutdown | no lock: removing one id from a set is atomic |
| `CallItem.dropped` | no lock: it is made of two reasons with one writer each |
| `RecentOutcomes` | no lock: appending to a deque is atomic |
| turns in `Conversations` | its lock |
| claims of `Spooling` | its lock, held by one thread that queues calls of the file |
| commits of `Spooling`, and `CallItem.is_spooled` | the condition of `CommitGate` |
| `Sampler`, `FleetHandover`, `FleetScoring` | no lock: used on the worker's thread alone |

**Queues and clocks.** The worker's queue is bounded by `Limits(capacity=)` calls, eight times as many steps, and three
quarters of `Limits(queue_bytes=)`; as many calls again may wait for the judge, in three quarters of these bytes. The
judge's own queue (`JudgeClient.admission_queue`) and that of the fleet's publisher hold calls which the worker has in
flight, so these bounds are theirs. Ahead of the worker's queue, `DeferredSteps` keeps a few steps of every call that
has not ended, for a quarter of a second, and guard checks have a queue with one entry for each answer that waits.
Behind it come held spans (`HoldProcessor`: number, bytes and seconds), the exporters' queues, for whose room the worker
waits one second at most, and the spool file (`Spool`: calls and bytes). Deadlines within the process are in seconds of
`time.monotonic`: those of a flush, of a shutdown (`ShutdownBudget`), of the judge and of periodic work. What processes
compare is in seconds since the epoch: claims in the spool file, and the age of a message in the queue of a fleet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context

from ragtrace.core import semconv
from ragtrace.core.ledger import FLEET
from ragtrace.core.step import CallBuilder
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision
from ragtrace.estimates.moments import NEVER_RULE
from ragtrace.evaluation.sampling import Sampler
from ragtrace.evaluation.scoring import Evaluator, Evaluators, evaluate
from ragtrace.pipeline.call_ends import (
    CANCELLED,
    ENDS,
    HANDED_OVER,
    SCORING_RAISED,
    SHUT_DOWN,
    SPOOLED,
    CallEnd,
    EndReason,
    ReasonIfAny,
    status_on_span,
)
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.call_preparation import CallPreparation
from ragtrace.pipeline.fleet_scoring import FleetScoring, JudgedCall
from ragtrace.pipeline.parts import Parts
from ragtrace.pipeline.scoring_flow import run_scoring
from ragtrace.pipeline.shutdown import ShutdownBudget
from ragtrace.pipeline.shutdown_spooling import ShutdownSpooling
from ragtrace.pipeline.spool_intake import SpoolIntake
from ragtrace.pipeline.spooling import Spooling
from ragtrace.pipeline.work_items import CallItem, Job, SpanItem, StepItem, WorkItem
from ragtrace.pipeline.worker import Worker
from ragtrace.system.faults import faults
from ragtrace.telemetry.export.telemetry import Telemetry
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.telemetry.scores.score_sender import ScoreSender
from ragtrace.telemetry.spans.hold import HoldProcessor, held_span_count
from ragtrace.telemetry.spans.writer import SpanWriter

if TYPE_CHECKING:
    from ragtrace.core.unscored_call import UnscoredCall
    from ragtrace.fleet.publisher import FleetPublisher
    from ragtrace.pipeline.fleet_handover import FleetHandover

_AN_INSTANT: Final = 0.001
"""Seconds that a coroutine sleeps so that the worker continues it in a task; 0 would not do, as it awaits nothing."""
_MOST_SPOOLED_SHARE: Final = 0.5
"""Share of the queue's capacity that calls of the spool file may fill, as calls of this process go first."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a processor puts what it makes of steps and calls: spans, metrics and scores."""

    telemetry: Telemetry
    """Export queues, for whose room the worker waits."""
    writer: SpanWriter
    instruments: Instruments
    score_sender: ScoreSender


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


class CallProcessor:
    """Processor of finished steps and RAG calls, which writes their spans and has the calls scored.

    It has the worker, and is its handler. What it does itself is the way of a call of this process: its span is written
    (`write`), or ended without content (`drop`); measure and screen evaluate it; the sampler decides; the judge, or a
    fleet, gets the sampled ones; the scores are sent. The rest is left to objects with one job each: `CallPreparation`
    makes the call of its steps, `CallOutcomes` counts, `SpoolIntake` queues calls of the spool file, `FleetHandover`
    publishes to a fleet, `FleetScoring` judges for one, and `ShutdownSpooling` stores what a shutdown leaves.

    The module says which thread runs which method.

    Args:
        parts: parts of the runtime, whose periodic work is done on the worker's thread.
        outputs: where spans, metrics and scores go.
        evaluators: the evaluators of every call.
        sampler: decides which calls the judge, or the fleet, gets.
        preparation: makes the call of its steps.
        outcomes: counts what becomes of every call.
        capacity: most calls that wait to be scored.
        most_bytes: most bytes of all items that wait.
        spooling: stores unscored calls at shutdown; None if there is no spool file.
        publisher: puts sampled calls into the queue of a fleet, in place of a judge; None: there is no fleet.
    """

    def __init__(
        self,
        *,
        parts: Parts,
        outputs: Outputs,
        evaluators: Evaluators,
        sampler: Sampler,
        preparation: CallPreparation,
        outcomes: CallOutcomes,
        capacity: int,
        most_bytes: int,
        spooling: Spooling | None = None,
        publisher: FleetPublisher | None = None,
    ) -> None:
        self.worker: Worker[WorkItem] = Worker(self, capacity=capacity, most_bytes=most_bytes)
        """Worker, which yields the interpreter between pieces of work, and limits how many calls wait for the judge."""
        self._parts, self._telemetry, self._writer = parts, outputs.telemetry, outputs.writer
        self._instruments, self._score_sender = outputs.instruments, outputs.score_sender
        self._evaluators, self._sampler, self._outcomes, self._spooling = evaluators, sampler, outcomes, spooling
        self._preparation = preparation
        self._prepare = preparation.prepare  # looked up once, as `write` may run on a request thread
        ids = [evaluator.id for evaluator in evaluators if evaluator is not None]
        self._judge_id = "" if evaluators.judge is None else evaluators.judge.id
        if publisher is not None:  # the fleet stands in the judge's place: `configure` takes one of the two
            ids.append(FLEET)
            self._judge_id = FLEET
        self._is_scoring = bool(ids)
        self._first_status = semconv.STATUS_DEFERRED if ids else semconv.STATUS_NOT_SAMPLED
        self._handover: FleetHandover | None = None
        if publisher is not None:
            from ragtrace.pipeline.fleet_handover import FleetHandover  # only where there is a fleet

            self._handover = FleetHandover(publisher, outcomes, spooling)
        self._fleet_scoring = FleetScoring(
            evaluators.judge, outcomes, sampler, outputs.instruments, outputs.score_sender
        )
        self._intake: SpoolIntake | None = None
        if spooling is not None:
            self._intake = SpoolIntake(
                spooling,
                self.worker,
                outcomes,
                ids,
                most_queued=int(capacity * _MOST_SPOOLED_SHARE),
                handover=self._handover,
            )
        self._shutdown_spooling = ShutdownSpooling(preparation, outcomes, spooling)

    # --- as the worker's handler -------------------------------------------------------------------------------------

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

    def reject(self, item: WorkItem, reason: EndReason = "queue_full") -> None:
        """Count a RAG call that does not fit into the queue as dropped, and release the texts of its root step.

        The other steps keep theirs until the item is handled. The call's span is still ended. A job is done all the
        same.
        """
        if isinstance(item, Job):
            return
        if isinstance(item, StepItem):  # the texts of a step stay with its call, which may still be scored
            item.dropped = reason
            return
        item.dropped_in_handling = reason
        self._outcomes.count_pending(item, "dropped", reason)
        item.step.clear_texts()

    def remaining_capacity(self) -> int:
        """Return how many queued items the worker may handle before it must check the export queues for room."""
        return self._telemetry.remaining_capacity(held_span_count())

    def tick(self) -> None:
        """Do the periodic work of all parts, and queue calls of the spool file."""
        self._parts.tick()
        if self._spooling is not None and not self.worker.closed:
            self._spooling.tick()
            if self._intake is not None:
                self._intake.tick()

    async def aclose(self) -> None:
        """Close the judges and what the parts have on the event loop, so that they release their connections."""
        await self._parts.aclose()
        await self._evaluators.aclose()

    # --- for other parts of the runtime -----------------------------------------------------------------------------

    @property
    def recovered(self) -> int:
        """Number of calls that were counted as spooled, and handed over to the fleet later by this process."""
        return 0 if self._handover is None else self._handover.recovered

    def score_spooled(self, budget: ShutdownBudget) -> bool:
        """Score the calls of the spool file for a flush, and return whether nothing waits in the queue at its end."""
        return self._intake is None or self._intake.score_all(budget)

    def store_or_drop(self, works: Sequence[CallItem], budget: ShutdownBudget) -> None:
        """At shutdown, store all unscored RAG calls in the spool file or drop them, and count their outcomes.

        Args:
            works: items that `Worker.stop` has returned; calls whose scoring was cancelled are added.
            budget: time budget of the shutdown.
        """
        self._shutdown_spooling.store_or_drop(works, budget)

    async def judge(
        self, unscored: UnscoredCall, *, last_try: bool, taken_over: Callable[[], Awaitable[bool]]
    ) -> JudgedCall:
        """Have the judge score a RAG call from the queue of the fleet, as `FleetScoring.judge` does."""
        return await self._fleet_scoring.judge(unscored, last_try=last_try, taken_over=taken_over)

    def build_guarded(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Return the redacted RAG call of a guarded function, and the reason why it must not be judged, or ""."""
        return self._preparation.build_guarded(builder)

    def build_partial(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Return a redacted RAG call with a part of a streamed answer, and why it must not be judged, or ""."""
        return self._preparation.build_partial(builder)

    def count_partial(self, evaluation: Evaluation) -> None:
        """Count the cost of judging a part of an answer, whose scores are not sent."""
        self._sampler.record_cost(evaluation.cost_usd)
        self._instruments.record_judging(evaluation, Context())

    # --- the span ----------------------------------------------------------------------------------------------------

    def drop(self, work: SpanItem, reason: ReasonIfAny = "") -> None:
        """Count a RAG call as dropped, and end its span.

        The span gets the call's texts only if a shutdown has prepared the call, to store it in the spool file. Of a
        step, the span is ended without content. A span that was written before is left as it is.

        Args:
            work: the call or step.
            reason: why it is dropped; empty: the reason that *work* has, or "shutdown".
        """
        reason = reason or work.dropped or "shutdown"
        if work.step.guard is not None:
            work.step.guard.close(reason)
        is_call = isinstance(work, CallItem)
        if isinstance(work, CallItem):
            self._outcomes.count_pending(work, "dropped", reason)
        span = work.step.span
        # Three cases: the span was written before, or it shows the texts that are prepared, or it ends without content.
        if span is None or work.step.written:
            if is_call and work.dropped:  # a scoring blocks the worker, so that the shutdown could not cancel it
                end = ENDS[work.dropped]
                self._score_sender.release_with_status(work.step, end.status, end.reason_on_span)
            return
        end = ENDS[reason]
        if end.is_prepared:
            if end.reason_on_span:
                span.set_attribute(semconv.REASON, end.reason_on_span)
            self.write(work, end.status)
            return
        work.step.written = True
        if is_call:
            span.set_attribute(semconv.EVAL_STATUS, end.status)
            span.set_attribute(semconv.REASON, end.reason_on_span)
        faults.warn_once(
            f"dropped: {reason}",
            "a finished step or call was dropped before its span was written (%s): the span has no content, and a call "
            "has no scores; every further loss is counted in ragtrace.stats(). Raise Limits(capacity=) or "
            "Limits(queue_bytes=), or give shutdown more time",
            reason,
        )
        span.end(end_time=work.step.end_ns)
        work.step.release_context()

    def write(self, work: SpanItem, status: str = "") -> None:
        """Write the span of a finished step: redact its texts, set them as attributes, end the span and record metrics.

        A span that has been written before is left alone, as its duration must not be counted twice.

        Args:
            work: the call or step.
            status: evaluation status of a call; empty: the one that a call has until it is scored.
        """
        if work.step.written:
            return
        try:
            try:
                self._prepare(work)
            finally:  # the span ends in any case; `redact_step` leaves no text in a step that it has not redacted
                status = (status or self._first_status) if isinstance(work, CallItem) else ""
                self._writer.finish(work.step, status=status)
        except Exception as error:
            faults.record("writing a span", error)
        try:
            self._instruments.record_step(work.step)
        except Exception as error:
            faults.record("metrics of a step", error)
        work.step.release_context()

    # --- the scores --------------------------------------------------------------------------------------------------

    async def _score(self, work: CallItem, builder: CallBuilder) -> None:
        """Score a RAG call of this process, whose root span may be held back until its scores are on it."""
        call = RagCall(query=None, contexts=None, answer=None, span=work.step.span_context)  # until it is built
        scoring = _Scoring(work, call)
        await run_scoring(
            partial(self._prepare_and_evaluate, scoring, builder),
            cancelled=partial(self._keep_or_drop_interrupted, scoring),
            failed=partial(self._count_as_failed, scoring),
            send=partial(self._send, scoring),
        )

    async def _score_spooled(self, work: CallItem, call: RagCall) -> None:
        """Score a RAG call from the spool file.

        Its root span has ended, so the scores go onto an extra, linked span.
        """
        scoring = _Scoring(work, call)
        await run_scoring(
            partial(self._evaluate_spooled, scoring),
            cancelled=partial(self._keep_or_drop_interrupted, scoring),
            failed=partial(self._count_as_failed, scoring),
            send=partial(self._send_spooled, scoring),
        )

    async def _prepare_and_evaluate(self, scoring: _Scoring, builder: CallBuilder) -> None:
        """Write the root span of a RAG call, build the call, and have it evaluated unless nobody is to see it."""
        work = scoring.work
        asked = self._score_sender.request_hold(work.step)  # before `write` ends the span, when it would be exported
        if work.step.written and not work.step.redacted:  # a call that was read from spans
            self._prepare(work)
        self.write(work)
        scoring.holding = self._score_sender.find_holder(work.step, asked)
        self.worker.throttle.yield_interpreter()
        work.call = scoring.call = self._preparation.build(builder)
        scoring.end = self._count_if_unscorable(work, scoring.call)
        if scoring.end is None:
            await self._evaluate(scoring)
            scoring.end = HANDED_OVER if work.published else None

    async def _evaluate_spooled(self, scoring: _Scoring) -> None:
        if self._count_if_unscorable(scoring.work, scoring.call) is None:
            await self._evaluate(scoring)

    def _keep_or_drop_interrupted(self, scoring: _Scoring) -> None:
        """Keep a RAG call whose scoring the shutdown has cancelled for the spool file, or else count it as dropped.

        Without a shutdown, code of a judge or metric has cancelled it: there it has failed.
        """
        if self.worker.closed and self._shutdown_spooling.keep_interrupted(scoring.work):
            scoring.end = SPOOLED
            return
        scoring.end = SHUT_DOWN if self.worker.closed else CANCELLED
        self._outcomes.count_pending(scoring.work, scoring.end.outcome, scoring.end.reason)

    def _count_as_failed(self, scoring: _Scoring) -> None:
        """Count a RAG call whose scoring raised."""
        scoring.end = SCORING_RAISED
        self._outcomes.count_pending(scoring.work, SCORING_RAISED.outcome, SCORING_RAISED.reason)

    def _send(self, scoring: _Scoring) -> None:
        """Send the scores of a RAG call of this process, or what its root span shows in their place."""
        self.worker.throttle.yield_interpreter()
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

    def _send_spooled(self, scoring: _Scoring) -> None:
        """Send the scores of a RAG call from the spool file, and let the call leave the file.

        A call that has not been scored by all stays in the file, and another process scores it again. One that is too
        large for the queue of a fleet leaves the file as well, as no process could hand it over.
        """
        work = scoring.work
        if work.pending_evaluators or work.dropped not in ("", "too_large"):
            return
        if scoring.evaluations:
            self._score_sender.send(work.step, scoring.call, scoring.evaluations, hold=None)
        if self._spooling is not None and work.spool_row is not None:
            self._spooling.mark_sent(work.spool_row)

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
        count_attempt = None
        if self._spooling is not None and work.spool_row is not None:
            count_attempt = partial(self._spooling.count_attempt, work.spool_row)
        screened: Evaluation | None = None
        for evaluator in (self._evaluators.measure, self._evaluators.screen):
            if evaluator is not None and evaluator.id in work.pending_evaluators:
                evaluation = await _evaluate_guarded(work, evaluator, call, 1.0, count_attempt)
                evaluation = self._outcomes.count_evaluation(work, evaluation, evaluations)
                screened = evaluation if evaluator is self._evaluators.screen else None
        if not self._judge_id or self._judge_id not in work.pending_evaluators:
            return
        decision = self._decide(work, call, screened)
        if not decision.included:
            self._count_sampled_out(work, call, decision)
        elif not self._take_place_at_judge(work):
            self._drop_as_queue_full(work, call, decision)
        else:
            work.probability, work.sampling_reason = decision.probability, decision.reason
            if work.spool_row is None:
                work.n_sent_early = self._score_sender.send_early_scores(
                    work.step, call, evaluations, scoring.holding, decision
                )
            await self._judge_or_publish(scoring, decision, count_attempt)
        scoring.decision = decision  # now, as the span of a call whose scoring raises or is cancelled shows none

    async def _judge_or_publish(
        self, scoring: _Scoring, decision: SamplingDecision, count_attempt: Callable[[], object] | None
    ) -> None:
        """Have the judge score a sampled RAG call, or publish the call to the fleet that is in the judge's place."""
        work, call, judge = scoring.work, scoring.call, self._evaluators.judge
        if judge is not None:
            judged = await _evaluate_guarded(work, judge, call, decision.probability, count_attempt)
            self._sampler.record_cost(judged.cost_usd)
            self._outcomes.count_evaluation(work, judged, scoring.evaluations)
        elif self._handover is not None:
            await self._handover.publish_or_spool(work, call, decision)

    def _decide(self, work: CallItem, call: RagCall, screened: Evaluation | None) -> SamplingDecision:
        """Return the decision whether the judge is to score *call*."""
        if work.step.guard is not None and work.step.guard.evaluator == self._judge_id:
            return self._sampler.decide_guarded()
        if work.probability is None:
            return self._sampler.decide(call, screened)
        # Decided before the call went into the spool.
        return SamplingDecision(True, work.probability, work.sampling_reason or "sampled")

    def _count_sampled_out(self, work: CallItem, call: RagCall, decision: SamplingDecision) -> None:
        """Count a RAG call that the sampler keeps from the judge, or from the fleet."""
        self._outcomes.count(work, self._judge_id, "sampled_out", decision.reason, probability=decision.probability)
        if self._handover is not None and decision.reason != NEVER_RULE:
            self._handover.count_unjudged(call)

    def _take_place_at_judge(self, work: CallItem) -> bool:
        """Take a place among the calls that wait for the judge, or the fleet, and return False if none is free.

        Two kinds of calls need none: one from the spool file keeps its place of the queue's capacity, as it was only
        claimed because there was room, and one that a guard has had judged does not wait, and its score is paid for.
        """
        guard = work.step.guard
        if work.spool_row is not None or (guard is not None and guard.has_evaluation):
            return True
        return self.worker.move_to_judging()

    def _drop_as_queue_full(self, work: CallItem, call: RagCall, decision: SamplingDecision) -> None:
        """Count a sampled RAG call as dropped instead of judging it, because too many calls wait for the judge."""
        work.dropped_in_handling = "queue_full"
        self._outcomes.count(work, self._judge_id, "dropped", "queue_full", probability=decision.probability)
        if self._handover is not None:
            self._handover.count_unjudged(call)
        faults.warn_once(
            "dropped: the judge's queue is full",
            "calls come faster than the judge %r answers, and no more can wait for it: they have the scores of the "
            "screen only, and are counted as dropped (queue_full) in ragtrace.stats(). Lower Sampling(rate=), or raise "
            "JudgeLimits(concurrency=), Limits(capacity=) or Limits(queue_bytes=)",
            self._judge_id,
        )


async def _evaluate_guarded(
    work: CallItem, evaluator: Evaluator, call: RagCall, probability: float, on_begin: Callable[[], object] | None
) -> Evaluation:
    """Evaluate a RAG call, or return the evaluation that the guard of the call has had made by *evaluator*."""
    guard = work.step.guard
    if guard is None or guard.evaluator != evaluator.id:
        return await evaluate(evaluator, call, probability, on_begin)
    return await guard.evaluation(call, lambda: evaluate(evaluator, call, probability, on_begin))
