"""First-come-first-served semaphore for asyncio tasks, and a time limit for coroutines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TimeLimitError(Exception):
    """Raised when a coroutine was cancelled because it did not finish within its time limit."""


class WorkCancelledError(Exception):
    """Raised when a coroutine cancelled itself, or other code on its event loop cancelled it, within its time limit."""


async def run_within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine *work* and return its result, or cancel it with a `TimeLimitError` after *seconds*.

    Without *seconds* there is no limit. *work* must not raise `SystemExit` or `KeyboardInterrupt`: in a task, these end
    the event loop.

    Raises:
        TimeLimitError: *work* was not done in time. Work that swallows its cancellation is not waited for.
        WorkCancelledError: *work* was cancelled by someone else. A cancellation of the caller passes through, so the
            two can be told apart, which `asyncio.wait_for` cannot.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        late = not task.done()
        if late:
            task.cancel()
            task.add_done_callback(_retrieve_exception)
    try:
        if late:
            raise TimeLimitError(f"no result within {seconds} s")
        if task.cancelled():
            raise WorkCancelledError("it was cancelled, by itself or by other code on its event loop")
        return task.result()
    finally:
        del task  # which has the error, whose traceback has this frame


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of *task*, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()


class FairSemaphore:
    """Semaphore for asyncio tasks that serves waiting tasks in the order in which they asked.

    Unlike `asyncio.Semaphore` with `wait_for`, no place is lost when a turn and a time-out coincide.
    """

    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit
        self._turns: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """Number of places of the semaphore that are in use."""
        return self._limit - self._free

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a place of the semaphore."""
        return len(self._turns)

    async def acquire(self, timeout: float | None = None) -> bool:
        """Acquire the semaphore within *timeout* seconds. Return False if no place became free in time.

        It is given back with `release`.
        """
        if self._free:
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            await asyncio.wait({turn}, timeout=timeout)
        except BaseException:  # cancelled, perhaps at the moment at which the turn came
            if turn.done():
                self.release()
            raise
        finally:
            if not turn.done():
                self._turns.remove(turn)
        return turn.done()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release a place of the semaphore to the task that has waited longest."""
        if self._turns:
            self._turns.popleft().set_result(None)
        else:
            self._free += 1
