"""The background: a queue bounded in number and in bytes, and one daemon thread with an event loop.

Started at the first offer, so that pre-forking servers work; reset after a fork; stopped by a deadline. While items
keep coming the thread wakes by itself fifty times a second and takes what has gathered: waking it for each item would
cost the application a system call and a fight for the interpreter. Items are dealt with where they are taken, in
slices (`pacing`); only one that really waits, for a judge say, becomes a task of the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from opentelemetry.context import attach, set_value

from ragtrace.pipeline.admission import Places
from ragtrace.pipeline.throttle import Pace, run
from ragtrace.system.faults import faults
from ragtrace.system.loop_shutdown import break_off, close
from ragtrace.system.threads import DaemonPool, prepare_bounded_calls

T = TypeVar("T")
_UNHURRIED_SECONDS: Final = 0.01  # before the end of a wait: who waits needs the interpreter to come back in time
_GATHER_SECONDS: Final = 0.02  # for which the busy thread lets items gather
_LINGER_SECONDS: Final = 1.0  # without an item until the thread must be woken for the next
_TICK_SECONDS: Final = 0.25
_ROUND_SECONDS: Final = 0.005
"""How long it works off items, or one of them, before tasks of the event loop get their turn."""
_SHORT_ROUND_SECONDS: Final = 0.001  # while judges have enough to do: a request comes back half a dozen times
_MANY_TASKS: Final = 256
_MOST_TAKEN: Final = 8  # at a time: weighing a few is done in far less than a slice of work
_MOST_BUSY: Final = 128  # tasks that count as waiting for the processor; others wait for somebody else
_PATIENCE_SECONDS: Final = 1.0  # for which items wait for room at an exporter
_parents_loops: list[object] = []


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """An item that has been taken in."""

    item: T
    small: bool
    weight: int
    waiting: bool = False
    """Whether it has a place among those that wait for a judge."""


_handled: ContextVar[_Entry[Any]] = ContextVar("ragtrace_handled")


def _ignore(_: object) -> None: ...


async def _nothing() -> None: ...


class Worker(Generic[T]):
    """Handles items in the background, in the order in which they were offered; those that wait, several at a time.

    Args:
        handle: what to do with an item; its failures are counted and logged, never raised.
        capacity: most items that may be queued or in hand; one more is refused. Of small items, eight times as many; of
            those that wait for a judge, as many.
        tick: called about four times a second on the worker's thread.
        weigh: bytes that an item keeps alive, asked on the worker's thread before the item is handled.
        most_bytes: most of them that may be queued or in hand. Items not weighed yet count as others do on average.
        reject: told of an item that proved too heavy for what is left of `most_bytes`; it is still handled in its turn.
        ready: how many items may be handled before it is asked again. At 0 items wait, until one of them has waited for
            *patience* seconds or half of the places are taken: what comes of the items may be lost, the items not.
        patience: seconds.
        close: awaited on the event loop when nothing else will be, for half a second at most.
    """

    def __init__(
        self,
        handle: Callable[[T], Coroutine[Any, Any, None]],
        *,
        capacity: int,
        tick: Callable[[], None],
        weigh: Callable[[T], int] = lambda _: 0,
        most_bytes: int = 1 << 62,
        reject: Callable[[T], None] = _ignore,
        ready: Callable[[], int] = lambda: 1_000,
        patience: float = _PATIENCE_SECONDS,
        close: Callable[[], Coroutine[Any, Any, None]] = _nothing,
    ) -> None:
        self._handle, self._capacity, self._tick = handle, capacity, tick
        self._weigh, self._most_bytes, self._reject, self._ready = weigh, most_bytes, reject, ready
        self._patience, self._close = patience, close
        self.pace = Pace(lambda: self._waiting > 0 and monotonic() < self._hurried_until)
        self.reset()

    def reset(self) -> None:
        """Start afresh with an empty queue: after a fork the items are the parent's, and there is no thread."""
        if getattr(self, "_loop", None) is not None:
            # A child's loop shares its epoll with the parent's: if it were collected it would unregister there too.
            _parents_loops.append(self._loop)
        # Re-entrant: a stream collected as garbage ends its call wherever this thread happens to be, here included.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._items: deque[tuple[T, bool]] = deque()
        self._taken: deque[_Entry[T]] = deque()
        self._in_hand: dict[int, _Entry[T]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}  # oldest first
        self._places = Places(self._capacity, self._most_bytes)
        self._waiting, self._hurried_until = 0, 0.0
        self._closed = self._over = self._asleep = self._is_cut_short = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._ticked = 0.0
        self._no_room_since: float | None = None

    @property
    def size(self) -> int:
        """Items queued or in hand, small ones included."""
        return self._places.taken

    @property
    def full(self) -> bool:
        """Whether there is no room for any item, not even a small one; a guess, made without a lock."""
        return self._places.full(len(self._items))

    @property
    def full_of_small(self) -> bool:
        """The same for small items."""
        return self._places.full_of_small(len(self._items))

    @property
    def on_its_thread(self) -> bool:
        """Whether the caller runs on the worker's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def offer(self, item: T, *, small: bool = False) -> bool:
        """Queue *item* and return at once; False if the worker is full or stopped."""
        with self._lock:
            if self._closed or not self._places.enter(small, len(self._items)):
                return False
            if self._thread is None and not self._start():
                self._places.leave(small)
                return False
            self._items.append((item, small))
            if self._asleep:
                self._hurry()
            return True

    def wait_idle(self, timeout: float, kept: Callable[[int], float] = lambda _: 0.0) -> bool:
        """Wait at most *timeout* seconds until nothing is queued or in hand; False if something still is.

        Of those seconds, *kept* are not used up: the caller needs them for as many items as are left.
        """
        if self.on_its_thread:
            return self.size == 0
        deadline = monotonic() + timeout
        with self._changed:
            self._waiting += 1
            try:
                while self.size:
                    self._hurry()
                    left = deadline - kept(self.size) - monotonic()
                    if left <= 0 or self._is_cut_short:
                        return False
                    self._hurried_until = monotonic() + left - _UNHURRIED_SECONDS
                    self._changed.wait(min(left, _TICK_SECONDS))
                return True
            finally:
                self._waiting -= 1

    def cut_short(self) -> None:
        """Let `stop` wait no longer for what is queued or in hand."""
        self._is_cut_short = True

    def stop(self, timeout: float, grace: float = 0.1, kept: Callable[[int], float] = lambda _: 0.0) -> list[T]:
        """Refuse new items, drain for at most *timeout* seconds, less those *kept* for the items that are left, cancel
        these, and give them *grace* seconds to end.

        Returns:
            What was never begun, and what neither ended nor could be cancelled: it keeps the thread to itself.
        """
        with self._lock:
            self._closed = True
        self.wait_idle(timeout, kept)
        with self._lock:
            self._over = True
            lost = [*self._taken, *(_Entry(item, small, 0) for item, small in self._items)]
            self._taken.clear()
            self._items.clear()
            for entry in lost:
                self._places.leave(entry.small, entry.weight)
            self._hurry()
            thread = self._thread
        if thread is not None and not self.on_its_thread:
            thread.join(grace)
        with self._lock:
            stuck = [] if self.on_its_thread else [entry.item for entry in self._in_hand.values()]
            return [entry.item for entry in lost] + stuck

    def _hurry(self) -> None:
        self._asleep = False
        if self._loop is not None and self._wake is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._wake.set)

    def _start(self) -> bool:
        # An empty context: what the background does is no child of the request that happened to come first.
        run, executor = contextvars.Context().run, DaemonPool()
        thread = threading.Thread(target=run, args=(self._run, executor), name="ragtrace", daemon=True)
        self._thread = thread
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no room for a thread, or the interpreter is shutting down
            faults.record("start of the background thread", error)
            self._thread = None
        else:
            # Now: the interpreter may already be shutting down when the new thread first runs.
            prepare_bounded_calls()
            executor.prepare()
        return self._thread is not None

    def _run(self, executor: DaemonPool) -> None:
        # Instrumented HTTP clients look for this key: a judge's requests are not the application's.
        attach(set_value("suppress_instrumentation", True))
        loop = asyncio.new_event_loop()
        loop.set_default_executor(executor)
        try:
            loop.run_until_complete(self._serve(loop))
        except Exception as error:
            faults.record("background worker", error)
        finally:
            loop.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        wake = asyncio.Event()
        with self._lock:
            self._loop, self._wake = loop, wake
        busy_until = 0.0
        while True:
            while await self._round(loop):
                busy_until = monotonic() + _LINGER_SECONDS
            self._run_tick()
            if self._over:
                break
            await self._sleep(loop, wake, busy=bool(self._taken) or monotonic() < busy_until)
        await break_off(self._tasks, self.pace.breathe)
        await close(self._close())

    async def _sleep(self, loop: asyncio.AbstractEventLoop, wake: asyncio.Event, *, busy: bool) -> None:
        with self._lock:
            wake.clear()
            # At most this late, even if an item comes between this and the wait.
            self._asleep = not busy and not self._items
        alarm = loop.call_later(_GATHER_SECONDS if busy else _TICK_SECONDS, wake.set)
        await wake.wait()
        alarm.cancel()
        self._asleep = False
        self.pace.begin()

    async def _round(self, loop: asyncio.AbstractEventLoop) -> bool:
        """One round of work, and one turn for the tasks of the loop; False if there was nothing to do."""
        done: asyncio.Future[bool] = loop.create_future()
        # Not inside this task: whoever is handled must not take it for its own, and cancel it.
        loop.call_soon(lambda: done.set_result(self._work()))
        return await done

    def _work(self) -> bool:
        """Take in what has been offered and handle items for one round; False if there was nothing to do."""
        until = monotonic() + (_ROUND_SECONDS if len(self._tasks) < _MANY_TASKS else _SHORT_ROUND_SECONDS)
        self._take_in(until)
        room = handled = 0
        while self._taken and not self._over and (handled == 0 or monotonic() < until):
            room = room or self._room()
            if not room:
                break
            room -= 1
            handled += 1
            self.pace.load(len(self._taken) + len(self._items) + min(len(self._tasks), _MOST_BUSY))
            self._begin()
            self.pace.breathe()
        self.pace.load(_MOST_BUSY)  # tasks are not to wait for each other's pauses
        return handled > 0 or bool(self._items)

    def _room(self) -> int:
        """How many items may be handled before this must be asked again."""
        room = self._ready()
        if room:
            self._no_room_since = None
            return room
        now = monotonic()
        if self._no_room_since is None:
            self._no_room_since = now
        return int(now - self._no_room_since > self._patience or self._places.half_full)

    def wait_for_judge(self) -> bool:
        """Give the place of the item that is being handled to another, for one among those that wait for a judge.

        Returns:
            False if none of those is free; the item keeps the place that it has.
        """
        entry = _handled.get()
        with self._lock:
            if not entry.waiting:
                entry.waiting = self._places.wait(entry.weight)
            return entry.waiting

    def _take_in(self, until: float) -> None:
        while self._items and monotonic() < until:
            with self._lock:  # for several at a time: who offers the next one waits for it
                entries = [_Entry(*self._items.popleft(), 0) for _ in range(min(_MOST_TAKEN, len(self._items)))]
                self._taken.extend(entries)
            weights = [self._weighed(entry.item) for entry in entries]
            with self._lock:
                heavy = [one for one, weight in zip(entries, weights, strict=True) if self._is_too_heavy(one, weight)]
            for entry in heavy:
                self._reject(entry.item)
            self.pace.breathe()

    def _is_too_heavy(self, entry: _Entry[T], weight: int) -> bool:
        """Whether an item that is in may not be as heavy as it proved to be."""
        entry.weight = weight if self._places.has_room_for(weight) else 0
        self._places.weigh(weight, entry.weight)
        return entry.weight != weight

    def _weighed(self, item: T) -> int:
        try:
            return self._weigh(item)
        except Exception as error:
            faults.record("background work", error)
            return 0

    def _begin(self) -> None:
        """Handle the next item; if it comes to wait for something, the rest of it becomes a task."""
        with self._lock:
            if not self._taken:
                return
            entry = self._taken.popleft()
            self._in_hand[id(entry)] = entry
            if not entry.small:  # it may have to answer now for what came before it
                more = self._weighed(entry.item) - entry.weight
                entry.weight += more
                self._places.reweigh(more)
        rest: Awaitable[None] | None = None
        _handled.set(entry)
        try:
            rest = run(self._handle(entry.item), self.pace, _ROUND_SECONDS)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # a sys.exit() in a user's judge included
            faults.record("background work", error)
        except asyncio.CancelledError:
            pass
        if rest is None:
            self._end(entry)
            return
        task = asyncio.get_running_loop().create_task(self._finish(entry, rest))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _finish(self, entry: _Entry[T], rest: Awaitable[None]) -> None:
        try:
            await rest
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            faults.record("background work", error)
        finally:
            self._end(entry)

    def _end(self, entry: _Entry[T]) -> None:
        with self._lock:
            del self._in_hand[id(entry)]
            self._places.leave(entry.small, entry.weight, waiting=entry.waiting)
            if self._waiting and not self.size:
                self._changed.notify_all()

    def _run_tick(self) -> None:
        now = monotonic()
        if now - self._ticked < _TICK_SECONDS:
            return
        self._ticked = now
        try:
            self._tick()
        except Exception as error:
            faults.record("background tick", error)
