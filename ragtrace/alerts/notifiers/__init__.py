"""Whom an alert can tell."""

from ragtrace.alerts.notifiers.alertmanager import Alertmanager
from ragtrace.alerts.notifiers.function import Function, is_same
from ragtrace.alerts.notifiers.notifier import Notifier, UndeliveredError
from ragtrace.alerts.notifiers.slack import Slack
from ragtrace.alerts.notifiers.telemetry import Event, Log
from ragtrace.alerts.notifiers.webhook import Webhook

__all__ = ["Alertmanager", "Event", "Function", "Log", "Notifier", "Slack", "UndeliveredError", "Webhook", "is_same"]
