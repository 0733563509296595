"""The background: a bounded queue and one daemon thread with an event loop.

Started at the first offer, so that pre-forking servers work; reset after a fork; stopped by a deadline.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, TypeVar

from opentelemetry.context import attach, set_value

from ragtrace.errors import faults

T = TypeVar("T")
_TICK_SECONDS = 0.25
_MOST_TASKS = 256
_parents_loops: list[object] = []


class Worker(Generic[T]):
    """Handles items in the background, in the order in which they were offered, several at a time.

    Args:
        handle: what to do with an item; its failures are counted and logged, never raised.
        capacity: most items that may be queued or in hand; one more is refused.
        tick: called about four times a second on the worker's thread.
    """

    def __init__(self, handle: Callable[[T], Awaitable[None]], *, capacity: int, tick: Callable[[], None]) -> None:
        self._handle, self._capacity, self._tick = handle, capacity, tick
        self.reset()

    def reset(self) -> None:
        """Start afresh with an empty queue: after a fork the items are the parent's, and there is no thread."""
        if getattr(self, "_loop", None) is not None:
            # A child's loop shares its epoll with the parent's: if it were collected it would unregister there too.
            _parents_loops.append(self._loop)
        # Re-entrant: a stream collected as garbage ends its call wherever this thread happens to be, here included.
        self._changed = threading.Condition(threading.RLock())
        self._items: deque[T] = deque()
        self._in_hand = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._asleep = False

    @property
    def size(self) -> int:
        """Items queued or in hand."""
        return len(self._items) + self._in_hand

    @property
    def on_its_thread(self) -> bool:
        """Whether the caller runs on the worker's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def offer(self, item: T, *, urgent: bool = True) -> bool:
        """Queue *item* and return at once; False if the worker is full or stopped.

        An item that is not urgent is handled with the next urgent one, or at the next tick.
        """
        with self._changed:
            if self._closed or self.size >= self._capacity:
                return False
            self._items.append(item)
            if self._thread is None:
                self._start()
            elif urgent and self._asleep and self._loop is not None and self._wake is not None:
                self._asleep = False
                self._loop.call_soon_threadsafe(self._wake.set)
            return True

    def wait_idle(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds until nothing is queued or in hand; False if something still is."""
        if self.on_its_thread:
            return self.size == 0
        deadline = monotonic() + timeout
        with self._changed:
            self._hurry()
            while self.size:
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def stop(self, timeout: float) -> list[T]:
        """Refuse new items, drain for at most *timeout* seconds; returns what was never begun."""
        with self._changed:
            self._closed = True
        self.wait_idle(timeout)
        with self._changed:
            lost = list(self._items)
            self._items.clear()
            self._hurry()
            thread = self._thread
        if thread is not None and not self.on_its_thread:
            thread.join(min(1.0, max(0.1, timeout)))
        return lost

    def _hurry(self) -> None:
        if self._loop is not None and self._wake is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def _start(self) -> None:
        # An empty context: what the background does is no child of the request that happened to come first.
        run = contextvars.Context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="ragtrace", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Instrumented HTTP clients look for this key: a judge's requests are not the application's.
        attach(set_value("suppress_instrumentation", True))
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._serve(loop))
        except Exception as error:
            faults.record("background worker", error)
        finally:
            loop.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        wake = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()
        with self._changed:
            self._loop, self._wake = loop, wake
        while True:
            while self._items and len(tasks) < _MOST_TASKS:
                task = loop.create_task(self._take())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                await asyncio.sleep(0)
            self._run_tick()
            if self._closed and not self._items:
                break
            await self._sleep(wake)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _sleep(self, wake: asyncio.Event) -> None:
        with self._changed:
            if self._items:
                return
            wake.clear()
            self._asleep = True
        try:
            await asyncio.wait_for(wake.wait(), _TICK_SECONDS)
        except (TimeoutError, asyncio.TimeoutError):
            pass
        finally:
            self._asleep = False

    async def _take(self) -> None:
        with self._changed:
            if not self._items:
                return
            item = self._items.popleft()
            self._in_hand += 1
        try:
            await self._handle(item)
        except Exception as error:
            faults.record("background work", error)
        finally:
            with self._changed:
                self._in_hand -= 1
                self._changed.notify_all()

    def _run_tick(self) -> None:
        try:
            self._tick()
        except Exception as error:
            faults.record("background tick", error)
