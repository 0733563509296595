"""Factory that builds the runtime of each process, of the one that was configured and of its forked children."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ragtrace.capture.redact import Redact
from ragtrace.core.contents import may_leave
from ragtrace.core.part import Part
from ragtrace.core.settings import Settings
from ragtrace.estimates import BaselineLearner, Calibrations, MetricAssignment, MetricBaseline
from ragtrace.evaluation.sampling import JudgementCosts, Sampling
from ragtrace.evaluation.scoring import Evaluator, Evaluators
from ragtrace.guard.guards import Guards
from ragtrace.guard.outcomes import GuardCounts
from ragtrace.labels.served_models import ServedModels
from ragtrace.metrics.support import consistency, suspicious, suspicious_against
from ragtrace.runtime.current_runtime import wake
from ragtrace.runtime.runtime import Runtime
from ragtrace.span_reading.span_calls import SpanCalls
from ragtrace.system.forks import PerProcess
from ragtrace.telemetry.export.telemetry import Telemetry
from ragtrace.telemetry.spans.hold import release_unscored

if TYPE_CHECKING:
    from ragtrace.alerts import Alert, Alerting
    from ragtrace.fleet.elsewhere import OtherProcesses
    from ragtrace.fleet.publisher import FleetPublisher
    from ragtrace.history.history import HistoryRecorder
    from ragtrace.history.source import CallOrigin
    from ragtrace.labels.canary_judging import CanaryJudging
    from ragtrace.labels.canary_set import CanarySet


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeFactory:
    """Everything that `configure` was given and has checked, from which each process builds a runtime of its own.

    What it holds survives a fork: it has no locks, queues, threads or connections, or makes them for each process. The
    providers in `telemetry` stay the same objects, as users and other libraries hold them.
    """

    settings: Settings
    telemetry: Telemetry
    evaluators: Evaluators
    """Evaluators whose judges and metrics those of the runtime have."""
    sampling: Sampling
    redact: Redact
    alerts: tuple[Alert, ...]
    learner: BaselineLearner
    """Learner that knows the baselines that were known when ragtrace was configured."""
    canaries: tuple[CanarySet, ...]
    calibrations: Calibrations
    service: str
    """Name of the application."""
    release: str
    """`service.version` of the application."""
    costs: JudgementCosts
    guard_counts: PerProcess[GuardCounts]

    def build(self, parents: Runtime | None = None) -> Runtime:
        """Build a runtime, which is to be started.

        It posts scores to one score API at most, that of the exporter (`Signals.scores`), as `configure` takes one
        exporter.

        Args:
            parents: runtime of the parent process in a forked child, of which only the learned baselines are read, and
                the calls that wait in its queue are let go.
        """
        if parents is not None:
            parents.worker.forget_queued()
        settings = self.settings
        known = None if parents is None else parents.parts.find(BaselineLearner)
        learner = (known or self.learner).begin_anew()
        evaluators = Evaluators(*[None if each is None else _begin_anew(each, learner) for each in self.evaluators])
        assignment = MetricAssignment.from_evaluators(evaluators.screen, evaluators.judge)
        learner.set_assignment(assignment, self.release)
        telemetry = replace(self.telemetry, posters=[], histories=[])
        if telemetry.score_sink is not None:
            from ragtrace.telemetry.export.score_poster import ScorePoster

            poster = ScorePoster(telemetry.score_sink, service=telemetry.service, evidence=settings.evidence)
            telemetry.posters.append(poster)
        if settings.store:
            from ragtrace.history.source import CallOrigin

            origin = CallOrigin.from_evaluators(evaluators, service=self.service, release=self.release)
            telemetry.histories.append(_history_recorder(settings, origin))
        return Runtime(
            settings,
            telemetry,
            evaluators,
            sampling=self.sampling,
            redact=self.redact,
            calibrations=self.calibrations,
            features=partial(self._features, learner=learner),
            elsewhere=_other_processes(settings, telemetry) if settings.fleet or settings.spool else None,
            wake=partial(wake),  # another object for each runtime, by which span queues tell them apart
            costs=self.costs,
        )

    def _features(self, runtime: Runtime, learner: BaselineLearner) -> Iterator[Part]:
        """Yield the parts of the features of a runtime. Alerts see a call before the baselines learn from it."""
        yield SpanCalls(
            runtime.call_ended,
            release_unscored,
            lambda: runtime.worker.throttle.yield_interpreter(),
            most_bytes=self.settings.queue_bytes // 4,
        )
        served = ServedModels(runtime.telemetry.logger)
        yield served
        yield Guards(runtime.evaluators, self.calibrations, runtime.record_guard, self.guard_counts)
        alerting = self._alerting(runtime, learner) if self.alerts or self.canaries else None
        if alerting is not None and self.canaries and runtime.evaluators.judge is not None:
            yield self._canary_judging(runtime, runtime.evaluators.judge, alerting, served)
        yield learner
        if alerting is not None:
            yield alerting

    def _alerting(self, runtime: Runtime, learner: BaselineLearner) -> Alerting:
        from ragtrace.alerts import Alerting

        return Alerting(
            self.alerts,
            runtime.moments.assignment,
            self.settings,
            runtime.telemetry.logger,
            baseline=learner.find,
            adjustment=learner.find_adjustment,
            calibrations=self.calibrations,
            release=self.release,
            stores=[history.add_alert for history in runtime.telemetry.histories],
        )

    def _canary_judging(
        self, runtime: Runtime, judge: Evaluator, alerting: Alerting, served: ServedModels
    ) -> CanaryJudging:
        from ragtrace.labels.canary_judging import CanaryJudging

        settings, store = self.settings, None
        if settings.store:
            from ragtrace.labels.canary_store import CanaryStore

            store = CanaryStore(settings.store)
        return CanaryJudging(
            self.canaries,
            judge,
            runtime.sampler,
            alerting,
            served,
            interval=settings.canary_interval * (self.sampling.replicas or 1),
            places=settings.judge_concurrency,
            store=store,
            is_open=lambda: not runtime.worker.closed,
        )


def _begin_anew(evaluator: Evaluator, learner: BaselineLearner) -> Evaluator:
    """Return an evaluator with the judge and metrics of *evaluator*, and with queues and threads of its own."""
    known = MetricBaseline(learner, consistency.name, evaluator.identity)
    return Evaluator(
        evaluator.judge,
        tuple(suspicious_against(known) if metric.name == suspicious.name else metric for metric in evaluator.metrics),
        evaluator.timeout,
        concurrency=evaluator.concurrency,
        judge_turns=evaluator.judge_turns,
    )


def prepare_history(settings: Settings) -> None:
    """Create the history file that the settings name, or check that the existing file is a history.

    Raises:
        SettingsError: the file cannot be used.
    """
    from ragtrace.history.source import CallOrigin

    _history_recorder(settings, CallOrigin()).prepare(settings.origins["store"])


def _history_recorder(settings: Settings, origin: CallOrigin) -> HistoryRecorder:
    from ragtrace.history.history import HistoryRecorder

    return HistoryRecorder(
        settings.store,
        origin,
        days=settings.store_days,
        most_bytes=settings.store_bytes,
        texts=may_leave(settings.capture_content, "elsewhere"),
    )


def _other_processes(settings: Settings, telemetry: Telemetry) -> OtherProcesses:
    from ragtrace.fleet.elsewhere import OtherProcesses
    from ragtrace.fleet.spool import Spool
    from ragtrace.fleet.spooling import Spooling

    spooling = Spooling(Spool(settings.spool), telemetry) if settings.spool else None
    return OtherProcesses(_publisher(settings) if settings.fleet else None, spooling)


def _publisher(settings: Settings) -> FleetPublisher:
    from ragtrace.evaluation.sampling import QueueLoad
    from ragtrace.fleet.broker import MOST_CALLS, open_broker
    from ragtrace.fleet.publisher import FleetPublisher

    return FleetPublisher(open_broker(settings.fleet), QueueLoad(MOST_CALLS), judge_turns=settings.judge_turns)
