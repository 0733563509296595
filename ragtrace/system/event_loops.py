"""Event loops of ragtrace's threads, also where gevent or eventlet has replaced these by greenlets.

Greenlets share one thread of the operating system, and asyncio notes for each thread which event loop runs there. The
loop of ragtrace's background would be taken for one of every other greenlet: `asyncio.run` of the application would
raise, and its coroutines would find the wrong loop. So what asyncio has noted is exchanged at each switch to and from a
greenlet of ours.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final, TypeAlias, TypeVar

from ragtrace.system.green_threads import green_library

T = TypeVar("T")
_Notes: TypeAlias = "tuple[asyncio.AbstractEventLoop | None, tuple[Any, Any]]"
"""What asyncio notes for a thread: the running loop, and the hooks of asynchronous generators."""
_MOST_CHARS_AT_ONCE: Final = 50_000
"""Characters that are read in a few milliseconds."""
_NOTHING: Final[_Notes] = (None, (None, None))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, one that waits as greenlets do where threads are greenlets."""
    return asyncio.SelectorEventLoop() if green_library() else asyncio.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on a new event loop of a thread of ragtrace, as `asyncio.run` does."""
    with apart():
        return asyncio.run(main)


@contextmanager
def apart() -> Generator[None, None, None]:
    """Keep the event loops that run in a `with` block of this thread apart from those of other greenlets."""
    if not green_library():
        yield
        return
    greenlet: Any = sys.modules["greenlet"]  # on which both libraries rest
    current: Any = greenlet.getcurrent()
    switches: Any = greenlet.gettrace()
    if not isinstance(switches, _Switches):
        switches = _Switches(switches)
        greenlet.settrace(switches)
    switches.begin(current)
    try:
        yield
    finally:
        switches.end(current)
        if not switches.ours and greenlet.gettrace() is switches:
            greenlet.settrace(switches.next)


class _Switches:
    """Function that greenlet calls after each switch of a thread of the operating system.

    Args:
        following: the one that was called so far, or None.
    """

    def __init__(self, following: Callable[[str, tuple[Any, Any]], object] | None) -> None:
        self.next = following
        self.ours: dict[Any, _Notes] = {}
        """Greenlets of ragtrace with an event loop, each with its notes while another one runs."""
        self._others = _NOTHING
        """Notes of all other greenlets, while one of ours runs."""

    def __call__(self, event: str, greenlets: tuple[Any, Any]) -> None:
        """Exchange the notes between the greenlet that ran and the one that goes on."""
        left, entered = greenlets
        if left in self.ours:
            self.ours[left] = _exchange(self._others)
        if entered in self.ours:
            self._others = _exchange(self.ours[entered])
        if self.next is not None:
            self.next(event, greenlets)

    def begin(self, current: Any) -> None:
        """Begin with no notes in the greenlet that runs."""
        self._others = _exchange(_NOTHING)
        self.ours[current] = _NOTHING

    def end(self, current: Any) -> None:
        """Restore the notes of the others."""
        del self.ours[current]
        _exchange(self._others)


def _exchange(notes: _Notes) -> _Notes:
    """Note *notes* for the thread of the operating system, and return what was noted before."""
    before = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
    loop, hooks = notes
    asyncio._set_running_loop(loop)
    sys.set_asyncgen_hooks(*hooks)
    return before


async def beside_loop(chars: int, function: Callable[[], T]) -> T:
    """Return the result of *function*, which reads *chars* characters: many are read on another thread.

    Other tasks of the event loop run meanwhile: Python lets threads take turns every few milliseconds.
    """
    if chars > _MOST_CHARS_AT_ONCE:
        try:
            result = asyncio.get_running_loop().run_in_executor(None, copy_context().run, function)
        except RuntimeError:  # no thread can be started any more: the process is ending
            pass
        else:
            return await result
    return function()
