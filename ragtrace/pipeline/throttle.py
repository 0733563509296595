"""How the background works without getting into the way: in slices, and with a task only for what really waits.

Why it sleeps after a slice: an interpreter runs one thread at a time, and one that computes keeps it for five
milliseconds before it is made to share. An event loop of the application that becomes ready meanwhile would wait that
long. To let go for an instant is not enough, as we would be back before the other thread has woken up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from time import monotonic, sleep
from types import coroutine
from typing import Any, Final

SLICE_SECONDS: Final = 0.0005
"""How long the background works before it lets go of the interpreter."""
LONGEST_PAUSE_SECONDS: Final = 0.001
"""How long it then sleeps when there is little to do: the work of a call is spread out."""
SHORTEST_PAUSE_SECONDS: Final = 0.00002
"""How long when there is much to do. With the slack of timers it becomes three to four times as much."""
_RELAXED: Final = 8
"""Items that may wait while it still sleeps at its longest."""


class Pace:
    """Divides the work of one thread into slices.

    Args:
        hurried: whether somebody waits for the work: then it does not pause.
    """

    def __init__(self, hurried: Callable[[], bool]) -> None:
        self._hurried, self._began = hurried, 0.0
        self._pause = SHORTEST_PAUSE_SECONDS

    def begin(self) -> None:
        """A slice begins: the thread has just slept."""
        self._began = monotonic()

    def load(self, waiting: int) -> None:
        """So many items wait: the more, the shorter the pauses."""
        pause = LONGEST_PAUSE_SECONDS * _RELAXED / max(_RELAXED, waiting)
        self._pause = max(SHORTEST_PAUSE_SECONDS, pause)

    def breathe(self) -> None:
        """Sleep for a moment if the slice is over. Work that takes longer than a slice calls this now and then."""
        if monotonic() - self._began > SLICE_SECONDS:
            if not self._hurried():
                sleep(self._pause)
            self._began = monotonic()


def run(work: Coroutine[Any, Any, None], pace: Pace, seconds: float) -> Awaitable[None] | None:
    """Run *work* here and now, which is cheaper than a task and a turn of the event loop for each.

    Returns:
        None if it is done; if it waits for something, or took more than *seconds*, what a task must await to carry it
        on. It may have a task of asyncio only from there on.
    """
    until = monotonic() + seconds
    # One context from beginning to end: what is set in it here must be there, and resettable, in the task.
    within = copy_context().run
    try:
        while (waits := within(work.send, None)) is None and monotonic() < until:
            pace.breathe()
    except StopIteration:
        return None
    return _carry_on(work, waits, within)


@coroutine
def _carry_on(
    work: Coroutine[Any, Any, None], waits: object, within: Callable[..., object]
) -> Generator[object, Any, None]:
    """Carry *work* on, which was begun outside any task and now waits for *waits*."""
    while True:
        try:
            sent = yield waits
        except BaseException as error:
            resume = partial(within, work.throw, error)
        else:
            resume = partial(within, work.send, sent)
        try:
            waits = resume()
        except StopIteration:
            return
