"""Bounded queue that delivers items to a receiver in the background.

The receiver may be slow or away: score API, alert notifier, history file, feedback.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from opentelemetry.context import attach, detach, set_value

from ragtrace.core.ledger import DeliveryCounts
from ragtrace.core.score_sink import Refusal
from ragtrace.system.faults import log_safely
from ragtrace.system.threads import background_thread, prepare_bounded_calls, run_bounded

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_PATIENCE_SECONDS: Final = 600.0
"""Default time after which an item that the receiver keeps refusing for the moment is given up."""
_MOST_TRIES: Final = 1_000_000
"""Default number of deliveries after which such an item is given up: so many that the time alone decides."""
_SEND_SECONDS: Final = 10.0
"""Default time limit of one delivery."""
_FIRST_PAUSE_SECONDS: Final = 0.5
"""Pause before the first retry; each further pause is twice as long."""
_LONGEST_PAUSE_SECONDS: Final = 30.0
"""Longest pause before a retry, unless the receiver asks for a pause."""
_LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
"""Longest pause that the receiver may ask for (`Refusal.after_s`)."""
_FLUSH_PAUSE_SECONDS: Final = 0.2
"""Longest pause before a retry while a flush waits, unless the receiver asks for a pause."""
_SHORTEST_IDLE_SECONDS: Final = 0.02
"""Shortest wait of the delivery thread, as waits of a few microseconds would keep a processor busy."""
_KNOWN_KEYS_PER_CAPACITY: Final = 4
"""Number of keys that are remembered, as multiple of the capacity, to recognise repeated items."""
_ONE_ITEMS_FAULT: Final = frozenset({"refused", "too_large"})
"""Reasons of refusals that a single item may have caused for the whole batch."""


class Receiver(Protocol[T_contra]):
    """Destination of the items in an `Outbox`. Its methods may block.

    `send` runs on the outbox's own thread; where none could be started, on a thread that a flush waits for. `warn_lost`
    runs there, too, and for a full queue on the thread that offers the item.
    """

    @property
    def name(self) -> str:
        """Name of the receiver, for counts and log lines."""
        ...

    @property
    def what(self) -> str:
        """Plural noun for the delivered items, used in log lines: "scores", "alerts" ..."""
        ...

    @property
    def batch_size(self) -> int:
        """Largest number of items in a batch for `send`."""
        ...

    def send(self, batch: Sequence[T_contra], timeout: float) -> Mapping[int, Refusal]:
        """Deliver the items of *batch* within *timeout* seconds.

        Never raises.

        Returns:
            The refusals, by position of the item in *batch*.
        """
        ...

    def warn_lost(self, reason: str, detail: str, count: int) -> None:
        """Report lost items: count them, and log a warning at the first loss for each reason."""
        ...


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """Queue entry: an item to deliver, the time at which it was queued, and the number of delivery attempts so far."""

    item: T
    key: str
    """Identity of the item; empty: it is never taken for a repeat."""
    size: int
    """Bytes that the item takes."""
    offered_at: float
    order: int
    """Place among items that are due at the same time; the smallest is delivered first."""
    tries: int = 0
    alone: bool = False
    """Whether to deliver the item in a separate batch, as the receiver may have refused a whole batch for it."""
    not_before: float = 0.0
    """Time before which the receiver does not want this item again, in a flush either."""
    settled: bool = False
    """Whether the item has been delivered or counted as lost, so that it is not pending any more."""


class Outbox(Generic[T]):
    """Bounded queue whose items one daemon thread delivers to a receiver in batches, with retries.

    Items leave in the order in which they were offered, except that a delayed or refused item lets the others pass.
    Safe from any thread.

    **Refusals** (`Refusal`). An item refused without `again` has failed. With `again`, it is delivered again after a
    pause: between 0.5 and 30 seconds, or as long as the receiver asks for (`after_s`, 300 seconds at most), which even
    a flush observes. With `busy`, the whole queue pauses, so that all items keep their order.

    **Counts.** `offered = posted + repeated + failed{reason} + dropped{reason} + pending` holds at every moment.
    `failed` counts the items that the receiver refused for good, or until *patience* or *most_tries* was spent.
    `dropped` counts the items that did not fit into the queue, that a shutdown left undelivered or refused, and those
    that the caller did not queue at all (`count_skipped`).

    Args:
        receiver: delivers the batches.
        capacity: largest number of items in the queue.
        most_bytes: largest total size of the items in the queue.
        patience: seconds after which an item that the receiver keeps refusing for the moment is given up.
        most_tries: deliveries after which such an item is given up.
        batch_seconds: time slots in which items are gathered into batches: every item is first due at the end of its
            slot, whatever its own delay. 0: an item is due after its delay.
        send_seconds: time limit of one delivery.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        receiver: Receiver[T],
        *,
        capacity: int,
        most_bytes: int = 1 << 62,
        patience: float = _PATIENCE_SECONDS,
        most_tries: int = _MOST_TRIES,
        batch_seconds: float = 0.0,
        send_seconds: float = _SEND_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._receiver, self._capacity, self._most_bytes, self._clock = receiver, capacity, most_bytes, clock
        self._patience, self._most_tries = patience, most_tries
        self._batch_seconds, self._send_seconds = batch_seconds, send_seconds
        # Re-entrant: garbage collection may end a stream, and with it a call, at any allocation.
        self._changed = threading.Condition(threading.RLock())
        self._queue: list[tuple[float, int, _Entry[T]]] = []
        """Heap of waiting entries, each after the time when it is due (0.0: now) and its place among entries of the
        same time."""
        self._being_sent: set[_Entry[T]] = set()
        """Entries of the batches that the receiver is delivering now."""
        self._known: OrderedDict[str, None] = OrderedDict()
        self._order = count()
        self._thread: threading.Thread | None = None
        self._offered = self._posted = self._repeated = self._pending = self._bytes = 0
        self._failed: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._lost = self._lost_at_last_flush = 0
        """Number of items that failed or were dropped, except skipped ones; and the same number at the last flush."""
        self._flushes = 0
        """Number of flushes that wait at the moment."""
        self._paused_until = 0.0
        self._retry_after_until = 0.0
        """End of the pause as far as the receiver asked for it: a flush waits for this time, too."""
        self._closed = False
        """Whether new items are refused; items in the queue are still delivered."""
        self._ended = False
        """Whether delivery has ended: `close` has dropped the items that were left."""

    @property
    def name(self) -> str:
        """Name of the receiver that the queued items are delivered to."""
        return self._receiver.name

    def counts(self) -> DeliveryCounts:
        """Return how many items were queued, delivered and lost, and how many are pending."""
        with self._changed:
            return DeliveryCounts(
                offered=self._offered,
                posted=self._posted,
                repeated=self._repeated,
                failed=dict(self._failed),
                dropped=dict(self._dropped),
                pending=self._pending,
            )

    def offer(self, item: T, *, size: int = 0, key: str = "", delay: float = 0.0) -> bool:
        """Queue *item* and return at once.

        An item that does not fit is counted as dropped.

        Args:
            size: bytes that the item takes.
            key: identity of the item; an item whose key is queued or delivered already is counted as repeated.
            delay: seconds until the first delivery, or until the next flush. Ignored if the outbox has
                `batch_seconds`.

        Returns:
            False if the item was dropped.
        """
        with self._changed:
            self._offered += 1
            if key in self._known:
                self._repeated += 1
                return True
            full = self._pending >= self._capacity or self._bytes + size > self._most_bytes
            reason = "shutdown" if self._closed else "queue_full" if full else ""
            if not reason:
                now = self._clock()
                due = now + delay if delay > 0 else 0.0
                if self._batch_seconds:  # equal for all items of a time slot, which leave together and in order
                    due = (now // self._batch_seconds + 1) * self._batch_seconds
                self._push(_Entry(item, key, size, now, next(self._order)), due)
                self._remember(key)
                self._pending += 1
                self._bytes += size
                if self._thread is None:
                    self._start()
                self._changed.notify_all()
                return True
            self._dropped[reason] += 1
            self._lost += 1
        if reason == "queue_full":
            self._receiver.warn_lost(reason, "the receiver is slower than they come, or away", 1)
        return False

    def settled_until(self, moment: float) -> bool:
        """Return whether all items offered before the time *moment* are either delivered or counted as lost."""
        with self._changed:
            pending = (*self._being_sent, *(entry for _, _, entry in self._queue))
            return all(entry.settled or entry.offered_at > moment for entry in pending)

    def count_skipped(self, reason: str) -> None:
        """Count an item as dropped for *reason*, because the caller has decided not to queue it.

        This is no loss: neither `flush` nor `close` returns False for a skipped item.
        """
        with self._changed:
            self._offered += 1
            self._dropped[reason] += 1

    def flush(self, timeout: float) -> bool:
        """Deliver all queued items within *timeout* seconds.

        Items that wait for a retry are due at once, except during a pause that the receiver has asked for.

        Returns:
            False if the time was too short, or if items were lost since the last flush.
        """
        deadline = self._clock() + timeout
        with self._changed:
            undelivered = self._pending > 0 and self._thread is None  # no thread could be started
        if undelivered:  # should a thread be started meanwhile, both deliver: each takes batches under the lock
            run_bounded(self._drain, monotonic() + timeout)
        with self._changed:
            self._flushes += 1
            if self._pending:  # a flush of an empty queue cannot find out whether the receiver is back
                self._skip_pauses()
            try:
                while self._pending:
                    left = deadline - self._clock()
                    if left <= 0 or threading.current_thread() is self._thread:
                        return False
                    self._changed.wait(left)
            finally:
                self._flushes -= 1
            lost_before, self._lost_at_last_flush = self._lost_at_last_flush, self._lost
            return lost_before == self._lost

    def close(self, timeout: float) -> bool:
        """Close the delivery queue: refuse new items, deliver queued items within *timeout* seconds, and drop the
        others.

        Returns:
            False if items were lost.
        """
        with self._changed:
            self._closed = True
        flushed = self.flush(timeout)
        with self._changed:
            self._ended = True
            left = [
                entry for entry in (*self._being_sent, *(entry for _, _, entry in self._queue)) if self._settle(entry)
            ]
            self._queue.clear()
            for entry in left:
                self._count_lost(entry, self._dropped, "shutdown")
            self._changed.notify_all()
        if left:
            log_safely(
                logging.WARNING,
                "%s that were not delivered by %s before the shutdown: %d",
                *(self._receiver.what, self.name, len(left)),
            )
        return flushed and not left

    # --- under the lock ----------------------------------------------------------------------------------------------

    def _push(self, entry: _Entry[T], due: float) -> None:
        heapq.heappush(self._queue, (due, entry.order, entry))

    def _remember(self, key: str) -> None:
        if key:
            self._known[key] = None
            while len(self._known) > self._capacity * _KNOWN_KEYS_PER_CAPACITY:
                self._known.popitem(last=False)

    def _skip_pauses(self) -> None:
        """Make delayed items due at once, except those that the receiver has asked to get later."""
        waiting = [entry for _, _, entry in sorted(self._queue)]
        self._queue.clear()
        for entry in waiting:
            entry.order = next(self._order)  # as they are all due now: they leave in the order of the delays so far
            self._push(entry, entry.not_before)
        self._paused_until = self._retry_after_until
        self._changed.notify_all()

    def _take(self, now: float) -> list[_Entry[T]]:
        """Remove the next batch of due items from the queue and return it."""
        batch: list[_Entry[T]] = []
        while self._queue and self._queue[0][0] <= now and len(batch) < self._receiver.batch_size:
            if batch and (batch[0].alone or self._queue[0][2].alone):
                break
            batch.append(heapq.heappop(self._queue)[2])
        return batch

    def _settle(self, entry: _Entry[T]) -> bool:
        """Mark a queue entry as settled (delivered or lost), and return whether it was still pending."""
        if entry.settled:
            return False
        entry.settled = True
        self._pending -= 1
        self._bytes -= entry.size
        return True

    def _count_lost(self, entry: _Entry[T], counter: Counter[str], reason: str) -> None:
        self._known.pop(entry.key, None)
        counter[reason] += 1
        self._lost += 1

    def _start(self) -> None:
        thread = background_thread(self._run, f"ragtrace-{self._receiver.what}")
        try:
            thread.start()
        except RuntimeError:  # out of threads, or the interpreter is shutting down: the next flush delivers
            return
        self._thread = thread
        prepare_bounded_calls()

    # --- on the outbox's thread, or in a flush without one -----------------------------------------------------------

    def _drain(self) -> None:
        """Deliver all queued items on the calling thread."""
        with self._changed:
            self._skip_pauses()
        self._run(until_empty=True)

    def _run(self, *, until_empty: bool = False) -> None:
        # Instrumented HTTP clients look for this key, and do not trace deliveries as the application's requests.
        token = attach(set_value("suppress_instrumentation", True))
        try:
            while batch := self._next(until_empty=until_empty):
                refusals = self._receiver.send([entry.item for entry in batch], self._send_seconds)
                with self._changed:
                    self._being_sent.difference_update(batch)
                    losses = self._record_batch_result(batch, refusals)
                    self._changed.notify_all()
                for (reason, detail), lost in losses.items():  # not under the lock: a log handler may do anything
                    self._receiver.warn_lost(reason, detail, lost)
        finally:
            detach(token)

    def _next(self, *, until_empty: bool) -> list[_Entry[T]]:
        """Wait until a batch of items is due and return it.

        Returns:
            An empty list after `close`, or, if *until_empty*, when nothing is pending.
        """
        with self._changed:
            while not self._ended and (self._pending or not until_empty):
                now = self._clock()
                if now >= self._paused_until and (batch := self._take(now)):
                    self._being_sent.update(batch)
                    return batch
                due = max(self._paused_until, self._queue[0][0]) if self._queue else None
                self._changed.wait(None if due is None else max(_SHORTEST_IDLE_SECONDS, due - now))
            return []

    def _record_batch_result(
        self, batch: Sequence[_Entry[T]], refusals: Mapping[int, Refusal]
    ) -> Counter[tuple[str, str]]:
        """Count each item of a sent *batch* as delivered, lost or queued again, and return the losses by reason."""
        losses: Counter[tuple[str, str]] = Counter()
        now = self._clock()
        split = len(batch) > 1 and len(refusals) == len(batch) and all(map(_may_concern_one_item, refusals.values()))
        for position, entry in enumerate(batch):
            refusal = refusals.get(position)
            entry.tries += 1
            if entry.settled:
                continue
            if refusal is None:
                self._settle(entry)
                self._posted += 1
            elif split:
                entry.alone = True
                self._push(entry, 0.0)
            elif refusal.again and now - entry.offered_at < self._patience and entry.tries < self._most_tries:
                self._retry(entry, refusal, now)
            else:
                if refusal.busy:  # say, a wrong key: the next item meets the same, and is not sent at once for that
                    self._paused_until = max(self._paused_until, now + _LONGEST_PAUSE_SECONDS)
                self._settle(entry)
                self._count_lost(entry, self._failed, refusal.reason)
                losses[refusal.reason, refusal.detail] += 1
        return losses

    def _retry(self, entry: _Entry[T], refusal: Refusal, now: float) -> None:
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(entry.tries - 1, 10))
        pause *= random.uniform(0.8, 1.2)
        if refusal.after_s is not None:
            pause = min(max(refusal.after_s, 0.0), _LONGEST_RETRY_AFTER_SECONDS)
            entry.not_before = 0.0 if refusal.busy else now + pause
        elif self._flushes:
            pause = min(pause, _FLUSH_PAUSE_SECONDS)
        if not refusal.busy:
            self._push(entry, now + pause)
            return
        self._push(entry, 0.0)  # due as soon as the pause ends, and before everything that was offered later
        self._paused_until = max(self._paused_until, now + pause)
        if refusal.after_s is not None:
            self._retry_after_until = max(self._retry_after_until, now + pause)


def _may_concern_one_item(refusal: Refusal) -> bool:
    return not refusal.again and refusal.reason in _ONE_ITEMS_FAULT
