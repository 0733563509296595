"""Spans that cost the application little: ids and times now, everything else when they end in the background.

A `LightSpan` is a span of the OpenTelemetry API, so that other instrumentations nest below it and users can annotate
it; the SDK's `ReadableSpan` is built from it when it ends. Used where the provider is our own and all its processors
are known to look at finished spans only; elsewhere the SDK makes the spans.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from time import time_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
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
from ragtrace.spans.current import SPAN_KEY
from ragtrace.spans.deciding import of_sampler
from ragtrace.spans.recorded import UNSET, Recorded, recorded

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TraceState
    from opentelemetry.util.types import AnyValue, Attributes

    from ragtrace.spans.provider import OwnTracerProvider

Told: TypeAlias = "Callable[[], tuple[str, Attributes]]"
"""Gives what the SDK is told when a span starts: its name and first attributes."""
Trace: TypeAlias = "tuple[int, TraceFlags, TraceState | None]"
"""What all spans of a trace share in this process: its id, flags and state."""
_SIMPLE = frozenset({str, bool, int, float})
_SAMPLED = int(TraceFlags.SAMPLED)


class LightSpan(Span):
    """A span that is being recorded; ended, it becomes a `ReadableSpan`.

    Its name and first attributes are asked for when somebody first touches it, or when it ends.
    """

    _ended = False
    _context: SpanContext | None = None
    _recorded: Recorded | None = None

    def __init__(
        self,
        maker: LightTracer,
        trace: Trace,
        parent: LightSpan | SpanContext | None,
        kind: SpanKind,
        told: Told,
    ) -> None:
        self._maker, self._told, self._parent = maker, told, parent
        self.trace, self._span_id, self.kind, self.start_time = trace, maker.span_id(), kind, time_ns()

    @property
    def _record(self) -> Recorded:
        record = self._recorded
        # Two threads may come here at once: whichever came first made the record.
        return self._keep(recorded(self._maker.limits, *self._told())) if record is None else record

    def _keep(self, record: Recorded) -> Recorded:
        kept: Recorded = vars(self).setdefault("_recorded", record)
        return kept

    @property
    def parent(self) -> SpanContext | None:
        """Identity of the span around it."""
        parent = self._parent
        return parent.get_span_context() if isinstance(parent, LightSpan) else parent

    @property
    def name(self) -> str:
        """As it is now."""
        return self._record.name

    @property
    def attributes(self) -> Mapping[str, AnyValue]:
        """What has been set so far: some instrumentations read it from the SDK's spans."""
        return MappingProxyType(self._record.attributes)

    def get_span_context(self) -> SpanContext:
        """Its identity: put together when somebody asks for it."""
        context = self._context
        if context is None:
            trace_id, flags, state = self.trace
            context = self._context = SpanContext(trace_id, self._span_id, False, flags, state)
        return context

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
        record = self._recorded
        if record is None:  # the usual case: nobody has touched it, and all that it says is put in at once
            name, first = self._told()
            kept = {key: value for key, value in (first or {}).items() if key not in attributes}
            made = recorded(self._maker.limits, name, {**kept, **attributes})
            record = self._keep(made)
            if record is made:
                return
        record.attributes.update(attributes)

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
        ended = self._readable(time_ns() if end_time is None else end_time)
        self._told = _told_before  # what tells leads back here
        self._maker.emit(ended)

    def finish(self, attributes: Mapping[str, AnyValue], end_time: int) -> None:
        """`set_attributes` and `end` at once: costs little where nobody else has touched the span."""
        if self._recorded is None and not self._ended:
            name, first = self._told()
            kept = {key: value for key, value in (first or {}).items() if key not in attributes}
            together = {**kept, **attributes}
            if self._maker.takes(together):
                self._ended = True
                self._told = lambda: (name, first)
                self._maker.emit(self._untouched(name, together, end_time))
                return
        if not self._ended:
            self.set_attributes(attributes)
            self.end(end_time)

    def _untouched(self, name: str, attributes: Mapping[str, AnyValue], end_time: int) -> ReadableSpan:
        return ReadableSpan(
            name=name,
            context=self.get_span_context(),
            parent=self.parent,
            resource=self._maker.resource,
            attributes=attributes,
            kind=self.kind,
            status=UNSET,
            start_time=self.start_time,
            end_time=end_time,
            instrumentation_scope=self._maker.scope,
        )

    def _readable(self, end_time: int) -> ReadableSpan:
        record = self._record
        return ReadableSpan(
            name=record.name,
            context=self.get_span_context(),
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


def _told_before() -> tuple[str, Attributes]:
    """Everything that was told has been recorded."""
    return "", None


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
        self.span_id, self._trace_id = ids.generate_span_id, ids.generate_trace_id
        known = of_sampler(self._sampler)
        self._keeps_roots, self._drops_roots, self._inherits, self.drops_children, self._blind = known
        # Older SDKs do not know this flag, and other bits that came from afar are not passed on.
        random_flag: int = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)
        self._known_flags = TraceFlags.SAMPLED | random_flag
        self._random = random_flag if getattr(ids, "is_trace_id_random", bool)() else 0
        self._root_flags = TraceFlags(TraceFlags.SAMPLED | self._random)
        self._unsampled = TraceFlags(self._random)

    @property
    def resource(self) -> Resource:
        """The provider's, which changes in a forked child."""
        return self._provider.resource

    def takes(self, attributes: Mapping[str, AnyValue]) -> bool:
        """Whether a span takes *attributes* just as they are: few enough, of any length, and nothing to clean."""
        most = self.limits.max_span_attributes
        if self.limits.max_span_attribute_length is not None or (most is not None and len(attributes) > most):
            return False
        return _SIMPLE.issuperset(map(type, attributes.values()))

    def trusted(self) -> bool:
        """Whether nobody has added a processor to the provider: it might want to see spans start."""
        return self._provider.only_ours

    def start_span(self, context: Context, kind: SpanKind, told: Told) -> Span:
        """Start a span as a child of what is current in *context*.

        Args:
            told: gives the span's name and what is known of it already; called when somebody wants to know.
        """
        around = context.get(SPAN_KEY)
        if around is None:
            if self._keeps_roots:
                return LightSpan(self, (self._trace_id(), self._root_flags, None), None, kind, told)
            if self._drops_roots:
                return NonRecordingSpan(SpanContext(self._trace_id(), self.span_id(), False, self._unsampled))
        elif type(around) is LightSpan and self._inherits and around.trace[1] & _SAMPLED:
            return LightSpan(self, around.trace, around, kind, told)
        parent = get_current_span(context).get_span_context()
        if not parent.is_valid:
            if self._keeps_roots:
                return LightSpan(self, (self._trace_id(), self._root_flags, None), None, kind, told)
            if self._drops_roots:
                return NonRecordingSpan(SpanContext(self._trace_id(), self.span_id(), False, self._unsampled))
            return self._sampled(context, kind, told, None)
        if self._keeps_roots or (self._inherits and not parent.is_remote):
            flags = parent.trace_flags
            if flags & ~self._known_flags:
                flags = TraceFlags(flags & self._known_flags)
            if flags & TraceFlags.SAMPLED:
                return LightSpan(self, (parent.trace_id, flags, parent.trace_state), parent, kind, told)
            return NonRecordingSpan(SpanContext(parent.trace_id, self.span_id(), False, flags, parent.trace_state))
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
        if not result.decision.is_recording():
            return NonRecordingSpan(SpanContext(trace_id, self.span_id(), False, TraceFlags(flags), state))
        # A sampler may change the attributes it was shown.
        known = told if self._blind else lambda: (name, result.attributes)
        return LightSpan(self, (trace_id, TraceFlags(flags), state), parent, kind, known)
