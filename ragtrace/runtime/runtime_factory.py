"""Factory that builds the runtime of each process, of the one that was configured and of its forked children."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ragtrace.capture.redact import Redact
from ragtrace.core.contents import may_leave
from ragtrace.core.settings import Settings
from ragtrace.estimates import BaselineLearner, Calibrations, MetricAssignment, MetricBaseline
from ragtrace.evaluation.sampling import JudgementCosts, Sampling
from ragtrace.evaluation.scoring import Evaluator, Evaluators
from ragtrace.guard.outcomes import GuardCounts
from ragtrace.metrics.support import consistency, suspicious, suspicious_against
from ragtrace.runtime.current_runtime import wake
from ragtrace.runtime.runtime import Runtime
from ragtrace.system.forks import PerProcess
from ragtrace.telemetry.export.telemetry import Telemetry

if TYPE_CHECKING:
    from ragtrace.alerts import Alert
    from ragtrace.fleet.publisher import FleetPublisher
    from ragtrace.history.history import HistoryRecorder
    from ragtrace.history.source import CallOrigin
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
        learner = (self.learner if parents is None else parents.learner).begin_anew()
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
        spool = alerting = None
        if settings.spool:
            from ragtrace.fleet.spool import Spool

            spool = Spool(settings.spool)
        if self.alerts or self.canaries:
            from ragtrace.alerts import Alerting

            alerting = Alerting(
                self.alerts,
                assignment,
                settings,
                telemetry.logger,
                baseline=learner.find,
                adjustment=learner.find_adjustment,
                calibrations=self.calibrations,
                release=self.release,
                stores=[history.add_alert for history in telemetry.histories],
            )
        return Runtime(
            settings,
            telemetry,
            evaluators,
            sampling=self.sampling,
            redact=self.redact,
            spool=spool,
            alerts=alerting,
            learner=learner,
            canaries=self.canaries,
            calibrations=self.calibrations,
            publisher=_publisher(settings) if settings.fleet else None,
            wake=partial(wake),  # another object for each runtime, by which span queues tell them apart
            costs=self.costs,
            guard_counts=self.guard_counts,
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


def _publisher(settings: Settings) -> FleetPublisher:
    from ragtrace.evaluation.sampling import QueueLoad
    from ragtrace.fleet.broker import MOST_CALLS, open_broker
    from ragtrace.fleet.publisher import FleetPublisher

    return FleetPublisher(open_broker(settings.fleet), QueueLoad(MOST_CALLS), judge_turns=settings.judge_turns)
