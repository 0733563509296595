"""Guards in a configuration: those of the application's functions, checked against what is configured."""

from __future__ import annotations

from collections.abc import Iterator

from ragtrace.estimates import Calibrations
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.guard.guards import (
    Guards,
    LabelledBound,
    check_guards,
    find_bounds,
    guarded_functions,
    guarded_metrics,
)
from ragtrace.guard.outcomes import GuardCounts
from ragtrace.runtime.feature import Feature, Given
from ragtrace.runtime.runtime import Runtime
from ragtrace.system.forks import PerProcess


class GuardFeature(Feature):
    """Guards of the application. Where ragtrace is not enabled, guarded functions run as without one."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._counts = PerProcess(GuardCounts)
        self._calibrations = Calibrations()
        self._bounds: list[LabelledBound] = []

    def metrics(self) -> list[str]:
        """Return the names of the metrics that guards read."""
        return guarded_metrics()

    def check(self, evaluators: Evaluators, calibrations: Calibrations) -> None:
        """Check that the guards can work with the configured evaluators, and find their bounds in human labels.

        Raises:
            SettingsError: one cannot, or the labels do not allow its limit.
        """
        if self.given.settings.enabled:
            check_guards(evaluators, fleet=bool(self.given.settings.fleet))
            self._calibrations, self._bounds = calibrations, find_bounds(calibrations)

    def prepare(self, evaluators: Evaluators) -> tuple[()]:
        """Warn of guards that act, and were not in shadow mode before."""
        store = self.given.settings.store
        if store and guarded_functions():
            from ragtrace.guard.shadow_reports import warn_of_missing_shadow_reports

            warn_of_missing_shadow_reports(evaluators, store)
        return ()

    def commit(self) -> None:
        """Put the bounds in force."""
        for bound in self._bounds:
            bound.apply()

    def parts(self, runtime: Runtime) -> Iterator[Guards]:
        """Return the guards of *runtime*."""
        yield Guards(runtime.evaluators, self._calibrations, runtime.record_guard, self._counts)
