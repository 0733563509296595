"""Parts of the runtime that count: no number is lost when several threads count at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ragtrace.core.step import Step
from ragtrace.pipeline.unqueued_steps import DroppedSpans
from ragtrace.system.faults import faults

WAIT_S: Final = 240.0
"""Long enough for any machine; a test that passes waits for no time, but for an event."""


class InterruptedZero(int):
    """Zero that lets something happen before the first sum with it is stored."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupts = [interrupt]

    def __new__(cls, interrupt: Callable[[], None]) -> InterruptedZero:
        return super().__new__(cls, 0)

    def __add__(self, other: int) -> int:
        if self._interrupts:
            self._interrupts.pop()()
        return other


class TellingLock:
    """Lock that tells when a thread other than the one that made it asks for it."""

    def __init__(self, was_asked_for: threading.Event) -> None:
        self._lock, self._own, self._was_asked_for = threading.RLock(), threading.get_ident(), was_asked_for

    def __enter__(self) -> None:
        if threading.get_ident() != self._own:
            self._was_asked_for.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_spans_dropped_while_others_are_counted_are_counted_too() -> None:
    """A second thread counts, or asks to, after the first has added its spans and before it has stored the sum."""
    dropped, has_gone_on = DroppedSpans(), threading.Event()

    def drop_and_count() -> None:
        dropped.drop(Step())
        dropped.count()
        has_gone_on.set()

    def interrupt() -> None:
        other.start()
        assert has_gone_on.wait(WAIT_S)

    other = threading.Thread(target=drop_and_count)
    dropped._lock = TellingLock(has_gone_on)  # type: ignore[assignment]  # pyright: ignore
    dropped._counted = InterruptedZero(interrupt)  # pyright: ignore[reportPrivateUsage]
    before = faults.counts().get("lost spans: queue full", 0)
    for _ in range(3):
        dropped.drop(Step())
    dropped.count()
    other.join(WAIT_S)
    assert dropped.count() == 4
    assert faults.counts()["lost spans: queue full"] - before == 4
