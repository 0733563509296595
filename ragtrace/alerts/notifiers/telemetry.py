"""Notifiers of every alert: the Python log and OpenTelemetry log events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from opentelemetry._logs import SeverityNumber

from ragtrace.core import semconv

if TYPE_CHECKING:
    from opentelemetry._logs import Logger

    from ragtrace.alerts.notice import Notice

log = logging.getLogger("ragtrace.alerts")
Attributes = dict[str, "str | bool | int | float | list[str]"]


class LogNotifier:
    """Notifier that writes to the Python log `ragtrace.alerts`: WARNING when a problem begins or lasts, else INFO."""

    name = "log"

    def send(self, notice: Notice, timeout: float) -> None:
        """Log *notice*."""
        firing = notice.status == "firing"
        log.log(logging.WARNING if firing else logging.INFO, "alert %r: %s", notice.alert, notice.text)


class EventNotifier:
    """Notifier that emits one OpenTelemetry log event for each notice."""

    name = "OpenTelemetry event"

    def __init__(self, logger: Logger) -> None:
        self._logger = logger

    def send(self, notice: Notice, timeout: float) -> None:
        """Emit the event for *notice*."""
        firing = notice.status == "firing"
        self._logger.emit(
            timestamp=int(notice.at * 1e9),
            severity_number=SeverityNumber.WARN if firing else SeverityNumber.INFO,
            event_name=semconv.EVENT_ALERT,
            body=notice.text,
            attributes=attributes(notice),
        )


def attributes(notice: Notice) -> Attributes:
    """Return the attributes of the event for *notice*."""
    found: Attributes = {
        semconv.ALERT_NAME: notice.alert,
        semconv.ALERT_STATE: notice.problem,
        semconv.ALERT_STATUS: notice.status,
        semconv.ALERT_SINCE: notice.since,
        semconv.ALERT_CALLS: notice.calls,
        semconv.EVALUATION_NAME: notice.metric,
    }
    estimate = notice.estimate
    if estimate is not None and estimate.value is not None:
        found[semconv.ALERT_ESTIMATE] = estimate.value
        found[semconv.ALERT_LOW] = estimate.low or 0.0
        found[semconv.ALERT_HIGH] = estimate.high or 0.0
    optional = {
        semconv.WORKFLOW_NAME: notice.workflow,
        semconv.REQUEST_MODEL: notice.model,
        semconv.EVALUATOR_ID: notice.evaluator,
        semconv.ALERT_PART_OF: notice.part_of,
    }
    found.update({key: value for key, value in optional.items() if value})
    if notice.worst:
        found[semconv.ALERT_TRACES] = [example.trace_id for example in notice.worst if example.trace_id]
    return found
