"""Spans that cost the application little: ids and times now, everything else when they end in the background.

A `LightSpan` is a span of the OpenTelemetry API, so that other instrumentations nest below it and users can annotate
it; the SDK's `ReadableSpan` is built from it when it ends. Used where the provider is our own and all its processors
are known to look at finished spans only; elsewhere the SDK makes the spans.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_ON
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
)

from ragtrace import semconv

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TraceState
    from opentelemetry.util.types import AnyValue, Attributes

T = TypeVar("T")
_INHERITS = "localParentSampled:AlwaysOnSampler,localParentNotSampled:AlwaysOffSampler"
"""In the description of a sampler that does for a child what was done for its local parent."""
_UNSET = Status(StatusCode.UNSET)


class LightSpan(Span):
    """A span that is being recorded; ended, it becomes a `ReadableSpan`."""

    __slots__ = (
        "_attributes", "_context", "_ended", "_events", "_links", "_maker", "_status", "kind", "name", "parent",
        "start_time",
    )  # fmt: skip

    def __init__(
        self,
        maker: LightTracer,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Attributes,
    ) -> None:
        self._maker, self._context, self._ended = maker, context, False
        self.name, self.parent, self.kind, self.start_time = name, parent, kind, time_ns()
        self._attributes: dict[str, AnyValue] = dict(attributes) if attributes else {}
        self._events: list[Event] = []
        self._links: list[Link] = []
        self._status = _UNSET

    @property
    def attributes(self) -> Mapping[str, AnyValue]:
        """What has been set so far: some instrumentations read it from the SDK's spans."""
        return self._attributes

    def get_span_context(self) -> SpanContext:
        """Its identity."""
        return self._context

    def is_recording(self) -> bool:
        """Whether it still takes attributes."""
        return not self._ended

    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Part of the API."""
        self._attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Part of the API."""
        self._attributes.update(attributes)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Part of the API."""
        self._events.append(Event(name, attributes, timestamp or time_ns()))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Part of the API."""
        self._links.append(Link(context, attributes))

    def update_name(self, name: str) -> None:
        """Part of the API."""
        self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Part of the API: OK is final, and nothing returns to UNSET."""
        new = status if isinstance(status, Status) else Status(status, description)
        if self._status.status_code is not StatusCode.OK and new.status_code is not StatusCode.UNSET:
            self._status = new

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Part of the API: for exceptions that the user records; those that end a call are recorded by ragtrace."""
        kind = type(exception)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        recorded: dict[str, AnyValue] = {
            semconv.EXCEPTION_TYPE: name,
            semconv.EXCEPTION_MESSAGE: str(exception),
            semconv.EXCEPTION_STACKTRACE: "".join(traceback.format_exception(exception)),
            semconv.EXCEPTION_ESCAPED: str(escaped),
        }
        self.add_event(semconv.EVENT_EXCEPTION, {**recorded, **(attributes or {})}, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """End the span and hand it to the processor, once."""
        if self._ended:
            return
        self._ended = True
        self._maker.emit(self._readable(end_time or time_ns()))

    def _readable(self, end_time: int) -> ReadableSpan:
        maker, limits = self._maker, self._maker.limits
        most, longest = limits.max_span_attributes, limits.max_span_attribute_length
        return ReadableSpan(
            name=self.name,
            context=self._context,
            parent=self.parent,
            resource=maker.resource,
            attributes=BoundedAttributes(most, self._attributes, immutable=True, max_value_len=longest),
            events=bounded(self._events, limits.max_events),
            links=bounded(self._links, limits.max_links),
            kind=self.kind,
            status=self._status,
            start_time=self.start_time,
            end_time=end_time,
            instrumentation_scope=maker.scope,
        )


def bounded(items: Sequence[T], most: int | None, dropped: int = 0) -> Sequence[T]:
    """The last *most* of *items* (None: all), as the SDK keeps the events and links of a span: it counts the others."""
    make: Any = BoundedList
    kept = make.from_seq(most, items)
    kept.dropped += dropped
    return cast("Sequence[T]", kept)


class OwnTracerProvider(TracerProvider):
    """The SDK's provider, which also knows its limits and whether somebody else added a processor."""

    def __init__(self, resource: Resource) -> None:
        self.limits = SpanLimits()  # reads OTEL_SPAN_*; the same for both ways of making spans
        self.only_ours = True
        # Not shut down at exit by itself: ragtrace drains first and then shuts it down.
        super().__init__(resource=resource, shutdown_on_exit=False, span_limits=self.limits)

    def adopt(self, processor: SpanProcessor) -> None:
        """Add our own processor."""
        super().add_span_processor(processor)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add somebody else's: from now on the SDK makes the spans."""
        self.only_ours = False
        super().add_span_processor(span_processor)


def _nowhere(_: ReadableSpan) -> None:
    """There is no exporter."""


class LightTracer:
    """Makes light spans with the ids, sampler, limits and resource of our own provider.

    Args:
        provider: our own provider.
        processor: its only processor; None: it has none.
        release: version of the instrumentation scope.
    """

    def __init__(self, provider: OwnTracerProvider, processor: SpanProcessor | None, release: str) -> None:
        self._provider = provider
        self.emit: Callable[[ReadableSpan], None] = _nowhere if processor is None else processor.on_end
        self.limits, self.resource = provider.limits, provider.resource
        self.scope = InstrumentationScope(semconv.SCOPE, release)
        ids, self._sampler = provider.id_generator, provider.sampler
        self._span_id, self._trace_id = ids.generate_span_id, ids.generate_trace_id
        sampler: Any = self._sampler
        description = sampler.get_description()
        self._keeps_roots = description == cast("Any", DEFAULT_ON).get_description()
        self._inherits = self._keeps_roots or _INHERITS in description
        # Older SDKs do not know this flag.
        random = getattr(ids, "is_trace_id_random", bool)() and hasattr(TraceFlags, "RANDOM_TRACE_ID")
        self._random: int = getattr(TraceFlags, "RANDOM_TRACE_ID", 0) if random else 0
        self._root_flags = TraceFlags(TraceFlags.SAMPLED | self._random)

    def trusted(self) -> bool:
        """Whether nobody has added a processor to the provider: it might want to see spans start."""
        return self._provider.only_ours

    def start_span(self, name: str, context: Context, kind: SpanKind, attributes: Callable[[], Attributes]) -> Span:
        """Start a span as a child of what is current in *context*.

        Args:
            attributes: what is known already; called only if the sampler needs to see it.
        """
        parent = get_current_span(context).get_span_context()
        if not parent.is_valid:
            if self._keeps_roots:
                identity = SpanContext(self._trace_id(), self._span_id(), False, self._root_flags)
                return LightSpan(self, name, identity, None, kind, None)
            return self._sampled(name, context, kind, attributes(), None)
        if self._keeps_roots or (self._inherits and not parent.is_remote):
            identity = SpanContext(parent.trace_id, self._span_id(), False, parent.trace_flags, parent.trace_state)
            if parent.trace_flags & TraceFlags.SAMPLED:
                return LightSpan(self, name, identity, parent, kind, None)
            return NonRecordingSpan(identity)
        return self._sampled(name, context, kind, attributes(), parent)

    def _sampled(
        self, name: str, context: Context, kind: SpanKind, attributes: Attributes, parent: SpanContext | None
    ) -> Span:
        """Ask the sampler, as the SDK does."""
        trace_id = self._trace_id() if parent is None else parent.trace_id
        result: Any = self._sampler.should_sample(context, trace_id, name, kind, attributes, ())
        flags = self._random if parent is None else parent.trace_flags & ~TraceFlags.SAMPLED
        if result.decision.is_sampled():
            flags |= TraceFlags.SAMPLED
        state: TraceState | Any = result.trace_state
        identity = SpanContext(trace_id, self._span_id(), False, TraceFlags(flags), state)
        if not result.decision.is_recording():
            return NonRecordingSpan(identity)
        return LightSpan(self, name, identity, parent, kind, result.attributes)
