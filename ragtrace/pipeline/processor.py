"""Processing of finished steps and RAG calls: write spans, have calls scored, and see that each call is counted.

A call is scored by up to three evaluators (`ragtrace.evaluation.scoring.Evaluators`): one that measures without labels
("measure"), one that is cheap and sees every call ("screen"), and one that sees a sample ("judge"). In place of the
judge other processes may judge, to which sampled calls are handed over (`Elsewhere`).

A call's root span may be held: a `HoldProcessor` then keeps the ended span back from export until the scores are added
to it. Scores of a call whose span is not held go onto an extra, linked span.

**Who does what.** `CallProcessor` gives each item to the object with that job: `CallPreparation` makes the call of its
steps, `StepSpans` writes spans, `CallScoring` (whose head has the way of a call) has it scored, `Judging` stands in the
judge's place, `CallOutcomes` counts, and `UnscoredCalls` has what a shutdown leaves.

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
and where it is found, in `CallPreparation.end_without_scores` or `CallScoring`. State that changes belongs into a class
of its own, with a row in the second table below.

**Threads.** `CallProcessor`, `StepSpans` and `CallScoring` have no lock, and assign no attribute after their
construction (`test_a_processor_assigns_nothing_after_its_construction`). An item belongs to one thread at a time: to
the thread of the application that offers it, then to the worker's thread, and to the shutdown's once `Worker.stop` has
returned it.
One that is rejected while the shutdown empties the queue stays the worker's, as `reject` takes its texts. Only items in
flight while one of them blocks the worker's thread at a shutdown, by calling it there for instance, are seen by two:
then the set `CallItem.pending_evaluators` decides who counts a call, and `Step.written` who ends its span.

| Method | Thread |
|---|---|
| `handle`, `weigh`, `remaining_capacity`, `tick`, `aclose` | the worker's |
| `CallScoring`, `build_guarded`, `build_partial`, `count_partial` | the worker's, in tasks of its event loop |
| `write`: as a rule | the worker's |
| `write`: spans of a user's provider without a `HoldProcessor` | the application's, which ends the step |
| `write`: a call that the shutdown has prepared for the spool file | that of the shutdown's `drop` |
| `reject`: an item that is too large for the queue's memory | the worker's |
| `reject`: an item that the full or closed queue refuses | the application's |
| `drop`: an item that was rejected | the worker's; the application's, if the queue refuses it once more |
| `drop`: an item that the shutdown has left | one that the shutdown waits for within its time (`run_bounded`) |
| `UnscoredCalls.score_all` | the application's, which flushes |
| `UnscoredCalls.store_or_drop` | the shutdown's (`ShutdownTask`), and two that it starts (`ShutdownSpooling`) |

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
from typing import Final

from opentelemetry.context import Context

from ragtrace.core import semconv
from ragtrace.core.step import CallBuilder
from ragtrace.core.types import Evaluation, RagCall
from ragtrace.evaluation.sampling import Sampler
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.pipeline.call_ends import EndReason
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.call_preparation import CallPreparation
from ragtrace.pipeline.call_scoring import CallScoring
from ragtrace.pipeline.elsewhere import Elsewhere, Engine
from ragtrace.pipeline.judging import OwnJudging
from ragtrace.pipeline.outputs import Outputs
from ragtrace.pipeline.parts import Parts
from ragtrace.pipeline.step_spans import StepSpans
from ragtrace.pipeline.work_items import CallItem, Job, StepItem, WorkItem
from ragtrace.pipeline.worker import Worker
from ragtrace.telemetry.spans.hold import held_span_count

_AN_INSTANT: Final = 0.001
"""Seconds that a coroutine sleeps so that the worker continues it in a task; 0 would not do, as it awaits nothing."""


class CallProcessor:
    """Processor of finished steps and RAG calls, which writes their spans and has the calls scored.

    It has the worker, and is its handler. Each job is that of an object: `CallPreparation` makes the call of its steps,
    `StepSpans` writes or ends spans, `CallScoring` has calls scored, `CallOutcomes` counts, and `UnscoredCalls` has
    what a shutdown leaves. The module says which thread runs which method.

    Args:
        parts: parts of the runtime, whose periodic work is done on the worker's thread.
        outputs: where spans, metrics and scores go.
        evaluators: the evaluators of every call.
        sampler: decides which calls are judged.
        preparation: makes the call of its steps.
        outcomes: counts what becomes of every call.
        capacity: most calls that wait to be scored.
        most_bytes: most bytes of all items that wait.
        elsewhere: other processes that judge calls, or score what a shutdown leaves.
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
        elsewhere: Elsewhere,
    ) -> None:
        self.worker: Worker[WorkItem] = Worker(self, capacity=capacity, most_bytes=most_bytes)
        """Worker, which yields the interpreter between pieces of work, and limits how many calls wait for the judge."""
        self.outputs, self.outcomes = outputs, outcomes
        self._parts, self._evaluators, self._sampler, self._preparation = parts, evaluators, sampler, preparation
        judging = elsewhere.judging(outcomes)  # in the judge's place: `configure` takes one of the two
        if judging is None and evaluators.judge is not None:
            judging = OwnJudging(evaluators.judge, sampler, outcomes)
        ids = frozenset(evaluator.id for evaluator in evaluators if evaluator is not None)
        ids |= frozenset() if judging is None else {judging.evaluator}
        self._is_scoring = bool(ids)
        engine = Engine(self.worker, preparation, outcomes, ids, capacity)
        self.unscored = elsewhere.unscored_calls(engine)
        """What becomes of calls that a shutdown leaves, and of those that other processes have left."""
        first_status = semconv.STATUS_DEFERRED if ids else semconv.STATUS_NOT_SAMPLED
        spans = StepSpans(outputs, preparation, outcomes, first_status=first_status)
        self.write, self.drop = spans.write, spans.drop
        self._scoring = CallScoring(
            engine,
            outputs,
            spans,
            evaluators=evaluators,
            sampler=sampler,
            judging=judging,
            unscored=self.unscored,
        )

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
                await self._scoring.score_kept(item, item.call)
            elif item.dropped:
                self.drop(item, item.dropped)
            elif item.builder is not None and self._is_scoring:
                await self._scoring.score(item, item.builder)
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
        self.outcomes.count_pending(item, "dropped", reason)
        item.step.clear_texts()

    def remaining_capacity(self) -> int:
        """Return how many queued items the worker may handle before it must check the export queues for room."""
        return self.outputs.telemetry.remaining_capacity(held_span_count())

    def tick(self) -> None:
        """Do the periodic work of all parts, and queue calls that other processes have kept."""
        self._parts.tick()
        if not self.worker.closed:
            self.unscored.tick()

    async def aclose(self) -> None:
        """Close the judges and what the parts have on the event loop, so that they release their connections."""
        await self._parts.aclose()
        await self._evaluators.aclose()

    # --- for other parts of the runtime -----------------------------------------------------------------------------

    def build_guarded(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Return the redacted RAG call of a guarded function, and the reason why it must not be judged, or ""."""
        return self._preparation.build_guarded(builder)

    def build_partial(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Return a redacted RAG call with a part of a streamed answer, and why it must not be judged, or ""."""
        return self._preparation.build_partial(builder)

    def count_partial(self, evaluation: Evaluation) -> None:
        """Count the cost of judging a part of an answer, whose scores are not sent."""
        self._sampler.record_cost(evaluation.cost_usd)
        self.outputs.instruments.record_judging(evaluation, Context())
