"""The queue of a worker's items, without a worker: one thread that plays all of them."""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from time import monotonic

import pytest

from ragtrace.pipeline.item_queue import Entry, ItemQueue
from tests.support.watched import WAIT_S, eventually

CAPACITY, MOST_BYTES = 6, 1_000


class Thread:
    """Stand-in for a worker's thread, which counts how often the queue starts and wakes it."""

    def __init__(self, *, starts: bool = True) -> None:
        self.starts, self.calls = starts, Counter[str]()
        self.queue: ItemQueue[int] = ItemQueue(CAPACITY, MOST_BYTES, start=self.start, wake_up=self.wake_up)
        self.found: list[int] = []
        """Number of unweighed items at each time that it was woken."""

    def start(self) -> bool:
        self.calls["start"] += 1
        self.queue.has_thread = self.starts
        return self.starts

    def wake_up(self) -> None:
        self.calls["wake_up"] += 1
        self.queue.wakes_thread = False
        self.found.append(self.queue.unweighed)


class Walk:
    """Random walk of items along the arrows of the queue, with books of its own."""

    def __init__(self, seed: int) -> None:
        self.chance, self.queue = random.Random(seed), Thread().queue
        self.weights: dict[int, int] = {}
        """Bytes that each item in the queue counts with."""
        self.small: set[int] = set()
        self.unweighed, self.weighed = deque[int](), deque[int]()
        self.in_flight: dict[int, Entry[int]] = {}
        self.judging: set[int] = set()
        self.offered, self.begun = 0, list[int]()
        self.seen = Counter[str]()
        """How often each arrow was taken, or refused."""

    def step(self) -> None:
        """Take one arrow, or find it refused: fewer items end than are offered."""
        self.chance.choice([self.offer, self.offer, self.weigh, self.begin, self.move, self.move, self.end])()

    def offer(self) -> None:
        item, small = self.offered, self.chance.random() < 0.3
        self.offered += 1
        was_full = self.queue.full_of_small if small else self.queue.full
        if self.queue.offer(item, small=small):
            self.unweighed.append(item)
            self.small |= {item} if small else set()
            self.weights[item] = 0
            self.seen["offered"] += 1
            assert not was_full
        else:
            self.seen["refused"] += 1

    def weigh(self) -> None:
        entries = self.queue.take_unweighed()
        taken = [self.unweighed.popleft() for _ in entries]
        assert [entry.item for entry in entries] == taken
        self.weighed.extend(taken)
        weights = [self.chance.randrange(400) for _ in entries]
        too_heavy = self.queue.set_weights(entries, weights)
        rejected = [entry.item for entry in too_heavy]
        for entry in too_heavy:
            assert self.queue.begin_rejection(entry)
            assert self.queue.end_rejection(entry)
        self.weights |= {item: 0 if item in rejected else weight for item, weight in zip(taken, weights, strict=True)}
        self.seen["rejected"] += len(rejected)
        self.seen["weighed"] += len(taken)

    def begin(self) -> None:
        entry = self.queue.begin_next()
        assert (entry is None) == (not self.weighed)
        if entry is not None:
            assert entry.item == self.weighed.popleft()
            self.begun.append(entry.item)
            self.in_flight[entry.item] = entry
            if not entry.small:
                self.weights[entry.item] += 5
                assert self.queue.reweigh(entry, self.weights[entry.item])

    def move(self) -> None:
        large = [item for item in self.in_flight if item not in self.small]
        if large:
            item = self.chance.choice(large)
            moved = self.queue.move_to_judging(self.in_flight[item])
            assert moved or item not in self.judging
            self.judging |= {item} if moved else set()
            self.seen["moved" if moved else "stayed"] += 1

    def end(self) -> None:
        if self.in_flight:
            item = self.chance.choice(list(self.in_flight))
            self.queue.end(self.in_flight.pop(item))
            self.forget(item)
            self.seen["ended"] += 1

    def forget(self, item: int) -> None:
        self.judging.discard(item)
        self.small.discard(item)
        del self.weights[item]

    def books(self) -> tuple[object, ...]:
        """What the queue should say of itself."""
        n_items = len(self.unweighed) + len(self.weighed) + len(self.in_flight)
        n_large = n_items - len(self.small) - len(self.judging)
        n_bytes = sum(self.weights.values())
        many = 2 * n_large >= CAPACITY or 2 * len(self.small) >= 8 * CAPACITY
        return n_items, len(self.unweighed), len(self.weighed), n_bytes, many or 2 * n_bytes > MOST_BYTES

    def check(self) -> None:
        queue = self.queue
        assert (queue.size, queue.unweighed, queue.weighed, queue.bytes, queue.half_full) == self.books()
        assert sorted(queue.in_flight()) == sorted(self.in_flight)
        assert self.begun == sorted(self.begun)


@pytest.mark.parametrize("seed", range(5))
def test_each_item_is_in_one_place_and_all_places_add_up(seed: int) -> None:
    """After each step of a random walk that takes every arrow and is refused at each; and when all has ended."""
    walk = Walk(seed)
    for _ in range(2_000):
        walk.step()
        walk.check()
    assert all(walk.seen[arrow] for arrow in ("offered", "refused", "weighed", "rejected", "moved", "stayed", "ended"))
    walk.queue.close()
    assert walk.queue.take_out() == [*walk.weighed, *walk.unweighed]
    for item in (*walk.weighed, *walk.unweighed):
        walk.forget(item)
    walk.weighed.clear()
    walk.unweighed.clear()
    walk.check()
    while walk.in_flight:
        walk.end()
        walk.check()
    assert (walk.queue.size, walk.queue.half_full, walk.weights) == (0, False, {})


def test_what_was_taken_out_while_it_was_weighed_is_neither_rejected_nor_counted() -> None:
    """A shutdown has it; the worker's thread comes back from weighing it with a weight that nobody wants."""
    queue = Thread().queue
    assert queue.offer(1)
    entries = queue.take_unweighed()
    queue.close()
    assert queue.take_out() == [1]
    assert queue.set_weights(entries, [10 * MOST_BYTES]) == []
    assert (queue.begin_next(), queue.size, queue.half_full) == (None, 0, False)


def test_of_two_that_are_too_heavy_the_one_that_is_being_rejected_is_not_taken_out() -> None:
    """It has lost a part of its texts, so that it is the worker's thread's to end; the other is not rejected."""
    queue = Thread().queue
    assert queue.offer(1)
    assert queue.offer(2)
    entries = queue.take_unweighed()
    assert queue.set_weights(entries, [10 * MOST_BYTES] * 2) == entries
    assert queue.begin_rejection(entries[0])
    queue.close()
    assert (queue.take_out(), queue.in_flight()) == ([2], [])
    assert not queue.end_rejection(entries[0])
    assert (queue.in_flight(), queue.size) == ([1], 1)
    assert not queue.begin_rejection(entries[1])
    queue.end(entries[0])
    assert (queue.in_flight(), queue.size, queue.half_full) == ([], 0, False)


def test_an_item_that_came_in_flight_as_the_queue_was_emptied_is_not_handled() -> None:
    """It stays in flight, where the shutdown finds it, and takes no place."""
    queue = Thread().queue
    assert queue.offer(1)
    queue.take_unweighed()
    entry = queue.begin_next()
    assert entry is not None
    queue.close()
    assert queue.take_out() == []
    assert not queue.reweigh(entry, 10)
    assert (queue.in_flight(), queue.size) == ([1], 0)


def test_the_thread_is_started_once_and_woken_only_where_it_sleeps() -> None:
    """It is woken when the item is there, as it looks for the item without the lock."""
    thread = Thread()
    assert thread.queue.offer(1)
    assert thread.queue.offer(2)
    assert thread.calls == {"start": 1}
    thread.queue.wakes_thread = True
    assert thread.queue.offer(3)
    assert thread.queue.offer(4)
    assert (thread.calls, thread.found) == ({"start": 1, "wake_up": 1}, [3])


def test_without_a_thread_an_item_is_refused_and_takes_no_place() -> None:
    """The next offer tries again."""
    thread = Thread(starts=False)
    assert not thread.queue.offer(1)
    assert (thread.queue.size, thread.queue.unweighed) == (0, 0)
    thread.starts = True
    assert thread.queue.offer(2)
    assert thread.calls == {"start": 2}


def test_a_closed_queue_refuses_items_and_keeps_those_that_it_has() -> None:
    """They are handled, or taken out, later."""
    queue = Thread().queue
    assert queue.offer(1)
    queue.close()
    assert not queue.offer(2)
    assert (queue.closed, queue.is_taken_out, queue.size) == (True, False, 1)


def test_a_wait_ends_with_the_last_check() -> None:
    """The item that comes of it is queued by then, also where the queue was closed meanwhile."""
    queue, found = Thread().queue, list[bool]()
    assert queue.begin_check("check", monotonic() + WAIT_S)
    assert not queue.is_idle
    waiting = _waiting(queue, found, lambda _: 0.0)
    queue.close()
    assert not queue.begin_check("another", monotonic() + WAIT_S)
    assert queue.offer(1)
    queue.end_check("check")
    assert not queue.offer(2)
    assert queue.take_out() == [1]
    waiting.join(WAIT_S)
    assert queue.is_idle


def test_a_check_whose_time_is_over_is_not_waited_for() -> None:
    """The thread that waits may be the one that would end it."""
    queue, began = Thread().queue, monotonic()
    assert queue.begin_check("check", began)
    assert not queue.wait_idle(WAIT_S, lambda _: 0.0)
    assert monotonic() - began < WAIT_S
    queue.end_check("check")
    assert queue.wait_idle(WAIT_S, lambda _: 0.0)


def test_a_paused_check_is_waited_for_by_a_closed_queue_alone() -> None:
    """Its stream may be read slowly: a flush does not wait for that, and a shutdown a little."""
    queue = Thread().queue
    assert queue.begin_check("check", monotonic() + WAIT_S)
    queue.pause_check("check", monotonic())
    assert queue.wait_idle(0.0, lambda _: 0.0)
    queue.close()
    assert not queue.wait_idle(WAIT_S, lambda _: 0.0)
    assert queue.begin_check("check", monotonic())
    queue.end_check("check")
    assert queue.wait_idle(0.0, lambda _: 0.0)


def test_an_item_may_be_offered_by_a_thread_that_has_the_lock() -> None:
    """The garbage collector may end a stream there, and so its call."""
    queue = Thread().queue
    with queue.lock:
        assert queue.offer(1)
    assert queue.size == 1


def _waiting(queue: ItemQueue[int], found: list[bool], reserved: Callable[[int], float]) -> threading.Thread:
    thread = threading.Thread(target=lambda: found.append(queue.wait_idle(3 * WAIT_S, reserved)))
    thread.start()
    assert eventually(lambda: queue.is_hurried)
    return thread


def test_a_wait_ends_with_the_last_item_and_hurries_until_then() -> None:
    """The worker, which asks whether it is hurried, does not sleep meanwhile."""
    queue, found = Thread().queue, list[bool]()
    assert queue.wait_idle(0.0, lambda _: 0.0)
    assert queue.offer(1)
    waiting = _waiting(queue, found, lambda _: 0.0)
    queue.take_unweighed()
    entry = queue.begin_next()
    assert entry is not None
    queue.end(entry)
    waiting.join(WAIT_S)
    assert (found, queue.is_hurried) == ([True], False)


def test_a_wait_that_is_cut_short_ends_soon() -> None:
    """A signal has interrupted the thread that cuts it short, which takes no lock and wakes nobody."""
    queue, found = Thread().queue, list[bool]()
    assert queue.offer(1)
    waiting = _waiting(queue, found, lambda _: 0.0)
    with queue.lock:
        threading.Thread(target=queue.cut_short).start()
    waiting.join(WAIT_S)
    assert (found, queue.is_hurried) == ([False], False)


def test_the_seconds_that_are_reserved_are_not_waited() -> None:
    """The caller needs them for its own work, the more the more items are left."""
    queue, left = Thread().queue, list[int]()
    assert queue.offer(1)
    assert queue.offer(2)

    def reserve_all(items: int) -> float:
        left.append(items)
        return 2 * WAIT_S

    assert not queue.wait_idle(WAIT_S, reserve_all)
    assert left == [2]


def test_what_is_cleared_is_gone_without_the_lock() -> None:
    """In a forked child, where a thread of the parent may have held it."""
    queue, is_held, may_end = Thread().queue, threading.Event(), threading.Event()
    assert queue.offer(1)

    def hold() -> None:
        with queue.lock:
            is_held.set()
            may_end.wait(WAIT_S)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(WAIT_S)
    queue.clear_queued()
    may_end.set()
    holder.join(WAIT_S)
    assert (queue.unweighed, queue.weighed) == (0, 0)


def test_a_wait_inside_a_wait_of_the_same_thread_does_not_end_its_hurry() -> None:
    """As where a signal handler flushes while its thread does."""
    queue = ItemQueue[int](6, 1_000, start=lambda: True, wake_up=lambda: None)
    assert queue.offer(1)
    hurried: list[bool] = []

    def reserved(_: int) -> float:
        if hurried:  # the outer wait hurries since its first turn
            assert not queue.wait_idle(0.0, lambda _: 0.0)
        hurried.append(queue.is_hurried)
        return 0.0 if len(hurried) < 2 else 1_000.0

    assert not queue.wait_idle(60.0, reserved)
    assert hurried == [False, True]
