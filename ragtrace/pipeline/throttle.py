"""Throttle of the worker: half-millisecond slices of work, so that the application's threads get the interpreter.

An interpreter runs one thread at a time, and a thread that computes keeps it for five milliseconds (the switch
interval) before it has to share. An event loop of the application that becomes ready meanwhile would wait that long.
Releasing the interpreter for an instant is not enough: the worker would have it back before the other thread has woken
up. Hence a short sleep after each slice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from time import monotonic, sleep
from types import coroutine
from typing import Any, Final

SLICE_SECONDS: Final = 0.0005
"""How long the worker computes before it sleeps."""
LONGEST_PAUSE_SECONDS: Final = 0.001
"""Sleep after a slice when few items wait: the work of a call is spread out."""
SHORTEST_PAUSE_SECONDS: Final = 0.00002
"""Sleep after a slice when many items wait. With the slack of timers it becomes three to four times as long."""
_FEW: Final = 8
"""Items that may wait while the worker still sleeps for the longest pause."""


class Throttle:
    """Divides the work of one thread into slices, with a sleep between them whose length depends on the load.

    Args:
        hurried: returns whether a thread waits for the work to be done; then there is no sleep.
    """

    def __init__(self, hurried: Callable[[], bool]) -> None:
        self._hurried, self._slice_began = hurried, 0.0
        self._pause = SHORTEST_PAUSE_SECONDS

    def begin_slice(self) -> None:
        """Begin a slice, as the thread has just slept."""
        self._slice_began = monotonic()

    def set_load(self, waiting: int) -> None:
        """Shorten the pauses, the more items are *waiting*."""
        self._pause = max(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS * _FEW / max(_FEW, waiting))

    def yield_interpreter(self) -> None:
        """Sleep for a moment if the slice is over; to be called between pieces of work."""
        if monotonic() - self._slice_began > SLICE_SECONDS:
            if not self._hurried():
                sleep(self._pause)
            self._slice_began = monotonic()


def run_inline(work: Coroutine[Any, Any, None], throttle: Throttle, seconds: float) -> Awaitable[None] | None:
    """Run *work* here and now, which is cheaper than a task and a turn of the event loop for each.

    Returns:
        None if *work* is done; if it waits for something, or took more than *seconds*, what a task must await to carry
        it on. Only from there on it may use the current task of asyncio.
    """
    until = monotonic() + seconds
    # One context from beginning to end: what is set in it here must be there, and resettable, in the task.
    in_context = copy_context().run
    try:
        while (waits := in_context(work.send, None)) is None and monotonic() < until:
            throttle.yield_interpreter()
    except StopIteration:
        return None
    return _carry_on(work, waits, in_context)


@coroutine
def _carry_on(
    work: Coroutine[Any, Any, None], waits: object, in_context: Callable[..., object]
) -> Generator[object, Any, None]:
    """Carry *work* on, which was begun outside any task and now waits for *waits*."""
    while True:
        try:
            sent = yield waits
        except BaseException as error:
            resume = partial(in_context, work.throw, error)
        else:
            resume = partial(in_context, work.send, sent)
        try:
            waits = resume()
        except StopIteration:
            return
