"""Background worker: a queue bounded in number and in bytes, and one daemon thread with an event loop.

Started at the first offer, so that pre-forking servers work; stopped by a deadline. While items keep coming the thread
wakes by itself fifty times a second and handles what is queued: waking it for each item would cost the application a
system call and a fight for the interpreter. Items are handled one after the other, in slices (`Throttle`); only one
that really waits, for a judge say, or takes milliseconds becomes a task of the event loop.

An item is small if it takes little memory and work, as the span of a step does; all others, the calls to be scored,
are large. The two kinds have separate limits (`AdmissionControl`), so that many spans do not take the places of calls.

**The way of an item.** Each arrow is one step under the lock, so that an item is always in one of these places.

    offer -> unweighed -> weighed -> in flight -> ended
                                     (may move to judging)

`offer` refuses an item for which there is no place. `_weigh_queued` measures it, and tells the handler of one that is
too heavy (`reject`), so that it lets go of most of its texts; this one keeps its turn, with the weight 0 until it is in
flight, where it counts with what it still holds. `_handle_next` runs its coroutine until that ends or
waits, and `_finish` runs the rest in a task. `_end` frees its place. `stop` takes what is unweighed or weighed out, and
returns it: it is neither handled nor rejected afterwards.

**Threads.**

| Method | Thread |
|---|---|
| `offer`, `start`, `run_soon`, the properties | any |
| `wait_idle` | one that flushes or shuts down |
| `stop`, `cut_short` | one that shuts down; it may be the worker's |
| `forget_queued` | that of a forked child which finds out that it is one |
| `move_to_judging`, and the methods of the `Handler` | the worker's |
| `_wake_up`, `_start` | that of their caller, which holds the lock |
| `_run`, and all below it in the class | the worker's |

The thread runs `_serve`, which repeats three steps until `stop` has set `_is_ending`: rounds while there is something
to do (`_round`: urgent work, weighing, handling), the tick when it is due, and a sleep (`_sleep`).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from opentelemetry.context import attach, set_value

from ragtrace.pipeline.admission import AdmissionControl
from ragtrace.pipeline.throttle import Throttle, run_inline
from ragtrace.system.faults import FAILURES, faults
from ragtrace.system.threads import DaemonPool, background_thread, prepare_bounded_calls

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
_UNHURRIED_SECONDS: Final = 0.01
"""Last part of a `wait_idle`, in which the worker sleeps again so that the waiting thread gets the GIL to return."""
_GATHER_SECONDS: Final = 0.02
"""Sleep of the busy thread before it reads the queue again, in which new items gather."""
_LINGER_SECONDS: Final = 1.0
"""Time without an item after which the thread is no longer busy, and sleeps until the next item wakes it."""
_TICK_SECONDS: Final = 0.25
"""Shortest time between two ticks of the handler."""
_IDLE_SLEEP_SECONDS: Final = _TICK_SECONDS
"""Longest sleep of a thread that is not busy: a longer one would make ticks late."""
_LOOK_AGAIN_SECONDS: Final = 0.25
"""Longest wait of `wait_idle` before it looks again whether it has been cut short, which notifies nobody, and how much
of its time is reserved by now."""
_ROUND_SECONDS: Final = 0.005
"""Time for which the worker handles queued items before it runs the other tasks of the event loop."""
_SHORT_ROUND_SECONDS: Final = 0.001
"""`_ROUND_SECONDS` while there are many tasks, as the event loop resumes a task several times for one judge request."""
_MANY_TASKS: Final = 256
_MOST_WEIGHED: Final = 8  # items weighed at a time: that takes far less than a slice of work
_MOST_BUSY: Final = 128  # tasks that count as load of the processor; others wait for a server
_PATIENCE_SECONDS: Final = 1.0  # for which items wait for room in an exporter's queue
_CLOSE_SECONDS: Final = 0.5  # for which the handler may close its connections
_LAST_TURNS: Final = 16  # turns of the event loop before its tasks are cancelled
_CANCELLED_AT_ONCE: Final = 4
"""Number of tasks cancelled before the throttle may sleep, as a thread in `stop` needs the GIL in between."""


class Handler(Protocol[T_contra]):
    """Interface of the object that handles the items of a `Worker`, on the worker's thread."""

    def handle(self, item: T_contra) -> Coroutine[Any, Any, None]:
        """Return a coroutine that handles the work item *item*.

        An exception raised by the coroutine is counted and logged.
        """
        ...

    def weigh(self, item: T_contra) -> int:
        """Return the memory in bytes that the work item *item* keeps alive."""
        ...

    def reject(self, item: T_contra) -> None:
        """Count the work item *item* as dropped, because it does not fit into the queue's memory.

        `handle` is still called for it.
        """
        ...

    def remaining_capacity(self) -> int:
        """Return how many items the worker may handle before asking again, or 0 if the worker must wait."""
        ...

    def tick(self) -> None:
        """Do the handler's periodic work. The worker calls this method about four times a second."""
        ...

    async def aclose(self) -> None:
        """Close the handler's connections when the worker ends, as the last coroutine on the event loop.

        It is cancelled after half a second.
        """
        ...


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """Item that is weighed or in flight, with its size in bytes."""

    item: T
    small: bool
    weight: int
    is_judging: bool = False
    """Whether the item, in flight, has a place in judging."""


_handled_entry: ContextVar[_Entry[Any]] = ContextVar("ragtrace_handled_entry")
"""Item that the running coroutine handles, also where it goes on in a task: `run_inline` keeps its context."""


class Worker(Generic[T]):
    """Background worker with a bounded queue and one daemon thread that handles the items in order.

    Items that await something (a judge's reply) do so concurrently.

    An item that was offered and not refused is queued, then in flight until its coroutine has ended. Queued items are
    unweighed, then weighed (with the weight 0 until it is measured); those in flight may be in judging. Whenever the
    lock is free, and until `stop` has taken the queued items out,

        size = unweighed + weighed + in flight = large + small + judging (the places that `AdmissionControl` counts),

    and the bytes that it counts are the weights of the weighed items and of those in flight. A request thread changes
    these counts in `offer` alone, one that shuts down in `stop`; they are read without the lock, too, as estimates.
    In a forked child the counts of the parent's worker mean nothing once `forget_queued` has emptied its queue.

    Args:
        handler: handles the items.
        capacity: most large items that are queued, or in flight and not in judging; further ones are refused. Besides,
            eight times as many small items, and as many items in judging.
        most_bytes: most bytes of the items that are queued or in flight. Items not weighed yet count as others do on
            average.
        patience: seconds for which the worker stops handling items while `handler.remaining_capacity` returns 0. After
            them, or when the queue is half full, it goes on: an exporter may then lose spans, but no item is lost.
    """

    def __init__(
        self, handler: Handler[T], *, capacity: int, most_bytes: int = 1 << 62, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self._handler, self._capacity, self._most_bytes, self._patience = handler, capacity, most_bytes, patience
        self.throttle = Throttle(lambda: self.is_hurried)
        # Re-entrant: the garbage collector may end a stream, and so its call, while this thread holds the lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Changed under the lock. The worker's thread looks at them without it as well, to see whether there is anything
        # to do; what must be true when it acts, it checks again under the lock.
        self._unweighed: deque[tuple[T, bool]] = deque()
        self._weighed: deque[_Entry[T]] = deque()
        self._in_flight: dict[int, _Entry[T]] = {}
        self._admission = AdmissionControl(self._capacity, self._most_bytes)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        # Threads in `wait_idle`, each with the time at which to stop hurrying for it; and the latest of these times.
        self._idle_waiters: dict[int, float] = {}
        self._hurried_until = 0.0
        self._closed = False  # new items are refused; those that are queued are still handled
        self._is_ending = False  # set after `_closed`: `stop` has taken the queued items out, and tasks are cancelled
        # Also changed without the lock, each by an atomic operation.
        self._urgent: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        self._asleep = False  # whether the thread sleeps until an item wakes it, or the next tick
        self._is_cut_short = False  # set by a thread that a signal has interrupted, which must not wait
        # The worker's thread alone.
        self._tasks: dict[asyncio.Task[None], None] = {}  # oldest first
        self._ticked = 0.0
        self._no_room_since: float | None = None

    def forget_queued(self) -> None:
        """Let go of the queued items in a forked child, where they belong to the parent's worker.

        Nothing else of that worker is let go: the deletion of a running task or of an event loop, whose epoll both
        processes share, would harm.
        """
        self._unweighed.clear()
        self._weighed.clear()

    @property
    def size(self) -> int:
        """Number of items, large and small, that are queued or in flight."""
        return self._admission.admitted

    @property
    def full(self) -> bool:
        """Whether the queue would refuse every item, large or small, as estimated without a lock."""
        return self._admission.full(len(self._unweighed))

    @property
    def full_of_small(self) -> bool:
        """Whether the queue would refuse a small item, such as a span to write, as estimated without a lock."""
        return self._admission.full_of_small(len(self._unweighed))

    @property
    def has_room_for_judging(self) -> bool:
        """Whether an item of mean size fits into the queue, and finds a place in judging later.

        This is an estimate without a lock.
        """
        return self._admission.has_room_for_judging(len(self._unweighed))

    @property
    def is_current_thread(self) -> bool:
        """Whether the current thread is the worker's own thread.

        That thread must not wait for itself.
        """
        return threading.current_thread() is self._thread

    @property
    def closed(self) -> bool:
        """Whether the worker was stopped, and refuses new items."""
        return self._closed

    @property
    def is_hurried(self) -> bool:
        """Whether a thread waits for the items, so that the worker does not sleep between them."""
        return monotonic() < self._hurried_until

    # --- called by any thread ----------------------------------------------------------------------------------------

    def offer(self, item: T, *, small: bool = False) -> bool:
        """Add *item* to the queue without blocking, and return whether it was added.

        It is not if the queue is full or the worker has been stopped.

        Args:
            item: the item.
            small: whether it takes little memory and work, unlike a call to be scored; there is room for more of these.
        """
        with self._lock:
            if self._closed or not self._admission.admit(small, len(self._unweighed)):
                return False
            if self._thread is None and not self._start():
                self._admission.free(small)
                return False
            self._unweighed.append((item, small))
            if self._asleep:
                self._wake_up()
            return True

    def start(self) -> bool:
        """Start the worker's thread before there is any item, for periodic work, and return whether it runs."""
        with self._lock:
            return self._thread is not None or (not self._closed and self._start())

    def run_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run the coroutine function *work* in a task before all queued items, whether an exporter has room or not.

        For work that a thread of the application waits for: nobody else does, `wait_idle` included.

        Returns:
            Whether the worker runs; if not, *work* is never called.
        """
        with self._lock:
            if self._closed or (self._thread is None and not self._start()):
                return False
            self._urgent.append(work)
            self._wake_up()
            return True

    # --- called by a thread that flushes or shuts down ---------------------------------------------------------------

    def wait_idle(self, timeout: float, reserved: Callable[[int], float] = lambda _: 0.0) -> bool:
        """Wait at most *timeout* seconds for all items, and return whether every item has been handled.

        Args:
            timeout: seconds to wait.
            reserved: given the number of items that are left, returns how many of these seconds the caller needs for
                its own work afterwards.
        """
        if self.is_current_thread:
            return self.size == 0
        deadline, waiter = monotonic() + timeout, threading.get_ident()
        with self._changed:
            try:
                while self.size:
                    self._wake_up()
                    left = deadline - reserved(self.size) - monotonic()
                    if left <= 0 or self._is_cut_short:
                        return False
                    self._hurry(waiter, monotonic() + left - _UNHURRIED_SECONDS)
                    self._changed.wait(min(left, _LOOK_AGAIN_SECONDS))
                return True
            finally:
                self._hurry(waiter, None)

    def _hurry(self, waiter: int, until: float | None) -> None:
        """Hurry for a thread until a monotonic time, and as long as for any other; None: no longer for this one."""
        if until is None:
            self._idle_waiters.pop(waiter, None)
        else:
            self._idle_waiters[waiter] = until
        self._hurried_until = max(self._idle_waiters.values(), default=0.0)

    def cut_short(self) -> None:
        """Make a `stop` in progress end without waiting for unfinished items."""
        self._is_cut_short = True

    def stop(self, timeout: float, grace: float = 0.1, reserved: Callable[[int], float] = lambda _: 0.0) -> list[T]:
        """Stop the worker: refuse new items, handle the queued ones within *timeout* seconds, and cancel the others.

        Args:
            timeout: seconds to drain.
            grace: seconds for cancelled items to end.
            reserved: given the number of items that are left, returns how many seconds of *timeout* the caller needs
                for its own work afterwards.

        Returns:
            Items that were never begun, one that is being weighed included, and those that block the thread, so that
            they could not be cancelled.
        """
        with self._lock:
            self._closed = True
        self.wait_idle(timeout, reserved)
        with self._lock:
            self._is_ending = True
            lost = [*self._weighed, *(_Entry(item, small, 0) for item, small in self._unweighed)]
            self._weighed.clear()
            self._unweighed.clear()
            for entry in lost:
                self._admission.free(entry.small, entry.weight)
            self._wake_up()
            thread = self._thread
        if thread is not None and not self.is_current_thread:
            thread.join(grace)
        with self._lock:
            stuck = [] if self.is_current_thread else [entry.item for entry in self._in_flight.values()]
            return [entry.item for entry in lost] + stuck

    # --- the thread --------------------------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        self._asleep = False
        if self._loop is not None and self._wake is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._wake.set)

    def _start(self) -> bool:
        executor = DaemonPool()
        # Set before the start, which an interruption of the application may end when the thread runs already.
        self._thread = background_thread(partial(self._run, executor), "ragtrace")
        try:
            self._thread.start()
        except RuntimeError as error:  # out of threads, or the interpreter is shutting down
            faults.record("start of the background thread", error)
            self._thread = None
        else:
            # Not on the new thread, which may first run when the interpreter is already shutting down.
            prepare_bounded_calls()
            executor.prepare()
        return self._thread is not None

    def _run(self, executor: DaemonPool) -> None:
        # Instrumented HTTP clients look for this key, and do not trace a judge's requests as the application's.
        attach(set_value("suppress_instrumentation", True))
        loop = asyncio.new_event_loop()
        loop.set_default_executor(executor)
        serving = loop.create_task(self._serve(loop))
        try:
            while not serving.done():
                # A sys.exit() in any task, such as one that a user's judge has left behind, leaves the event loop.
                try:
                    loop.run_until_complete(serving)
                except FAILURES as error:  # noqa: PERF203 - it seldom happens
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
                self._run_tick()  # also where items come as fast as they are handled
            self._run_tick()
            if self._is_ending:
                break
            await self._sleep(loop, wake, busy=bool(self._weighed) or monotonic() < busy_until)
        await self._cancel_tasks()
        closing = asyncio.ensure_future(self._handler.aclose())
        if not (await asyncio.wait({closing}, timeout=_CLOSE_SECONDS))[0]:
            closing.cancel()
            await asyncio.sleep(0)

    async def _cancel_tasks(self) -> None:
        """Cancel the tasks of unfinished items, youngest first, and wait until the tasks have ended.

        A younger task may wait for something that an older one holds.
        """
        # First run the loop a few times: a task that is cancelled before it began could not report the outcome of its
        # item, and a task whose judge has just replied can still finish.
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)
        ending = [task for task in self._tasks if not task.done()][::-1]
        for number, task in enumerate(ending, 1):
            task.cancel()
            if number % _CANCELLED_AT_ONCE == 0 or number == len(ending):
                await asyncio.sleep(0)
                self.throttle.yield_interpreter()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _sleep(self, loop: asyncio.AbstractEventLoop, wake: asyncio.Event, *, busy: bool) -> None:
        with self._lock:
            if self._urgent:
                return
            # No wake-up is lost by this: who has something to say takes the lock and calls `call_soon_threadsafe`, and
            # the event is set in a later turn of the loop, in which this task waits for it.
            wake.clear()
            self._asleep = not busy and not self._unweighed
            # An item that arrives just now, or while the thread is busy, wakes no thread: the alarm bounds the wait.
        alarm = loop.call_later(_GATHER_SECONDS if busy else _IDLE_SLEEP_SECONDS, wake.set)
        await wake.wait()
        alarm.cancel()
        self._asleep = False
        self.throttle.begin_slice()

    async def _round(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Handle queued items for a few milliseconds, then let the event loop run other tasks once.

        Return False if there was nothing to do.
        """
        done: asyncio.Future[bool] = loop.create_future()

        def handle() -> None:
            try:
                done.set_result(self._handle_round())
            except FAILURES as error:  # the thread must go on: the next round, after a pause, tries again
                faults.record("background work", error)
                done.set_result(False)

        # Not inside this task, which the user's code that runs there could find as the current task and cancel.
        loop.call_soon(handle)
        return await done

    def _handle_round(self) -> bool:
        """Handle queued items for a few milliseconds, and return whether there was anything to do."""
        while self._urgent and not self._is_ending:
            self._run_task(self._urgent.popleft()())
        until = monotonic() + (_ROUND_SECONDS if len(self._tasks) < _MANY_TASKS else _SHORT_ROUND_SECONDS)
        self._weigh_queued(until)
        room = handled = 0
        while self._weighed and not self._is_ending and (handled == 0 or monotonic() < until):
            room = room or self._remaining_capacity()
            if not room:
                break
            room -= 1
            handled += 1
            self.throttle.set_load(len(self._weighed) + len(self._unweighed) + min(len(self._tasks), _MOST_BUSY))
            self._handle_next()
            self.throttle.yield_interpreter()
        self.throttle.set_load(_MOST_BUSY)  # short sleeps while the tasks run, as each sleep delays all tasks
        return handled > 0 or bool(self._unweighed)

    def _remaining_capacity(self) -> int:
        """Return how many queued items may be handled before the handler's capacity is checked again, or 0 to wait.

        When the handler has had no room for longer than the worker's patience, or the queue is half full, it is 1.
        """
        room = self._handler.remaining_capacity()
        if room:
            self._no_room_since = None
            return room
        now = monotonic()
        if self._no_room_since is None:
            self._no_room_since = now
        return int(now - self._no_room_since > self._patience or self._admission.half_full)

    def move_to_judging(self) -> bool:
        """Move the item in flight to a place in judging, as it begins to wait for a judge.

        Called by the coroutine that handles it.

        Returns:
            False if none of these places is free; the item then keeps its old place.
        """
        entry = _handled_entry.get()
        with self._lock:
            if not entry.is_judging:
                entry.is_judging = self._admission.move_to_judging(entry.weight)
            return entry.is_judging

    def _weigh_queued(self, until: float) -> None:
        while self._unweighed and monotonic() < until:
            with self._lock:  # once for several items: threads that offer items wait for this lock
                most = min(_MOST_WEIGHED, len(self._unweighed))
                entries = [_Entry(*self._unweighed.popleft(), 0) for _ in range(most)]
                self._weighed.extend(entries)
            weights = [self._weight_of(entry.item) for entry in entries]
            with self._lock:
                if self._is_ending:
                    return  # `stop` has given these items back
                rejected: list[_Entry[T]] = []
                for entry, weight in zip(entries, weights, strict=True):
                    entry.weight = weight if self._admission.fits(weight) else 0
                    self._admission.weigh(weight, entry.weight)
                    if entry.weight != weight:
                        rejected.append(entry)
            for entry in rejected:  # without the lock, as the handler may take it
                self._handler.reject(entry.item)
            self.throttle.yield_interpreter()

    def _weight_of(self, item: T) -> int:
        try:
            return self._handler.weigh(item)
        except FAILURES as error:
            faults.record("background work", error)
            return 0

    def _handle_next(self) -> None:
        """Begin to handle the next queued item, and continue it in a task if its coroutine has to wait."""
        with self._lock:
            if not self._weighed:
                return
            entry = self._weighed.popleft()
            self._in_flight[id(entry)] = entry
        # A call takes over the texts of its steps that were handled since it was weighed.
        if not entry.small and not self._reweigh(entry):
            return
        rest: Awaitable[None] | None = None
        # Before `run_inline`, which copies this context for the coroutine: `move_to_judging` finds the item in it.
        _handled_entry.set(entry)
        try:
            rest = run_inline(self._handler.handle(entry.item), self.throttle, _ROUND_SECONDS)
        except FAILURES as error:  # a sys.exit() in a user's judge included
            faults.record("background work", error)
        except asyncio.CancelledError:
            pass
        if rest is None:
            self._end(entry)
            return
        self._run_task(self._finish(entry, rest))

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _reweigh(self, entry: _Entry[T]) -> bool:
        """Measure the size of an item that has just come in flight again.

        Return False if the worker was stopped meanwhile: `stop` gives the item back, so that it must not be handled.
        """
        more = self._weight_of(entry.item) - entry.weight  # without the lock, for which threads that offer items wait
        with self._lock:
            if self._is_ending:
                # It stays in `_in_flight`, where `stop`, which waits for this thread, finds it and returns it.
                self._admission.free(entry.small, entry.weight)
                return False
            entry.weight += more
            self._admission.reweigh(more)
            return True

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
            del self._in_flight[id(entry)]
            self._admission.free(entry.small, entry.weight, judging=entry.is_judging)
            if self._idle_waiters and not self.size:
                self._changed.notify_all()

    def _run_tick(self) -> None:
        now = monotonic()
        if now - self._ticked < _TICK_SECONDS:
            return
        self._ticked = now
        try:
            self._handler.tick()
        except FAILURES as error:
            faults.record("background tick", error)
