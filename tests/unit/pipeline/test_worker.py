"""The background worker: bounded, in order, on a thread of its own, and never a reason to wait for ever."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from time import monotonic
from typing import Any

import pytest

from ragtrace.pipeline.worker import Worker
from ragtrace.system.faults import faults
from tests.support.watched import WAIT_S, eventually

Make = Callable[..., "Worker[int]"]


async def _close_nothing() -> None: ...


class Functions:
    """Handler of a worker made of functions."""

    def __init__(
        self,
        handle: Callable[[int], Coroutine[Any, Any, None]],
        *,
        weigh: Callable[[int], int] = lambda _: 0,
        reject: Callable[[int], object] = lambda _: None,
        remaining_capacity: Callable[[], int] = lambda: 1_000,
        tick: Callable[[], None] = lambda: None,
        aclose: Callable[[], Coroutine[Any, Any, None]] = _close_nothing,
    ) -> None:
        self.handle, self.weigh, self.remaining_capacity, self.tick, self.aclose = (
            handle,
            weigh,
            remaining_capacity,
            tick,
            aclose,
        )
        self._reject = reject

    def reject(self, item: int) -> None:
        self._reject(item)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes workers, and stops them afterwards."""
    made: list[Worker[int]] = []

    def make_one(
        handle: Callable[[int], Coroutine[Any, Any, None]],
        *,
        capacity: int = 100,
        most_bytes: int = 1 << 62,
        patience: float = 1.0,
        **functions: Any,
    ) -> Worker[int]:
        worker = Worker(Functions(handle, **functions), capacity=capacity, most_bytes=most_bytes, patience=patience)
        made.append(worker)
        return worker

    yield make_one
    for worker in made:
        worker.stop(0.2)


class Hanging:
    """Handles an item by waiting until it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    async def __call__(self, item: int) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_items_are_begun_in_the_order_of_their_offers(make: Make) -> None:
    """First in, first handled."""
    seen: list[int] = []

    async def handle(item: int) -> None:
        seen.append(item)

    worker = make(handle)
    assert all(worker.offer(number) for number in range(50))
    assert worker.wait_idle(WAIT_S)
    assert seen == list(range(50))


def test_nothing_is_started_before_the_first_offer(make: Make) -> None:
    """A server that forks its workers later must not have a thread before."""
    threads = threading.active_count()

    async def handle(item: int) -> None: ...

    worker = make(handle)
    assert worker.wait_idle(0)
    assert threading.active_count() == threads
    worker.offer(1)
    assert worker.wait_idle(WAIT_S)
    assert threading.active_count() == threads + 1


def test_what_is_in_hand_counts_towards_the_capacity(make: Make) -> None:
    """One more is refused, at once."""
    worker = make(Hanging(), capacity=3)
    assert [worker.offer(number) for number in range(5)] == [True, True, True, False, False]
    assert worker.size == 3


def test_urgent_work_goes_before_items_that_wait_for_room(make: Make) -> None:
    """A thread of the application waits for it, and an exporter without room is no reason."""
    handled, done = threading.Event(), threading.Event()

    async def handle(item: int) -> None:
        handled.set()

    async def work() -> None:
        assert not handled.is_set()
        done.set()

    worker = make(handle, remaining_capacity=lambda: 0, patience=6 * WAIT_S)
    assert worker.offer(1)
    assert worker.run_soon(work, work, 0.0)
    assert done.wait(WAIT_S)


@pytest.mark.timing
def test_urgent_work_wakes_a_worker_that_gathers_items(make: Make) -> None:
    """Work of two thousand turns would take 40 seconds if the worker took what gathers in 20 milliseconds."""
    done = threading.Event()

    async def handle(item: int) -> None: ...

    async def work() -> None:
        done.set()

    worker = make(handle)
    assert worker.offer(1)
    began = monotonic()
    for _ in range(2_000):
        done.clear()
        assert worker.run_soon(work, work, 0.0)
        assert done.wait(WAIT_S)
    assert monotonic() - began < 2 * WAIT_S


def test_a_stopped_worker_refuses_urgent_work_and_cancels_what_it_has(make: Make) -> None:
    """Whoever waits is told, by the refusal or by the cancellation."""
    hanging = Hanging()

    async def handle(item: int) -> None: ...

    worker = make(handle)
    assert worker.run_soon(lambda: hanging(1), hanging, 0.0)
    assert hanging.begun.wait(WAIT_S)
    worker.stop(0.0, WAIT_S)
    assert hanging.cancelled.wait(WAIT_S)
    assert not worker.run_soon(lambda: hanging(2), hanging, 0.0)


@pytest.mark.parametrize("blocks", [False, True], ids=["asleep", "handling"])
def test_urgent_work_that_was_accepted_is_begun_and_told_of_the_end(make: Make, *, blocks: bool) -> None:
    """Also where the worker is stopped before it can look: who waits would wait in vain."""
    begun, goes_on = threading.Event(), threading.Event()

    async def handle(item: int) -> None:
        begun.set()
        goes_on.wait(WAIT_S)

    for _ in range(20):
        hanging, worker = Hanging(), make(handle)
        if blocks:
            begun.clear()
            goes_on.clear()
            assert worker.offer(1)
            assert begun.wait(WAIT_S)
        else:
            assert worker.start()
        assert worker.run_soon(partial(hanging, 1), hanging, 0.0)
        worker.stop(0.0, 0.0)
        goes_on.set()
        assert hanging.cancelled.wait(WAIT_S)


def test_several_items_are_handled_at_a_time(make: Make) -> None:
    """A slow one does not hold up those behind it."""
    release, quick = asyncio.Event(), threading.Event()

    async def handle(item: int) -> None:
        if item == 0:
            await release.wait()
        else:
            quick.set()
            release.set()

    worker = make(handle)
    worker.offer(0)
    worker.offer(1)
    assert quick.wait(WAIT_S)
    assert worker.wait_idle(WAIT_S)


@pytest.mark.timing
def test_waiting_ends_with_its_time(make: Make) -> None:
    """And says that something is still under way."""
    hanging = Hanging()
    worker = make(hanging)
    worker.offer(1)
    assert hanging.begun.wait(WAIT_S)
    began = monotonic()
    assert not worker.wait_idle(0.05)
    assert monotonic() - began < WAIT_S / 2


def test_a_short_wait_does_not_slow_a_longer_one(make: Make) -> None:
    """The worker hurries for as long as any thread waits: a flush per request must not hold up the one at the end."""
    hanging = Hanging()
    worker = make(hanging)
    worker.offer(1)
    assert hanging.begun.wait(WAIT_S)
    waiting = threading.Thread(target=worker.wait_idle, args=(2 * WAIT_S,))
    waiting.start()
    assert eventually(lambda: worker.is_hurried)
    assert not worker.wait_idle(0.02)
    assert worker.is_hurried
    worker.stop(0.0, grace=WAIT_S)
    waiting.join(WAIT_S)
    assert not worker.is_hurried


def test_stop_gives_back_what_was_not_done(make: Make) -> None:
    """What was never begun, and what keeps the thread to itself and cannot be cancelled."""
    begun, release = threading.Event(), threading.Event()
    handled: list[int] = []

    async def handle(item: int) -> None:
        handled.append(item)
        begun.set()
        release.wait(WAIT_S)  # as a judge with a synchronous client

    worker = make(handle)
    for number in range(4):
        worker.offer(number)
    assert begun.wait(WAIT_S)
    lost = worker.stop(0.05)
    release.set()
    assert sorted(lost) == [0, 1, 2, 3]
    assert handled == [0]
    assert not worker.offer(5)


def test_stop_cancels_what_hangs(make: Make) -> None:
    """An item in hand gets the time to say what became of it."""
    hanging = Hanging()
    worker = make(hanging)
    worker.offer(1)
    assert hanging.begun.wait(WAIT_S)
    assert worker.stop(0.05, grace=WAIT_S) == []
    assert hanging.cancelled.wait(WAIT_S)
    assert worker.size == 0


def test_stop_lets_what_is_as_good_as_done_come_to_its_end(make: Make) -> None:
    """An answer that has just come in costs a few turns of the loop more, and is not thrown away."""
    begun, stopping = threading.Event(), threading.Event()
    answers: list[asyncio.Event] = []
    done: list[int] = []

    async def handle(item: int) -> None:
        if item == 0:
            answers.append(asyncio.Event())
            await answers[0].wait()
            for _ in range(5):
                await asyncio.sleep(0)
            done.append(item)
        else:
            begun.set()
            stopping.wait(WAIT_S)
            threading.Event().wait(0.05)  # until `stop` has got there
            answers[0].set()

    worker = make(handle)
    worker.offer(0)
    worker.offer(1)
    assert begun.wait(WAIT_S)
    stopping.set()
    assert worker.stop(0.0, grace=WAIT_S) == []
    assert done == [0]


def test_stop_drains_first(make: Make) -> None:
    """What can be finished in time is finished."""
    seen: list[int] = []

    async def handle(item: int) -> None:
        await asyncio.sleep(0)
        seen.append(item)

    worker = make(handle)
    for number in range(20):
        worker.offer(number)
    assert worker.stop(WAIT_S) == []
    assert len(seen) == 20


@pytest.mark.timing
def test_stopping_a_worker_that_never_started_is_quick(make: Make) -> None:
    """And stopping twice does no harm."""

    async def handle(item: int) -> None: ...

    worker = make(handle)
    began = monotonic()
    assert worker.stop(WAIT_S) == []
    assert worker.stop(WAIT_S) == []
    assert monotonic() - began < WAIT_S / 2
    assert not worker.offer(1)


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_failing_item_is_counted_and_the_next_is_handled(make: Make, error: BaseException) -> None:
    """Not even sys.exit() in a user's judge ends the background."""
    faults.clear()
    seen: list[int] = []

    async def handle(item: int) -> None:
        seen.append(item)
        if item == 0:
            raise error

    worker = make(handle)
    worker.offer(0)
    assert worker.wait_idle(WAIT_S)
    worker.offer(1)
    assert worker.wait_idle(WAIT_S)
    assert seen == [0, 1]
    cancelled = isinstance(error, asyncio.CancelledError)
    assert faults.counts() == ({} if cancelled else {"background work": 1})


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_failing_tick_is_counted_and_ticks_again(make: Make, error: BaseException) -> None:
    """The sweep of held spans must survive one bad exporter, and a `sys.exit()` in a function of the application."""
    faults.clear()
    ticks = threading.Semaphore(0)

    def tick() -> None:
        ticks.release()
        raise error

    async def handle(item: int) -> None: ...

    worker = make(handle, tick=tick)
    worker.offer(1)
    assert all(ticks.acquire(timeout=WAIT_S) for _ in range(3))
    assert faults.counts()["background tick"] >= 2


def test_the_tick_comes_while_the_queue_is_never_empty(make: Make) -> None:
    """Under a load that the worker just bears, alerts, held spans and the spool still have their turn."""
    ticks, over = threading.Semaphore(0), threading.Event()

    async def handle(item: int) -> None:
        if not over.is_set():
            worker.offer(item + 1)  # a queue that has an item whenever the worker looks

    worker = make(handle, tick=lambda: ticks.release())
    worker.offer(1)
    try:
        assert all(ticks.acquire(timeout=WAIT_S) for _ in range(3))
    finally:
        over.set()
    assert worker.wait_idle(WAIT_S)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_task_that_a_judge_leaves_behind_cannot_end_the_background(make: Make, error: BaseException) -> None:
    """Of the exceptions in a task, asyncio lets these two out of the event loop."""
    faults.clear()
    tasks: list[asyncio.Task[None]] = []

    async def leave() -> None:
        raise error

    async def handle(item: int) -> None:
        if item == 0:
            tasks.append(asyncio.create_task(leave()))
        await asyncio.sleep(0)

    worker = make(handle)
    for number in range(3):
        worker.offer(number)
        assert worker.wait_idle(WAIT_S)
    assert eventually(lambda: tasks[0].done())
    assert isinstance(tasks[0].exception(), type(error))
    assert faults.counts() == {"background worker": 1}


def test_a_judge_that_stops_the_event_loop_does_not_end_the_background(make: Make) -> None:
    """As one may that was written for a loop of its own."""
    faults.clear()

    async def handle(item: int) -> None:
        if item == 0:
            asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    worker = make(handle)
    for number in range(3):
        worker.offer(number)
        assert worker.wait_idle(WAIT_S)
    assert faults.counts() == {"background worker": 1}


@pytest.mark.parametrize("later", [False, True], ids=["at once", "in a task"])
def test_a_judge_that_cancels_all_tasks_does_not_end_the_background(make: Make, *, later: bool) -> None:
    """The worker's own task is among them; what waits beside the judge is cancelled, and the next items are handled."""
    faults.clear()
    seen: list[int] = []
    hanging, closed = Hanging(), threading.Event()

    async def handle(item: int) -> None:
        if item == 0:
            await hanging(item)
        if item == 1:
            if later:
                await asyncio.sleep(0.001)
            for task in asyncio.all_tasks():
                if task is not asyncio.current_task():
                    task.cancel()
        seen.append(item)

    async def aclose() -> None:
        closed.set()

    worker = make(handle, aclose=aclose)
    worker.offer(0)
    assert hanging.begun.wait(WAIT_S)
    for number in range(1, 4):
        worker.offer(number)
        assert worker.wait_idle(WAIT_S)
    assert hanging.cancelled.is_set()
    assert seen == [1, 2, 3]
    assert faults.counts() == {"background worker": 1}
    assert worker.stop(WAIT_S) == []
    assert closed.wait(WAIT_S)


@pytest.mark.parametrize("urgent", [False, True])
def test_a_task_that_is_cancelled_before_it_begins_loses_no_item(make: Make, *, urgent: bool) -> None:
    """asyncio never runs such a coroutine, not even its `finally`: it is begun again."""
    faults.clear()
    seen: list[int] = []

    def cancel_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    async def handle(item: int) -> None:
        asyncio.get_running_loop().call_soon(cancel_all)  # before the task in which the rest of this runs begins
        await asyncio.sleep(0.001)
        seen.append(item)

    worker = make(handle)
    for number in range(3):
        if urgent:
            done = threading.Event()

            async def check(item: int = number, done: threading.Event = done) -> None:
                seen.append(item)
                worker.end_check(done)
                done.set()

            def begin(check: Callable[[], Coroutine[Any, Any, None]] = check) -> Coroutine[Any, Any, None]:
                asyncio.get_running_loop().call_soon(cancel_all)
                return check()

            assert worker.run_soon(begin, done, monotonic() + WAIT_S)
            assert done.wait(WAIT_S)
        else:
            worker.offer(number)
            assert worker.wait_idle(WAIT_S)
    assert seen == [0, 1, 2]


def test_small_items_have_room_of_their_own(make: Make) -> None:
    """Spans to be written do not take the places of calls to be scored, and are bounded too."""
    worker = make(Hanging(), capacity=2)
    assert [worker.offer(number, small=True) for number in range(17)] == [True] * 16 + [False]
    assert [worker.offer(number) for number in range(3)] == [True, True, False]


def test_what_gathers_is_handled_without_being_asked_for(make: Make) -> None:
    """Also an item that finds the thread asleep."""
    handled = threading.Semaphore(0)
    ticks = threading.Semaphore(0)

    async def handle(item: int) -> None:
        handled.release()

    worker = make(handle, tick=lambda: ticks.release())
    for number in range(3):
        worker.offer(number, small=bool(number % 2))
        assert handled.acquire(timeout=WAIT_S)
    asleep = monotonic() + 1.3  # it lingers for a second
    while monotonic() < asleep:
        assert ticks.acquire(timeout=WAIT_S)
    worker.offer(4)
    assert handled.acquire(timeout=WAIT_S)


def test_it_does_not_wait_for_itself(make: Make) -> None:
    """A judge that calls `flush` gets an answer, not a deadlock."""
    answers: list[bool] = []

    async def handle(item: int) -> None:
        assert worker.is_current_thread
        answers.append(worker.wait_idle(WAIT_S))

    worker = make(handle)
    worker.offer(1)
    assert worker.wait_idle(WAIT_S)
    assert answers == [False]
    assert not worker.is_current_thread


def test_it_can_be_stopped_from_its_own_thread(make: Make) -> None:
    """Without waiting for itself; what is in flight goes back to the caller, as nothing is cancelled before."""
    stopped: list[list[int]] = []
    hanging, done = Hanging(), threading.Event()

    async def handle(item: int) -> None:
        if item == 1:
            await hanging(item)
        worker.offer(3)
        stopped.append(worker.stop(WAIT_S))
        done.set()

    worker = make(handle)
    worker.offer(1)
    assert hanging.begun.wait(WAIT_S)
    worker.offer(2)
    assert done.wait(WAIT_S)
    assert list(map(sorted, stopped)) == [[1, 2, 3]]
    assert hanging.cancelled.wait(WAIT_S)


def test_the_background_runs_in_an_empty_context(make: Make) -> None:
    """It is no child of the request that came first, and instrumented clients leave its requests alone."""
    from opentelemetry import context, trace

    seen: list[tuple[bool, object]] = []

    async def handle(item: int) -> None:
        seen.append(
            (trace.get_current_span().get_span_context().is_valid, context.get_value("suppress_instrumentation"))
        )

    worker = make(handle)
    with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(1, 2, False))):
        worker.offer(1)
    assert worker.wait_idle(WAIT_S)
    assert seen == [(False, True)]


def test_a_thread_that_cannot_be_started_is_a_refusal(make: Make) -> None:
    """As when the interpreter is shutting down: the item is not queued for ever."""

    async def handle(item: int) -> None: ...

    worker = make(handle)
    before = threading.stack_size(2**46)  # more than any machine has: no thread can start
    try:
        assert not worker.offer(1)
    finally:
        threading.stack_size(before)
    assert worker.size == 0
    assert worker.offer(2)
    assert worker.wait_idle(WAIT_S)


def test_what_is_too_heavy_is_rejected_and_handled_in_its_turn(make: Make) -> None:
    """It is told of before, so that it can let go of what makes it heavy."""
    rejected: list[int] = []
    handled: list[int] = []

    async def handle(item: int) -> None:
        handled.append(item)

    worker = make(handle, weigh=lambda item: item, most_bytes=100, reject=rejected.append)
    for number in (1, 1_000, 2):
        assert worker.offer(number)
        assert worker.wait_idle(WAIT_S)
    assert (handled, rejected) == ([1, 1_000, 2], [1_000])


def test_the_queue_is_bounded_in_bytes(make: Make) -> None:
    """What is in hand counts until it is done; nobody knows of the next that it is heavy before it is weighed."""
    hanging, rejected = Hanging(), threading.Event()
    worker = make(hanging, weigh=lambda item: 60, most_bytes=100, reject=lambda item: rejected.set())
    assert worker.offer(1)
    assert hanging.begun.wait(WAIT_S)
    assert not rejected.is_set()
    assert worker.offer(2)
    assert rejected.wait(WAIT_S)


class Weighing:
    """Weighs an item for the *turn*-th time as long as a test wants, and all others at once.

    The worker weighs an item when it takes it from its queue, and again when it begins to handle it.
    """

    def __init__(self, turn: int, weight: int = 1) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self._turn, self._weight, self._weighed = turn, weight, 0

    def __call__(self, item: int) -> int:
        self._weighed += 1
        if self._weighed == self._turn:
            self.begun.set()
            self.go_on.wait(3 * WAIT_S)
        return self._weight


def _in_thread(do: Callable[[], object]) -> list[object]:
    """Call *do* on a thread of its own, and return its result in a list; an empty one if it does not return in time."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(do()), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return list(found)


@pytest.mark.parametrize("turn", [1, 2])
def test_an_offer_does_not_wait_for_an_item_to_be_weighed(make: Make, turn: int) -> None:
    """The threads that offer items are those of requests."""
    handled: list[int] = []

    async def handle(item: int) -> None:
        handled.append(item)

    weighing = Weighing(turn)
    worker = make(handle, weigh=weighing)
    worker.offer(1)
    assert weighing.begun.wait(WAIT_S)
    offered = _in_thread(lambda: worker.offer(2))
    weighing.go_on.set()
    assert offered == [True]
    assert worker.wait_idle(WAIT_S)
    assert handled == [1, 2]


@pytest.mark.parametrize("turn", [1, 2])
def test_stop_gives_back_what_is_being_weighed(make: Make, turn: int) -> None:
    """Once: it is neither handled nor rejected afterwards, however heavy it turns out to be."""
    handled: list[int] = []
    rejected: list[int] = []
    closed = threading.Event()

    async def handle(item: int) -> None:
        handled.append(item)

    async def aclose() -> None:
        closed.set()

    weighing = Weighing(turn, weight=1_000)
    worker = make(handle, weigh=weighing, aclose=aclose, reject=rejected.append, most_bytes=100 if turn == 1 else 2_000)
    worker.offer(1)
    assert weighing.begun.wait(WAIT_S)
    given_back = _in_thread(lambda: worker.stop(0.0))
    weighing.go_on.set()
    assert given_back == [[1]]
    assert closed.wait(WAIT_S)
    assert (handled, rejected, worker.size) == ([], [], 0)


def test_stop_gives_back_what_is_not_rejected_yet(make: Make) -> None:
    """The one that is being rejected has lost part of its texts, so that the worker's thread ends it."""
    handled: list[int] = []
    rejected: list[int] = []
    begun, queued, rejecting, go_on, closed = (threading.Event() for _ in range(5))

    async def handle(item: int) -> None:
        handled.append(item)
        if item == 0:
            begun.set()
            queued.wait(WAIT_S)

    def reject(item: int) -> None:
        rejecting.set()
        go_on.wait(3 * WAIT_S)
        rejected.append(item)

    async def aclose() -> None:
        closed.set()

    worker = make(handle, weigh=lambda item: item, reject=reject, most_bytes=100, aclose=aclose)
    worker.offer(0)
    assert begun.wait(WAIT_S)
    for item in (1_000, 2_000, 3_000):
        assert worker.offer(item)
    queued.set()
    assert rejecting.wait(WAIT_S)
    given_back = _in_thread(lambda: worker.stop(0.0))
    go_on.set()
    assert given_back == [[2_000, 3_000]]
    assert closed.wait(WAIT_S)
    assert (handled, rejected, worker.size) == ([0, 1_000], [1_000], 0)


def test_an_item_whose_rejection_fails_is_handled_and_the_next_is_rejected(make: Make) -> None:
    """The failure is counted."""
    faults.clear()
    handled: list[int] = []
    rejected: list[int] = []
    begun, queued = threading.Event(), threading.Event()

    async def handle(item: int) -> None:
        handled.append(item)
        if item == 0:
            begun.set()
            queued.wait(WAIT_S)

    def reject(item: int) -> None:
        rejected.append(item)
        if item == 1_000:
            raise ValueError

    worker = make(handle, weigh=lambda item: item, reject=reject, most_bytes=100)
    worker.offer(0)
    assert begun.wait(WAIT_S)
    for item in (1_000, 2_000):
        assert worker.offer(item)
    queued.set()
    assert worker.wait_idle(WAIT_S)
    assert (handled, rejected) == ([0, 1_000, 2_000], [1_000, 2_000])
    assert faults.counts() == {"background work": 1}


def test_what_an_item_has_gained_since_it_was_weighed_counts_until_it_is_done(make: Make) -> None:
    """A call takes over the texts of its steps; afterwards the queue has all of its memory again."""
    release, begun, rejections = threading.Event(), threading.Event(), threading.Event()
    weights = {1: iter((10, 60)), 2: iter((50, 50)), 3: iter((100, 100))}
    rejected: list[int] = []

    async def handle(item: int) -> None:
        if item == 1:
            begun.set()
            await asyncio.to_thread(release.wait, WAIT_S)

    def reject(item: int) -> None:
        rejected.append(item)
        rejections.set()

    worker = make(handle, weigh=lambda item: next(weights[item]), reject=reject, most_bytes=100)
    worker.offer(1)
    assert begun.wait(WAIT_S)
    worker.offer(2)
    assert rejections.wait(WAIT_S)
    release.set()
    assert worker.wait_idle(WAIT_S)
    worker.offer(3)
    assert worker.wait_idle(WAIT_S)
    assert rejected == [2]


def test_items_wait_a_moment_for_room_for_what_comes_of_them(make: Make) -> None:
    """A burst is spread out for an exporter that is at work."""
    room, handled = threading.Event(), threading.Event()

    async def handle(item: int) -> None:
        assert room.is_set()
        handled.set()

    worker = make(handle, remaining_capacity=lambda: int(room.is_set()), patience=WAIT_S)
    worker.offer(1)
    assert not worker.wait_idle(0.1)
    room.set()
    assert handled.wait(WAIT_S)


def test_items_do_not_wait_long_for_room(make: Make) -> None:
    """An exporter whose backend is away must not keep calls from being scored."""

    async def handle(item: int) -> None: ...

    worker = make(handle, remaining_capacity=lambda: 0, patience=0.1)
    worker.offer(1)
    assert worker.wait_idle(WAIT_S)


def test_a_handler_that_cannot_say_its_room_does_not_stop_the_worker(make: Make) -> None:
    """The failure is counted, and the item is handled as soon as the handler answers again."""
    room = threading.Event()
    handled = threading.Event()

    def remaining_capacity() -> int:
        if not room.is_set():
            raise ValueError("the exporter does not say")
        return 1

    async def handle(item: int) -> None:
        handled.set()

    worker = make(handle, remaining_capacity=remaining_capacity)
    worker.offer(1)
    assert not worker.wait_idle(0.1)
    room.set()
    assert handled.wait(WAIT_S)
    assert faults.counts()["background work"] >= 1


def test_no_item_waits_for_room_while_half_of_the_places_are_taken(make: Make) -> None:
    """Else the next ones would be refused."""
    seen: list[int] = []

    async def handle(item: int) -> None:
        seen.append(item)

    worker = make(handle, remaining_capacity=lambda: 0, patience=1_000.0, capacity=10)
    for number in range(10):
        assert worker.offer(number)
    assert not worker.wait_idle(0.5)
    assert len(seen) >= 5


async def _end_at_once() -> None: ...


async def _end_later() -> None:
    """End in a task: after something that comes in a later turn of the event loop."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, None)
    await future


def _raising(error: BaseException, *, later: bool) -> Callable[[], Coroutine[Any, Any, None]]:
    async def end() -> None:
        if later:
            await _end_later()
        raise error

    return end


def _grow(weighed: int) -> int:
    return 100 * weighed


def _fail_to_weigh(weighed: int) -> int:
    raise ValueError("no weight")


ENDS: dict[str, tuple[Callable[[], Coroutine[Any, Any, None]], Callable[[int], int]]] = {
    "at once": (_end_at_once, lambda _: 100),
    "later": (_end_later, lambda _: 100),
    "raises": (_raising(ValueError("no"), later=False), lambda _: 100),
    "raises later": (_raising(ValueError("no"), later=True), lambda _: 100),
    "exits": (_raising(SystemExit(3), later=False), lambda _: 100),
    "is cancelled": (_raising(asyncio.CancelledError(), later=False), lambda _: 100),
    "is cancelled later": (_raising(asyncio.CancelledError(), later=True), lambda _: 100),
    "grows": (_end_later, _grow),
    "too heavy": (_end_at_once, lambda _: 1_001),
    "cannot be weighed": (_end_at_once, _fail_to_weigh),
}
"""How an item is handled, and its weight when it is weighed for the first and the second time."""
SMALL, HEAVIEST, WEIGHTLESS, BLOCKING = 3, 100, 101, 102


@pytest.mark.parametrize("judging", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_the_place_of_an_item_is_free_again_however_it_ends(make: Make, end: str, judging: bool) -> None:
    """As many large and small items, and as many bytes, find room as before the first."""
    handle_item, weight = ENDS[end]
    weighed: Counter[int] = Counter()
    rejected: list[int] = []
    blocks, goes_on = threading.Event(), threading.Event()

    async def handle(item: int) -> None:
        if item == BLOCKING:
            blocks.set()
            goes_on.wait(WAIT_S)
        elif item < 4:
            if judging and item != SMALL:
                assert worker.move_to_judging()
                assert worker.move_to_judging()  # it has the place already
            await handle_item()

    def weigh(item: int) -> int:
        weighed[item] += 1
        return weight(weighed[item]) if item < 4 else 1_000 if item == HEAVIEST else 0

    worker = make(handle, capacity=4, most_bytes=1_000, weigh=weigh, reject=rejected.append)
    for item in range(4):
        assert worker.offer(item, small=item == SMALL)
        assert worker.wait_idle(WAIT_S)
    rejected.clear()
    assert worker.offer(HEAVIEST)
    assert worker.wait_idle(WAIT_S)
    assert (worker.size, rejected) == (0, [])
    for _ in range(150):  # so that the mean is low, for which items are taken until they are weighed
        assert worker.offer(WEIGHTLESS, small=True)
        assert worker.wait_idle(WAIT_S)
    assert worker.offer(BLOCKING)
    assert blocks.wait(WAIT_S)
    assert [worker.offer(WEIGHTLESS) for _ in range(4)] == [True] * 3 + [False]
    assert [worker.offer(WEIGHTLESS, small=True) for _ in range(33)] == [True] * 32 + [False]
    goes_on.set()
    assert worker.wait_idle(WAIT_S)
    assert worker.size == 0


def test_what_waits_for_a_judge_does_not_take_the_place_of_the_next(make: Make) -> None:
    """Up to its own bound; the worker is not idle before it is done."""
    moved: list[bool] = []
    done = asyncio.Event()

    async def handle(item: int) -> None:
        moved.append(worker.move_to_judging())
        await done.wait()

    worker = make(handle, capacity=2)
    for number in range(2):
        assert worker.offer(number)
    assert not worker.wait_idle(0.1)
    assert worker.offer(2)
    assert worker.offer(3)
    assert not worker.wait_idle(0.1)
    assert moved == [True, True, False, False]
    assert not worker.offer(4)
    assert worker.size == 4


def test_at_the_end_it_closes_what_it_was_given_to_close(make: Make) -> None:
    """On its own event loop, after the last item."""
    seen: list[object] = []

    async def handle(item: int) -> None:
        seen.append(asyncio.get_running_loop())

    async def close() -> None:
        seen.append(asyncio.get_running_loop())

    worker = make(handle, aclose=close)
    worker.offer(1)
    worker.stop(WAIT_S)
    assert len(seen) == 2
    assert seen[0] is seen[1]


def test_what_hangs_when_it_is_closed_is_left_to_itself(make: Make) -> None:
    """The end keeps to its time."""

    async def handle(item: int) -> None: ...

    async def close() -> None:
        await asyncio.Event().wait()

    worker = make(handle, aclose=close)
    worker.offer(1)
    began = monotonic()
    assert worker.stop(WAIT_S) == []
    assert monotonic() - began < WAIT_S / 2


def test_items_that_wait_do_not_hold_up_those_that_do_not(make: Make) -> None:
    """However many wait for a slow judge."""
    quick = threading.Event()

    async def handle(item: int) -> None:
        if item:
            await asyncio.Event().wait()
        quick.set()

    worker = make(handle, capacity=1_000)
    for _ in range(600):
        assert worker.offer(1)
    assert worker.offer(0)
    assert quick.wait(WAIT_S)
