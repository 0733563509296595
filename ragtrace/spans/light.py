"""Spans that cost the application little: ids and times now, everything else when they end in the background.

A `LightSpan` is a span of the OpenTelemetry API, so that other instrumentations nest below it and users can annotate
it; the SDK's `ReadableSpan` is built from it when it ends. Used where the provider is our own and all its processors
are known to look at finished spans only; elsewhere the SDK makes the spans.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import time_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

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
from ragtrace.errors import say

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TraceState
    from opentelemetry.util.types import AnyValue, Attributes

T = TypeVar("T")
_INHERITS = ",localParentSampled:AlwaysOnSampler,localParentNotSampled:AlwaysOffSampler}"
"""Ends the description of a `ParentBased` sampler that does for a child what was done for its local parent."""
_BLIND = re.compile(
    r"(?:ParentBased|(?:root|(?:remote|local)Parent(?:Not)?Sampled):|AlwaysO(?:n|ff)Sampler|TraceIdRatioBased\{[^{}]*\}|[{},])+"
)
"""Matches the description of the SDK's own samplers and of what is put together of them: they look at ids alone."""
Told: TypeAlias = "Callable[[], tuple[str, Attributes]]"
"""Gives what the SDK is told when a span starts: its name and first attributes."""
_UNSET = Status(StatusCode.UNSET)


@dataclass(slots=True)
class _Recorded:
    """What a span says: exactly what an SDK span would, told the same things in the same order."""

    limits: SpanLimits
    name: str
    attributes: BoundedAttributes
    events: Any
    """A `BoundedList` of events; the SDK's stub does not say of what. Its lock lets threads add at the same time."""
    links: Any
    """The same of links."""
    status: Status = _UNSET

    def bounded(self, attributes: Attributes, most: int | None) -> BoundedAttributes:
        """Attributes of an event or a link: copied, cleaned and cut now, as they may change later."""
        return BoundedAttributes(most, attributes, max_value_len=self.limits.max_attribute_length)


def _recorded(limits: SpanLimits, name: str, attributes: Attributes) -> _Recorded:
    return _Recorded(
        limits,
        name,
        BoundedAttributes(
            limits.max_span_attributes, attributes, immutable=False, max_value_len=limits.max_span_attribute_length
        ),
        BoundedList(limits.max_events),
        BoundedList(limits.max_links),
    )


class LightSpan(Span):
    """A span that is being recorded; ended, it becomes a `ReadableSpan`.

    Its name and first attributes are asked for when somebody first touches it, or when it ends.
    """

    __slots__ = ("_context", "_ended", "_maker", "_records", "_told", "kind", "parent", "start_time")

    def __init__(
        self, maker: LightTracer, context: SpanContext, parent: SpanContext | None, kind: SpanKind, told: Told
    ) -> None:
        self._maker, self._context, self._told, self._ended = maker, context, told, False
        self.parent, self.kind, self.start_time = parent, kind, time_ns()
        self._records: list[_Recorded] = []

    @property
    def _record(self) -> _Recorded:
        if not self._records:
            # Two threads may come here at once: whichever appended first made the record.
            self._records.append(_recorded(self._maker.limits, *self._told()))
        return self._records[0]

    @property
    def name(self) -> str:
        """As it is now."""
        return self._record.name

    @property
    def attributes(self) -> Mapping[str, AnyValue]:
        """What has been set so far: some instrumentations read it from the SDK's spans."""
        return MappingProxyType(self._record.attributes)

    def get_span_context(self) -> SpanContext:
        """Its identity."""
        return self._context

    def is_recording(self) -> bool:
        """Whether it still takes attributes."""
        return not self._ended

    def _refuses(self, what: str) -> bool:
        if self._ended:
            say(logging.WARNING, "%s came too late: on an ended span nothing can be changed", what)
        return self._ended

    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Part of the API."""
        if not self._refuses("set_attribute"):
            self._record.attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Part of the API."""
        if self._refuses("set_attributes"):
            return
        made: _Recorded | None = None
        if not self._records:  # the usual case: nobody has touched it, and all that it says is put in at once
            name, first = self._told()
            kept = {key: value for key, value in (first or {}).items() if key not in attributes}
            made = _recorded(self._maker.limits, name, {**kept, **attributes})
            self._records.append(made)
        if self._records[0] is not made:
            self._records[0].attributes.update(attributes)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Part of the API."""
        if not self._refuses("add_event"):
            record = self._record
            kept = record.bounded(attributes, record.limits.max_event_attributes)
            record.events.append(Event(name, kept, timestamp))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Part of the API: a link that leads nowhere and says nothing is left out."""
        if not (context.is_valid or attributes or context.trace_state) or self._refuses("add_link"):
            return
        record = self._record
        record.links.append(Link(context, record.bounded(attributes, record.limits.max_link_attributes)))

    def update_name(self, name: str) -> None:
        """Part of the API."""
        if not self._refuses("update_name"):
            self._record.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Part of the API: OK is final, and nothing returns to UNSET."""
        if self._refuses("set_status"):
            return
        new = status if isinstance(status, Status) else Status(status, description)
        if self._record.status.status_code is not StatusCode.OK and new.status_code is not StatusCode.UNSET:
            self._record.status = new

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
        self._maker.emit(self._readable(time_ns() if end_time is None else end_time))

    def _readable(self, end_time: int) -> ReadableSpan:
        record = self._record
        return ReadableSpan(
            name=record.name,
            context=self._context,
            parent=self.parent,
            resource=self._maker.resource,
            attributes=record.attributes,
            events=record.events,
            links=record.links,
            kind=self.kind,
            status=record.status,
            start_time=self.start_time,
            end_time=end_time,
            instrumentation_scope=self._maker.scope,
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
        self.limits = provider.limits
        self.scope = InstrumentationScope(semconv.SCOPE, release)
        ids, self._sampler = provider.id_generator, provider.sampler
        self._span_id, self._trace_id = ids.generate_span_id, ids.generate_trace_id
        sampler: Any = self._sampler
        description = str(sampler.get_description())
        self._keeps_roots = description == cast("Any", DEFAULT_ON).get_description()
        self._inherits = description.startswith("ParentBased{") and description.endswith(_INHERITS)
        self._blind = _BLIND.fullmatch(description) is not None
        # Older SDKs do not know this flag, and other bits that came from afar are not passed on.
        random_flag: int = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)
        self._known_flags = TraceFlags.SAMPLED | random_flag
        self._random = random_flag if getattr(ids, "is_trace_id_random", bool)() else 0
        self._root_flags = TraceFlags(TraceFlags.SAMPLED | self._random)

    @property
    def resource(self) -> Resource:
        """The provider's, which changes in a forked child."""
        return self._provider.resource

    def trusted(self) -> bool:
        """Whether nobody has added a processor to the provider: it might want to see spans start."""
        return self._provider.only_ours

    def start_span(self, context: Context, kind: SpanKind, told: Told) -> Span:
        """Start a span as a child of what is current in *context*.

        Args:
            told: gives the span's name and what is known of it already; called when somebody wants to know.
        """
        parent = get_current_span(context).get_span_context()
        if not parent.is_valid:
            if self._keeps_roots:
                identity = SpanContext(self._trace_id(), self._span_id(), False, self._root_flags)
                return LightSpan(self, identity, None, kind, told)
            return self._sampled(context, kind, told, None)
        if self._keeps_roots or (self._inherits and not parent.is_remote):
            flags = parent.trace_flags
            if flags & ~self._known_flags:
                flags = TraceFlags(flags & self._known_flags)
            identity = SpanContext(parent.trace_id, self._span_id(), False, flags, parent.trace_state)
            if flags & TraceFlags.SAMPLED:
                return LightSpan(self, identity, parent, kind, told)
            return NonRecordingSpan(identity)
        return self._sampled(context, kind, told, parent)

    def _sampled(self, context: Context, kind: SpanKind, told: Told, parent: SpanContext | None) -> Span:
        """Ask the sampler, as the SDK does; one that does not look at name and attributes is not shown them."""
        name, attributes = ("", None) if self._blind else told()
        trace_id = self._trace_id() if parent is None else parent.trace_id
        result: Any = self._sampler.should_sample(context, trace_id, name, kind, attributes, ())
        flags = self._random if parent is None else parent.trace_flags & self._known_flags & ~TraceFlags.SAMPLED
        if result.decision.is_sampled():
            flags |= TraceFlags.SAMPLED
        state: TraceState | Any = result.trace_state
        identity = SpanContext(trace_id, self._span_id(), False, TraceFlags(flags), state)
        if not result.decision.is_recording():
            return NonRecordingSpan(identity)
        # A sampler may change the attributes it was shown.
        return LightSpan(self, identity, parent, kind, told if self._blind else lambda: (name, result.attributes))
