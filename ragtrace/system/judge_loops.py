"""Threads for what a user wrote as a plain function: it may block for as long as it likes, and blocks nobody else.

They are daemon threads of our own: asyncio's executor takes no work while the interpreter shuts down, and waits for
its threads at exit, a hung one included.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from ragtrace.system.fair_semaphore import Slots
from ragtrace.system.faults import faults

T = TypeVar("T")


class NoThreadError(Exception):
    """There is no thread for a function: too many hang, or the machine has no room for another."""


class Threads:
    """Runs functions in daemon threads, *limit* at a time. For one event loop at a time.

    A function whose caller is cancelled (by a deadline) is left to itself and counted as hung until it returns. At most
    *limit* may hang: so there are never more than twice *limit* threads.

    Args:
        owner: for whom, in messages: "judge NAME", "metrics of NAME".
    """

    def __init__(self, limit: int, owner: str) -> None:
        self._limit, self._owner = limit, owner
        self._slots = Slots(limit)
        self.hung = 0
        """Threads whose function has not returned though nobody waits for it any more."""

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call *function* in a thread and wait for what it returns or raises.

        Raises:
            NoThreadError: too many threads hang, or none can be started.
            RuntimeError: the function raised `SystemExit` or the like, which would end the event loop.
        """
        if self.hung >= self._limit:
            raise NoThreadError(f"{self.hung} threads hang in earlier calls of {self._owner}")
        await self._slots.take()
        try:
            value, error = await self._result(function, args)
        finally:
            self._slots.give()
        if error is None:
            return value  # type: ignore[return-value]  # there is one where there is no error
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise error
        raise RuntimeError(f"{type(error).__name__} was raised in a thread of {self._owner}") from error

    async def _result(self, function: Callable[..., T], args: tuple[Any, ...]) -> tuple[T | None, BaseException | None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

        def work() -> None:
            result: tuple[T | None, BaseException | None]
            try:
                result = function(*args), None
            except BaseException as error:
                result = None, error
            with suppress(RuntimeError):  # the loop has been closed in the meantime
                loop.call_soon_threadsafe(self._deliver, done, result)

        self._start(work)
        try:
            return await done
        finally:
            if done.cancelled():
                self._abandon()

    def _start(self, work: Callable[[], None]) -> None:
        # Our context goes along: in it, instrumented HTTP clients are told to leave a judge's requests alone.
        run = contextvars.copy_context().run
        try:
            threading.Thread(target=run, args=(work,), name=f"ragtrace {self._owner}", daemon=True).start()
        except RuntimeError as error:
            raise NoThreadError(f"no thread could be started: {error}") from error

    def _deliver(self, done: asyncio.Future[Any], result: tuple[object, BaseException | None]) -> None:
        if done.cancelled():
            self.hung -= 1
        else:
            done.set_result(result)

    def _abandon(self) -> None:
        self.hung += 1
        faults.warn_once(
            f"hung thread: {self._owner}",
            "%s did not return in time; its thread is left to itself. Give its client a time limit of its own",
            self._owner,
        )
