"""The runtime that `configure` builds: receives finished steps from the application, owns the background worker."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final

from ragtrace.capture.redact import Redact
from ragtrace.core.contents import may_leave
from ragtrace.core.ledger import Ledger, Stats
from ragtrace.core.part import Part
from ragtrace.core.settings import Settings
from ragtrace.core.step import CallBuilder, OrphanRetrievals, Step
from ragtrace.estimates import BaselineLearner, Calibrations, MetricAssignment, RunningMoments
from ragtrace.evaluation.judge_client import JudgeStatus
from ragtrace.evaluation.sampling import JudgementCosts, Sampler, Sampling
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.pipeline.call_ends import SPOOLED, EndReason
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.call_preparation import CallPreparation, conversations_for
from ragtrace.pipeline.elsewhere import Elsewhere
from ragtrace.pipeline.health import HealthMonitor, RecentOutcomes
from ragtrace.pipeline.outputs import Outputs
from ragtrace.pipeline.parts import Parts
from ragtrace.pipeline.processor import CallProcessor
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
from ragtrace.pipeline.unqueued_steps import DeferredSteps, DroppedSpans, OrphanLimit
from ragtrace.pipeline.work_items import CallItem, Job, SpanItem, StepItem
from ragtrace.runtime.engine_metrics import EngineMetrics
from ragtrace.runtime.feature import Feature
from ragtrace.system import collection, exits, forks
from ragtrace.system.faults import Messages, faults, guarded
from ragtrace.system.threads import run_bounded
from ragtrace.telemetry.export.telemetry import Telemetry
from ragtrace.telemetry.scores.feedback_sender import FeedbackSender
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.telemetry.scores.score_sender import ScoreSender, ScoreWait
from ragtrace.telemetry.spans.hold import (
    ExpiredHolds,
    clear_before_flush,
    hold_processors,
    set_before_flush,
)
from ragtrace.telemetry.spans.writer import SpanWriter

_SETTLE_SECONDS: Final = 0.25
"""Longest time for which a shutdown waits for a thread that has counted a call as offered, but not as refused yet."""


class Runtime:
    """Runtime of ragtrace in this process: the processor with its worker, and the parts in their order.

    It queues finished steps and calls, flushes and shuts down. It begins with `start`, and its worker with the first
    item. A forked child has a runtime of its own, and leaves its parent's alone.

    Args:
        learner: learns the baselines.
        features: features that are configured, which give the runtime parts.
        release: `service.version` of the application.
        wake: starts the worker of the runtime that is current in the process by then; called at the first span of
            another instrumentation.
        costs: mean cost of a judgement, which a forked child takes over.
    """

    def __init__(
        self,
        settings: Settings,
        telemetry: Telemetry,
        evaluators: Evaluators,
        *,
        sampling: Sampling,
        redact: Redact,
        calibrations: Calibrations,
        learner: BaselineLearner,
        features: Sequence[Feature] = (),
        release: str = "",
        wake: Callable[[], object],
        costs: JudgementCosts | None = None,
    ) -> None:
        self.settings, self.telemetry, self.evaluators, self.sampling = settings, telemetry, evaluators, sampling
        self.calibrations, self._redact, self._wake, self._process = calibrations, redact, wake, forks.process
        self.learner, self.release = learner, release
        self.baggage_tags = tuple(name for each in features for name in each.baggage())  # the recorder's
        self.router = None if telemetry.routing is None else telemetry.routing.router  # None: there is one exporter
        self.looks_around = bool(self.baggage_tags) or self.router is not None  # for tags of a call without any
        self.elsewhere = next(filter(None, (each.elsewhere(telemetry) for each in features)), Elsewhere())
        self.messages = Messages(redact.message, not may_leave(settings.capture_content, "elsewhere"))
        self.ledger, self.outcomes, self.health = Ledger(), RecentOutcomes(), HealthMonitor()
        self.sampler = Sampler(sampling, monotonic, costs)
        self.sampler.queue_load = self.elsewhere.load
        self.moments = RunningMoments(MetricAssignment.from_evaluators(evaluators.screen, evaluators.judge))
        self.orphans, self._dropped = OrphanRetrievals(), DroppedSpans()
        self._evaluators = [evaluator for evaluator in evaluators if evaluator is not None]
        self._evaluator_ids = tuple(filter(None, (*(each.id for each in self._evaluators), self.elsewhere.evaluator)))
        self._deferred_steps = DeferredSteps(self._queue_step)
        self.writer = self._new_writer()
        self._instruments = self._new_instruments()
        self.feedback = self._new_feedback_sender()
        self.parts = Parts(self._in_order(features))
        self._sources = self.parts.sources
        self.processor = self._new_processor(self._new_score_sender())
        self.worker = self.processor.worker
        self._items = self.worker.queue  # asked directly, as a request waits for each call of a function
        self._drain = ShutdownTask(self._shut_down, self.worker)

    @property
    def judge_waits(self) -> deque[ScoreWait]:
        """How long the latest calls that the judge scored waited for their scores."""
        return self.processor.outputs.score_sender.judge_waits

    # --- what it consists of -----------------------------------------------------------------------------------------

    def _in_order(self, features: Sequence[Feature]) -> Iterator[Part]:
        """Yield the parts: what one hands over is delivered by a later one, and what is last sees a call first."""
        telemetry, later = self.telemetry, [each for each in features if each.before_baselines]
        yield EngineMetrics(self.ledger, lambda: self.worker.size, self.judge_statuses, self._losses)
        yield self.health
        yield from (self._dropped, self._deferred_steps)
        for feature in features:  # of spans that are held, sources know whether they are those of calls
            if feature not in later:
                yield from feature.parts(self)
        yield self.learner
        for feature in later:
            yield from feature.parts(self)
        yield from self.elsewhere.parts
        yield from (ExpiredHolds(), OrphanLimit(self.orphans, self.settings.queue_bytes // 8))
        yield from (self.calibrations, self.moments, self.feedback)
        yield from (*telemetry.histories, *telemetry.poster_parts, telemetry)

    def _new_instruments(self) -> Instruments:
        return Instruments(
            self.telemetry.find_meter,
            lambda: self.parts.observations(),
            attributes=lambda call: self.parts.attributes(call),
            observed=self.telemetry.observed,
            genai_metrics=self.settings.genai_metrics,
        )

    def _new_writer(self) -> SpanWriter:
        telemetry, settings = self.telemetry, self.settings
        return SpanWriter(
            telemetry.tracer,
            telemetry.logger,
            telemetry.fast,
            dialects=telemetry.dialects or settings.dialects,
            capture=settings.capture_content,
            drops_children=telemetry.drops_children,
        )

    def _new_feedback_sender(self) -> FeedbackSender:
        telemetry = self.telemetry
        return FeedbackSender(
            telemetry.logger,
            self._instruments,
            telemetry.posters,
            telemetry.histories,
            self._redact,
            texts=may_leave(self.settings.capture_content, "elsewhere"),
        )

    def _new_score_sender(self) -> ScoreSender:
        telemetry, capture = self.telemetry, self.settings.capture_content
        return ScoreSender(
            telemetry.tracer if telemetry.carriers else None,
            telemetry.logger,
            self._instruments,
            evidence=self.settings.evidence,
            texts=may_leave(capture, "spans"),
            hides_contents=not may_leave(capture, "elsewhere"),
            observers=self.parts.observers,
            guard_observers=[history.add_guard_verdict for history in telemetry.histories],
            owned=telemetry.owned,
        )

    def _new_processor(self, score_sender: ScoreSender) -> CallProcessor:
        settings = self.settings
        return CallProcessor(
            parts=self.parts,
            outputs=Outputs(self.telemetry, self.writer, self._instruments, score_sender),
            evaluators=self.evaluators,
            sampler=self.sampler,
            preparation=CallPreparation(
                self._redact,
                conversations_for(self.evaluators, turns_elsewhere=self.elsewhere.judge_turns),
                score_head_dropped=self.sampling.score_head_dropped,
                fact_givers=self.parts.fact_givers,
            ),
            outcomes=CallOutcomes(self.ledger, self.outcomes, self._redact, self.calibrations),
            capacity=settings.capacity,
            most_bytes=settings.queue_bytes * 3 // 4,
            elsewhere=self.elsewhere,
        )

    # --- its place in the process ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over the hooks of the process: spans of other instrumentations, flushes of spans, and the exit.

        A runtime that is not started is in nobody's way: it has no thread, and the one before goes on. If the start
        fails half-way, this runtime has none of the hooks; a former one that is started again takes them back.
        """
        collection.watch()
        try:
            for source in self._sources:
                source.start(self._wake)
            set_before_flush(self._before_flush)
            # After the providers were made, so before their own exit handlers: atexit is last in, first out.
            exits.before_exit(self._at_exit)
        except BaseException:
            self.give_hooks_back()
            raise

    def give_hooks_back(self) -> None:
        """Give back the hooks of the process that `start` has taken. Never raises."""
        for give_back in (
            *(partial(source.stop, self._wake) for source in self._sources),
            partial(clear_before_flush, self._before_flush),
            partial(exits.cancel, self._at_exit),
        ):
            with guarded("start of a runtime"):
                give_back()

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

    def record_guard(self, seconds: float, workflow: str, metric: str, mode: str) -> None:
        """Record for how many *seconds* the guard of a workflow held an answer back, in this process."""
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
        told: Any = self.parts.stats()
        return replace(self.ledger.stats(faults.counts()), **told)

    def _losses(self) -> Mapping[tuple[str, str], int]:
        return count_losses(self.telemetry, self._dropped.count())

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
        with self.elsewhere.hurried():
            self._deferred_steps.queue_all()
            self._collect_calls(timeout)
            return self.worker.wait_idle(deadline - monotonic())

    def _before_flush(self, timeout: float) -> bool | None:
        """Do as `_wait_idle`, and return None if the time was not enough and another thread waits for longer."""
        return self._wait_idle(timeout) or (None if self.worker.is_hurried else False)

    def _collect_calls(self, timeout: float) -> None:
        """Queue the finished calls that sources find, after writing the spans of decorated steps."""
        for source in self._sources:
            if source.is_used:
                self.worker.wait_idle(timeout)
                source.collect(everything=True)

    def flush(self, timeout: float) -> bool:
        """Score and export all finished RAG calls, and return whether all was delivered in *timeout* seconds."""
        budget, unscored = ShutdownBudget(timeout), self.processor.unscored
        set_before_flush(self._before_flush)
        self._open_instruments()
        with self.elsewhere.hurried():
            scored = self._wait_idle(timeout) and unscored.score_all(budget)
        return unscored.deliver(partial(self.parts.flush, budget), budget.deadline) and scored

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
            self.close_instruments()
            faults.forget_messages_of(self.messages)

    def _end(self, budget: ShutdownBudget) -> bool:
        timeout, unscored = max(0.0, budget.deadline - monotonic()), self.processor.unscored
        self._deferred_steps.queue_last()
        for source in self._sources:
            source.stop(self._wake)
        self._collect_calls(timeout / 4)
        self._open_instruments()
        reserved = partial(reserved_after_scoring, timeout, spools=unscored.keeps)
        grace = AT_LEAST_SECONDS if unscored.keeps else reserved(0) / 4
        with self.elsewhere.hurried():
            items = self.worker.stop(timeout, grace, reserved)
        left: list[SpanItem] = []
        for item in items:
            if isinstance(item, CallItem):
                left += item.claim_deferred_steps()
            if not isinstance(item, Job):
                left.append(item)
        with garbage_collection_disabled():
            unscored.store_or_drop([item for item in left if isinstance(item, CallItem)], budget)
            until = budget.until(reserved=budget.closing / 2)
            run_bounded(partial(end_spans, left, self.processor.drop, self.telemetry, until), until)  # this may hang
            clear_before_flush(self._before_flush)
            settled = self.ledger.close(_SETTLE_SECONDS)
            incomplete = self.parts.close(budget)
            delivered = incomplete.isdisjoint((self.telemetry, *self.telemetry.histories, *self.telemetry.poster_parts))
            unscored.close(budget.deadline, delivered=delivered)
            stats = self.stats()
            complete = log_losses(
                Counter(stats.dropped) - Counter({SPOOLED.reason: unscored.recovered}),
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

    def close_instruments(self) -> None:
        """Keep the final counts for a meter provider that outlives this runtime. Never raises."""
        with guarded("final counts"):
            self._instruments.close()

    def _at_exit(self) -> None:
        if self._process is forks.process:  # else a forked child ends, which has not used its parent's runtime
            with guarded("shutdown at exit"):
                self.shutdown(EXIT_SECONDS)
