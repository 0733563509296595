"""Outbox for the notices of alerts to one notifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ragtrace.alerts.notice import Notice
from ragtrace.alerts.notifiers.notifier import Notifier, UndeliveredError
from ragtrace.core.score_sink import Refusal
from ragtrace.system.faults import faults
from ragtrace.telemetry.export.outbox import Outbox

_CAPACITY: Final = 100
"""Notices are a few kilobytes each."""


def notifier_outbox(notifier: Notifier, *, patience: float = 600.0, send_seconds: float = 10.0) -> Outbox[Notice]:
    """Return an outbox that delivers notices by *notifier*, in order, one at a time.

    Args:
        notifier: the notifier.
        patience: seconds after which an undelivered notice is given up.
        send_seconds: time limit of one delivery.
    """
    return Outbox(_NotifierReceiver(notifier), capacity=_CAPACITY, patience=patience, send_seconds=send_seconds)


class _NotifierReceiver:
    """Receiver that sends notices by a `Notifier`."""

    what = "alerts"
    batch_size = 1

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    @property
    def name(self) -> str:
        """Name of the notifier."""
        return self._notifier.name

    def send(self, batch: Sequence[Notice], timeout: float) -> Mapping[int, Refusal]:
        """Send the notice in *batch*; a notice that may be delivered later stops the queue, which keeps the order."""
        try:
            for notice in batch:
                self._notifier.send(notice, timeout)
        except UndeliveredError as error:
            return {0: Refusal(error.reason, error.again, error.again, error.after_s, error.detail)}
        except Exception as error:
            faults.record(f"alert notifier {self.name}", error)
            return {0: Refusal("raised", detail=type(error).__name__)}
        return {}

    def warn_lost(self, reason: str, detail: str, count: int) -> None:
        """Count *count* undelivered notices as faults, and log the first loss for *reason*."""
        faults.warn_once(
            f"alert not delivered by {self.name}: {reason}",
            "an alert could not be delivered by %s (%s); it is in the log and in the metric of alert states all the "
            "same. Every further loss is counted in ragtrace.stats().faults",
            *(self.name, f"{reason}: {detail}" if detail else reason),
            count=count,
        )
