"""Holds the root span of a call that is being scored, so that the scores can still be put on it.

An ended span refuses attributes. `HoldProcessor` wraps the processor that exports, keeps only the spans that a runtime
announced with `expect`, for a bounded time and in bounded number, and passes on a copy with the scores. Every other
span passes at once.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from ragtrace.core import semconv
from ragtrace.system.faults import guarded
from ragtrace.system.forks import in_child
from ragtrace.telemetry.spans.size import span_bytes
from ragtrace.telemetry.spans.span_record import bounded

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span

log = logging.getLogger("ragtrace")

Scores = Mapping[str, "str | bool | int | float"]
"""Attributes to add to a held span."""

# A list, since a thread may look through it while another adds to it: appending, removing and copying are atomic.
_alive: list[ref[HoldProcessor]] = []
_passing = threading.local()


class HoldProcessor(SpanProcessor):
    """Wraps an exporting span processor; put it where that processor would be.

    Example: `provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))`.

    Args:
        inner: the processor that exports.
        seconds: the longest time a span is held; keep it below the decision wait of tail sampling.
        capacity: the largest number of spans held; the oldest is passed on unscored when one more comes.
        most_bytes: the same for the memory they take.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        inner: SpanProcessor,
        *,
        seconds: float = 10.0,
        capacity: int = 2048,
        most_bytes: int = 16 << 20,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._inner, self._seconds, self._capacity, self._clock = inner, seconds, capacity, clock
        self._most_bytes = most_bytes
        self.before_flush: Callable[[float], bool] | None = None
        """Called with the seconds left before a flush releases what is held: time to finish scoring."""
        self._reset()
        _alive.append(ref(self, _forget))
        in_child(self._reset)  # the parent exports what it held; a copy exported by the child would be a duplicate

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a fork copies the lock, perhaps held
        self._expected: set[int] = set()
        self._held: OrderedDict[int, tuple[float, ReadableSpan, int]] = OrderedDict()
        self._bytes = 0
        self._noted: dict[int, Scores] = {}

    @property
    def held(self) -> int:
        """How many spans are held now."""
        return len(self._held)

    @property
    def sees_ends_only(self) -> bool:
        """Whether the wrapped processor does not care for spans that are not over."""
        from ragtrace.telemetry.spans.user_provider import sees_ends_only

        return sees_ends_only(self._inner)

    def expect(self, span_id: int) -> None:
        """The span of that id is about to end and waits for scores."""
        with self._lock:
            self._expected.add(span_id)

    def forget(self, span_id: int) -> bool:
        """After the span has ended: is it held? If not (another provider, not sampled), stop expecting it."""
        with self._lock:
            self._expected.discard(span_id)
            return span_id in self._held

    def note(self, span_id: int, scores: Scores) -> None:
        """Keep *scores* for a held span: they are on it if it must go before `release`."""
        with self._lock:
            if span_id in self._held:
                self._noted[span_id] = scores

    def release(self, span_id: int, scores: Scores) -> bool:
        """Pass the span on with *scores* on it; False if it is not (or no longer) held."""
        with self._lock:
            entry = self._held.pop(span_id, None)
            self._noted.pop(span_id, None)
            if entry is not None:
                self._bytes -= entry[2]
        if entry is None:
            return False
        with guarded("release of a held span"):
            self._inner.on_end(_scored(entry[1], scores))
        return True

    def give_up(self, span_id: int, status: str) -> bool:
        """Pass the span on with *status* and what was noted; False if it is not held."""
        with self._lock:
            noted = self._noted.get(span_id, {})
        return self.release(span_id, {**noted, semconv.EVAL_STATUS: status})

    def sweep(self) -> int:
        """Pass on, as timed out, what has been held too long; returns how many."""
        horizon = self._clock() - self._seconds
        with self._lock:
            late = [span_id for span_id, (since, _, _) in self._held.items() if since <= horizon]
        return sum(self.give_up(span_id, semconv.STATUS_TIMEOUT) for span_id in late)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Part of the SDK's interface."""
        self._inner.on_start(span, parent_context=parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Hold the span if it is expected, else pass it on."""
        # Without a lock where nothing is expected: what is expected now is another span.
        if not self._expected or not self._keep(span):
            self._inner.on_end(span)

    def _keep(self, span: ReadableSpan) -> bool:
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return False
        with self._lock:
            if context.span_id not in self._expected:
                return False
            self._expected.discard(context.span_id)
            size = span_bytes(span)
            self._held[context.span_id] = (self._clock(), span, size)
            self._bytes += size
        while (oldest := self._one_too_many()) is not None:
            self.give_up(oldest, semconv.STATUS_DROPPED)
        return True

    def _one_too_many(self) -> int | None:
        with self._lock:
            full = len(self._held) > self._capacity or self._bytes > self._most_bytes
            return next(iter(self._held), None) if full else None

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Give scoring the time to finish, pass on what is still held as timed out, and flush the wrapped processor."""
        if getattr(_passing, "by", False):
            return self._inner.force_flush(timeout_millis) is not False
        deadline = monotonic() + timeout_millis / 1000
        finished = True
        if self.before_flush is not None:
            finished = self.before_flush(timeout_millis / 1000)
        self._release_all()
        left_ms = max(1, int((deadline - monotonic()) * 1000))
        return self._inner.force_flush(left_ms) is not False and finished

    def shutdown(self) -> None:
        """Pass on what is held and shut the wrapped processor down."""
        _forget(ref(self))
        self._release_all()
        self._inner.shutdown()

    def _release_all(self) -> None:
        with self._lock:
            left = list(self._held)
        for span_id in left:
            self.give_up(span_id, semconv.STATUS_TIMEOUT)


@contextmanager
def passing_by() -> Generator[None, None, None]:
    """While it lasts, a flush on this thread delivers what has been passed on, and leaves alone what is held."""
    _passing.by = True
    try:
        yield
    finally:
        _passing.by = False


def holds() -> list[HoldProcessor]:
    """Every hold processor of this process: the runtime's own and those in users' providers."""
    return [hold for entry in tuple(_alive) if (hold := entry()) is not None]


def adopt(before_flush: Callable[[float], bool]) -> None:
    """Have all of them give scoring the time to finish before they are flushed, by *before_flush*."""
    for hold in holds():
        hold.before_flush = before_flush


def disown(before_flush: Callable[[float], bool]) -> None:
    """Undo it, where no newer runtime has adopted them since."""
    for hold in holds():
        if hold.before_flush == before_flush:
            hold.before_flush = None


def held() -> int:
    """How many spans they hold, all together."""
    return sum([hold.held for hold in holds()])


def _forget(entry: ref[HoldProcessor]) -> None:
    with suppress(ValueError):
        _alive.remove(entry)


def _scored(span: ReadableSpan, scores: Scores) -> ReadableSpan:
    """A copy of an ended span with the scores on it, with no limit on attributes: a score must not evict the oldest."""
    clean = BoundedAttributes(attributes=scores, immutable=False)  # a user's metric may put anything into a label
    attributes: Any = {**(span.attributes or {}), **clean}
    if span.dropped_attributes:
        attributes = BoundedAttributes(attributes=attributes, immutable=True)
        attributes.dropped = span.dropped_attributes
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        events=bounded(span.events, None, span.dropped_events),
        links=bounded(span.links, None, span.dropped_links),
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
