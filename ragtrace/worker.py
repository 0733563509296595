"""The background: a bounded queue and one daemon thread with an event loop.

Started at the first offer, so that pre-forking servers work; reset after a fork; stopped by a deadline. While items
keep coming the thread wakes by itself fifty times a second and takes what has gathered: waking it for each item would
cost the application a system call and a fight for the interpreter.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Generic, TypeVar

from opentelemetry.context import attach, set_value

from ragtrace.errors import faults
from ragtrace.spare import prepare

T = TypeVar("T")
_GATHER_SECONDS = 0.02
"""How long the busy thread lets items gather."""
_LINGER_SECONDS = 1.0
"""How long without an item until the thread must be woken for the next."""
_TICK_SECONDS = 0.25
_MOST_TASKS = 256
_SMALL_PER_CAPACITY = 8
_parents_loops: list[object] = []


class Worker(Generic[T]):
    """Handles items in the background, in the order in which they were offered, several at a time.

    Args:
        handle: what to do with an item; its failures are counted and logged, never raised.
        capacity: most items that may be queued or in hand; one more is refused. Of small items, eight times as many.
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
        self._items: deque[tuple[T, bool]] = deque()
        self._in_hand: list[T] = []
        self._large = 0
        self._small = 0
        self._closed = False
        self._over = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._asleep = False
        self._ticked = 0.0

    @property
    def size(self) -> int:
        """Items queued or in hand, small ones included."""
        return self._large + self._small

    @property
    def on_its_thread(self) -> bool:
        """Whether the caller runs on the worker's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def offer(self, item: T, *, small: bool = False) -> bool:
        """Queue *item* and return at once; False if the worker is full or stopped."""
        with self._changed:
            if self._closed or not self._admit(small):
                return False
            if self._thread is None and not self._start():
                self._done(small)
                return False
            self._items.append((item, small))
            if self._asleep:
                self._hurry()
            return True

    def _admit(self, small: bool) -> bool:
        if small:
            room = self._small < self._capacity * _SMALL_PER_CAPACITY
            self._small += room
        else:
            room = self._large < self._capacity
            self._large += room
        return room

    def wait_idle(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds until nothing is queued or in hand; False if something still is."""
        if self.on_its_thread:
            return self.size == 0
        deadline = monotonic() + timeout
        with self._changed:
            while self.size:
                self._hurry()
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _TICK_SECONDS))
            return True

    def stop(self, timeout: float) -> list[T]:
        """Refuse new items, drain for at most *timeout* seconds, cancel the rest.

        Returns:
            What was never begun, and what neither ended nor could be cancelled: it keeps the thread to itself.
        """
        with self._changed:
            self._closed = True
        self.wait_idle(timeout)
        with self._changed:
            self._over = True
            lost = list(self._items)
            self._items.clear()
            for _, small in lost:
                self._done(small)
            self._hurry()
            thread = self._thread
        if thread is not None and not self.on_its_thread:
            thread.join(min(1.0, max(0.1, timeout)))
        with self._changed:
            return [item for item, _ in lost] + [item for item in self._in_hand if not self.on_its_thread]

    def _hurry(self) -> None:
        self._asleep = False
        if self._loop is not None and self._wake is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._wake.set)

    def _start(self) -> bool:
        # An empty context: what the background does is no child of the request that happened to come first.
        run = contextvars.Context().run
        thread = threading.Thread(target=run, args=(self._run,), name="ragtrace", daemon=True)
        self._thread = thread
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no room for a thread, or the interpreter is shutting down
            faults.record("start of the background thread", error)
            self._thread = None
        else:
            prepare()  # now: the interpreter may already be shutting down when the new thread first runs
        return self._thread is not None

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
        busy_until = 0.0
        while True:
            while self._items and len(tasks) < _MOST_TASKS:
                task = loop.create_task(self._take())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                await asyncio.sleep(0)
                busy_until = monotonic() + _LINGER_SECONDS
            self._run_tick()
            if self._over:
                break
            await self._sleep(loop, wake, busy=monotonic() < busy_until)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _sleep(self, loop: asyncio.AbstractEventLoop, wake: asyncio.Event, *, busy: bool) -> None:
        with self._changed:
            wake.clear()
            # At most this late, even if an item comes between this and the wait.
            self._asleep = not busy and not self._items
        alarm = loop.call_later(_GATHER_SECONDS if busy else _TICK_SECONDS, wake.set)
        await wake.wait()
        alarm.cancel()
        self._asleep = False

    async def _take(self) -> None:
        with self._changed:
            if not self._items:
                return
            item, small = self._items.popleft()
            self._in_hand.append(item)
        try:
            await self._handle(item)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a sys.exit() in a user's judge must not end the background
            faults.record("background work", error)
        finally:
            with self._changed:
                self._in_hand.remove(item)
                self._done(small)
                if not self.size:
                    self._changed.notify_all()

    def _done(self, small: bool) -> None:
        if small:
            self._small -= 1
        else:
            self._large -= 1

    def _run_tick(self) -> None:
        now = monotonic()
        if now - self._ticked < _TICK_SECONDS:
            return
        self._ticked = now
        try:
            self._tick()
        except Exception as error:
            faults.record("background tick", error)
