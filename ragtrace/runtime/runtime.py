"""The runtime that `configure` builds: receives finished steps from the application, owns the background worker."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from ragtrace.capture.redact import Redact
from ragtrace.core.contents import may_leave
from ragtrace.core.ledger import FLEET, DeliveryCounts, Ledger, Stats
from ragtrace.core.settings import Settings
from ragtrace.core.step import CallBuilder, OrphanRetrievals, Step
from ragtrace.estimates import BaselineLearner, Calibrations, MetricAssignment, RunningMoments
from ragtrace.evaluation.judge_client import JudgeStatus
from ragtrace.evaluation.sampling import JudgementCosts, Sampler, Sampling
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.guard.guards import GuardedFunction, Guards, find_bound, find_evaluator
from ragtrace.guard.outcomes import GuardCounts
from ragtrace.labels.served_models import ServedModels
from ragtrace.pipeline.call_ends import SPOOLED, EndReason
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.call_preparation import CallPreparation, conversations_for
from ragtrace.pipeline.health import HealthMonitor, RecentOutcomes
from ragtrace.pipeline.parts import Parts
from ragtrace.pipeline.processor import CallProcessor, Outputs
from ragtrace.pipeline.shutdown import (
    AT_LEAST_SECONDS,
    EXIT_SECONDS,
    ShutdownBudget,
    ShutdownTask,
    count_losses,
    end_spans,
    garbage_collection_disabled,
    log_losses,
    reserved_after_scoring,
)
from ragtrace.pipeline.spooling import Spooling
from ragtrace.pipeline.work_items import CallItem, Job, SpanItem, StepItem
from ragtrace.span_reading.span_calls import SpanCalls
from ragtrace.system import collection, exits, forks
from ragtrace.system.faults import Messages, faults, guarded
from ragtrace.system.forks import PerProcess
from ragtrace.system.part import Part
from ragtrace.system.threads import run_bounded
from ragtrace.telemetry.export.telemetry import Telemetry
from ragtrace.telemetry.scores.feedback_sender import FeedbackSender
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.telemetry.scores.score_sender import ScoreSender
from ragtrace.telemetry.spans.hold import (
    ExpiredHolds,
    clear_before_flush,
    held_span_count,
    hold_processors,
    release_unscored,
    set_before_flush,
)
from ragtrace.telemetry.spans.writer import SpanWriter

if TYPE_CHECKING:
    from ragtrace.alerts import Alerting
    from ragtrace.fleet.publisher import FleetPublisher
    from ragtrace.fleet.spool import Spool
    from ragtrace.labels.canary_judging import CanaryJudging
    from ragtrace.labels.canary_set import CanarySet


_SETTLE_SECONDS: Final = 0.25
"""Longest time for which a shutdown waits for a thread that has counted a call as offered, but not as refused yet."""
_MOST_DEFERRED_STEPS: Final = 8
"""Most deferred steps of a call: more would make its work item take the worker too long."""


class DeferredSteps(Part):
    """Store of finished steps that wait for the end of their RAG call, so that the call is queued as one item.

    Queueing was measured to be a good part of what a short step costs. Deferred steps are in no queue: before the queue
    is drained, `queue_all` must be called. Safe from any thread.

    Args:
        queue: queues a step of a call.
    """

    def __init__(self, queue: Callable[[CallBuilder, Step], None]) -> None:
        self._queue, self._closed = queue, False
        self._calls: set[CallBuilder] = set()
        self._swept = False

    def defer(self, builder: CallBuilder, step: Step) -> bool:
        """Store a finished step until its RAG call ends. Return False if the caller must queue the step now."""
        if not self._swept or len(builder.steps) > _MOST_DEFERRED_STEPS:  # no worker collects them yet, or too many
            return False
        step.joined = [None]
        self._calls.add(builder)
        # Checked last: a thread that has closed this store, or ended the root, may have missed or claimed the step.
        return not ((builder.root.ended or self._closed) and step.detach())

    def root_ended(self, builder: CallBuilder) -> None:
        """Remove the deferred steps of a RAG call whose root step has ended, because they are queued together with the
        call.

        Args:
            builder: the call.
        """
        self._calls.discard(builder)

    def tick(self) -> None:
        """Queue all deferred steps."""
        self.queue_all()

    def queue_all(self) -> None:
        """Remove all deferred steps from the store and queue them."""
        self._swept = True
        claimed: list[tuple[CallBuilder, Step]] = []
        for builder in list(self._calls):
            self._calls.discard(builder)  # before its steps are claimed: a step deferred later adds the call again
            claimed += [(builder, step) for step in list(builder.steps) if step.detach()]
        for builder, step in claimed:
            self._queue(builder, step)

    def queue_last(self) -> None:
        """Queue all deferred steps, and let every later step be queued at once."""
        self._closed = True
        self.queue_all()


class DroppedSpans(Part):
    """Counter of the spans that were dropped because the worker's queue was full.

    A request thread only appends to a queue, without a lock. What is in it is counted later, by the worker's tick, by a
    flush, and by each thread that reads the losses.
    """

    def __init__(self) -> None:
        self._uncounted: deque[None] = deque()
        """One entry for each dropped span that is not counted yet."""
        self._lock = threading.RLock()  # re-entrant: a signal handler may read the losses while this thread counts
        self._counted = 0

    def tick(self) -> None:
        """Count the new dropped spans."""
        self.count()

    def drop(self, step: Step) -> None:
        """Count the span of *step* as dropped, and release the step's context."""
        self._uncounted.append(None)
        step.release_context()

    def drop_call(self, builder: CallBuilder) -> None:
        """Count the root span of a RAG call and the spans of its deferred steps as dropped."""
        for step in builder.steps:
            # Spans from which a call was assembled are written by their own provider, and so not lost.
            if not step.written and (step is builder.root or step.detach()):
                self.drop(step)
            step.clear_texts()
        builder.close()

    def count(self) -> int:
        """Return the number of spans dropped so far. New ones are counted as faults, and the first is logged."""
        new = 0
        with self._lock:  # else one of two threads that count at a time would replace the sum of the other
            with suppress(IndexError):
                while True:
                    self._uncounted.pop()
                    new += 1
            self._counted += new
        if new:
            faults.warn_once(
                "lost spans: queue full",
                "spans could not be queued and were lost; every further loss is counted in ragtrace.stats().faults. "
                "Raise Limits(capacity=) or Limits(queue_bytes=)",
                count=new,
            )
        return self._counted


class OrphanLimit(Part):
    """Limit on the memory of retrievals that wait for a generation.

    Args:
        orphans: the retrievals.
        most_bytes: memory of their texts.
    """

    def __init__(self, orphans: OrphanRetrievals, most_bytes: int) -> None:
        self._orphans, self._most_bytes = orphans, most_bytes

    def tick(self) -> None:
        """Remove the oldest retrievals beyond the limit."""
        self._orphans.trim(self._most_bytes)


class Runtime:
    """Runtime of ragtrace in this process: the processor with its worker, and the parts in their order.

    It queues finished steps and calls, flushes and shuts down. It begins with `start`, and its worker with the first
    item. A forked child has a runtime of its own, and leaves its parent's alone.

    Args:
        wake: starts the worker of the runtime that is current in the process by then; called at the first span of
            another instrumentation.
        costs: mean cost of a judgement, which a forked child takes over.
        guard_counts: counts of the answers that guards have seen in each process.
    """

    def __init__(
        self,
        settings: Settings,
        telemetry: Telemetry,
        evaluators: Evaluators,
        *,
        sampling: Sampling,
        redact: Redact,
        spool: Spool | None = None,
        alerts: Alerting | None = None,
        learner: BaselineLearner | None = None,
        canaries: Sequence[CanarySet] = (),
        calibrations: Calibrations | None = None,
        publisher: FleetPublisher | None = None,
        wake: Callable[[], object],
        costs: JudgementCosts | None = None,
        guard_counts: PerProcess[GuardCounts] | None = None,
    ) -> None:
        self.publisher, self._process = publisher, forks.process
        self.settings, self.telemetry = settings, telemetry
        self.messages = Messages(redact.message, not may_leave(settings.capture_content, "elsewhere"))
        self.sampling, self._sampler = sampling, Sampler(sampling, monotonic, costs)
        self.outcomes, self.health = RecentOutcomes(), HealthMonitor()
        self.spooling = None if spool is None else Spooling(spool, telemetry)
        self.evaluators = evaluators
        self._evaluators = [evaluator for evaluator in evaluators if evaluator is not None]
        fleet = () if publisher is None else (FLEET,)
        self._evaluator_ids = (*(evaluator.id for evaluator in self._evaluators), *fleet)
        self.ledger, self.learner, self.alerts = Ledger(), learner or BaselineLearner(), alerts
        self.calibrations = Calibrations() if calibrations is None else calibrations
        self.moments = RunningMoments(MetricAssignment.from_evaluators(evaluators.screen, evaluators.judge))
        self.served_models = ServedModels(telemetry.logger)
        self.canaries = None if alerts is None or not canaries else self._canary_judging(canaries, alerts)
        self.orphans = OrphanRetrievals()
        self.guards = Guards(evaluators, self.calibrations, self._record_guard, guard_counts)
        self._deferred_steps, self._dropped = DeferredSteps(self._queue_step), DroppedSpans()
        self.writer = SpanWriter(
            telemetry.tracer,
            telemetry.logger,
            telemetry.fast,
            dialects=telemetry.dialects or settings.dialects,
            capture=settings.capture_content,
            drops_children=telemetry.drops_children,
        )
        self._instruments = Instruments(
            telemetry.find_meter,
            observed=telemetry.observed,
            rows=self.ledger.rows,
            moments=self.moments.totals,
            calibrations=self.calibrations.rows if self.calibrations else None,
            raw=self.calibrations.raw,
            queued=lambda: self.worker.size,
            held=held_span_count,
            posted=self._posted,
            alerts=None if alerts is None else alerts.states,
            genai_metrics=settings.genai_metrics,
            faults=faults.counts,
            lost=lambda: count_losses(telemetry, self._dropped.count()),
            canaries=None if self.canaries is None else self.canaries.values,
            guards=self.guards.rows,
            model_changes=self.served_models.changes,
            states=lambda: {evaluator: status.state for evaluator, status in self.judge_statuses().items()},
        )
        learning = (self.learner, self.health, self.served_models)
        # Before the alerts, which ask which calibrations hold.
        noting = (self.calibrations,) if self.calibrations else ()
        alerting = noting if alerts is None else (*noting, alerts)
        score_sender = ScoreSender(
            telemetry.tracer if telemetry.carriers else None,
            telemetry.logger,
            self._instruments,
            evidence=settings.evidence,
            texts=may_leave(settings.capture_content, "spans"),
            hides_contents=not may_leave(settings.capture_content, "elsewhere"),
            observers=(self.moments, *telemetry.posters, *telemetry.histories, *alerting, *learning),
            early=(*telemetry.histories, *alerting),
            guard_observers=[history.add_guard_verdict for history in telemetry.histories],
            owned=telemetry.owned,
        )
        self.judge_waits = score_sender.judge_waits
        self.feedback = FeedbackSender(
            telemetry.logger,
            self._instruments,
            telemetry.posters,
            telemetry.histories,
            redact,
            texts=may_leave(settings.capture_content, "elsewhere"),
        )
        self._span_calls = SpanCalls(
            self.call_ended,
            release_unscored,
            lambda: self.worker.throttle.yield_interpreter(),
            most_bytes=settings.queue_bytes // 4,
        )
        optional = (publisher, self.canaries, alerts)
        self.parts = Parts(
            [
                self._dropped,
                self._deferred_steps,
                self._span_calls,
                ExpiredHolds(),
                OrphanLimit(self.orphans, settings.queue_bytes // 8),
                *(part for part in optional if part is not None),
                self.learner,
                self.feedback,
                *telemetry.histories,
                *telemetry.posters,
                telemetry,
            ]
        )
        fleet_turns = 0 if publisher is None else publisher.judge_turns
        self.processor = CallProcessor(
            parts=self.parts,
            outputs=Outputs(telemetry, self.writer, self._instruments, score_sender),
            evaluators=evaluators,
            sampler=self._sampler,
            preparation=CallPreparation(
                redact,
                conversations_for(evaluators, fleet_turns=fleet_turns),
                score_head_dropped=sampling.score_head_dropped,
            ),
            outcomes=CallOutcomes(self.ledger, self.outcomes, redact, self.calibrations),
            capacity=settings.capacity,
            most_bytes=settings.queue_bytes * 3 // 4,
            spooling=self.spooling,
            publisher=publisher,
        )
        self.worker = self.processor.worker
        self._items = self.worker.queue  # asked directly, as a request waits for each call of a function
        if publisher is not None:
            self._sampler.queue_load = publisher.load
        self._drain = ShutdownTask(self._shut_down, self.worker)
        self._wake = wake

    def start(self) -> None:
        """Take over the hooks of the process: spans of other instrumentations, flushes of spans, and the exit.

        A runtime that is not started is in nobody's way: it has no thread, and the one before goes on. If the start
        fails half-way, this runtime has none of the hooks; a former one that is started again takes them back.
        """
        collection.watch()
        try:
            self._span_calls.start(self._wake)
            set_before_flush(self._before_flush)
            # After the providers were made, so before their own exit handlers: atexit is last in, first out.
            exits.before_exit(self._at_exit)
        except BaseException:
            self.give_hooks_back()
            raise

    def give_hooks_back(self) -> None:
        """Give back the hooks of the process that `start` has taken. Never raises."""
        for give_back in (
            partial(self._span_calls.stop, self._wake),
            partial(clear_before_flush, self._before_flush),
            partial(exits.cancel, self._at_exit),
        ):
            with guarded("start of a runtime"):
                give_back()

    def _canary_judging(self, canaries: Sequence[CanarySet], alerts: Alerting) -> CanaryJudging | None:
        judge, settings = self.evaluators.judge, self.settings
        if judge is None:
            return None
        from ragtrace.labels.canary_judging import CanaryJudging

        store = None
        if settings.store:
            from ragtrace.labels.canary_store import CanaryStore

            store = CanaryStore(settings.store)
        return CanaryJudging(
            canaries,
            judge,
            self._sampler,
            alerts,
            self.served_models,
            interval=settings.canary_interval * (self.sampling.replicas or 1),
            places=settings.judge_concurrency,
            store=store,
            is_open=lambda: not self.worker.closed,
        )

    # --- on the request thread ---------------------------------------------------------------------------------------

    def step_ended(self, builder: CallBuilder | None, step: Step) -> None:
        """Queue a finished step so that its span is written, at once or together with the root of its RAG call.

        Args:
            builder: the call that the step is part of; None for a retrieval outside any call.
            step: the step.
        """
        if builder is None or not (self._may_defer and self._deferred_steps.defer(builder, step)):
            self._queue_step(builder, step)

    def _queue_step(self, builder: CallBuilder | None, step: Step) -> None:
        if self._items.full_of_small and self._may_defer:
            self._dropped.drop(step)
        else:
            self._submit(StepItem(step, builder))

    def call_ended(self, builder: CallBuilder) -> None:
        """Queue a RAG call whose root step has ended, so that its spans are written and the evaluators score it."""
        self._deferred_steps.root_ended(builder)
        workflow = builder.root.workflow
        if self.orphans.begun and self.health.lacks_contexts(workflow):
            self.health.add_outside(workflow, self.orphans.begun_during(builder.root))
        if self._items.full and self._may_defer:
            self.ledger.count_not_evaluated(self._evaluator_ids, workflow, "dropped", "queue_full")
            evaluators = ", ".join(self._evaluator_ids)
            self.outcomes.add(builder.root.span_context, workflow, evaluators, "dropped", "queue_full")
            self._dropped.drop_call(builder)
            return
        work = CallItem(builder.root, builder, set(self._evaluator_ids))
        if work.pending_evaluators and not self.ledger.count_offered(self._evaluator_ids, workflow):
            work.pending_evaluators.clear()
        self._submit(work)

    @property
    def scores_head_dropped(self) -> bool:
        """Whether RAG calls are scored even if the head sampler dropped their trace."""
        return self.sampling.score_head_dropped

    def unrecorded(self, step: Step, reason: str, *, is_call: bool) -> None:
        """Count an unrecorded RAG call as sampled out, because the head sampler dropped its trace."""
        if is_call:
            self.ledger.count_not_evaluated(self._evaluator_ids, step.workflow)

    def check_guard(self, function: GuardedFunction) -> None:
        """Check that the guard of *function*, which was decorated after `configure`, can work.

        Raises:
            SettingsError: the guard's metric or judge is not configured, a fleet judges the calls, or there are too few
                labels for `max_false_block`.
        """
        from ragtrace.guard.shadow_reports import warn_without_shadow_report

        find_evaluator(function, self.evaluators, fleet=self.publisher is not None)
        warn_without_shadow_report(function, self.evaluators, self.settings.store)
        bound = find_bound(function, self.calibrations)
        if bound is not None:
            bound.apply()

    def _record_guard(self, seconds: float, workflow: str, metric: str, mode: str) -> None:
        if self._process is forks.process:  # else a call ends in a forked child that began before the fork
            self._instruments.record_guard(seconds, workflow, metric, mode)

    def _submit(self, work: SpanItem) -> None:
        is_step = isinstance(work, StepItem)
        if not self._may_defer:
            self.processor.write(work)
            if is_step:
                return
        if not self._items.offer(work, small=is_step):
            self._refuse(work, "shutdown" if self.worker.closed else "queue_full")

    def _refuse(self, work: SpanItem, reason: EndReason) -> None:
        """Count a work item that the queue refused as dropped, and end its span without content.

        The worker ends the span if the queue still has room for a small item.

        Args:
            work: the item.
            reason: why it was refused.
        """
        deferred_steps = work.claim_deferred_steps() if isinstance(work, CallItem) else []
        self.processor.reject(work, reason)
        for step in deferred_steps:
            self._queue_step(step.builder, step.step)
        if not (isinstance(work, CallItem) and self.worker.offer(work, small=True)):
            self.processor.drop(work, reason)

    @property
    def _may_defer(self) -> bool:
        """Whether spans may be ended later than their steps.

        This is so where a flush of spans waits for the worker.
        """
        return self.telemetry.owned or bool(hold_processors())

    # --- state -------------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Return the counts of all RAG calls so far by outcome and evaluator, and of ragtrace's internal faults."""
        self._dropped.count()
        return replace(self.ledger.stats(faults.counts()), sinks=self._posted(), guards=self.guards.tallies())

    def _posted(self) -> dict[str, DeliveryCounts]:
        return {poster.outbox.name: poster.outbox.counts() for poster in self.telemetry.posters}

    def judge_statuses(self) -> dict[str, JudgeStatus]:
        """Return the status (circuit breaker, queue, counters) of each judge with a server or model, by evaluator
        id.
        """
        return {e.id: e.judge_client.status for e in self._evaluators if not e.judge_client.computes}

    def run_job(self, job: Callable[[], Awaitable[None]]) -> bool:
        """Queue the coroutine function *job* to run on the worker's event loop, and return whether there was room."""
        return self.worker.offer(Job(job), small=True)

    def deliver_scores(self, timeout: float) -> bool:
        """Deliver all scores sent so far within *timeout* seconds, and return whether that succeeded."""
        began = monotonic()
        flushed = self.telemetry.flush(timeout, release_held=False)
        return flushed and self.telemetry.scores_settled_until(began)

    # --- flush and shutdown ------------------------------------------------------------------------------------------

    def _wait_idle(self, timeout: float) -> bool:
        deadline = monotonic() + timeout
        with self._hurried():
            self._deferred_steps.queue_all()
            self._collect_span_calls(timeout)
            return self.worker.wait_idle(deadline - monotonic())

    def _before_flush(self, timeout: float) -> bool | None:
        """Do as `_wait_idle`, and return None if the time was not enough and another thread waits for longer."""
        return self._wait_idle(timeout) or (None if self.worker.is_hurried else False)

    def _hurried(self) -> AbstractContextManager[None]:
        return nullcontext() if self.publisher is None else self.publisher.hurried()

    def _collect_span_calls(self, timeout: float) -> None:
        """Queue the finished RAG calls in other instrumentations' spans, after writing the spans of decorated steps."""
        if self._span_calls.is_used:
            self.worker.wait_idle(timeout)
            self._span_calls.collect(everything=True)

    def flush(self, timeout: float) -> bool:
        """Score and export all finished RAG calls, and return whether all was delivered in *timeout* seconds."""
        budget = ShutdownBudget(timeout)
        set_before_flush(self._before_flush)
        self._open_instruments()
        with self._hurried():
            scored = self._wait_idle(timeout) and self.processor.score_spooled(budget)
        deliver = partial(self.parts.flush, budget)
        delivered = deliver() if self.spooling is None else self.spooling.deliver_and_delete(deliver, budget.deadline)
        return delivered and scored

    def shutdown(self, timeout: float, patience: float = inf) -> bool:
        """Score and export all pending RAG calls within *timeout* seconds, log losses, and stop the runtime.

        Called again, it waits for the first shutdown to end, and returns the same.

        Args:
            timeout: seconds.
            patience: seconds after which the caller waits no longer, and `has_ended` is False until the end.

        Returns:
            Whether it has ended, and nothing was lost.

        Raises:
            BaseException: an exception that a signal handler raised meanwhile; unscored calls have been stored in the
                spool or counted.
        """
        try:
            return self._drain.run_once(ShutdownBudget(timeout, self.worker.size), patience)
        finally:
            if self.has_ended:
                exits.cancel(self._at_exit)

    @property
    def has_ended(self) -> bool:
        """Whether the runtime was shut down, and that is over."""
        return self._drain.has_ended

    def _shut_down(self, budget: ShutdownBudget) -> bool:
        try:
            return self._end(budget)
        finally:
            faults.forget_messages_of(self.messages)

    def _end(self, budget: ShutdownBudget) -> bool:
        timeout = max(0.0, budget.deadline - monotonic())
        self._deferred_steps.queue_last()
        self._span_calls.stop(self._wake)
        self._collect_span_calls(timeout / 4)
        self._open_instruments()
        reserved = partial(reserved_after_scoring, timeout, spools=self.spooling is not None)
        grace = AT_LEAST_SECONDS if self.spooling else reserved(0) / 4
        with self._hurried():
            items = self.worker.stop(timeout, grace, reserved)
        left: list[SpanItem] = []
        for item in items:
            if isinstance(item, CallItem):
                left += item.claim_deferred_steps()
            if not isinstance(item, Job):
                left.append(item)
        with garbage_collection_disabled():
            self.processor.store_or_drop([item for item in left if isinstance(item, CallItem)], budget)
            until = budget.until(reserved=budget.closing / 2)
            run_bounded(partial(end_spans, left, self.processor.drop, self.telemetry, until), until)  # this may hang
            clear_before_flush(self._before_flush)
            settled = self.ledger.close(_SETTLE_SECONDS)
            incomplete = self.parts.close(budget)
            delivered = incomplete.isdisjoint((self.telemetry, *self.telemetry.histories, *self.telemetry.posters))
            if self.spooling is not None:
                self.spooling.close(budget.deadline, delivered=delivered)
            stats = self.stats()
            complete = log_losses(
                Counter(stats.dropped) - Counter({SPOOLED.reason: self.processor.recovered}),
                self.telemetry.lost,
                pending=(0 if settled else stats.pending) + self.worker.queue.unfinished_checks,
                delivered=delivered and not items,
            )
            return complete and not incomplete

    def _open_instruments(self) -> None:
        """Create the metric instruments in a forked child that has counts to export but has written no span yet."""
        if self.ledger.rows():
            self.open_instruments()

    def open_instruments(self) -> None:
        """Create the metric instruments now instead of at the first record."""
        self._instruments.open()

    def _at_exit(self) -> None:
        if self._process is forks.process:  # else a forked child ends, which has not used its parent's runtime
            with guarded("shutdown at exit"):
                self.shutdown(EXIT_SECONDS)
