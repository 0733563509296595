"""Contract of what finds finished calls that no decorator has seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ragtrace.core.part import Part


@runtime_checkable
class Source(Part, Protocol):
    """Part of a runtime that finds finished calls, of other instrumentations for instance, and queues them.

    The worker's periodic work (`tick`), flushes and the shutdown have it look for calls.
    """

    @property
    def is_used(self) -> bool:
        """Whether there may be calls at all."""
        ...

    def start(self, wake: Callable[[], object]) -> None:
        """Begin to accept what calls are made of. *wake* starts the thread that looks for calls; none does before."""
        ...

    def stop(self, wake: Callable[[], object]) -> None:
        """Accept nothing more, unless another runtime has begun to."""
        ...

    def collect(self, *, everything: bool = False) -> None:
        """Queue the calls that are complete.

        Args:
            everything: do not wait for more of the calls that may have ended.
        """
        ...
