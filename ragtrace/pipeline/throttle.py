"""Slices of work on the worker's thread, between which the threads of the application get the Python interpreter."""

from __future__ import annotations

import contextvars
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from time import monotonic, sleep
from typing import Any, Final

SLICE_SECONDS: Final = 0.0005
"""Time for which the worker computes before it sleeps."""
LONGEST_PAUSE_SECONDS: Final = 0.001
"""Sleep after a slice when few items are queued, so that the work of a call is spread out."""
SHORTEST_PAUSE_SECONDS: Final = 0.00002
"""Sleep after a slice when many items are queued; the slack of timers makes the sleep three to four times as long."""
_FEW: Final = 8
"""Most queued items with which the worker still sleeps for the longest pause."""


class Throttle:
    """Throttle of a background thread, which lets the thread work in slices of half a millisecond and sleep between
    them.

    An interpreter runs one thread at a time, and a thread that computes keeps it for five milliseconds (the switch
    interval) before it has to share: an event loop of the application that becomes ready meanwhile would wait that
    long. Releasing the interpreter for an instant is not enough, as the worker would have it back before the other
    thread has woken up. The more items are queued, the shorter the sleep.

    Args:
        hurried: returns whether a thread waits for the work to be done; then there is no sleep.
    """

    def __init__(self, hurried: Callable[[], bool]) -> None:
        self._hurried, self._slice_began = hurried, 0.0
        self._pause = SHORTEST_PAUSE_SECONDS

    def begin_slice(self) -> None:
        """Begin a new slice of work after the thread has slept outside the throttle."""
        self._slice_began = monotonic()

    def set_load(self, queued: int) -> None:
        """Set the length of the thread's sleeps: the more items are queued, the shorter the sleeps."""
        self._pause = max(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS * _FEW / max(_FEW, queued))

    def yield_interpreter(self) -> None:
        """Sleep for a moment if the current slice of work is over, so that other threads get the Python interpreter."""
        if monotonic() - self._slice_began > SLICE_SECONDS:
            if not self._hurried():
                sleep(self._pause)
            self._slice_began = monotonic()


def run_inline(work: Coroutine[Any, Any, None], throttle: Throttle, seconds: float) -> Awaitable[None] | None:
    """Run the coroutine *work* on this thread until it ends or has to wait, without creating an asyncio task.

    A task for each coroutine would cost a turn of the event loop.

    Returns:
        None if *work* has ended. If it awaits something, or took more than *seconds*: an awaitable that continues it,
        for a task to await. Until then *work* must not use the current task of asyncio.
    """
    until = monotonic() + seconds
    # The task goes on in the same context: it must see, and be able to reset, the context variables that are set here.
    in_context = contextvars.copy_context().run
    try:
        while (waits := in_context(work.send, None)) is None and monotonic() < until:
            throttle.yield_interpreter()
    except StopIteration:
        return None
    return _resume_in_task(work, waits, in_context)


@types.coroutine
def _resume_in_task(
    work: Coroutine[Any, Any, None], waits: object, in_context: Callable[..., object]
) -> Generator[object, Any, None]:
    """Continue a partly run coroutine in an asyncio task.

    *waits* is the awaitable that the coroutine waits for.
    """
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
