"""The runtime that `configure` builds: receives finished steps from the application, owns the background worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ragtrace.capture.redact import Redact
from ragtrace.core.ledger import FLEET, DeliveryCounts, Ledger, Stats
from ragtrace.core.settings import Settings
from ragtrace.core.step import CallBuilder, OrphanRetrievals, Step
from ragtrace.estimates import BaselineLearner, Calibrations, MetricAssignment, RunningMoments
from ragtrace.evaluation.judge_client import JudgeStatus
from ragtrace.evaluation.sampling import Sampler, Sampling
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.labels.served_models import ServedModels
from ragtrace.pipeline.health import HealthMonitor, RecentOutcomes
from ragtrace.pipeline.processor import CallProcessor, JudgedCall, WorkItem
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
from ragtrace.pipeline.worker import Worker
from ragtrace.recording.recorder import mark_forked
from ragtrace.span_reading.span_calls import SpanCalls
from ragtrace.system import exits
from ragtrace.system.faults import faults, guarded
from ragtrace.system.forks import call_in_child
from ragtrace.system.threads import run_bounded
from ragtrace.telemetry.export.telemetry import Telemetry
from ragtrace.telemetry.scores.feedback_sender import FeedbackSender
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.telemetry.scores.score_sender import ScoreSender
from ragtrace.telemetry.spans.hold import (
    clear_before_flush,
    held_span_count,
    hold_processors,
    release_unscored,
    set_before_flush,
)
from ragtrace.telemetry.spans.writer import SpanWriter

if TYPE_CHECKING:
    from ragtrace.alerts import Alerting
    from ragtrace.core.unscored_call import UnscoredCall
    from ragtrace.fleet.publisher import FleetPublisher
    from ragtrace.history.spool import Spool
    from ragtrace.labels.canary_judging import CanaryJudging
    from ragtrace.labels.canary_set import CanarySet


_SETTLE_SECONDS: Final = 0.25
"""Longest time for which a shutdown waits for a thread that has counted a call as offered, but not as refused yet."""
_MOST_DEFERRED_STEPS: Final = 8
"""Most deferred steps of a call: more would make its work item take the worker too long."""


class DeferredSteps:
    """Store of finished steps that wait for the end of their RAG call, so that the call is queued as one item.

    Queueing was measured to be a good part of what a short step costs. Deferred steps are in no queue: before the queue
    is drained, what `claim_all` returns must be queued. Safe from any thread.
    """

    def __init__(self) -> None:
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Remove all deferred steps after a fork, because they belong to the parent process."""
        self._calls: set[CallBuilder] = set()
        self._swept = False

    def defer(self, builder: CallBuilder, step: Step) -> bool:
        """Store a finished step until its RAG call ends. Return False if the caller must queue the step now."""
        if not self._swept or len(builder.steps) > _MOST_DEFERRED_STEPS:  # no worker collects them yet, or too many
            return False
        step.joined = True
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

    def claim_all(self) -> list[tuple[CallBuilder, Step]]:
        """Remove all deferred steps from the store and return them, to be queued by the caller."""
        self._swept = True
        claimed: list[tuple[CallBuilder, Step]] = []
        for builder in tuple(self._calls):
            self._calls.discard(builder)  # before its steps are claimed: a step deferred later adds the call again
            claimed += [(builder, step) for step in tuple(builder.steps) if step.detach()]
        return claimed

    def close(self) -> None:
        """Close the store of deferred steps, so that every later step is queued at once."""
        self._closed = True


class DroppedSpans:
    """Counter of the spans that were dropped because the worker's queue was full.

    A request thread only appends to a list, which is counted later.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset the count of dropped spans after a fork, because it belongs to the parent process."""
        self._uncounted: deque[None] = deque()
        self._counted = 0

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
        with suppress(IndexError):  # several threads may count at a time
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


class Runtime:
    """Runtime of ragtrace in this process, which connects all components, queues finished steps and calls, and shuts
    down.

    It is the handler of its worker.
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
    ) -> None:
        self.publisher = publisher
        self.settings, self.telemetry = settings, telemetry
        self.sampling, self._sampler = sampling, Sampler(sampling, monotonic)
        self.outcomes, self.health = RecentOutcomes(), HealthMonitor()
        self.spooling = None if spool is None else Spooling(spool, telemetry)
        self.evaluators = evaluators
        self._evaluators = [evaluator for evaluator in evaluators if evaluator is not None]
        fleet = () if publisher is None else (FLEET,)
        self._evaluator_ids = (*(evaluator.id for evaluator in self._evaluators), *fleet)
        self.ledger, self.learner, self.alerts = Ledger(), learner or BaselineLearner(), alerts
        self.calibrations = calibrations or Calibrations()
        self.moments = RunningMoments(MetricAssignment.from_evaluators(evaluators.screen, evaluators.judge))
        self.served_models = ServedModels(telemetry.logger)
        self.canaries = None if alerts is None or not canaries else self._canary_judging(canaries, alerts)
        self.orphans = OrphanRetrievals()
        self._deferred_steps, self._dropped = DeferredSteps(), DroppedSpans()
        self.worker: Worker[WorkItem] = Worker(
            self, capacity=settings.capacity, most_bytes=settings.queue_bytes * 3 // 4
        )
        self.writer = SpanWriter(
            telemetry.tracer,
            telemetry.logger,
            telemetry.fast,
            dialects=telemetry.dialects or settings.dialects,
            capture=settings.capture_content,
            drops_children=telemetry.drops_children,
        )
        self._instruments = Instruments(
            telemetry.meter,
            rows=self.ledger.rows,
            moments=self.moments.totals,
            calibrations=self.calibrations.rows if self.calibrations else None,
            queued=lambda: self.worker.size,
            held=held_span_count,
            posted=self._posted,
            alerts=None if alerts is None else alerts.states,
            genai_metrics=settings.genai_metrics,
            faults=faults.counts,
            lost=lambda: count_losses(telemetry, self._dropped.count()),
            canaries=None if self.canaries is None else self.canaries.values,
            model_changes=self.served_models.changes,
            states=lambda: {evaluator: status.state for evaluator, status in self.judge_statuses().items()},
        )
        telemetry.child_renewal.on_renewal(lambda: self._instruments.bind(telemetry.meter))
        learning = (self.learner, self.health, self.served_models)
        # Before the alerts, which ask which calibrations hold.
        noting = (self.calibrations,) if self.calibrations else ()
        alerting = noting if alerts is None else (*noting, alerts)
        score_sender = ScoreSender(
            telemetry.tracer if telemetry.carriers else None,
            telemetry.logger,
            self._instruments,
            evidence=settings.evidence,
            texts=settings.capture_content in ("SPAN_ONLY", "SPAN_AND_EVENT"),
            observers=(self.moments, *telemetry.posters, *telemetry.histories, *alerting, *learning),
            early=(*telemetry.histories, *alerting),
            owned=telemetry.owned,
        )
        self.feedback = FeedbackSender(
            telemetry.logger,
            self._instruments,
            telemetry.posters,
            telemetry.histories,
            redact,
            texts=settings.capture_content != "NO_CONTENT",
            renew=telemetry.child_renewal.renew,
        )
        self._processor = CallProcessor(
            self.worker,
            telemetry,
            self.writer,
            self._instruments,
            score_sender,
            evaluators,
            self._sampler,
            redact,
            self.ledger,
            self.outcomes,
            self.spooling,
            score_head_dropped=sampling.score_head_dropped,
            publisher=publisher,
        )
        if publisher is not None:
            self._sampler.queue_load = publisher.load
        self._drain = ShutdownTask(self._shut_down, self.worker)
        self._span_calls = SpanCalls(
            self.call_ended,
            release_unscored,
            self.worker.throttle.yield_interpreter,
            most_bytes=settings.queue_bytes // 4,
        )
        self._span_calls.start(self.worker.start)
        set_before_flush(self._wait_idle)
        call_in_child(self._reset_after_fork)
        # After the providers were made, so before their own exit handlers: atexit is last in, first out.
        exits.before_exit(self._at_exit)

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
        if self.worker.full_of_small and self._may_defer:
            self._dropped.drop(step)
        else:
            self._submit(WorkItem(step, builder))

    def call_ended(self, builder: CallBuilder) -> None:
        """Queue a RAG call whose root step has ended, so that its spans are written and the evaluators score it."""
        self._deferred_steps.root_ended(builder)
        workflow = builder.root.workflow
        if self.worker.full and self._may_defer:
            self.ledger.count_not_evaluated(self._evaluator_ids, workflow, "dropped", "queue_full")
            evaluators = ", ".join(self._evaluator_ids)
            self.outcomes.add(builder.root.span_context, workflow, evaluators, "dropped", "queue_full")
            self._dropped.drop_call(builder)
            return
        work = WorkItem(builder.root, builder, True, set(self._evaluator_ids))
        if work.pending_evaluators and not self.ledger.count_offered(self._evaluator_ids, workflow):
            work.pending_evaluators.clear()
        self._submit(work)

    @property
    def scores_head_dropped(self) -> bool:
        """Whether RAG calls are scored even if the head sampler dropped their trace."""
        return self.sampling.score_head_dropped

    def head_dropped(self, workflow: str) -> None:
        """Count an unrecorded RAG call as sampled out, because the head sampler dropped its trace."""
        self.ledger.count_not_evaluated(self._evaluator_ids, workflow)

    def _submit(self, work: WorkItem) -> None:
        if not self._may_defer:
            self.telemetry.child_renewal.renew()
            self._processor.write(work)
            if not work.is_call:
                return
        if not self.worker.offer(work, small=not work.is_call):
            self._refuse(work, "shutdown" if self.worker.closed else "queue_full")

    def _refuse(self, work: WorkItem, reason: str) -> None:
        """Count a work item that the queue refused as dropped, and end its span without content.

        The worker ends the span if the queue still has room for a small item.

        Args:
            work: the item.
            reason: why it was refused.
        """
        deferred_steps = work.claim_deferred_steps()
        self.reject(work, reason)
        for step in deferred_steps:
            self._queue_step(step.builder, step.step)
        if not (work.is_call and self.worker.offer(work, small=True)):
            self._processor.drop(work, reason)

    @property
    def _may_defer(self) -> bool:
        """Whether spans may be ended later than their steps.

        This is so where a flush of spans waits for the worker.
        """
        return self.telemetry.owned or bool(hold_processors())

    # --- on the worker's thread --------------------------------------------------------------------------------------

    def handle(self, item: WorkItem) -> Coroutine[Any, Any, None]:
        """Return a coroutine that writes the span of the work item *item* and, if it is a RAG call, scores it."""
        return self._processor.handle(item)

    def weigh(self, item: WorkItem) -> int:
        """Return the memory in bytes that the work item *item* keeps alive."""
        return item.bytes

    def reject(self, item: WorkItem, reason: str = "queue_full") -> None:
        """Count a RAG call that does not fit into the queue as dropped, and release its texts.

        The call's span is still ended.
        """
        item.dropped = reason
        self._processor.count_pending_as(item, "dropped", reason)
        if item.is_call:  # the texts of a step stay with its call, which may still be scored
            item.step.clear_texts()

    def remaining_capacity(self) -> int:
        """Return how many queued items the worker may handle before it must check the export queues for room."""
        return self.telemetry.remaining_capacity(held_span_count())

    def tick(self) -> None:
        """Do periodic work: queue deferred steps, export spans held back too long, score calls of the spool file."""
        self._dropped.count()
        self._queue_deferred_steps()
        self._span_calls.collect()
        for hold in hold_processors():
            hold.release_expired()
        if self.spooling is not None and not self.worker.closed:
            self.spooling.tick()
            if self.spooling.is_due() and not self._fleet_is_away:
                self._queue_spooled(self.spooling)
        if self.canaries is not None and not self.worker.closed:
            self.canaries.tick()
        self.orphans.trim(self.settings.queue_bytes // 8)

    async def aclose(self) -> None:
        """Close the judges, so that they release their connections."""
        if self.canaries is not None:
            await self.canaries.aclose()
        await self.evaluators.aclose()

    @property
    def _fleet_is_away(self) -> bool:
        """Whether the broker of the fleet cannot be reached, so that spooled calls have to wait."""
        return self.publisher is not None and self.publisher.is_away

    def _queue_deferred_steps(self) -> None:
        for builder, step in self._deferred_steps.claim_all():
            self._queue_step(builder, step)

    def _queue_spooled(self, spooling: Spooling, timeout: float = 0.0) -> int:
        """Queue unscored calls from the spool file to be scored, and return their number.

        They may fill half of the queue at most, as calls of this process go first.
        """
        queued = 0
        with spooling.claim(self.settings.capacity // 2 - self.worker.size, timeout) as calls:
            for claimed in calls:
                work = WorkItem.from_spooled(claimed)
                if not self.ledger.count_offered(work.pending_evaluators, work.step.workflow):
                    continue  # the call stays in the file
                for evaluator in work.pending_evaluators - set(self._evaluator_ids):
                    self._processor.count_outcome(work, evaluator, "dropped", "not_configured")
                if self.worker.offer(work):
                    queued += 1
                else:
                    # The call stays in the file, and is released for another process at shutdown.
                    self._processor.count_pending_as(work, "dropped", "spooled")
        return queued

    # --- state -------------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Return the counts of all RAG calls so far by outcome and evaluator, and of ragtrace's internal faults."""
        self._dropped.count()
        return replace(self.ledger.stats(faults.counts()), sinks=self._posted())

    def _posted(self) -> dict[str, DeliveryCounts]:
        return {poster.outbox.name: poster.outbox.counts() for poster in self.telemetry.posters}

    def judge_statuses(self) -> dict[str, JudgeStatus]:
        """Return the status (circuit breaker, queue, counters) of each judge with a server or model, by evaluator
        id.
        """
        return {e.id: e.judge_client.status for e in self._evaluators if not e.judge_client.computes}

    def run_job(self, job: Callable[[], Awaitable[None]]) -> bool:
        """Queue the coroutine function *job* to run on the worker's event loop, and return whether there was room."""
        return self.worker.offer(WorkItem(Step(), job=job), small=True)

    async def judge(
        self, unscored: UnscoredCall, *, last_try: bool, taken_over: Callable[[], Awaitable[bool]]
    ) -> JudgedCall:
        """Have the judge score a RAG call that another process has handed over, and return the outcome.

        To be awaited in a job (`run_job`).

        Args:
            unscored: the redacted call.
            last_try: whether a failure of the judge is final, so that it is sent like a score.
            taken_over: returns, after the judge's answer, whether another process judges the call.
        """
        return await self._processor.judge(unscored, last_try=last_try, taken_over=taken_over)

    def deliver_scores(self, timeout: float) -> bool:
        """Deliver all scores sent so far within *timeout* seconds, and return whether that succeeded."""
        began = monotonic()
        flushed = self.telemetry.flush(timeout, release_held=False)
        return flushed and self.telemetry.scores_settled_until(began)

    # --- flush and shutdown ------------------------------------------------------------------------------------------

    def _wait_idle(self, timeout: float) -> bool:
        deadline = monotonic() + timeout
        with self._hurried():
            self._queue_deferred_steps()
            self._collect_span_calls(timeout)
            return self.worker.wait_idle(deadline - monotonic())

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
        set_before_flush(self._wait_idle)
        self._renew_for_metrics()
        with self._hurried():
            scored = self._wait_idle(timeout)
            more = self.spooling is not None and not self._fleet_is_away
            while more and scored and self.spooling is not None:
                queued = self._queue_spooled(self.spooling, budget.seconds_left())
                more = queued > 0 or (self.spooling.is_scoring_suspect and self.worker.size > 0)
                scored = self.worker.wait_idle(budget.deadline - monotonic())  # for calls the worker claimed, too
        self.learner.flush(budget.seconds_left() / 4)  # a failure is counted as a fault, and does not fail this flush
        notified = self.alerts is None or self.alerts.flush(budget.seconds_left() / 2)
        sent = self.feedback.outbox.flush(budget.seconds_left() / 2)

        def deliver() -> bool:
            flushed = self.telemetry.flush(budget.seconds_left())
            return self.telemetry.post_scores(budget.seconds_left()) and flushed

        delivered = deliver() if self.spooling is None else self.spooling.deliver_and_delete(deliver)
        return delivered and scored and notified and sent

    def shutdown(self, timeout: float) -> bool:
        """Score and export all pending RAG calls within *timeout* seconds, log losses, and stop the runtime.

        Called again, it waits for the first shutdown to end, and returns the same.

        Returns:
            Whether nothing was lost.

        Raises:
            BaseException: an exception that a signal handler raised meanwhile; unscored calls have been stored in the
                spool or counted.
        """
        try:
            return self._drain.run_once(ShutdownBudget(timeout, self.worker.size))
        finally:
            if self._drain.has_ended:
                exits.cancel(self._at_exit)

    def _shut_down(self, budget: ShutdownBudget) -> bool:
        timeout = max(0.0, budget.deadline - monotonic())
        self._deferred_steps.close()
        self._queue_deferred_steps()
        self._span_calls.stop(self.worker.start)
        self._collect_span_calls(timeout / 4)
        self._renew_for_metrics()
        reserved = partial(reserved_after_scoring, timeout, spools=self.spooling is not None)
        grace = AT_LEAST_SECONDS if self.spooling else reserved(0) / 4
        with self._hurried():
            items = self.worker.stop(timeout, grace, reserved)
        left = [each for item in items for each in (*item.claim_deferred_steps(), item)]
        with garbage_collection_disabled():
            scored = not left
            self._processor.store_or_drop(left, budget)
            if self.publisher is not None:
                self.publisher.close(budget.seconds_left() / 4)
            until = budget.until(reserved=budget.closing / 2)
            run_bounded(partial(end_spans, left, self._processor.drop, self.telemetry, until), until)  # this may hang
            clear_before_flush(self._wait_idle)
            self.learner.close(budget.seconds_left() / 4)
            notified = self.alerts is None or self.alerts.close(budget.seconds_left() / 2)
            sent = self.feedback.outbox.close(budget.seconds_left() / 4)
            self.ledger.close(_SETTLE_SECONDS)
            flushed = self.telemetry.flush(budget.seconds_left(reserved=AT_LEAST_SECONDS))
            closed = self.telemetry.shutdown(budget.seconds_left())
            if self.spooling is not None:
                self.spooling.close(budget.deadline, delivered=flushed and closed)
            delivered = scored and flushed and closed
            return log_losses(self.stats().dropped, self.telemetry.lost, delivered=delivered) and notified and sent

    def _renew_for_metrics(self) -> None:
        """Renew the telemetry providers of a forked child that has counts to export but has written no span yet."""
        if self.telemetry.child_renewal.due and self.ledger.rows():
            self.telemetry.child_renewal.renew()

    def _at_exit(self) -> None:
        with guarded("shutdown at exit"):
            self.shutdown(EXIT_SECONDS)

    def _reset_after_fork(self) -> None:
        mark_forked()
        self.worker.reset()
        self.ledger.reset()
        self.orphans.reset()
        self._dropped.reset()
        self._deferred_steps.reset()
        self._span_calls.reset()
        self._sampler.reset()
        self.outcomes.reset()
        self.health.reset()
        self.served_models.reset()
        if self.canaries is not None:
            self.canaries.reset()
        if self.alerts is not None:
            self.alerts.reset()
        self.learner.reset()
        self.feedback.outbox.reset()
        # Metrics may be collected again from now on, as the counts are the child's own.
        self._instruments.after_fork()
        self.telemetry.after_fork()
        if self.spooling is not None:
            self.spooling.reset()
        if self.publisher is not None:
            self.publisher.reset()
        for evaluator in self._evaluators:
            evaluator.reset()
        self._drain.reset_after_fork()
        faults.clear()
        exits.after_fork(self, self._at_exit)
