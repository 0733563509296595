"""Span processor that keeps ended root spans back from export until the scores of their calls are known.

An ended span refuses attributes. `HoldProcessor` wraps the processor that exports, keeps only the spans that a runtime
named with `hold_on_end`, for a bounded time and in bounded number, and passes on a copy with the scores. Every other
span passes at once. Measured gain: the scores stand on the call's own span, where every backend shows and filters them,
without the second span a call that a carrier costs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from ragtrace.core import semconv
from ragtrace.core.part import ObservableMetric, Part
from ragtrace.core.types import JudgedTexts
from ragtrace.system.faults import faults, guarded
from ragtrace.system.forks import PerProcess
from ragtrace.telemetry.spans.fast import bounded_list
from ragtrace.telemetry.spans.intake import SpanIntake, span_bytes
from ragtrace.telemetry.spans.span_providers import sees_ends_only

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span

Scores = Mapping[str, "str | bool | int | float"]
"""Attributes to add to a held span."""

# A list, since a thread may iterate over it while another adds to it: appending, removing and copying are atomic.
_hold_processors: list[ref[HoldProcessor]] = []
_flushing = threading.local()
BeforeFlush: TypeAlias = "Callable[[float], bool | None]"
"""Function that finishes the scoring of calls within the given seconds. It returns whether that succeeded; None if not,
and another thread waits for longer, which then releases what is held."""


class _KeptSpans:
    """Spans that one process keeps back from export, and what it knows of them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.expected: set[int] = set()
        """Ids of spans that are to be kept back when they end."""
        self.unconfirmed: set[int] = set()
        """Ids of held spans that may be the root of a call that is not assembled yet."""
        self.held: OrderedDict[int, tuple[float, ReadableSpan, int]] = OrderedDict()
        self.bytes = 0
        self.interim_scores: dict[int, Scores] = {}
        self.before_flush: BeforeFlush | None = None


class HoldProcessor(SpanProcessor):
    """Wrapper of an exporting span processor that keeps root spans back from export until scores are added to them.

    Examples:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> exporter, provider = InMemorySpanExporter(), TracerProvider()
        >>> provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(exporter)))
        >>> ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider))
        >>> with ragtrace.call("Where is the tower?") as call:
        ...     call.retrieved(["The tower is in Paris."])
        ...     call.answered("In Paris.")
        >>> ragtrace.flush()
        True
        >>> exporter.get_finished_spans()[0].attributes["ragtrace.eval.consistency.score"]
        1.0

    Args:
        inner: the processor that exports.
        seconds: the longest time a span is held; keep it below the decision wait of tail sampling.
        capacity: the largest number of spans held; one more, and the oldest is passed on unscored.
        most_bytes: the largest memory that held spans may take.
        evaluate: whether RAG calls in the spans of other instrumentations (OpenInference, OpenTelemetry GenAI,
            OpenLLMetry ...) are scored, too; `ragtrace.configure` must have been called.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        inner: SpanProcessor,
        *,
        seconds: float = 10.0,
        capacity: int = 2048,
        most_bytes: int = 16 << 20,
        evaluate: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._inner, self._capacity, self._clock = inner, capacity, clock
        self._most_bytes = most_bytes
        self.seconds = seconds
        """Longest time for which a span is held."""
        self.is_own = False
        """Whether the processor belongs to a provider of ragtrace's own, which no other library records to unless it is
        the process's."""
        self.intake: SpanIntake | None = SpanIntake() if evaluate else None
        """Queue of the spans from which calls are assembled; None if no calls are assembled."""
        # The parent exports what it held; a copy exported by a forked child would be a duplicate.
        self._kept = PerProcess(_KeptSpans)
        _hold_processors.append(ref(self, _unregister))

    @property
    def held_count(self) -> int:
        """Number of ended spans that are currently kept back from export."""
        return len(self._kept.get().held)

    @property
    def before_flush(self) -> BeforeFlush | None:
        """Function that a flush calls to finish scoring within the given seconds, before held spans are released."""
        return self._kept.get().before_flush

    @before_flush.setter
    def before_flush(self, before_flush: BeforeFlush | None) -> None:
        self._kept.get().before_flush = before_flush

    @property
    def sees_ends_only(self) -> bool:
        """Whether the wrapped span processor ignores spans until they end."""
        return sees_ends_only(self._inner)

    def hold_on_end(self, span_id: int) -> None:
        """Keep the span *span_id* back from export when it ends."""
        kept = self._kept.get()
        with kept.lock:
            kept.expected.add(span_id)
            kept.unconfirmed.discard(span_id)

    def check_held(self, span_id: int) -> bool:
        """Return whether the ended span *span_id* is kept back from export.

        If it is not, cancel `hold_on_end` for it.
        """
        kept = self._kept.get()
        with kept.lock:
            kept.expected.discard(span_id)
            return span_id in kept.held

    def set_interim_scores(self, span_id: int, scores: Scores) -> None:
        """Store *scores* for the kept-back span *span_id*, in case it must be exported before all scores are known."""
        kept = self._kept.get()
        with kept.lock:
            if span_id in kept.held:
                kept.interim_scores[span_id] = scores

    def release(self, span_id: int, scores: Scores, texts: JudgedTexts | None = None) -> bool:
        """Export the kept-back span *span_id* with *scores* added, and return whether there was such a span.

        Args:
            span_id: id of the span.
            scores: attributes to add.
            texts: what was judged, for exporters that show it; None: no texts are shown.
        """
        kept = self._kept.get()
        with kept.lock:
            entry = kept.held.pop(span_id, None)
            kept.interim_scores.pop(span_id, None)
            kept.unconfirmed.discard(span_id)
            if entry is not None:
                kept.bytes -= entry[2]
        if entry is None:
            return False
        with guarded("release of a held span"):
            self._inner.on_end(_with_scores(entry[1], scores, texts))
        return True

    def release_with_status(self, span_id: int, status: str, reason: str = "") -> bool:
        """Export a kept-back span with its interim scores, an evaluation status and, unless empty, its reason.

        Return whether there was such a span. A span that is not known to be a call's root is exported unchanged.
        """
        kept = self._kept.get()
        with kept.lock:
            interim = kept.interim_scores.get(span_id, {})
            is_root = span_id not in kept.unconfirmed
        why = {semconv.REASON: reason} if reason else {}
        return self.release(span_id, {**interim, semconv.EVAL_STATUS: status, **why} if is_root else {})

    def release_unscored(self, span_id: int) -> bool:
        """Export the kept-back span *span_id* without scores, because it is not the root of a call.

        A span that a runtime has named with `hold_on_end` stays.
        """
        kept = self._kept.get()
        with kept.lock:
            return span_id in kept.unconfirmed and self.release(span_id, {})

    def release_expired(self) -> int:
        """Export the spans that were kept back for too long, with the status `late`, and return their number.

        Their calls are still being scored: the scores follow on a carrier span.
        """
        horizon, kept = self._clock() - self.seconds, self._kept.get()
        with kept.lock:
            late = [span_id for span_id, (since, _, _) in kept.held.items() if since <= horizon]
        return sum(self.release_with_status(span_id, semconv.STATUS_LATE) for span_id in late)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Pass the start of *span* on to the wrapped processor."""
        if self.intake is not None:
            try:
                self.intake.started(span, parent_context)
            except Exception as error:
                faults.record("start of a span", error)
        self._inner.on_start(span, parent_context=parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Keep the ended *span* back if its scores are awaited, or else pass it on to the wrapped processor."""
        # No lock is needed to see that no span is expected: *span* would have been announced before its end, and any
        # span that another thread announces from now on is another one.
        root_bytes = 0
        if self.intake is not None:
            try:
                root_bytes = self.intake.ended(span)
            except Exception as error:
                faults.record("end of a span", error)
        if not (self._kept.get().expected or root_bytes) or not self._try_hold(span, root_bytes):
            self._inner.on_end(span)

    def _try_hold(self, span: ReadableSpan, root_bytes: int) -> bool:
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return False
        kept = self._kept.get()
        with kept.lock:
            if context.span_id in kept.expected:
                kept.expected.discard(context.span_id)
            elif root_bytes:
                kept.unconfirmed.add(context.span_id)
            else:
                return False
            size = root_bytes or span_bytes(span)
            kept.held[context.span_id] = (self._clock(), span, size)
            kept.bytes += size
        while len(kept.held) > self._capacity or kept.bytes > self._most_bytes:
            with kept.lock:
                oldest = next(iter(kept.held), None)
            if oldest is None:
                break
            self.release_with_status(oldest, semconv.STATUS_DROPPED)
        return True

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until scoring is over, export all spans that are still kept back, and flush the wrapped processor.

        While another flush waits for longer, they stay kept back.
        """
        if getattr(_flushing, "keeps_held", False):
            return self._inner.force_flush(timeout_millis) is not False
        deadline = monotonic() + timeout_millis / 1000
        before_flush = self.before_flush
        finished = before_flush is None or before_flush(timeout_millis / 1000)
        if finished is not None:
            # Without that function no runtime is there, as at the end of a shutdown, to send scores later.
            self._release_all(semconv.STATUS_TIMEOUT if before_flush is None else semconv.STATUS_LATE)
        left_ms = max(1, int((deadline - monotonic()) * 1000))
        return self._inner.force_flush(left_ms) is not False and finished is True

    def shutdown(self) -> None:
        """Export all spans that are still kept back, and shut the wrapped processor down."""
        self.retire()
        self._release_all(semconv.STATUS_TIMEOUT)
        self._inner.shutdown()

    def retire(self) -> None:
        """Let runtimes no longer find this processor, as its provider ends or was never used."""
        _unregister(ref(self))

    def _release_all(self, status: str) -> None:
        kept = self._kept.get()
        with kept.lock:
            left = list(kept.held)
        for span_id in left:
            self.release_with_status(span_id, status)


class ExpiredHolds(Part):
    """Part of a runtime that exports the spans which were kept back for too long."""

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metric of the spans that are kept back."""
        about = "Spans held for their scores"
        yield ObservableMetric(semconv.METRIC_HELD_SIZE, "gauge", "{span}", about, lambda: [(held_span_count(), {})])

    def tick(self) -> None:
        """Export them, with the status `late`."""
        for hold in hold_processors():
            hold.release_expired()


@contextmanager
def without_releasing_held() -> Generator[None, None, None]:
    """Context manager in which flushes on the current thread do not export spans that wait for their scores."""
    _flushing.keeps_held = True
    try:
        yield
    finally:
        _flushing.keeps_held = False


def hold_processors() -> list[HoldProcessor]:
    """Return all `HoldProcessor` objects of this process, in ragtrace's and in the user's tracer providers."""
    return [hold for entry in tuple(_hold_processors) if (hold := entry()) is not None]


def set_before_flush(before_flush: BeforeFlush) -> None:
    """Make every `HoldProcessor` call *before_flush* before each flush.

    The callback finishes the scoring of calls.
    """
    for hold in hold_processors():
        hold.before_flush = before_flush


def clear_before_flush(before_flush: BeforeFlush) -> None:
    """Stop every `HoldProcessor` from calling *before_flush* before each flush."""
    for hold in hold_processors():
        if hold.before_flush == before_flush:
            hold.before_flush = None


def release_unscored(span_id: int) -> None:
    """Export the span *span_id*, which gets no scores, if a `HoldProcessor` holds it back."""
    for hold in hold_processors():
        hold.release_unscored(span_id)


def held_span_count() -> int:
    """Return the number of ended spans that are held: kept back from export until their scores are known."""
    return sum([hold.held_count for hold in hold_processors()])


def _unregister(entry: ref[HoldProcessor]) -> None:
    with suppress(ValueError):
        _hold_processors.remove(entry)


class _ScoredSpan(ReadableSpan):
    """Copy of the ended root span of a call, with the scores among its attributes."""

    judged_texts: JudgedTexts | None = None


def _with_scores(span: ReadableSpan, scores: Scores, texts: JudgedTexts | None) -> ReadableSpan:
    """Return a copy of an ended span with scores as additional attributes, and *texts* beside them.

    No attribute limit applies to the scores.
    """
    clean = BoundedAttributes(attributes=scores, immutable=False)  # a user's metric may put anything into a label
    attributes: Any = {**(span.attributes or {}), **clean}
    if span.dropped_attributes:
        attributes = BoundedAttributes(attributes=attributes, immutable=True)
        attributes.dropped = span.dropped_attributes
    copy = _ScoredSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        events=bounded_list(span.events, None, span.dropped_events),
        links=bounded_list(span.links, None, span.dropped_links),
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
    copy.judged_texts = texts
    return copy
