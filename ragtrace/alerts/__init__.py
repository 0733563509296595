"""Alerts on the mean score of a metric, and notifiers that deliver the notifications of alerts."""

from ragtrace.alerts.alert import Alert, Notify, Per
from ragtrace.alerts.alerting import Alerting, StateRow, check_alerts
from ragtrace.alerts.detector import Detector
from ragtrace.alerts.evaluator import STATES, State
from ragtrace.alerts.notice import Example, Notice
from ragtrace.alerts.notifiers.alertmanager import Alertmanager
from ragtrace.alerts.notifiers.notifier import Notifier, UndeliveredError
from ragtrace.alerts.notifiers.slack import Slack
from ragtrace.alerts.notifiers.webhook import Webhook

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
    "check_alerts",
]
