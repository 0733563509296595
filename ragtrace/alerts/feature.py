"""Alerts in a configuration: those of `alerts=`, and what sends their notifications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from ragtrace.alerts.alert import Alert
from ragtrace.alerts.alerting import Alerting, check_alerts
from ragtrace.core.options import Canaries
from ragtrace.estimates import Calibrations, MetricAssignment
from ragtrace.evaluation.metric_selection import check_type
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.runtime.feature import Feature, Given
from ragtrace.runtime.runtime import Runtime


class AlertsFeature(Feature):
    """Alerts on scores, and on the drift that canaries show.

    Raises:
        SettingsError: something in `alerts=` is no alert.
    """

    before_baselines = True

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        alerts = [each for each in given.alerts if not isinstance(each, Canaries)]
        for alert in alerts:
            check_type("alerts", alert, Alert)
        self.alerts = tuple(cast("list[Alert]", alerts))
        self._calibrations = Calibrations()

    def metrics(self) -> list[str]:
        """Return the names of the metrics that alerts watch."""
        return [alert.metric for alert in self.alerts]

    def compared_metrics(self) -> list[str]:
        """Return the names of the metrics that alerts compare with their baselines."""
        return [alert.metric for alert in self.alerts if alert.against_baseline]

    def check(self, evaluators: Evaluators, calibrations: Calibrations) -> None:
        """Check that the alerts can work with the configured evaluators.

        Raises:
            SettingsError: one cannot.
        """
        if self.alerts:
            check_alerts(self.alerts, MetricAssignment.from_evaluators(evaluators.screen, evaluators.judge))
        self._calibrations = calibrations

    def parts(self, runtime: Runtime) -> Iterator[Alerting]:
        """Return what sends notifications."""
        yield Alerting(
            self.alerts,
            runtime.moments.assignment,
            runtime.settings,
            runtime.telemetry.logger,
            baseline=runtime.learner.find,
            adjustment=runtime.learner.find_adjustment,
            calibrations=self._calibrations,
            release=runtime.release,
            stores=[history.add_alert for history in runtime.telemetry.histories],
        )
