"""What becomes of a finished call, from the application's thread to its scores, and how it all ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from ragtrace.capture.redact import Redact
from ragtrace.core.ledger import Ledger, Posted, Stats
from ragtrace.core.settings import Settings
from ragtrace.core.step import Step
from ragtrace.estimates import Learner, Observer, Plan, RunningMoments
from ragtrace.evaluation.judge_client import JudgeStatus
from ragtrace.evaluation.policy import Sampling
from ragtrace.evaluation.sampler import Sampler
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.instrument.call_builder import CallBuilder, OrphanRetrievals
from ragtrace.instrument.recorder import mark_forked
from ragtrace.pipeline.deferred_steps import Joined, joined
from ragtrace.pipeline.dropped_spans import Overflow
from ragtrace.pipeline.loss_report import losses, reported
from ragtrace.pipeline.processor import Background
from ragtrace.pipeline.recent_outcomes import Fates
from ragtrace.pipeline.shutdown_budget import AT_LEAST_SECONDS, EXIT_SECONDS, Time, kept_for_after
from ragtrace.pipeline.span_drain import Drain, end_spans, room_for_spans, undisturbed
from ragtrace.pipeline.spooling import Spooling
from ragtrace.pipeline.work_item import Finished, claimed_work, step_bytes, weight
from ragtrace.pipeline.worker import Worker
from ragtrace.runtime.health import Health
from ragtrace.runtime.snapshot import Insides
from ragtrace.system import exits
from ragtrace.system.faults import faults, guarded
from ragtrace.system.forks import in_child
from ragtrace.system.threads import run_bounded
from ragtrace.telemetry.export.providers import Telemetry
from ragtrace.telemetry.scores.attacher import Attacher
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.telemetry.spans.hold import clear_before_flush, held, holds, set_before_flush
from ragtrace.telemetry.spans.writer import SpanWriter

if TYPE_CHECKING:
    from ragtrace.alerts import Alerting
    from ragtrace.history.spool import Spool


class Runtime:
    """One configured ragtrace."""

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
        learner: Learner | None = None,
    ) -> None:
        self.settings, self._telemetry = settings, telemetry
        self._sampling, self._sampler = sampling, Sampler(sampling, monotonic)
        self._fates, self.health = Fates(), Health()
        self._spooling = None if spool is None else Spooling(spool, telemetry)
        self._roles = evaluators
        self._evaluators = [evaluator for evaluator in evaluators if evaluator is not None]
        self._evaluator_ids = tuple(evaluator.id for evaluator in self._evaluators)
        self.ledger = Ledger()
        self.learner = learner or Learner()
        self.alerts = alerts
        self.observer = Observer(Plan.of(evaluators.screen, evaluators.judge), RunningMoments())
        self.orphans = OrphanRetrievals()
        self.worker: Worker[Finished] = Worker(
            lambda work: self._background.handle(work),
            capacity=settings.capacity,
            tick=self._sweep,
            weigh=weight,
            most_bytes=settings.queue_bytes * 3 // 4,
            reject=self._reject,
            ready=lambda: telemetry.room(held()),
            close=evaluators.aclose,
        )
        self.writer = SpanWriter(
            telemetry.tracer,
            telemetry.logger,
            telemetry.fast,
            dialects=telemetry.dialects or settings.dialects,
            capture=settings.capture_content,
            drops_children=telemetry.drops_children,
        )
        self._instruments = self._make_instruments()
        telemetry.child_renewal.then(lambda: self._instruments.bind(telemetry.meter))
        self._background = self._make_background(evaluators, redact)
        self._orphan_bytes = settings.queue_bytes // 8
        self._overflow, self._joined = Overflow(), Joined(self._hand_over)
        self._ended, self._drain = False, Drain(self._run_drain, self.worker.cut_short)
        set_before_flush(self._wait_idle)
        in_child(self._reset_after_fork)
        # After the providers were made, so before their own exit handlers: atexit is last in, first out.
        exits.before_exit(self._at_exit)

    def _make_instruments(self) -> Instruments:
        return Instruments(
            self._telemetry.meter,
            rows=self.ledger.rows,
            moments=self.observer.running.totals,
            queued=lambda: self.worker.size,
            held=held,
            posted=self._posted,
            alerts=None if self.alerts is None else self.alerts.states,
            faults=faults.counts,
            lost=lambda: losses(self._telemetry, self._overflow),
            states=lambda: {evaluator: standing.state for evaluator, standing in self.standings().items()},
        )

    def _make_background(self, evaluators: Evaluators, redact: Redact) -> Background:
        telemetry, alerts = self._telemetry, () if self.alerts is None else (self.alerts,)
        tracer = telemetry.tracer if telemetry.carriers else None
        return Background(
            telemetry,
            self.writer,
            self._instruments,
            Attacher(
                tracer,
                telemetry.logger,
                self._instruments,
                evidence=self.settings.evidence,
                observer=self.observer,
                keepers=(*telemetry.posters, *telemetry.histories),
                watchers=(*alerts, self.learner, self.health),
                early=(*telemetry.histories, *alerts),
                owned=telemetry.owned,
            ),
            evaluators,
            self._sampler,
            redact,
            self.ledger,
            self.worker.pace.breathe,
            wait_for_judge=self.worker.wait_for_judge,
            fates=self._fates,
            spooling=self._spooling,
            ending=lambda: self._ended,
            head_dropped_too=self._sampling.score_head_dropped,
        )

    # --- on the application's thread ---------------------------------------------------------------------------------

    def step_ended(self, assembly: CallBuilder | None, step: Step) -> None:
        """A step that is not the root of a call is over: its span is written soon."""
        if assembly is None or not (self._deferred and self._joined.keep(assembly, step)):
            self._hand_over(assembly, step)

    def _hand_over(self, assembly: CallBuilder | None, step: Step) -> None:
        if self.worker.full_of_small and self._deferred:
            self._overflow.add()
            step.release_context()
        else:
            self._submit(Finished(step, assembly))

    def call_ended(self, assembly: CallBuilder) -> None:
        """The root of a call is over: it is offered to every evaluator."""
        self._joined.over(assembly)
        if self.worker.full and self._deferred:
            workflow, everybody = assembly.root.workflow, ", ".join(self._evaluator_ids)
            self.ledger.leave_out(self._evaluator_ids, workflow, "dropped", "queue_full")
            self._fates.add(assembly.root.span_context, workflow, everybody, "dropped", "queue_full")
            self._overflow.lose(assembly)
            return
        work = Finished(assembly.root, assembly, True, set(self._evaluator_ids))
        if work.open:
            self.ledger.offer_all(self._evaluator_ids, assembly.root.workflow)
        self._submit(work)

    @property
    def scores_head_dropped(self) -> bool:
        """Whether calls that head sampling dropped are scored all the same."""
        return self._sampling.score_head_dropped

    def head_dropped(self, workflow: str) -> None:
        """A call is over of which nothing was recorded, as head sampling dropped it."""
        self.ledger.leave_out(self._evaluator_ids, workflow)

    def _submit(self, work: Finished) -> None:
        if not self._deferred:
            self._telemetry.child_renewal.renew()
            self._background.write(work)
            if not work.is_call:
                return
        if not self.worker.offer(work, small=not work.is_call):
            self._refuse(work, "shutdown" if self._ended else "queue_full")

    def _refuse(self, work: Finished, reason: str) -> None:
        """There was no room: a call is counted as lost, and its span ended in the background if that has room."""
        work.dropped = reason
        self._background.settle_open(work, "dropped", reason)
        if work.is_call:
            self._joined.part(work.assembly)
            work.step.clear_texts()
        if not (work.is_call and self.worker.offer(work, small=True)):
            self._background.drop(work, reason)

    def _reject(self, work: Finished) -> None:
        """A call proved too large for what is left of the queue's bytes: it is counted as lost, its texts let go."""
        work.dropped = "queue_full"
        self._background.settle_open(work, "dropped", work.dropped)
        if work.is_call:  # the texts of a step stay with its call, which may still be scored
            work.step.clear_texts()

    @property
    def _deferred(self) -> bool:
        """Whether spans may end a little later than their steps: only where a flush waits for us."""
        return self._telemetry.owned or bool(holds())

    def _sweep(self) -> None:
        """On the worker's thread, now and then."""
        self._overflow.count()
        self._joined.sweep()
        for hold in holds():
            hold.sweep()
        if self._spooling is not None and not self._ended:
            self._spooling.tick()
            if self._spooling.due():
                self._score_spooled(self._spooling)
        self.orphans.trim(self._orphan_bytes, step_bytes)

    # --- calls of another process ------------------------------------------------------------------------------------

    def _score_spooled(self, spooling: Spooling, timeout: float = 0.0) -> int:
        """Claim calls of the spool and queue them for the evaluators that have not scored them; return how many.

        They have waited for long anyway: they get at most the half of the queue that is free.
        """
        room = 0 if self._ended else self.settings.capacity // 2 - self.worker.size
        queued = 0
        for claimed in spooling.claim(room, timeout):
            work = claimed_work(claimed)
            self.ledger.offer_all(work.open, work.step.workflow)
            for evaluator in work.open - set(self._evaluator_ids):
                self._background.settle(work, evaluator, "dropped", "not_configured")
            if self.worker.offer(work):
                queued += 1
            else:
                self._background.settle_open(work, "dropped", "spooled")  # it is released at shutdown
        return queued

    def _flush_telemetry(self, flush: Callable[[], bool]) -> bool:
        return flush() if self._spooling is None else self._spooling.confirm(flush)

    # --- life cycle --------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """What became of every call so far."""
        self._overflow.count()
        return replace(self.ledger.stats(faults.counts()), sinks=self._posted())

    def _posted(self) -> dict[str, Posted]:
        return {poster.outbox.name: poster.outbox.counts() for poster in self._telemetry.posters}

    def standings(self) -> dict[str, JudgeStatus]:
        """How each judge that does more than compute stands at this moment, by evaluator id."""
        return {e.id: e.judge_client.status for e in self._evaluators if not e.judge_client.computes}

    @property
    def insides(self) -> Insides:
        """What there is to see for whoever looks for a fault."""
        return Insides(
            self.settings,
            self._sampling,
            self._telemetry,
            self._roles,
            self._fates,
            self._spooling,
            self.health,
            self.learner,
            queued=self.worker.size,
            held=held(),
            run=lambda errand: self.worker.offer(Finished(Step("trace"), errand=errand), small=True),
        )

    def _wait_idle(self, timeout: float) -> bool:
        self._joined.sweep()
        return self.worker.wait_idle(timeout)

    def flush(self, timeout: float) -> bool:
        """Score and export everything finished so far; False if *timeout* seconds were not enough."""
        time = Time(timeout)
        set_before_flush(self._wait_idle)
        self._show_books()
        scored = self._wait_idle(timeout)
        while self._spooling is not None and scored and self._score_spooled(self._spooling, time.left()):
            scored = self.worker.wait_idle(time.deadline - monotonic())
        self.learner.flush(time.left() / 4)  # what fails there is a fault of its own, and costs no call
        told = self.alerts is None or self.alerts.flush(time.left() / 2)
        flushed = self._flush_telemetry(lambda: self._telemetry.flush(time.left()))
        posted = self._telemetry.post_scores(time.left())
        return flushed and scored and posted and told

    def shutdown(self, timeout: float) -> bool:
        """Drain for at most *timeout* seconds, say what was lost, shut our providers down. False if anything was.

        Called again, it waits for the first time to end, and says the same.

        Raises:
            BaseException: what a signal handler raised meanwhile; what was not scored has been kept and counted.
        """
        try:
            return self._drain.run(Time(timeout, self.worker.size), here=self.worker.on_its_thread)
        finally:
            if self._drain.over:
                exits.cancel(self._at_exit)

    def _run_drain(self, time: Time) -> bool:
        timeout = max(0.0, time.deadline - monotonic())
        self._ended = True
        self._joined.close()
        self._show_books()
        kept = partial(kept_for_after, timeout, spools=self._spooling is not None)
        grace = AT_LEAST_SECONDS if self._spooling else kept(0) / 4
        lost = [each for work in self.worker.stop(timeout, grace, kept) for each in (*joined(work), work)]
        with undisturbed():
            return self._end(lost, time)

    def _end(self, lost: list[Finished], time: Time) -> bool:
        """Settle what is *lost*, and shut our providers down. False if anything was lost."""
        done = not lost
        self._background.settle_unscored([*lost, *self._background.interrupted], time.until_stored())
        until = time.until(kept=time.closing / 2)
        room = partial(room_for_spans, self._telemetry)
        end = self._background.drop_lost
        run_bounded(partial(end_spans, lost, end, self._telemetry.lose_spans, room, until), until)  # it may hang
        clear_before_flush(self._wait_idle)
        self.learner.close(time.left() / 4)
        told = self.alerts is None or self.alerts.close(time.left() / 2)
        flushed = self._flush_telemetry(lambda: self._telemetry.flush(time.left(kept=AT_LEAST_SECONDS)))
        closed = self._telemetry.shutdown(time.left())
        if self._spooling is not None:
            self._spooling.close(time.deadline)
        return reported(self.stats().dropped, self._telemetry.lost, delivered=done and flushed and closed) and told

    def _show_books(self) -> None:
        """See that a forked child exports its books, even if the head sampler has dropped all of its calls so far."""
        if self._telemetry.child_renewal.due and self.ledger.rows():
            self._telemetry.child_renewal.renew()

    def _at_exit(self) -> None:
        with guarded("shutdown at exit"):
            self.shutdown(EXIT_SECONDS)

    def _reset_after_fork(self) -> None:
        mark_forked()
        self.worker.reset()
        self.ledger.reset()
        self.orphans.reset()
        self._overflow.reset()
        self._joined.reset()
        self._sampler.reset()
        self._fates.reset()
        self.health.reset()
        if self.alerts is not None:
            self.alerts.reset()
        self.learner.reset()
        # From here on metrics may be collected again: what they are read from is the child's own by now.
        self._instruments.after_fork()
        self._telemetry.after_fork()
        if self._spooling is not None:
            self._spooling.reset()
        for evaluator in self._evaluators:
            evaluator.reset()
        self._drain.forget()
        faults.clear()
        exits.after_fork(self, self._at_exit)
