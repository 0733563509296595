"""Labels in a configuration: which models answer as the judge, and the canaries, labelled calls that show a drift."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragtrace.core.errors import SettingsError
from ragtrace.core.part import Part
from ragtrace.estimates import Calibrations, MetricAssignment
from ragtrace.evaluation.scoring import Evaluator, Evaluators
from ragtrace.labels.served_models import ServedModels
from ragtrace.runtime.feature import Feature, Given
from ragtrace.runtime.runtime import Runtime

if TYPE_CHECKING:
    from ragtrace.labels.canary_judging import CanaryJudging
    from ragtrace.labels.canary_set import CanarySet


class LabelsFeature(Feature):
    """Served models of the judge, and canaries where there are any."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._canaries: tuple[CanarySet, ...] = ()

    def check(self, evaluators: Evaluators, calibrations: Calibrations) -> None:
        """Read the canaries from their file. Where ragtrace is not enabled, it is not read.

        Raises:
            SettingsError: there is no judge, or the file cannot be used.
        """
        settings = self.given.settings
        if not settings.canaries:
            return
        origin = settings.origins["canaries"]
        if evaluators.judge is None:
            raise SettingsError(
                f"canaries are judged by the judge, and there is none, got {settings.canaries!r} (from {origin}); "
                "configure judge=, or leave the canaries out"
            )
        if settings.enabled:
            from ragtrace.labels.canary_set import read_canaries

            judged = MetricAssignment.from_evaluators(None, evaluators.judge).judged
            self._canaries = read_canaries(settings.canaries, judged, origin)

    def parts(self, runtime: Runtime) -> Iterator[Part]:
        """Return what notes the served models, and what judges canaries."""
        served = ServedModels(runtime.telemetry.logger)
        yield served
        if self._canaries and runtime.evaluators.judge is not None:
            yield self._canary_judging(runtime, runtime.evaluators.judge, served)

    def _canary_judging(self, runtime: Runtime, judge: Evaluator, served: ServedModels) -> CanaryJudging:
        from ragtrace.alerts import Alerting
        from ragtrace.labels.canary_judging import CanaryJudging

        settings, store = runtime.settings, None
        if settings.store:
            from ragtrace.labels.canary_store import CanaryStore

            store = CanaryStore(settings.store)
        return CanaryJudging(
            self._canaries,
            judge,
            runtime.sampler,
            lambda: runtime.parts.get(Alerting),
            served,
            interval=settings.canary_interval * (runtime.sampling.replicas or 1),
            places=settings.judge_concurrency,
            store=store,
            is_open=lambda: not runtime.worker.closed,
        )
