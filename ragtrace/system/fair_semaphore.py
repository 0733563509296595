"""Waiting that ends: a piece of work within its time, and a turn among a bounded number."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LateError(Exception):
    """Work was not done within its time; it has been cancelled, and is not waited for."""


async def within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """The result of *work* if it comes within *seconds*; None: however long it takes.

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
            task.add_done_callback(_look_at)
    if late:
        raise LateError(f"not done within {seconds} s")
    if task.cancelled():
        raise LateError("it was cancelled")
    return task.result()


def _look_at(task: asyncio.Task[Any]) -> None:
    """An error that nobody looks at is logged by asyncio when the task is collected."""
    if not task.cancelled():
        task.exception()


class Slots:
    """A number of places, given out in the order in which they were asked for. For one event loop at a time.

    Unlike `asyncio.Semaphore` with `wait_for`, a place is never lost when a turn and a time-out coincide.
    """

    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit
        self._turns: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """Places in use."""
        return self._limit - self._free

    @property
    def waiting(self) -> int:
        """Those who wait for a place."""
        return len(self._turns)

    async def take(self, timeout: float | None = None) -> bool:
        """Wait at most *timeout* seconds for a place; False if none came free. A place taken must be given back."""
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
        """Give a place back: to whoever waits longest, if anybody does."""
        if self._turns:
            self._turns.popleft().set_result(None)
        else:
            self._free += 1
