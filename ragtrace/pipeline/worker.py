"""Background worker: a queue bounded in number and in bytes, and one daemon thread with an event loop.

Started at the first offer, so that pre-forking servers work; stopped by a deadline. While items keep coming the thread
wakes by itself fifty times a second and handles what is queued: waking it for each item would cost the application a
system call and a fight for the interpreter. Items are handled one after the other, in slices (`Throttle`); only one
that really waits, for a judge say, or takes milliseconds becomes a task of the event loop.

An item is small if it takes little memory and work, as the span of a step does; all others, the calls to be scored,
are large. The two kinds have separate limits (`AdmissionControl`), so that many spans do not take the places of calls.

**Order of the file.** `Handler`, what a worker is given; `Worker`, whose methods stand by who calls them: any thread,
one that flushes or shuts down, then the thread itself, from its start down to the single item. Which item is where is
kept by `ItemQueue` (`item_queue.py`), how long the thread sleeps between slices by `Throttle` (`throttle.py`).

**The way of an item.** `ItemQueue.offer` refuses an item for which there is no place. `_weigh_queued` measures it, and
tells the handler of one that is too heavy (`reject`), so that it lets go of most of its texts; this one keeps its turn,
with the weight 0 until it is in flight, where it counts with what it still holds. `_handle` runs its coroutine until
that ends or waits, and `_finish` runs the rest in a task; either frees its place. `stop` takes what is queued out, and
returns it: it is neither handled nor rejected afterwards. The one that is being rejected just then is not returned, as
its texts may be half gone: the worker's thread handles it as soon as it is rejected.

**Threads.**

| Method | Thread |
|---|---|
| `offer`, `start`, `run_soon`, `pause_check`, `end_check`, the properties | any |
| `wait_idle` | one that flushes or shuts down |
| `stop`, `cut_short` | one that shuts down; it may be the worker's, which then cancels nothing before it is back |
| `forget_queued` | that of a forked child which finds out that it is one |
| `move_to_judging`, and the methods of the `Handler` | the worker's |
| `_wake_up`, `_start` | that of their caller, which holds the lock |
| `_run`, and all below it in the class | the worker's |

| State | Guarded by |
|---|---|
| items and places | `ItemQueue.lock`, in the queue's own methods |
| `_thread`, `_loop`, `_wake`, `ItemQueue.has_thread`, `ItemQueue.wakes_thread` | the same lock |
| `_urgent` | the same lock where it grows; removing from it is atomic, and the worker's thread alone does |
| `_tasks`, `_ticked`, `_no_room_since` | nothing: they are the worker's thread's alone |

The thread runs `_serve`, which repeats three steps until `stop` has taken the queued items out: rounds while there is
something to do (`_round`: urgent work, weighing, handling), the tick when it is due, and a sleep (`_sleep`). Then it
runs `_end`, which cancels what is unfinished.

**Invariants**, each with the test that guards it, in `tests/unit/pipeline/test_worker.py`.

- The place of an item is free again however it ends: `test_the_place_of_an_item_is_free_again_however_it_ends`.
- What `stop` returns is not handled: `test_stop_gives_back_what_was_not_done`, and while an item is weighed,
  `test_stop_gives_back_what_is_being_weighed`. What it returns is not rejected either:
  `test_stop_gives_back_what_is_not_rejected_yet`.
- Urgent work that was accepted is begun, also where `stop` comes at once, and then cancelled:
  `test_urgent_work_that_was_accepted_is_begun_and_told_of_the_end`.
- Whatever is raised on it, the thread goes on: `test_a_failing_item_is_counted_and_the_next_is_handled`,
  `test_a_failing_tick_is_counted_and_ticks_again`, `test_a_task_that_a_judge_leaves_behind_cannot_end_the_background`,
  `test_a_judge_that_cancels_all_tasks_does_not_end_the_background`, which loses no item either:
  `test_a_task_that_is_cancelled_before_it_begins_loses_no_item`.
- No thread of the application waits for a handler: `test_an_offer_does_not_wait_for_an_item_to_be_weighed`.
- There is no thread before the first item: `test_nothing_is_started_before_the_first_offer`.

**How to change it.** The times below trade the processor's work against delay. `tests/benchmarks/overhead.py --only
threads,spread,lag` shows what a change costs the application, `burst.py` and `judging.py` there what it does to bursts,
flushes and many judge requests; compare with the commit before, in turns. What else the thread is to do from time to
time is a `Part` of the runtime, and not a step of `_serve`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing, suppress
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from opentelemetry.context import attach, set_value

from ragtrace.pipeline.item_queue import Entry, ItemQueue
from ragtrace.pipeline.throttle import Throttle, run_inline
from ragtrace.system.event_loops import apart, new_event_loop
from ragtrace.system.faults import FAILURES, faults
from ragtrace.system.threads import DaemonPool, background_thread, prepare_bounded_calls

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
_GATHER_SECONDS: Final = 0.02
"""Sleep of the busy thread before it reads the queue again, in which new items gather: fifty wake-ups a second."""
_LINGER_SECONDS: Final = 1.0
"""Time without an item after which the thread is no longer busy, and sleeps until the next item wakes it. The request
pays for that, so none has to while there is more than one a second."""
_TICK_SECONDS: Final = 0.25
"""Shortest time between two ticks of the handler."""
_IDLE_SLEEP_SECONDS: Final = _TICK_SECONDS
"""Longest sleep of a thread that is not busy: a longer one would make ticks late."""
_ROUND_SECONDS: Final = 0.005
"""Time for which the worker handles queued items before it runs the other tasks of the event loop: ten slices."""
_SHORT_ROUND_SECONDS: Final = 0.001
"""`_ROUND_SECONDS` while there are many tasks, as the event loop resumes a task several times for one judge request."""
_MANY_TASKS: Final = 256
"""Number of tasks from which on rounds are short: sixteen judges with the usual `JudgeLimits(concurrency=16)`."""
_MOST_BUSY: Final = 128
"""Most tasks that count as load of the processor, by which the throttle sleeps less: others wait for a server."""
_PATIENCE_SECONDS: Final = 1.0
"""Time for which items wait for room in an exporter's queue."""
_CLOSE_SECONDS: Final = 0.5
"""Time for which the handler may close its connections, as `Handler.aclose` says."""
_LAST_TURNS: Final = 16
"""Turns of the event loop before its tasks are cancelled: more than a reply that has come needs to become a score
(`test_stop_lets_what_is_as_good_as_done_come_to_its_end`)."""
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


_handled_entry: ContextVar[Entry[Any]] = ContextVar("ragtrace_handled_entry")
"""Item that the running coroutine handles, also where it goes on in a task: `run_inline` keeps its context."""


class Worker(Generic[T]):
    """Background worker with a bounded queue and one daemon thread that handles the items in order.

    Items that await something (a judge's reply) do so concurrently. The module says which method is for which thread.

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
        self._handler, self._patience = handler, patience
        self.queue: ItemQueue[T] = ItemQueue(capacity, most_bytes, start=self._start, wake_up=self._wake_up)
        self.offer = self.queue.offer
        """`ItemQueue.offer`: itself, as a request waits for each call of a function."""
        self.throttle = Throttle(lambda: self.queue.is_hurried)
        # Changed with the queue's lock; the worker's thread alone removes urgent work, and does it without.
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._urgent: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        # The worker's thread alone.
        self._tasks: dict[asyncio.Task[None], None] = {}  # oldest first
        self._ticked = 0.0
        self._no_room_since: float | None = None

    def forget_queued(self) -> None:
        """Let go of the queued items in a forked child, where they belong to the parent's worker.

        Nothing else of that worker is let go: the deletion of a running task or of an event loop, whose epoll both
        processes share, would harm.
        """
        self.queue.clear_queued()

    @property
    def size(self) -> int:
        """Number of items, large and small, that are queued or in flight."""
        return self.queue.size

    @property
    def has_room_for_judging(self) -> bool:
        """Whether an item of mean size fits into the queue, and finds a place in judging later, as an estimate."""
        return self.queue.has_room_for_judging

    @property
    def is_current_thread(self) -> bool:
        """Whether the current thread is the worker's own thread.

        That thread must not wait for itself.
        """
        return threading.current_thread() is self._thread

    @property
    def closed(self) -> bool:
        """Whether the worker was stopped, and refuses new items."""
        return self.queue.closed

    @property
    def is_hurried(self) -> bool:
        """Whether a thread waits for the items, so that the worker does not sleep between them."""
        return self.queue.is_hurried

    # --- called by any thread ----------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Start the worker's thread before there is any item, for periodic work, and return whether it runs."""
        with self.queue.lock:
            return self.queue.has_thread or (not self.queue.closed and self._start())

    def run_soon(self, work: Callable[[], Coroutine[Any, Any, None]], check: object, until: float) -> bool:
        """Run the coroutine function *work* in a task before all queued items, whether an exporter has room or not.

        For work that a thread of the application waits for, which queues an item afterwards: `wait_idle` waits for
        that. A `stop` whose time is over cancels the work once it has begun, so that it can tell who waits.

        Args:
            work: the coroutine function.
            check: object that stands for the item until `end_check` is called with it.
            until: monotonic time by which that happens.

        Returns:
            Whether the worker runs; if not, *work* is never called. If so, it is, unless an item blocks the thread.
        """
        with self.queue.lock:
            if not self.queue.begin_check(check, until):
                return False
            if not self.queue.has_thread and not self._start():
                self.queue.end_check(check)
                return False
            self._urgent.append(work)
            self._wake_up()
            return True

    def pause_check(self, check: object, until: float) -> None:
        """Let only `stop` wait for an item to come after *check*, as `ItemQueue.pause_check` says."""
        self.queue.pause_check(check, until)

    def end_check(self, check: object) -> None:
        """Let `wait_idle` wait no longer for an item to come after *check*, as `ItemQueue.end_check` says."""
        self.queue.end_check(check)

    # --- called by a thread that flushes or shuts down ---------------------------------------------------------------

    def wait_idle(self, timeout: float, reserved: Callable[[int], float] = lambda _: 0.0) -> bool:
        """Wait at most *timeout* seconds for all items, and return whether every item has been handled.

        Args:
            timeout: seconds to wait.
            reserved: given the number of items that are left, returns how many of these seconds the caller needs for
                its own work afterwards.
        """
        if self.is_current_thread:
            return self.queue.is_idle
        return self.queue.wait_idle(timeout, reserved)

    def cut_short(self) -> None:
        """Make a `stop` in progress end without waiting for unfinished items."""
        self.queue.cut_short()

    def stop(self, timeout: float, grace: float = 0.1, reserved: Callable[[int], float] = lambda _: 0.0) -> list[T]:
        """Stop the worker: refuse new items, handle the queued ones within *timeout* seconds, and cancel the others.

        Args:
            timeout: seconds to drain.
            grace: seconds for cancelled items to end.
            reserved: given the number of items that are left, returns how many seconds of *timeout* the caller needs
                for its own work afterwards.

        Returns:
            Items that were never begun, one that is being weighed included, and those in flight that could not be
            cancelled, as one of them blocks the thread. On the worker's own thread that is the one which stops it.
        """
        self.queue.close()
        self.wait_idle(timeout, reserved)
        lost = self.queue.take_out()
        if self._thread is not None and not self.is_current_thread:
            self._thread.join(grace)
        return [*lost, *self.queue.in_flight()]

    # --- the thread --------------------------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        """Wake the thread, if it sleeps. Called with the queue's lock."""
        self.queue.wakes_thread = False
        if self._loop is not None and self._wake is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._wake.set)

    def _start(self) -> bool:
        """Start the thread, and return whether it runs. Called with the queue's lock."""
        executor = DaemonPool()
        # Set before the start, which an interruption of the application may end when the thread runs already.
        self._thread, self.queue.has_thread = background_thread(partial(self._run, executor), "ragtrace"), True
        try:
            self._thread.start()
        except RuntimeError as error:  # out of threads, or the interpreter is shutting down
            faults.record("start of the background thread", error)
            self._thread, self.queue.has_thread = None, False
        else:
            # Not on the new thread, which may first run when the interpreter is already shutting down.
            prepare_bounded_calls()
            executor.prepare()
        return self.queue.has_thread

    def _run(self, executor: DaemonPool) -> None:
        # Instrumented HTTP clients look for this key, and do not trace a judge's requests as the application's.
        attach(set_value("suppress_instrumentation", True))
        with apart(), closing(new_event_loop()) as loop:
            loop.set_default_executor(executor)
            # A task that a judge runs may cancel all tasks of the loop, `_serve` among them: it is begun again.
            while self._complete(loop, self._serve(loop)).cancelled() and not self.queue.is_taken_out:
                pass
            self._complete(loop, self._end())

    def _complete(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine *work* in a task to its end, whatever leaves the event loop meanwhile."""
        task = loop.create_task(work)
        while not task.done():
            # A sys.exit() in any task, such as one that a user's judge has left behind, leaves the event loop.
            try:
                loop.run_until_complete(task)
            except (*FAILURES, asyncio.CancelledError) as error:  # noqa: PERF203 - it seldom happens
                faults.record("background worker", error)
        return task

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        wake = asyncio.Event()
        with self.queue.lock:
            self._loop, self._wake = loop, wake
        busy_until = 0.0
        while True:
            while await self._round(loop):
                busy_until = monotonic() + _LINGER_SECONDS
                self._run_tick()  # also where items come as fast as they are handled
            self._run_tick()
            if self.queue.is_taken_out:
                break
            await self._sleep(loop, wake, busy=self.queue.weighed > 0 or monotonic() < busy_until)

    async def _end(self) -> None:
        self._begin_urgent()  # what was accepted since the last round; there is no more, as the queue is closed
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
        with self.queue.lock:
            if self._urgent:
                return
            # No wake-up is lost by this: who has something to say takes the lock and calls `call_soon_threadsafe`, and
            # the event is set in a later turn of the loop, in which this task waits for it.
            wake.clear()
            self.queue.wakes_thread = not busy and not self.queue.unweighed
            # An item that arrives just now, or while the thread is busy, wakes no thread: the alarm bounds the wait.
        alarm = loop.call_later(_GATHER_SECONDS if busy else _IDLE_SLEEP_SECONDS, wake.set)
        await wake.wait()
        alarm.cancel()
        with self.queue.lock:
            self.queue.wakes_thread = False
        self.throttle.begin_slice()

    async def _round(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Handle queued items for a few milliseconds, then let the event loop run other tasks once.

        Return False if there was nothing to do.
        """
        done: asyncio.Future[bool] = loop.create_future()

        def handle() -> None:
            has_worked = False
            try:
                has_worked = self._handle_round()
            except FAILURES as error:  # the thread must go on: the next round, after a pause, tries again
                faults.record("background work", error)
            if not done.done():  # else a judge has cancelled `_serve`, which waits for it
                done.set_result(has_worked)

        # Not inside this task, which the user's code that runs there could find as the current task and cancel.
        loop.call_soon(handle)
        return await done

    def _handle_round(self) -> bool:
        """Handle queued items for a few milliseconds, and return whether there was anything to do."""
        self._begin_urgent()
        until = monotonic() + (_ROUND_SECONDS if len(self._tasks) < _MANY_TASKS else _SHORT_ROUND_SECONDS)
        self._weigh_queued(until)
        room = handled = 0
        while self.queue.weighed and not self.queue.is_taken_out and (handled == 0 or monotonic() < until):
            room = room or self._remaining_capacity()
            if not room:
                break
            room -= 1
            handled += 1
            self.throttle.set_load(self.queue.weighed + self.queue.unweighed + min(len(self._tasks), _MOST_BUSY))
            self._handle_next()
            self.throttle.yield_interpreter()
        self.throttle.set_load(_MOST_BUSY)  # short sleeps while the tasks run, as each sleep delays all tasks
        return handled > 0 or self.queue.unweighed > 0

    def _begin_urgent(self) -> None:
        while self._urgent:
            self._run_task(self._urgent.popleft()())

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
        return int(now - self._no_room_since > self._patience or self.queue.half_full)

    def move_to_judging(self) -> bool:
        """Move the item in flight to a place in judging, as it begins to wait for a judge.

        Called by the coroutine that handles it.

        Returns:
            False if none of these places is free; the item then keeps its old place.
        """
        return self.queue.move_to_judging(_handled_entry.get())

    def _weigh_queued(self, until: float) -> None:
        while self.queue.unweighed and monotonic() < until:
            entries = self.queue.take_unweighed()
            # Without the lock, for which threads that offer items wait, and which the handler may take.
            weights = [self._weight_of(entry.item) for entry in entries]
            for entry in self.queue.set_weights(entries, weights):
                self._reject(entry)
            self.throttle.yield_interpreter()

    def _reject(self, entry: Entry[T]) -> None:
        """Have the handler reject an item, unless a shutdown has it."""
        if not self.queue.begin_rejection(entry):
            return
        try:
            self._handler.reject(entry.item)
        except FAILURES as error:
            faults.record("background work", error)
        if not self.queue.end_rejection(entry):
            self._handle(entry)

    def _weight_of(self, item: T) -> int:
        try:
            return self._handler.weigh(item)
        except FAILURES as error:
            faults.record("background work", error)
            return 0

    def _handle_next(self) -> None:
        """Begin to handle the next queued item."""
        entry = self.queue.begin_next()
        if entry is None:
            return
        # A call takes over the texts of its steps that were handled since it was weighed.
        if entry.small or self.queue.reweigh(entry, self._weight_of(entry.item)):
            self._handle(entry)

    def _handle(self, entry: Entry[T]) -> None:
        """Begin to handle an item in flight, and continue it in a task if its coroutine has to wait."""
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
            self.queue.end(entry)
            return
        self._run_task(self._finish(entry, rest))

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* in a task. If that is cancelled before it has begun, *work* is begun in another one.

        A judge may cancel all tasks of the loop. Of one that has not begun, asyncio closes the coroutine without
        running it: nobody would tell the outcome of the item, nor free its place.
        """
        has_begun = False

        async def begin() -> None:
            nonlocal has_begun
            has_begun = True
            await work

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.pop(task)
            if not has_begun:
                self._run_task(work)

        task = asyncio.get_running_loop().create_task(begin())
        self._tasks[task] = None
        task.add_done_callback(end)

    async def _finish(self, entry: Entry[T], rest: Awaitable[None]) -> None:
        try:
            await rest
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            faults.record("background work", error)
        finally:
            self.queue.end(entry)

    def _run_tick(self) -> None:
        now = monotonic()
        if now - self._ticked < _TICK_SECONDS:
            return
        self._ticked = now
        try:
            self._handler.tick()
        except FAILURES as error:
            faults.record("background tick", error)
