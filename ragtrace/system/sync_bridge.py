"""Runs coroutines from synchronous code, also where an event loop is already running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from opentelemetry.context import attach, detach, set_value

from ragtrace.system.event_loops import run as run_loop
from ragtrace.system.threads import background_thread

T = TypeVar("T")
_INTERRUPTIBLE_S = 0.5


def run_on_own_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine function *work* on a thread and event loop of its own, and return its result.

    A notebook's thread has an event loop that is already running. If the caller is interrupted, the work is cancelled,
    and waited for. Where no thread can be started, as in an exit handler since Python 3.12, the work runs on the
    caller's.
    """
    outcome: Future[T] = Future()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = []
    is_cancelled = threading.Event()

    async def whole() -> T:
        running.append((asyncio.get_running_loop(), cast("asyncio.Task[T]", asyncio.current_task())))
        if is_cancelled.is_set():
            raise asyncio.CancelledError
        return await work()

    def run() -> None:
        try:
            with suppress_instrumentation():
                outcome.set_result(run_loop(whole()))
        except BaseException as error:
            outcome.set_exception(error)

    thread = background_thread(run, "ragtrace-score")
    try:
        try:
            thread.start()
        except RuntimeError:
            if _is_on_a_loop():  # which lets no other loop run on its thread
                raise
            run()
            return outcome.result()
        _wait(outcome)
    except BaseException:
        if thread.ident is not None:  # the thread was started
            is_cancelled.set()
            for loop, task in running:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(task.cancel)
            _wait(outcome)
        raise
    thread.join()
    return outcome.result()


def _is_on_a_loop() -> bool:
    """Return whether an event loop is running on the current thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _wait(outcome: Future[T]) -> None:
    # Not `Thread.join`: after an interruption, it takes the thread for ended (Python 3.11). Not without a timeout: on
    # Windows, such a wait cannot be interrupted.
    while not outcome.done():
        wait([outcome], _INTERRUPTIBLE_S)


@contextmanager
def suppress_instrumentation() -> Generator[None, None, None]:
    """Suppress OpenTelemetry instrumentation in a `with` block, so that a judge's requests make no spans."""
    token = attach(set_value("suppress_instrumentation", True))
    try:
        yield
    finally:
        detach(token)
