"""Factory that builds the runtime of each process, of the one that was configured and of its forked children."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from ragtrace.capture.redact import Redact
from ragtrace.core.settings import Settings
from ragtrace.estimates import BaselineLearner, Calibrations, MetricAssignment, MetricBaseline
from ragtrace.evaluation.sampling import JudgementCosts, Sampling
from ragtrace.evaluation.scoring import Evaluator, Evaluators
from ragtrace.metrics.support import consistency, suspicious, suspicious_against
from ragtrace.runtime.current_runtime import wake
from ragtrace.runtime.feature import Feature
from ragtrace.runtime.runtime import Runtime
from ragtrace.telemetry.export.telemetry import Telemetry


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
    features: tuple[Feature, ...]
    learner: BaselineLearner
    """Learner that knows the baselines that were known when ragtrace was configured."""
    calibrations: Calibrations
    service: str
    """Name of the application."""
    release: str
    """`service.version` of the application."""
    costs: JudgementCosts

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
        telemetry = replace(self.telemetry, posters=[], poster_parts=[], histories=[])
        if telemetry.score_sink is not None:
            from ragtrace.telemetry.export.score_poster import ScorePoster

            poster = ScorePoster(telemetry.score_sink, service=telemetry.service, evidence=settings.evidence)
            telemetry.posters.append(poster)
            telemetry.poster_parts.append(poster)
        if telemetry.routing is not None:
            telemetry.routing.add_posters(telemetry, evidence=settings.evidence)
        for feature in self.features:
            telemetry.histories += feature.stores(evaluators, self.service, self.release)
        return Runtime(
            settings,
            telemetry,
            evaluators,
            sampling=self.sampling,
            redact=self.redact,
            calibrations=self.calibrations,
            learner=learner,
            features=self.features,
            release=self.release,
            wake=partial(wake),  # another object for each runtime, by which span queues tell them apart
            costs=self.costs,
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
