"""Queue of the items of a worker, bounded in number and in bytes: which item is where, under one lock.

    offer -> unweighed -> weighed -> in flight -> ended
                                     (may move to judging)

Each arrow is one method, which takes the lock once, so that an item is always in one of these places:

| Arrow | Method | Thread |
|---|---|---|
| to unweighed, or refused | `offer` | any |
| unweighed to weighed, with the weight 0 | `take_unweighed` | the worker's |
| the measured weight | `set_weights`, and `reweigh` once it is in flight | the worker's |
| weighed to weighed, rejected meanwhile | `begin_rejection`, `end_rejection` | the worker's |
| weighed to in flight | `begin_next` | the worker's |
| in flight to judging | `move_to_judging` | the worker's |
| in flight to ended | `end` | the worker's |
| unweighed and weighed to the caller | `take_out`, at a shutdown | one that shuts down; it may be the worker's |
| the one that is being rejected to in flight | `take_out` | the same |
| unweighed and weighed to nowhere | `clear_queued` | that of a forked child (`Worker.forget_queued`) |

`close` and `wait_idle` are for a thread that flushes or shuts down, the properties and `cut_short` for any. An answer
that waits for a guard's check is none of these items, and its call will be one: `begin_check`, `pause_check` and
`end_check`, on any thread, say when. A closed queue takes that call all the same.

**Invariants.** Whenever the lock is free, and until `take_out` has been called,

    size = unweighed + weighed + in flight = large + small + judging (the places that `AdmissionControl` counts),

and the bytes that it counts are the weights of the weighed items and of those in flight. Items are begun in the order
of their offers. After `take_out`, the worker's thread only ends what is in flight. An item is either rejected or taken
out: `begin_rejection` refuses it once it has been taken out, and `take_out` does not return it from then on.
`tests/unit/pipeline/test_item_queue.py` checks all of this after each step of a random walk through the arrows. In a
forked child the counts of the parent's queue mean nothing once `clear_queued` has emptied it.

**The lock.** All fields are changed under `ItemQueue.lock`, but for `_is_cut_short`. They are read without it, too: the
properties are estimates for threads that must not wait, and the worker's thread looks whether there is anything to do,
and makes sure under the lock. `Worker` takes the same lock for its own few fields, as `offer` may start or wake its
thread. No handler, no item and nothing of the user's runs under it, so that it may be taken with any other lock held
(that of `Spooling.claim` is, by the thread that queues calls of the file). Under it, `start` alone takes others: of
threads, of pools, and of `faults` and log handlers where no thread can be started. A forked child never takes the lock
of its parent's queue, which may be held.

**How to change it.** A request waits in `offer`, `full` and `full_of_small`: they call nothing that they need not, and
`tests/benchmarks/overhead.py --only request` shows what a change costs. A new place for items is a method for each
arrow, a row above, and an operation of the random walk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, Generic, TypeVar

from ragtrace.pipeline.admission import AdmissionControl

T = TypeVar("T")
_MOST_WEIGHED: Final = 8
"""Most items that are taken to be weighed at a time: to weigh them takes far less than a slice of work (`Throttle`)."""
_UNHURRIED_SECONDS: Final = 0.01
"""Last part of a `wait_idle`, in which the worker sleeps again so that the waiting thread gets the GIL to return: two
switch intervals of the interpreter."""
_LOOK_AGAIN_SECONDS: Final = 0.25
"""Longest wait of `wait_idle` before it looks again whether it has been cut short, which notifies nobody, and how much
of its time is reserved by now."""


@dataclass(slots=True, eq=False)
class Entry(Generic[T]):
    """Item that is weighed or in flight, with its size in bytes. Its fields are the queue's to change."""

    item: T
    small: bool
    weight: int
    is_judging: bool = False
    """Whether the item, in flight, has a place in judging."""
    is_being_rejected: bool = False
    """Whether the worker's thread rejects the item now, so that no other may see it."""


class ItemQueue(Generic[T]):
    """Queue of a worker's items, with those in flight: the module says which method is whose.

    Args:
        capacity: most large items that are queued, or in flight and not in judging; further ones are refused. Besides,
            eight times as many small items, and as many items in judging.
        most_bytes: most bytes of the items that are queued or in flight. Items not weighed yet count as others do on
            average.
        start: starts the worker's thread, and returns whether it runs; called with the lock.
        wake_up: wakes the worker's thread; called with the lock.
    """

    def __init__(
        self, capacity: int, most_bytes: int, *, start: Callable[[], bool], wake_up: Callable[[], object]
    ) -> None:
        self._start, self._wake_up = start, wake_up
        # Re-entrant: the garbage collector may end a stream, and so its call, while this thread holds the lock.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._unweighed: deque[tuple[T, bool]] = deque()
        """Items, each with whether it is small."""
        self._weighed: deque[Entry[T]] = deque()
        self._in_flight: dict[int, Entry[T]] = {}
        """Entries by their id."""
        self._admission = AdmissionControl(capacity, most_bytes)
        self._idle_waiters: dict[object, float] = {}
        """Waits in `wait_idle`, each with the time at which to stop hurrying for it. A thread may be in two: a signal
        handler may flush while the thread flushes."""
        self._hurried_until = 0.0
        """Latest of these times."""
        self._checks: dict[object, float] = {}
        """Checks for which answers wait, each with the time by which its call is queued at the latest."""
        self._paused: dict[object, float] = {}
        """The same, of streams that wait for no check just now, and that only a shutdown waits for."""
        self.closed = False
        """Whether new items are refused, once no check is under way; those that are queued are still handled."""
        self.is_taken_out = False
        """Whether `take_out` has given the queued items back; set after `closed`."""
        self.unfinished_checks = 0
        """Number of checks that were under way when `take_out` was called."""
        self.has_thread = False
        """Whether the worker's thread has been started; set by the worker."""
        self.wakes_thread = False
        """Whether the worker's thread sleeps until an item wakes it; set by the worker."""
        self._is_cut_short = False  # set without the lock, by a thread that a signal has interrupted and must not wait

    # --- estimates without the lock ----------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of items, large and small, that are queued or in flight."""
        return self._admission.admitted

    @property
    def is_idle(self) -> bool:
        """Whether every item has ended, and no check is under way."""
        return not self.size and not self._checks

    @property
    def unweighed(self) -> int:
        """Number of queued items that are not weighed yet."""
        return len(self._unweighed)

    @property
    def weighed(self) -> int:
        """Number of queued items that are weighed."""
        return len(self._weighed)

    @property
    def bytes(self) -> float:
        """Total size in bytes of the items that are weighed or in flight."""
        return self._admission.bytes

    @property
    def full(self) -> bool:
        """Whether the queue would refuse every item, large or small."""
        return self._admission.full(len(self._unweighed))

    @property
    def full_of_small(self) -> bool:
        """Whether the queue would refuse a small item, such as a span to write."""
        return self._admission.full_of_small(len(self._unweighed))

    @property
    def half_full(self) -> bool:
        """Whether the queue is at least half full, in number of items or in bytes."""
        return self._admission.half_full

    @property
    def has_room_for_judging(self) -> bool:
        """Whether an item of mean size fits into the queue, and finds a place in judging later."""
        return self._admission.has_room_for_judging(len(self._unweighed))

    @property
    def is_hurried(self) -> bool:
        """Whether a thread waits for the items, so that the worker does not sleep between them."""
        return monotonic() < self._hurried_until

    # --- called by any thread ----------------------------------------------------------------------------------------

    def offer(self, item: T, *, small: bool = False) -> bool:
        """Add *item* to the queue without blocking, and return whether it was added.

        It is not if the queue is full or closed, or the worker's thread cannot be started.

        Args:
            item: the item.
            small: whether it takes little memory and work, unlike a call to be scored; there is room for more of these.
        """
        with self.lock:
            if self.closed and (self.is_taken_out or not self._checks):
                return False
            if not self._admission.admit(small, len(self._unweighed)):
                return False
            if not self.has_thread and not self._start():
                self._admission.free(small)
                return False
            self._unweighed.append((item, small))
            if self.wakes_thread:  # after the item is there, as the thread looks for it without the lock
                self._wake_up()
            return True

    def begin_check(self, check: object, until: float) -> bool:
        """Note that an answer waits for *check*, whose call is queued by the monotonic time *until*.

        Return False if the queue is closed, unless it was noted before.
        """
        with self.lock:
            if self.closed and (self.is_taken_out or check not in self._checks):
                return False
            self._paused.pop(check, None)
            self._checks[check] = until
            return True

    def pause_check(self, check: object, until: float) -> None:
        """Note that the stream of *check* goes on, and begins another check or ends, by *until* where it is read."""
        with self.lock:
            if check in self._checks and not self.closed:
                del self._checks[check]
                self._paused[check] = until
                self._notify_idle()

    def end_check(self, check: object) -> None:
        """Note that the call of *check*, which may have ended before, is queued, or will not be."""
        with self.lock:
            self._paused.pop(check, None)
            if self._checks.pop(check, None) is not None:
                self._notify_idle()

    # --- called by a thread that flushes or shuts down ---------------------------------------------------------------

    def wait_idle(self, timeout: float, reserved: Callable[[int], float]) -> bool:
        """Wait at most *timeout* seconds for all items and checks, and return whether every one has ended.

        Where only checks are left whose time is over, nothing is waited for: a thread that waits here may be the one
        that would queue their calls.

        Args:
            timeout: seconds to wait.
            reserved: given the number of items that are left, returns how many of these seconds the caller needs for
                its own work afterwards.
        """
        deadline, waiter = monotonic() + timeout, object()
        with self._changed:
            try:
                while unfinished := self.size + len(self._checks):
                    self._wake_up()
                    left = deadline - reserved(unfinished) - monotonic()
                    if not self.size:
                        left = min(left, max(self._checks.values()) - monotonic())
                    if left <= 0 or self._is_cut_short:
                        return False
                    self._hurry(waiter, monotonic() + left - _UNHURRIED_SECONDS)
                    self._changed.wait(min(left, _LOOK_AGAIN_SECONDS))
                return True
            finally:
                self._hurry(waiter, None)

    def _hurry(self, waiter: object, until: float | None) -> None:
        """Hurry for a wait until a monotonic time, and as long as for any other; None: no longer for this one."""
        if until is None:
            self._idle_waiters.pop(waiter, None)
        else:
            self._idle_waiters[waiter] = until
        self._hurried_until = max(self._idle_waiters.values(), default=0.0)

    def cut_short(self) -> None:
        """Make every `wait_idle` return soon, in progress or later, without waiting for unfinished items."""
        self._is_cut_short = True

    def close(self) -> None:
        """Refuse new items from now on."""
        with self.lock:
            self.closed = True
            self._checks |= self._paused
            self._paused.clear()

    def take_out(self) -> list[T]:
        """Take all queued items out of the closed queue, and return them; they are never begun.

        One that is being rejected comes in flight instead, and is the worker's to end.
        """
        with self.lock:
            self.is_taken_out = True
            now = monotonic()
            self.unfinished_checks = sum(until > now for until in self._checks.values())
            queued = [*self._weighed, *(Entry(item, small, 0) for item, small in self._unweighed)]
            taken = [entry for entry in queued if not entry.is_being_rejected]
            self._in_flight |= {id(entry): entry for entry in queued if entry.is_being_rejected}
            self.clear_queued()
            for entry in taken:
                self._admission.free(entry.small, entry.weight)
            self._wake_up()
        return [entry.item for entry in taken]

    def in_flight(self) -> list[T]:
        """Return the items in flight, but for one that is being rejected."""
        with self.lock:
            return [entry.item for entry in self._in_flight.values() if not entry.is_being_rejected]

    def clear_queued(self) -> None:
        """Let go of the queued items, without their counts and, in a forked child, without the lock."""
        self._unweighed.clear()
        self._weighed.clear()

    # --- called by the worker's thread -------------------------------------------------------------------------------

    def take_unweighed(self) -> list[Entry[T]]:
        """Take the oldest unweighed items, a few at a time, and return their entries, which have the weight 0."""
        with self.lock:  # once for several items: threads that offer items wait for this lock
            most = min(_MOST_WEIGHED, len(self._unweighed))
            entries = [Entry(*self._unweighed.popleft(), 0) for _ in range(most)]
            self._weighed.extend(entries)
        return entries

    def set_weights(self, entries: Sequence[Entry[T]], weights: Sequence[int]) -> list[Entry[T]]:
        """Set the measured weights of entries that `take_unweighed` returned, and return those that are too heavy.

        These keep the weight 0. None are returned if the items were taken out meanwhile.
        """
        rejected: list[Entry[T]] = []
        with self.lock:
            if self.is_taken_out:
                return rejected
            for entry, weight in zip(entries, weights, strict=True):
                entry.weight = weight if self._admission.fits(weight) else 0
                self._admission.weigh(weight, entry.weight)
                if entry.weight != weight:
                    rejected.append(entry)
        return rejected

    def begin_rejection(self, entry: Entry[T]) -> bool:
        """Keep an entry that `set_weights` returned from being taken out, and return False if it has been meanwhile."""
        with self.lock:
            entry.is_being_rejected = not self.is_taken_out
            return entry.is_being_rejected

    def end_rejection(self, entry: Entry[T]) -> bool:
        """Let a rejected entry have its turn, and return False if the queue was emptied meanwhile.

        The entry is in flight then: it is to be handled now, and no shutdown does anything about it.
        """
        with self.lock:
            entry.is_being_rejected = False
            return not self.is_taken_out

    def begin_next(self) -> Entry[T] | None:
        """Put the oldest weighed item in flight, and return its entry; None: there is none."""
        with self.lock:
            if not self._weighed:
                return None
            entry = self._weighed.popleft()
            self._in_flight[id(entry)] = entry
            return entry

    def reweigh(self, entry: Entry[T], weight: int) -> bool:
        """Set the weight of an item that has just come in flight, measured again.

        Return False if the queue was emptied meanwhile: a shutdown returns the item, so that it must not be handled.
        """
        with self.lock:
            if self.is_taken_out:
                # It stays in flight, where the shutdown, which waits for this thread, finds it.
                self._admission.free(entry.small, entry.weight)
                return False
            self._admission.reweigh(weight - entry.weight)
            entry.weight = weight
            return True

    def move_to_judging(self, entry: Entry[T]) -> bool:
        """Move an item in flight to a place in judging, unless it has one.

        Return False if none of these places is free; the item then keeps its old place.
        """
        with self.lock:
            if not entry.is_judging:
                entry.is_judging = self._admission.move_to_judging(entry.weight)
            return entry.is_judging

    def end(self, entry: Entry[T]) -> None:
        """Free the place of an item in flight that has been handled."""
        with self.lock:
            del self._in_flight[id(entry)]
            self._admission.free(entry.small, entry.weight, judging=entry.is_judging)
            self._notify_idle()

    def _notify_idle(self) -> None:
        if self._idle_waiters and not self.size:
            self._changed.notify_all()
