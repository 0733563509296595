"""Counts spans for which there was no room. Overload is no time for anything that takes time."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.instrument.call_builder import CallBuilder


class Overflow:
    """Spans that were lost because the queue was full: noted by an append, counted when somebody looks."""

    def __init__(self) -> None:
        self._lost: deque[None] = deque()
        self.counted = 0
        """Spans lost so far, as far as they have been counted."""

    def add(self) -> None:
        """One more."""
        self._lost.append(None)

    def lose(self, assembly: CallBuilder) -> None:
        """A whole call: the span of its root, and those of the steps that were to go along with it."""
        for step in assembly.steps:
            if step is assembly.root or step.detach():
                self.add()
                step.release_context()
            step.clear_texts()
        assembly.close()

    def count(self) -> None:
        """Enter them among the faults, and warn if they are the first."""
        lost = 0
        with suppress(IndexError):  # several threads may count at a time
            while True:
                self._lost.pop()
                lost += 1
        self.counted += lost
        if lost:
            faults.warn_once(
                "lost spans: queue full",
                "spans could not be queued and were lost; every further loss is counted in ragtrace.stats().faults. "
                "Raise capacity= or queue_bytes=",
                count=lost,
            )

    def reset(self) -> None:
        """Forget them: after a fork they are the parent's."""
        self._lost.clear()
        self.counted = 0
