"""Interface of everything that can deliver a notice of an alert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice


class UndeliveredError(Exception):
    """A notice could not be delivered.

    Args:
        reason: one word for the counts: `unavailable`, `refused`, `timeout` ...
        detail: what was seen, for the log, without secrets.
        again: whether the same notice may be delivered by a later attempt.
        after_s: seconds until the next attempt, where the receiver names them.
    """

    def __init__(self, reason: str, detail: str = "", *, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.again, self.after_s = reason, detail, again, after_s


@runtime_checkable
class Notifier(Protocol):
    """Receiver of alerts. Notices arrive one at a time on a thread of its own, so `send` may wait for the network."""

    @property
    def name(self) -> str:
        """Name for the log, without secrets."""
        ...

    def send(self, notice: Notice, timeout: float) -> None:
        """Deliver *notice* within *timeout* seconds.

        Raises:
            UndeliveredError: the notice was not delivered; says whether to try again. Any other exception counts as a
                failure for good.
        """
        ...
