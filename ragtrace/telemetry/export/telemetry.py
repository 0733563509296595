"""Tracer, meter and logger of ragtrace, and export queues in front of the exporters that count every lost item.

The SDK's batch processors have a bounded queue that drops its oldest item for each new one, and drop a batch when the
exporter fails. `ExportQueueCounts` counts the items of such a queue, so that the background thread can wait for room;
`BoundedProcessor` lets nothing into a full queue; `RetryingExporter` retries a batch while the backend is away.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from ragtrace.core.endpoints import Rejected
from ragtrace.core.part import Part, PartStatus
from ragtrace.core.types import Observer, RagCall
from ragtrace.system.faults import faults, log_safely
from ragtrace.system.forks import PerProcess
from ragtrace.system.threads import run_all_bounded
from ragtrace.telemetry.export.observed_metrics import ObservedMetrics
from ragtrace.telemetry.spans.hold import without_releasing_held
from ragtrace.telemetry.spans.intake import span_bytes

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Span
    from opentelemetry.trace import Tracer

    from ragtrace.core.alert_incident import AlertIncident
    from ragtrace.core.feedback import Feedback
    from ragtrace.core.score_sink import ScoreSink
    from ragtrace.core.step import GuardVerdict
    from ragtrace.telemetry.export.own_meters import OwnMeters
    from ragtrace.telemetry.export.routes import Routing
    from ragtrace.telemetry.export.score_poster import ScorePoster
    from ragtrace.telemetry.spans.fast import FastTracer

SPANS: Final = "spans"
EVENTS: Final = "events"
MAX_WAIT_SECONDS: Final = 60.0
"""Longest time without an answer of the backend before spans and events are counted as lost."""
NOT_TAKEN: Final = "not taken by the backend"
"""Reason of losses that result from a backend's refusal of the whole signal."""
REJECTED: Final = "rejected by the backend"
"""Reason of losses of which the backend's response to an accepted batch told."""
_NO_ANSWER: Final = "Is the backend up? OTEL_BSP_MAX_QUEUE_SIZE and OTEL_BLRP_MAX_QUEUE_SIZE make the queues larger"
_NOT_ACCEPTED: Final = (
    "Is the backend up, and does it accept them? OpenTelemetry's log says what it answered, and ragtrace.doctor() asks"
    " it again"
)
_NO_SUCH_SIGNAL: Final = (
    "The backend answers, but does not take them where they are sent: ragtrace.doctor() says where that is"
)
_PAUSE_SECONDS: Final = 0.5
_REFUSED_WITHIN_SECONDS: Final = 0.5
"""Longest duration of a failed export that counts as a refusal, which the backend would repeat at a retry.

An export that fails later did not reach the backend, and is tried again.
"""
_CALLS_AT_ONCE: Final = 16
_ITEMS_OF_A_CALL: Final = 32
"""Generous number of spans and events that one call produces at once."""
_LAST_SECONDS: Final = 0.03
"""Time for the shutdown of the providers even when none is left."""


class ExportQueueCounts:
    """Counts of the waiting, in-flight and lost spans (or log records) of a batch processor's queue.

    Args:
        what: plural name of the items, for counts and log lines.
        limit: size of the batch processor's queue.
        reserve: places in the queue kept for evaluation events of calls that are being scored already; these do
            not wait for room.
        most_bytes: memory of queued items beyond which there is no room for an item that can wait.
        patience: seconds without an answer of the backend after which waiting for room ends.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        what: str,
        limit: int,
        *,
        reserve: int = 0,
        most_bytes: int = 1 << 62,
        patience: float = MAX_WAIT_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.what, self.limit = what, limit
        self._reserve, self._patience, self._clock = reserve, patience, clock
        self._most_bytes = most_bytes
        # Re-entrant: the garbage collector may end a stream, and so its spans, while this thread holds the lock.
        self._lock = threading.RLock()
        self._queued = self._in_flight = 0
        self._sizes: deque[int] = deque()
        self._bytes = self._bytes_in_flight = 0
        self._unanswered_since: float | None = None
        self._closed = False
        self.losses: Counter[str] = Counter()
        """Number of lost items by reason."""

    @property
    def size(self) -> int:
        """Number of spans or log records in the queue that are neither delivered nor lost."""
        return self._queued + self._in_flight

    @property
    def stalled(self) -> bool:
        """Whether an export has waited too long for the backend's answer.

        Scoring then no longer waits for room in the export queue.
        """
        since = self._unanswered_since
        return since is not None and self._clock() - since > self._patience

    def remaining_capacity(self, promised: int = 0) -> int:
        """Return how many more spans or log records the export queue has room for.

        Reserved places are no room. While the backend does not answer, a full queue counts as empty.

        Args:
            promised: number of items that will be queued later, for which room is kept.
        """
        left = self.limit - self._reserve - self._queued - promised
        if left <= 0 or self._bytes + self._bytes_in_flight >= self._most_bytes:
            # Waiting for a backend that does not answer would stop the scoring of calls: the caller goes on as if there
            # were room, and `add` counts items that do not fit as lost.
            return self.limit if self.stalled else 0
        return left

    def add(self, size: int = 0) -> bool:
        """Count a span or log record of *size* bytes as queued, if the export queue has room.

        Return True, or count the item as lost and return False if the queue is full or closed.
        """
        with self._lock:
            room = self._queued < self.limit and not self._closed
            if room:
                self._queued += 1
                self._sizes.append(size)
                self._bytes += size
        if not room:
            self.count_lost(1, "after shutdown" if self._closed else "queue full")
        return room

    def mark_in_flight(self, count: int) -> None:
        """Count the oldest *count* entries of the export queue as in flight: the exporter is about to send them."""
        with self._lock:
            self._queued = max(0, self._queued - count)
            self._in_flight += count
            for _ in range(min(count, len(self._sizes))):
                size = self._sizes.popleft()
                self._bytes -= size
                self._bytes_in_flight += size

    def start_waiting(self) -> None:
        """Note the time at which the exporter began to wait for the backend's answer."""
        if self._unanswered_since is None:
            self._unanswered_since = self._clock()

    def record_result(
        self, count: int, *, delivered: bool, why: str = "export failed", rejected: Rejected | None = None
    ) -> None:
        """Record the result of an export: count its spans or log records as delivered or lost.

        Args:
            rejected: items of a delivered batch that the backend did not store.
        """
        with self._lock:
            counted, self._in_flight = min(count, self._in_flight), max(0, self._in_flight - count)
            self._bytes_in_flight *= self._in_flight > 0  # one batch at a time
        if delivered:
            self._unanswered_since = None
            if rejected is not None and not self._closed:
                self.count_lost(min(counted, rejected.items), REJECTED, f"The backend says: {rejected.message!r}")
        elif counted and not self._closed:  # else `close` has counted them
            self.count_lost(counted, why, _NOT_ACCEPTED)

    def close(self) -> None:
        """Close the export queue: count all undelivered spans or log records as lost, and refuse further ones."""
        with self._lock:
            left, self._queued, self._in_flight, self._closed = self.size, 0, 0, True
        self.count_lost(left)

    def count_lost(self, count: int, why: str = "not exported before the end", advice: str = _NO_ANSWER) -> None:
        """Count *count* spans or log records as lost, and log a warning at the first loss for the reason *why*."""
        if not count:
            return
        with self._lock:
            self.losses[why] += count
        faults.warn_once(
            f"lost {self.what}: {why}",
            "telemetry was lost (%s: %s); every further loss is counted in ragtrace.stats().faults. %s",
            *(self.what, why, _NO_SUCH_SIGNAL if why == NOT_TAKEN else advice),
            count=count,
        )


class _OpenExporter:
    """Exporter of one process, and whether it is being closed."""

    def __init__(self, exporter: Any) -> None:
        self.exporter, self.closing, self.is_shut = exporter, threading.Event(), False


class RetryingExporter:
    """Wrapper of a span or log exporter that retries failed batches while the backend is unavailable, and counts
    losses.

    A batch whose answer did not come in time may have been stored all the same, and then arrives twice: OTLP promises
    "at least once", and backends tell spans by their ids.

    Args:
        exporter: returns the exporter of spans or of log records for this process. A forked child, which must not use
            its parent's connections, calls it again; the same exporter is then one that the user has made.
        queue: counts of the items in its batch processor's queue.
        pause: seconds between two tries.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        exporter: Callable[[], Any],
        queue: PerProcess[ExportQueueCounts],
        *,
        pause: float = _PAUSE_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._queue, self._pause, self._clock = queue, pause, clock
        self._opened = PerProcess(lambda: _OpenExporter(exporter()), keeps_parents=True)
        self._opened.get()

    @property
    def queue(self) -> ExportQueueCounts:
        """Counts of the items in the batch processor's queue in this process."""
        return self._queue.get()

    def export(self, batch: Sequence[Any]) -> Any:
        """Export *batch* with retries, and return the final result: delivered or given up."""
        opened, queue = self._opened.get(), self.queue
        queue.mark_in_flight(len(batch))
        delivered, rejected = False, None
        try:
            result = self._send(opened, queue, batch)
            delivered = _succeeded(result)
            rejected = _rejected_by(opened.exporter) if delivered else None
        finally:
            why = NOT_TAKEN if _has_refused(opened.exporter) else "export failed"
            queue.record_result(len(batch), delivered=delivered, why=why, rejected=rejected)
        return result

    def _send(self, opened: _OpenExporter, queue: ExportQueueCounts, batch: Sequence[Any]) -> Any:
        while True:
            queue.start_waiting()
            began = self._clock()
            result = opened.exporter.export(batch)
            failed_at_once = self._clock() - began < _REFUSED_WITHIN_SECONDS
            if _succeeded(result) or _has_refused(opened.exporter) or failed_at_once or queue.stalled:
                return result
            log_safely(logging.INFO, "the backend does not answer; %d %s wait", queue.size, queue.what)
            if opened.closing.wait(self._pause):
                return result

    def stop_retrying(self) -> None:
        """Stop all retries: from now on a batch is given up when the current export attempt fails."""
        opened = self._opened.peek()
        if opened is not None:
            opened.closing.set()

    def keep_open(self) -> None:
        """Keep the wrapped exporter open when this one is shut down, because it belongs to the user."""
        opened = self._opened.peek()
        if opened is not None:
            opened.is_shut = True

    def shares(self, other: RetryingExporter) -> bool:
        """Return whether *other* wraps the same exporter, which the user has made then."""
        opened, others = self._opened.peek(), other._opened.peek()
        return opened is not None and others is not None and opened.exporter is others.exporter

    def shutdown(self, *_: object, **__: object) -> None:
        """Shut the wrapped exporter down, which also ends its own retries, if this process has used it."""
        self.stop_retrying()
        opened = self._opened.peek()
        if opened is not None and not opened.is_shut:
            opened.is_shut = True
            opened.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True, because `export` always delivers or gives up a batch before returning."""
        return True


def _has_refused(exporter: object) -> bool:
    """Return whether *exporter* reports that the backend refuses all spans (or all log records)."""
    return getattr(exporter, "refused", None) is True


def _rejected_by(exporter: object) -> Rejected | None:
    """Return which items of its last batch the backend of *exporter* did not store, if the exporter knows it."""
    return rejected if isinstance(rejected := getattr(exporter, "rejected", None), Rejected) else None


def _succeeded(result: object) -> bool:
    """Return whether *result*, the return value of an exporter's `export` method, means success."""
    # Exporters of spans and of log records have an enumeration of results each.
    return getattr(result, "name", None) == "SUCCESS"


class BoundedProcessor(SpanProcessor):
    """Wrapper of a batch processor that refuses spans or log records, and counts them as lost, when the queue is full.

    The batch processor itself would drop its oldest item. The base class is that of span processors, as that of log
    record processors is loaded with the logs SDK only.
    """

    def __init__(self, inner: Any, queue: PerProcess[ExportQueueCounts]) -> None:
        self._inner, self._queue = inner, queue

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Pass the start of a span on to the batch processor."""
        self._inner.on_start(span, parent_context=parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Pass an ended span that is sampled on to the batch processor if its queue has room."""
        context = span.get_span_context()
        if context is not None and context.trace_flags.sampled and self._queue.get().add(span_bytes(span)):
            self._inner.on_end(span)

    def on_emit(self, log_record: Any) -> None:
        """Pass a log record on to the batch processor if its queue has room."""
        if self._queue.get().add():
            self._inner.on_emit(log_record)

    def enabled(self, *_: object, **__: object) -> bool:
        """Return True, because log records of every kind are accepted."""
        return True

    def shutdown(self) -> None:
        """Shut the batch processor down."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the batch processor."""
        return self._inner.force_flush(timeout_millis) is not False


class ScoreStore(Observer, Part, Protocol):
    """Store of scored calls, such as the history file, that is flushed and closed along with the telemetry."""

    @property
    def lost(self) -> Counter[str]: ...

    def add_feedback(self, feedback: Feedback) -> None: ...

    def add_guard_verdict(self, call: RagCall, verdict: GuardVerdict) -> None: ...

    def add_alert(self, incident: AlertIncident) -> None: ...

    def settled_until(self, moment: float) -> bool: ...


@dataclass(slots=True, eq=False, repr=False)
class Telemetry(Part):
    """Tracer, meter and logger of ragtrace, with the providers, score sinks and stores to flush and shut down."""

    tracer: Tracer
    find_meter: Callable[[], Meter]
    """Function that returns the meter of this process, which a forked child makes then."""
    logger: Logger | None
    fast: FastTracer | None = None
    """Tracer of fast spans; None if the SDK makes the spans."""
    owned: bool = False
    """Whether the tracer provider is ragtrace's own, whose spans nothing else ends or flushes."""
    drops_children: bool = False
    """Whether the head sampler is known to drop every span whose local parent it has dropped."""
    carriers: bool = True
    """Whether scores that come too late for their span are exported on an extra span, a carrier."""
    dialects: tuple[str, ...] = ()
    """Attribute conventions of the spans; empty for those of the settings."""
    flushes: list[Callable[[int], object]] = field(default_factory=list[Callable[[int], object]])
    """Methods `force_flush(timeout_millis)` of all providers."""
    shutdowns: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    """Methods `shutdown()` of ragtrace's own providers."""
    exporters: dict[str, RetryingExporter] = field(default_factory=dict[str, "RetryingExporter"])
    """Batching exporters of ragtrace's own providers, by signal: `SPANS` and `EVENTS`."""
    own_meters: OwnMeters | None = None
    """Meter provider of ragtrace; None if metrics go to the user's provider, or nowhere."""
    observed: ObservedMetrics = field(default_factory=ObservedMetrics)
    """Observable metrics of the meter provider."""
    resource: Callable[[], Resource] | None = None
    """Function that returns the resource of ragtrace's own providers, which the SDK may renew after a fork; None if
    there are no such providers."""
    score_sink: ScoreSink | None = None
    """Score API of the backend, if it has one; None: scores are read from spans, events and metrics."""
    service: str = ""
    """Name of the application in ragtrace's own resource."""
    posters: list[ScorePoster] = field(default_factory=list["ScorePoster"])
    """Observers that post scores to backends which do not read them from spans, events or metrics."""
    poster_parts: list[Part] = field(default_factory=list[Part])
    """Parts of a runtime that these observers are: each by itself, or, of several backends, all as one."""
    routing: Routing | None = None
    """Exporters that each take the telemetry of their calls; None: there is one exporter."""
    histories: list[ScoreStore] = field(default_factory=list["ScoreStore"])
    """Observers that store every call in a file."""

    @property
    def meter(self) -> Meter:
        """Meter of this process."""
        return self.find_meter()

    @property
    def lost(self) -> int:
        """Number of spans and events that were lost so far."""
        return sum(exporter.queue.losses.total() for exporter in self.exporters.values())

    def remaining_capacity(self, held: int) -> int:
        """Return how many steps and calls may be processed now without overfilling the export queues.

        Args:
            held: number of spans that wait for their scores, for which room in the export queue is kept.
        """
        least = _CALLS_AT_ONCE * _ITEMS_OF_A_CALL
        if self.routing is not None:  # the calls of all others would wait for one backend that is slow, or away
            return -(-least // _ITEMS_OF_A_CALL)
        for what, exporter in self.exporters.items():
            least = min(least, exporter.queue.remaining_capacity(held if what == SPANS else 0))
        return -(-least // _ITEMS_OF_A_CALL)

    def remaining_span_capacity(self) -> int:
        """Return how many more spans the export queue has room for, or 0 if ragtrace exports no spans itself."""
        return self.exporters[SPANS].queue.remaining_capacity() if SPANS in self.exporters else 0

    def count_lost_spans(self, count: int) -> bool:
        """Count spans that will never end as lost.

        Return whether there is an export queue, which keeps the count.
        """
        if SPANS in self.exporters:
            self.exporters[SPANS].queue.count_lost(count)
        return SPANS in self.exporters

    def flush(self, timeout: float, *, release_held: bool = True) -> bool:
        """Flush all providers within *timeout* seconds.

        Return False if a provider failed or was late, or if items were lost.

        Args:
            release_held: whether spans that wait for their scores are exported, too, without them.
        """
        deadline, lost = monotonic() + timeout, self.lost
        # Concurrently: the SDK's flush of spans lasts as long as spans keep coming, and metrics must leave, too.
        done = run_all_bounded([partial(_flush, flush, deadline, release_held) for flush in self.flushes], deadline)
        return done and self.lost == lost

    def scores_settled_until(self, moment: float) -> bool:
        """Return whether all scores that were queued before the time *moment* are delivered or counted as lost."""
        stored = all(history.settled_until(moment) for history in self.histories)
        return stored and all(poster.outbox.settled_until(moment) for poster in self.posters)

    def status(self) -> PartStatus | None:
        """Return what `ragtrace.doctor()` shows of several exporters."""
        return None if self.routing is None else self.routing.status()

    def leave_open(self, successor: Telemetry) -> None:
        """Leave the exporters of the user open, at the end of this telemetry, that *successor* has as well."""
        for exporter in self.exporters.values():
            if any(map(exporter.shares, successor.exporters.values())):
                exporter.keep_open()

    def close(self, timeout: float) -> bool:
        """Flush all providers and shut down ragtrace's own within *timeout* seconds.

        What cannot be delivered by then is counted as lost.

        Returns:
            False if something failed, was late or was lost.
        """
        deadline = monotonic() + timeout
        # The shutdown itself needs a moment, also after a flush that took all the time.
        flushed = self.flush(max(_LAST_SECONDS, timeout - _LAST_SECONDS))
        for exporter in self.exporters.values():
            exporter.stop_retrying()
        done = run_all_bounded(self.shutdowns, max(deadline, monotonic() + _LAST_SECONDS))
        for exporter in self.exporters.values():
            exporter.queue.close()
        return flushed and done


def _flush(flush: Callable[[int], object], deadline: float, release_held: bool) -> object:
    with nullcontext() if release_held else without_releasing_held():
        return flush(max(1, int((deadline - monotonic()) * 1000)))
