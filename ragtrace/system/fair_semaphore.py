"""Waiting with a time limit: for a coroutine, and for a place in a first-come-first-served semaphore."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LateError(Exception):
    """Raised when work is not done within its time limit; the work has been cancelled."""


async def run_within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of *work* if it comes within *seconds*; None: without a limit.

    *work* must not raise `SystemExit` or `KeyboardInterrupt`: in a task, these end the event loop.

    Raises:
        LateError: it did not, or it cancelled itself. A cancellation of the caller passes through, so the two can be
            told apart, which `asyncio.wait_for` cannot; nor is work waited for that swallows its cancellation.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        late = not task.done()
        if late:
            task.cancel()
            task.add_done_callback(_retrieve_exception)
    if late:
        raise LateError(f"no result within {seconds} s")
    if task.cancelled():
        raise LateError("it was cancelled")
    return task.result()


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of *task*, which asyncio would log otherwise."""
    if not task.cancelled():
        task.exception()


class FairSemaphore:
    """Semaphore of an event loop that gives its places out in the order in which tasks asked for them.

    Unlike `asyncio.Semaphore` with `wait_for`, no place is lost when a turn and a time-out coincide.
    """

    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit
        self._turns: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """Number of places in use."""
        return self._limit - self._free

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for a place."""
        return len(self._turns)

    async def take(self, timeout: float | None = None) -> bool:
        """Wait at most *timeout* seconds for a place, to be given back with `give`; return False if none came free."""
        if self._free:
            self._free -= 1
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            await asyncio.wait({turn}, timeout=timeout)
        except BaseException:  # we were cancelled, perhaps at the moment when our turn came
            if turn.done():
                self.give()
            raise
        finally:
            if not turn.done():
                self._turns.remove(turn)
        return turn.done()

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        self.give()

    def give(self) -> None:
        """Give a place back, to the task that has waited longest."""
        if self._turns:
            self._turns.popleft().set_result(None)
        else:
            self._free += 1
