"""The background worker: a queue bounded in number and in bytes, and one daemon thread with an event loop.

Started at the first offer, so that pre-forking servers work; reset after a fork; stopped by a deadline. While items
keep coming the thread wakes by itself fifty times a second and takes what has gathered: waking it for each item would
cost the application a system call and a fight for the interpreter. Items are handled where they are taken, in slices
(`Throttle`); only one that really waits, for a judge say, becomes a task of the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from typing import Any, Final, Generic, Protocol, TypeVar

from opentelemetry.context import attach, set_value

from ragtrace.system.faults import faults
from ragtrace.system.threads import DaemonPool, prepare_bounded_calls

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
SLICE_SECONDS: Final = 0.0005
"""How long the worker computes before it sleeps."""
LONGEST_PAUSE_SECONDS: Final = 0.001
"""Sleep after a slice when few items wait: the work of a call is spread out."""
SHORTEST_PAUSE_SECONDS: Final = 0.00002
"""Sleep after a slice when many items wait. With the slack of timers it becomes three to four times as long."""
_FEW: Final = 8
"""Items that may wait while the worker still sleeps for the longest pause."""
_UNHURRIED_SECONDS: Final = 0.01  # before the end of a wait: who waits needs the interpreter to come back in time
_GATHER_SECONDS: Final = 0.02  # for which the busy thread lets items gather
_LINGER_SECONDS: Final = 1.0  # without an item until the thread must be woken for the next
_TICK_SECONDS: Final = 0.25
_ROUND_SECONDS: Final = 0.005
"""How long it works off items, or one of them, before tasks of the event loop get their turn."""
_SHORT_ROUND_SECONDS: Final = 0.001  # while judges have enough to do: a request comes back half a dozen times
_MANY_TASKS: Final = 256
_MOST_TAKEN: Final = 8  # at a time: weighing a few is done in far less than a slice of work
_MOST_BUSY: Final = 128  # tasks that count as waiting for the processor; others wait for a server
_PATIENCE_SECONDS: Final = 1.0  # for which items wait for room at an exporter
_CLOSE_SECONDS: Final = 0.5  # for which the handler may close what the event loop has used
_LAST_TURNS: Final = 16  # of the event loop, before its tasks are cancelled
_CANCELLED_AT_ONCE: Final = 4
"""Tasks cancelled in one turn: a thread that waits for the end must not have to wait for the interpreter as well."""
_parents_loops: list[object] = []
_SMALL_PER_CAPACITY: Final = 8
_NOVELTY: Final = 1 / 32
"""Weight of the newest item in the mean that stands for items not weighed yet."""
_WAITING_SHARE: Final = 0.75
"""Of the bytes, for items that wait for a judge: the rest is for items that no evaluator has seen."""


class Throttle:
    """Divider of one thread's work into slices of half a millisecond, with a sleep between them.

    An interpreter runs one thread at a time, and a thread that computes keeps it for five milliseconds (the switch
    interval) before it has to share: an event loop of the application that becomes ready meanwhile would wait that
    long. Releasing the interpreter for an instant is not enough, as the worker would have it back before the other
    thread has woken up. The more items wait, the shorter the sleep.

    Args:
        hurried: returns whether a thread waits for the work to be done; then there is no sleep.
    """

    def __init__(self, hurried: Callable[[], bool]) -> None:
        self._hurried, self._slice_began = hurried, 0.0
        self._pause = SHORTEST_PAUSE_SECONDS

    def begin_slice(self) -> None:
        """Restart the clock of the current slice of work; to be called after the thread has slept."""
        self._slice_began = monotonic()

    def set_load(self, waiting: int) -> None:
        """Shorten the pauses, the more items are *waiting*."""
        self._pause = max(SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS * _FEW / max(_FEW, waiting))

    def yield_interpreter(self) -> None:
        """Sleep for a moment if the slice is over; to be called between pieces of work."""
        if monotonic() - self._slice_began > SLICE_SECONDS:
            if not self._hurried():
                sleep(self._pause)
            self._slice_began = monotonic()


def run_inline(work: Coroutine[Any, Any, None], throttle: Throttle, seconds: float) -> Awaitable[None] | None:
    """Run the coroutine *work* at once on this thread, as a task for each would cost a turn of the event loop.

    Returns:
        None if *work* is done; if it waits for something, or took more than *seconds*, what a task must await to carry
        it on. Only from there on it may use the current task of asyncio.
    """
    until = monotonic() + seconds
    # One context from beginning to end: what is set in it here must be there, and resettable, in the task.
    in_context = contextvars.copy_context().run
    try:
        while (waits := in_context(work.send, None)) is None and monotonic() < until:
            throttle.yield_interpreter()
    except StopIteration:
        return None
    return _carry_on(work, waits, in_context)


@types.coroutine
def _carry_on(
    work: Coroutine[Any, Any, None], waits: object, in_context: Callable[..., object]
) -> Generator[object, Any, None]:
    """Continue the coroutine *work* in a task, from the awaitable *waits* at which it stopped."""
    while True:
        try:
            sent = yield waits
        except BaseException as error:
            resume = partial(in_context, work.throw, error)
        else:
            resume = partial(in_context, work.send, sent)
        try:
            waits = resume()
        except StopIteration:
            return


class AdmissionControl:
    """Counts of the items in a queue, by number and bytes, that decide whether one more is admitted.

    Weighing an item takes time that a request thread should not spend: until an item is weighed, it counts as much as
    others did on average. Changes need a lock; the properties and `full` do not.

    Args:
        capacity: most items; beside them eight times as many small ones, and as many that wait for a judge.
        most_bytes: most bytes of all items; three quarters of it for those that wait for a judge.
    """

    def __init__(self, capacity: int, most_bytes: int) -> None:
        self._capacity, self._most_bytes = capacity, most_bytes
        self._large = self._small = self._waiting = 0
        self._bytes = self._waiting_bytes = self._typical = 0.0

    @property
    def taken(self) -> int:
        """Number of admitted items that have not left: queued, being handled, or waiting for a judge."""
        return self._large + self._small + self._waiting

    @property
    def half_full(self) -> bool:
        """Whether half of the places or of the bytes are taken."""
        many = 2 * self._large >= self._capacity or 2 * self._small >= self._capacity * _SMALL_PER_CAPACITY
        return many or 2 * self._bytes > self._most_bytes

    @property
    def bytes(self) -> float:
        """Bytes of all items whose size has been measured."""
        return self._bytes

    def full(self, unweighed: int) -> bool:
        """Return whether no item is admitted; *unweighed* is the number of items whose size is not known yet."""
        return self.full_of_small(unweighed) and (self._large >= self._capacity or self._too_heavy(unweighed))

    def full_of_small(self, unweighed: int) -> bool:
        """Return whether no small item is admitted."""
        return self._small >= self._capacity * _SMALL_PER_CAPACITY or self._too_heavy(unweighed)

    def _too_heavy(self, unweighed: int) -> bool:
        return self._bytes + unweighed * self._typical > self._most_bytes

    def enter(self, small: bool, unweighed: int) -> bool:
        """Admit an item; return False if there is no place."""
        if small:
            room = not self.full_of_small(unweighed)
            self._small += room
        else:
            room = self._large < self._capacity and not self._too_heavy(unweighed)
            self._large += room
        return room

    def has_room_for(self, weight: int) -> bool:
        """Return whether an item of *weight* bytes fits into the memory that is left."""
        return self._bytes + weight <= self._most_bytes

    def weigh(self, weight: int, kept: int) -> None:
        """Add the measured size of an admitted item: *weight* bytes, of which *kept* stay in memory."""
        self._bytes += kept
        self._typical += (weight - self._typical) * _NOVELTY

    def reweigh(self, more: int) -> None:
        """Add *more* bytes to the measured size of an item."""
        self._bytes += more

    def wait_for_judge(self, weight: int) -> bool:
        """Move an item of *weight* bytes to the places of items that wait for a judge; return False if none is free."""
        bytes_ = self._waiting_bytes + weight
        room = self._waiting < self._capacity and bytes_ <= self._most_bytes * _WAITING_SHARE
        if room:
            self._large, self._waiting, self._waiting_bytes = self._large - 1, self._waiting + 1, bytes_
        return room

    def leave(self, small: bool, weight: int = 0, *, waiting: bool = False) -> None:
        """Free the place of an item of *weight* bytes (0: not measured)."""
        self._bytes -= weight
        if waiting:
            self._waiting -= 1
            self._waiting_bytes -= weight
        elif small:
            self._small -= 1
        else:
            self._large -= 1


class Handler(Protocol[T_contra]):
    """Handler of the items of a worker, called on the worker's thread."""

    def handle(self, item: T_contra) -> Coroutine[Any, Any, None]:
        """Handle *item*; failures are counted and logged."""
        ...

    def weigh(self, item: T_contra) -> int:
        """Return the bytes that *item* keeps alive."""
        ...

    def reject(self, item: T_contra) -> None:
        """Count *item* as dropped, as it is too large for the queue's memory; `handle` is still called for it."""
        ...

    def room(self) -> int:
        """Return how many items may be handled before it is called again; 0: none for a while."""
        ...

    def tick(self) -> None:
        """Do periodic work; called about four times a second."""
        ...

    async def aclose(self) -> None:
        """Close what the event loop has used; called when nothing else will run there, for half a second at most."""
        ...


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """An item that the worker has taken from the queue."""

    item: T
    small: bool
    weight: int
    waiting: bool = False
    """Whether it has a place among those that wait for a judge."""


_handled: ContextVar[_Entry[Any]] = ContextVar("ragtrace_handled")


class Worker(Generic[T]):
    """Bounded queue whose items one daemon thread handles, in the order of their offers; several at a time may wait.

    Args:
        handler: handles the items.
        capacity: most items that may be queued or in hand; further ones are refused. Of small items, eight times as
            many; of those that wait for a judge, as many.
        most_bytes: most bytes of queued items and those in hand. Items not weighed yet count as others do on average.
        patience: seconds for which items wait for `handler.room`, or until half of the places are taken: what comes of
            the items may then be lost, the items are not.
    """

    def __init__(
        self,
        handler: Handler[T],
        *,
        capacity: int,
        most_bytes: int = 1 << 62,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._handler, self._capacity, self._most_bytes, self._patience = handler, capacity, most_bytes, patience
        self.throttle = Throttle(lambda: self._waiting > 0 and monotonic() < self._hurried_until)
        self.reset()

    def reset(self) -> None:
        """Empty the queue after a fork: the items are the parent's, and there is no thread."""
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
        self._admission = AdmissionControl(self._capacity, self._most_bytes)
        self._waiting, self._hurried_until = 0, 0.0
        self._closed = self._over = self._asleep = self._is_cut_short = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._ticked = 0.0
        self._no_room_since: float | None = None

    @property
    def size(self) -> int:
        """Number of items queued or in hand, small ones included."""
        return self._admission.taken

    @property
    def full(self) -> bool:
        """Whether the queue has no room for any item, not even a small one; an estimate, made without a lock."""
        return self._admission.full(len(self._items))

    @property
    def full_of_small(self) -> bool:
        """Whether the queue has no room for a small item; an estimate, made without a lock."""
        return self._admission.full_of_small(len(self._items))

    @property
    def on_its_thread(self) -> bool:
        """Whether the caller runs on the worker's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    @property
    def closed(self) -> bool:
        """Whether `stop` has been called."""
        return self._closed

    def offer(self, item: T, *, small: bool = False) -> bool:
        """Queue *item* and return at once; return False if the worker is full or stopped."""
        with self._lock:
            if self._closed or not self._admission.enter(small, len(self._items)):
                return False
            if self._thread is None and not self._start():
                self._admission.leave(small)
                return False
            self._items.append((item, small))
            if self._asleep:
                self._hurry()
            return True

    def wait_idle(self, timeout: float, reserved: Callable[[int], float] = lambda _: 0.0) -> bool:
        """Wait until no item is queued or in hand; return False if *timeout* was too short.

        Args:
            timeout: seconds.
            reserved: seconds of these that the caller needs afterwards, by the number of items that are left.
        """
        if self.on_its_thread:
            return self.size == 0
        deadline = monotonic() + timeout
        with self._changed:
            self._waiting += 1
            try:
                while self.size:
                    self._hurry()
                    left = deadline - reserved(self.size) - monotonic()
                    if left <= 0 or self._is_cut_short:
                        return False
                    self._hurried_until = monotonic() + left - _UNHURRIED_SECONDS
                    self._changed.wait(min(left, _TICK_SECONDS))
                return True
            finally:
                self._waiting -= 1

    def cut_short(self) -> None:
        """Make `stop` return without waiting for items that are queued or being handled."""
        self._is_cut_short = True

    def stop(self, timeout: float, grace: float = 0.1, reserved: Callable[[int], float] = lambda _: 0.0) -> list[T]:
        """Refuse new items, drain the queue, and cancel the items that remain.

        Args:
            timeout: seconds to drain.
            grace: seconds for cancelled items to end.
            reserved: seconds of *timeout* that the caller needs afterwards, by the number of items that are left.

        Returns:
            Items that were never begun, and those that block the thread, so that they could not be cancelled.
        """
        with self._lock:
            self._closed = True
        self.wait_idle(timeout, reserved)
        with self._lock:
            self._over = True
            lost = [*self._taken, *(_Entry(item, small, 0) for item, small in self._items)]
            self._taken.clear()
            self._items.clear()
            for entry in lost:
                self._admission.leave(entry.small, entry.weight)
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
        await self._cancel_tasks()
        closing = asyncio.ensure_future(self._handler.aclose())
        if not (await asyncio.wait({closing}, timeout=_CLOSE_SECONDS))[0]:
            closing.cancel()
            await asyncio.sleep(0)

    async def _cancel_tasks(self) -> None:
        """Cancel the tasks, the youngest first, as it may wait for what an older one holds; wait until they end."""
        # A task cancelled before it began could not say what became of its item; one just answered has a way to go.
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
            wake.clear()
            # At most this late, even if an item comes between this and the wait.
            self._asleep = not busy and not self._items
        alarm = loop.call_later(_GATHER_SECONDS if busy else _TICK_SECONDS, wake.set)
        await wake.wait()
        alarm.cancel()
        self._asleep = False
        self.throttle.begin_slice()

    async def _round(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Do one round of work and give the tasks of the loop one turn; return False if there was nothing to do."""
        done: asyncio.Future[bool] = loop.create_future()
        # Not inside this task: code that is handled must not take it for its own, and cancel it.
        loop.call_soon(lambda: done.set_result(self._work()))
        return await done

    def _work(self) -> bool:
        """Handle queued items for one round; return False if there was nothing to do."""
        until = monotonic() + (_ROUND_SECONDS if len(self._tasks) < _MANY_TASKS else _SHORT_ROUND_SECONDS)
        self._take_in(until)
        room = handled = 0
        while self._taken and not self._over and (handled == 0 or monotonic() < until):
            room = room or self._room()
            if not room:
                break
            room -= 1
            handled += 1
            self.throttle.set_load(len(self._taken) + len(self._items) + min(len(self._tasks), _MOST_BUSY))
            self._begin()
            self.throttle.yield_interpreter()
        self.throttle.set_load(_MOST_BUSY)  # tasks are not to wait for each other's pauses
        return handled > 0 or bool(self._items)

    def _room(self) -> int:
        """Return how many items may be handled before the handler is asked for its room again."""
        room = self._handler.room()
        if room:
            self._no_room_since = None
            return room
        now = monotonic()
        if self._no_room_since is None:
            self._no_room_since = now
        return int(now - self._no_room_since > self._patience or self._admission.half_full)

    def wait_for_judge(self) -> bool:
        """Move the item that is being handled to a place among the items that wait for a judge.

        Returns:
            False if none of those is free; the item keeps its place.
        """
        entry = _handled.get()
        with self._lock:
            if not entry.waiting:
                entry.waiting = self._admission.wait_for_judge(entry.weight)
            return entry.waiting

    def _take_in(self, until: float) -> None:
        while self._items and monotonic() < until:
            with self._lock:  # for several at a time: who offers the next one waits for it
                entries = [_Entry(*self._items.popleft(), 0) for _ in range(min(_MOST_TAKEN, len(self._items)))]
                self._taken.extend(entries)
            weights = [self._weighed(entry.item) for entry in entries]
            with self._lock:
                for entry, weight in zip(entries, weights, strict=True):
                    entry.weight = weight if self._admission.has_room_for(weight) else 0
                    self._admission.weigh(weight, entry.weight)
            for entry, weight in zip(entries, weights, strict=True):
                if entry.weight != weight:
                    self._handler.reject(entry.item)
            self.throttle.yield_interpreter()

    def _weighed(self, item: T) -> int:
        try:
            return self._handler.weigh(item)
        except Exception as error:
            faults.record("background work", error)
            return 0

    def _begin(self) -> None:
        """Handle the next item; if it waits for something, the rest of its coroutine becomes a task."""
        with self._lock:
            if not self._taken:
                return
            entry = self._taken.popleft()
            self._in_hand[id(entry)] = entry
            if not entry.small:  # it may have to answer now for what came before it
                more = self._weighed(entry.item) - entry.weight
                entry.weight += more
                self._admission.reweigh(more)
        rest: Awaitable[None] | None = None
        _handled.set(entry)
        try:
            rest = run_inline(self._handler.handle(entry.item), self.throttle, _ROUND_SECONDS)
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
            self._admission.leave(entry.small, entry.weight, waiting=entry.waiting)
            if self._waiting and not self.size:
                self._changed.notify_all()

    def _run_tick(self) -> None:
        now = monotonic()
        if now - self._ticked < _TICK_SECONDS:
            return
        self._ticked = now
        try:
            self._handler.tick()
        except Exception as error:
            faults.record("background tick", error)
