"""Coroutines called from synchronous code, also where an event loop is already running."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from opentelemetry.context import attach, detach, set_value

T = TypeVar("T")
_INTERRUPTIBLE_S = 0.5


def apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine function *work* on a thread and event loop of its own; return its result or raise its error.

    A notebook's thread has an event loop that is already running. If the caller is interrupted, the work is cancelled,
    and waited for.
    """
    runner = _Runner(work)
    # An empty context: what is asked here is no child of a span of the caller.
    thread = threading.Thread(target=contextvars.Context().run, args=(runner.run,), name="ragtrace-score")
    try:
        thread.start()
        runner.wait()
    except BaseException:
        if thread.ident is not None:  # it could be started
            runner.cancel()
            runner.wait()
        raise
    thread.join()
    if runner.error is not None:
        raise runner.error
    return runner.results[0]


@contextmanager
def unwatched() -> Generator[None, None, None]:
    """Suppress OpenTelemetry instrumentation while the block runs: its HTTP requests are a judge's."""
    token = attach(set_value("suppress_instrumentation", True))
    try:
        yield
    finally:
        detach(token)


class _Runner(Generic[T]):
    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancelled = False
        self.results: list[T] = []
        self.error: BaseException | None = None
        self._done = threading.Event()

    def run(self) -> None:
        try:
            with unwatched():
                self.results.append(asyncio.run(self._whole()))
        except BaseException as error:
            self.error = error
        finally:
            self._done.set()

    def wait(self) -> None:
        # Not `Thread.join`, which takes the thread for ended when it is interrupted (Python 3.11); and not without end,
        # which cannot be interrupted on Windows.
        while not self._done.wait(_INTERRUPTIBLE_S):
            pass

    async def _whole(self) -> T:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._cancelled:
            raise asyncio.CancelledError
        return await self._work()

    def cancel(self) -> None:
        self._cancelled = True
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
