"""Alerts with a stated false-alarm rate, and whom they can tell."""

from ragtrace.alerts.alert import Alert, Notify, Per
from ragtrace.alerts.detector import Detector
from ragtrace.alerts.evaluator import Alerting, StateRow
from ragtrace.alerts.notice import Example, Notice
from ragtrace.alerts.notifiers import Alertmanager, Notifier, Slack, UndeliveredError, Webhook
from ragtrace.alerts.state import STATES, State

__all__ = [
    "STATES",
    "Alert",
    "Alerting",
    "Alertmanager",
    "Detector",
    "Example",
    "Notice",
    "Notifier",
    "Notify",
    "Per",
    "Slack",
    "State",
    "StateRow",
    "UndeliveredError",
    "Webhook",
]
