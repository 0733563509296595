"""The last stretch before an exporter: nothing is lost there without being counted.

The SDK's batch processors have a bounded queue that drops its oldest item for each new one, and give up a batch when
the exporter does. `Backlog` counts what is in such a queue, so that the background can wait for room in it;
`BoundedSpans` and `BoundedEvents` let nothing into a queue that is full; `PatientExporter` tries a batch again while
the backend is away.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from ragtrace.system.faults import faults, say
from ragtrace.telemetry.spans.hold import span_bytes

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span

PATIENCE_SECONDS: Final = 60.0
"""How long a backend that does not answer is waited for before spans and events are given up."""
NOT_TAKEN: Final = "not taken by the backend"
"""Why items were lost whose signal the backend refuses as a whole."""
_AWAY: Final = "Is the backend up? OTEL_BSP_MAX_QUEUE_SIZE and OTEL_BLRP_MAX_QUEUE_SIZE make the queues larger"
_NO_SUCH_SIGNAL: Final = (
    "The backend answers, but does not take them where they are sent: ragtrace.doctor() says where that is"
)
_parents: list[object] = []
_PAUSE_SECONDS: Final = 0.5
_AT_ONCE_SECONDS: Final = 0.5
"""An exporter that fails faster was refused, and would be again; one that fails later had nobody to talk to."""


class Backlog:
    """What a batch processor has taken in and its exporter has not yet delivered.

    Args:
        what: plural name of the items, for the accounts.
        limit: size of the processor's queue.
        reserve: places in it that only urgent items may take.
        most_bytes: memory of the items in it beyond which there is no room for one that can wait.
        patience: seconds without an answer after which nobody waits for room any more.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        what: str,
        limit: int,
        *,
        reserve: int = 0,
        most_bytes: int = 1 << 62,
        patience: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.what, self.limit = what, limit
        self._reserve, self._patience, self._clock = reserve, patience, clock
        self._most_bytes = most_bytes
        self.reset()

    def reset(self) -> None:
        """Start empty: after a fork the items are the parent's, and its lock may be held for ever."""
        # Re-entrant: a stream collected as garbage ends its spans wherever this thread happens to be, here included.
        self._lock = threading.RLock()
        self._queued = self._in_hand = 0
        self._sizes: deque[int] = deque()
        self._bytes = self._bytes_in_hand = 0
        self._unanswered_since: float | None = None
        self._given_up = False
        self.losses: Counter[str] = Counter()
        """Items that came and were not delivered, by reason."""

    @property
    def lost(self) -> int:
        """Items that came and were not delivered."""
        return self.losses.total()

    @property
    def size(self) -> int:
        """Items taken in and neither delivered nor given up."""
        return self._queued + self._in_hand

    @property
    def stalled(self) -> bool:
        """Whether the backend has not answered for so long that waiting for it would cost more than it saves."""
        since = self._unanswered_since
        return since is not None and self._clock() - since > self._patience

    def has_room(self, promised: int = 0) -> bool:
        """Whether an item that can wait may come now; *promised*: items that have a place already."""
        return self.room(promised) > 0

    def room(self, promised: int = 0) -> int:
        """How many items that can wait may come now; *promised*: items that have a place already."""
        left = self.limit - self._reserve - self._queued - promised
        if left <= 0 or self._bytes + self._bytes_in_hand >= self._most_bytes:
            return self.limit if self.stalled else 0
        return left

    def enter(self, size: int = 0) -> bool:
        """An item of *size* bytes comes; False, and counted as lost, if the queue has no place for it."""
        with self._lock:
            room = self._queued < self.limit and not self._given_up
            if room:
                self._queued += 1
                self._sizes.append(size)
                self._bytes += size
        if not room:
            self._lose(1, "after shutdown" if self._given_up else "queue full")
        return room

    def take(self, count: int) -> None:
        """The exporter takes a batch of *count* out of the queue."""
        with self._lock:
            self._queued = max(0, self._queued - count)
            self._in_hand += count
            for _ in range(min(count, len(self._sizes))):  # a batch processor sends in the order in which items came
                size = self._sizes.popleft()
                self._bytes -= size
                self._bytes_in_hand += size

    def asking(self) -> None:
        """The exporter begins to send."""
        if self._unanswered_since is None:
            self._unanswered_since = self._clock()

    def settle(self, count: int, *, delivered: bool, why: str = "export failed") -> None:
        """The batch of *count* that was taken is delivered, or given up because of *why*."""
        with self._lock:
            counted, self._in_hand = min(count, self._in_hand), max(0, self._in_hand - count)
            self._bytes_in_hand *= self._in_hand > 0  # one batch at a time
        if delivered:
            self._unanswered_since = None
        elif counted and not self._given_up:  # else it has been counted
            self._lose(counted, why)

    def give_up(self) -> None:
        """There is no more time: what is left counts as lost, even if it should still be delivered."""
        with self._lock:
            left, self._queued, self._in_hand, self._given_up = self.size, 0, 0, True
        if left:
            self._lose(left, "not exported before the end")

    def forgo(self, count: int) -> None:
        """There is no more time for *count* items to come at all."""
        if count:
            self._lose(count, "not exported before the end")

    def _lose(self, count: int, why: str) -> None:
        with self._lock:
            self.losses[why] += count
        advice = _NO_SUCH_SIGNAL if why == NOT_TAKEN else _AWAY
        faults.warn_once(
            f"lost {self.what}: {why}",
            "telemetry was lost (%s: %s); every further loss is counted in ragtrace.stats().faults. %s",
            self.what,
            why,
            advice,
            count=count,
        )


class PatientExporter:
    """Wraps the exporter of a batch processor: tries a batch again while the backend is away, counts what is lost.

    A batch whose answer did not come in time may have been stored all the same, and then arrives twice: OTLP promises
    "at least once", and backends tell spans by their ids.

    Args:
        exporter: of spans or of log records.
        backlog: what its batch processor has in its queue.
        renew: called before the first export of a forked child, which must not use the parent's connections.
        pause: seconds between two tries.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        exporter: Any,
        backlog: Backlog,
        renew: Callable[[], None],
        *,
        pause: float = _PAUSE_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.backlog, self._renew, self._pause, self._clock = backlog, renew, pause, clock
        self._use(exporter)

    def adopt(self, exporter: Any) -> None:
        """In a forked child: use *exporter* from now on."""
        # Not collected here: closing the parent's connections is for the parent, which has the threads that drive them.
        _parents.append(self._exporter)
        self._use(exporter)

    def _use(self, exporter: Any) -> None:
        self._exporter, self._pid = exporter, os.getpid()
        self._closing, self._shut = threading.Event(), False

    def export(self, batch: Sequence[Any]) -> Any:
        """Part of the SDK's interface: returns when *batch* is delivered or given up."""
        if self._pid != os.getpid():
            self._renew()
        if self._pid != os.getpid():  # an exporter that the user made cannot be made anew
            self.adopt(self._exporter)
        self.backlog.take(len(batch))
        delivered = False
        try:
            result = self._send(batch)
            delivered = _succeeded(result)
        finally:
            self.backlog.settle(len(batch), delivered=delivered, why=NOT_TAKEN if self._refused else "export failed")
        return result

    def _send(self, batch: Sequence[Any]) -> Any:
        while True:
            self.backlog.asking()
            began = self._clock()
            result = self._exporter.export(batch)
            if _succeeded(result) or self._refused or self._clock() - began < _AT_ONCE_SECONDS or self.backlog.stalled:
                return result
            say(logging.INFO, "the backend does not answer; %d %s wait", self.backlog.size, self.backlog.what)
            if self._closing.wait(self._pause):
                return result

    @property
    def _refused(self) -> bool:
        """Whether the backend said last that it does not take this signal; only some exporters know."""
        return getattr(self._exporter, "refused", None) is True

    def hurry(self) -> None:
        """Try nothing again any more."""
        self._closing.set()

    def shutdown(self, *_: object, **__: object) -> None:
        """Part of the SDK's interface; also breaks off what the exporter itself tries again."""
        self.hurry()
        if self._pid == os.getpid() and not self._shut:
            self._shut = True
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Part of the SDK's interface: nothing is kept here."""
        return True


def _succeeded(result: object) -> bool:
    """Spans and log records have each their own enumeration of results."""
    return getattr(result, "name", None) == "SUCCESS"


class BoundedSpans(SpanProcessor):
    """Wraps a batch processor of spans, which drops its oldest for one too many: refuses that one, and counts it."""

    def __init__(self, inner: SpanProcessor, backlog: Backlog) -> None:
        self._inner, self._backlog = inner, backlog

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Part of the SDK's interface."""
        self._inner.on_start(span, parent_context=parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Part of the SDK's interface; the batch processor itself ignores spans that are not sampled."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        if self._backlog.enter(span_bytes(span)):
            self._inner.on_end(span)

    def shutdown(self) -> None:
        """Part of the SDK's interface."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Part of the SDK's interface."""
        return self._inner.force_flush(timeout_millis) is not False


class BoundedEvents:
    """The same for a batch processor of log records, whose base class is loaded with the logs SDK only."""

    def __init__(self, inner: Any, backlog: Backlog) -> None:
        self._inner, self._backlog = inner, backlog

    def on_emit(self, log_record: Any) -> None:
        """Part of the SDK's interface."""
        if self._backlog.enter():
            self._inner.on_emit(log_record)

    def enabled(self, *_: object, **__: object) -> bool:
        """Part of the SDK's interface."""
        return True

    def shutdown(self) -> None:
        """Part of the SDK's interface."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Part of the SDK's interface."""
        return self._inner.force_flush(timeout_millis) is not False
