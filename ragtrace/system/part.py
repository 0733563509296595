"""Life cycle of everything that lives in a runtime."""

from __future__ import annotations

from typing import Protocol


class Part(Protocol):
    """Long-lived component of a runtime: the history, the alerts, the baseline learner, and so on.

    A runtime drives all of its parts in the same way and in one order. A part does nothing in the methods that it does
    not have.
    """

    def tick(self) -> None:
        """Do periodic work, on the worker's thread, about four times a second."""
        return

    def flush(self, timeout: float) -> bool:
        """Deliver everything that was handed over before within *timeout* seconds, and return whether that succeeded.

        False as well if something was lost since the last flush.
        """
        return True

    def close(self, timeout: float) -> bool:
        """Deliver what is left within *timeout* seconds and stop; return whether nothing was lost."""
        return True

    async def aclose(self) -> None:
        """Close what belongs to the worker's event loop, as one of the last coroutines there."""
        return
