"""Spans that are cheap to start: the request thread sets only ids and times, everything else is set at the end of the
span.

A `FastSpan` is a span of the OpenTelemetry API, so other instrumentations nest below it and users can annotate it, and
it can be read like a span of the SDK. When it ends, a `ReadableSpan` of the SDK's own is built from it. Fast spans are
used where all span processors are known to look at ended spans only; elsewhere the SDK makes the spans.

Measured gain: a decorated call of three steps costs the request thread about a quarter of what it costs with the SDK's
spans (see tests/benchmarks/README.md), because names, attributes and limits are left to the background thread.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import time_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor
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

from ragtrace.core import semconv
from ragtrace.system.context import SPAN_KEY
from ragtrace.system.faults import faults, log_safely
from ragtrace.telemetry.spans.span_providers import OwnTracerProvider, UserProvider, sampler_traits, user_provider

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits
    from opentelemetry.trace import TraceState
    from opentelemetry.util.types import AnyValue, Attributes

T = TypeVar("T")
StartAttributes: TypeAlias = "Callable[[], tuple[str, Attributes]]"
"""Function that returns the name and the attributes with which a span starts."""
Trace: TypeAlias = "tuple[int, TraceFlags, TraceState | None]"
"""Trace id, trace flags and trace state, which the spans of a trace share in this process."""
SpanProvider: TypeAlias = "OwnTracerProvider | UserProvider"
UNSET = Status(StatusCode.UNSET)
_SAMPLED = int(TraceFlags.SAMPLED)
_NEED_NO_CLEANING = frozenset({str, bool, int, float})


@dataclass(slots=True, eq=False, repr=False)
class SpanRecord:
    """Name, attributes, events, links and status of a span that is being written, kept within the SDK's span limits."""

    limits: SpanLimits
    name: str
    attributes: BoundedAttributes
    events: Any
    """`BoundedList` of events, to which several threads may add at a time. The SDK's stub does not name the type."""
    links: Any
    """`BoundedList` of links."""
    status: Status = UNSET

    def bounded(self, attributes: Attributes, most: int | None) -> BoundedAttributes:
        """Return a copy of the *attributes* of an event or link, cleaned and truncated to the span limits."""
        return BoundedAttributes(most, attributes, max_value_len=self.limits.max_attribute_length)


def _new_record(limits: SpanLimits, name: str, attributes: Attributes) -> SpanRecord:
    return SpanRecord(
        limits,
        name,
        BoundedAttributes(
            limits.max_span_attributes, attributes, immutable=False, max_value_len=limits.max_span_attribute_length
        ),
        BoundedList(limits.max_events),
        BoundedList(limits.max_links),
    )


def bounded_list(items: Sequence[T], most: int | None, dropped: int = 0) -> Sequence[T]:
    """Return span events or links as a `BoundedList` of limited length.

    The last *most* items are kept, and the others counted as dropped.

    Args:
        most: largest number of items; None: there is no limit.
        dropped: number of items that were dropped before.
    """
    make: Any = BoundedList
    kept = make.from_seq(most, items)
    kept.dropped += dropped
    return cast("Sequence[T]", kept)


_keeping: dict[int, tuple[FastSpan, SpanRecord]] = {}
"""Records that threads are just giving to spans, by the identity of the span: the first of several is kept.

With the span itself, so that the identity stays its own where an exception out of a signal's handler leaves it here."""


class FastSpan(Span, ReadableSpan):
    """Span that costs little to start, and is exported as a `ReadableSpan` of the SDK.

    Its name and first attributes are computed when something first reads or changes the span, or when it ends.
    """

    _ended = False
    _end_time: int | None = None
    _own_context: SpanContext | None = None
    _recorded: SpanRecord | None = None
    """None until something first reads or changes the span."""
    _more_links: tuple[Link, ...] = ()

    _instrumentation_info = None
    """Attribute that consumers read which are older than instrumentation scopes."""

    def __init__(
        self,
        tracer: FastTracer,
        trace: Trace,
        parent: FastSpan | SpanContext | None,
        kind: SpanKind,
        start_attributes: StartAttributes,
    ) -> None:
        self._tracer, self._start_attributes, self._around = tracer, start_attributes, parent
        self.trace, self._span_id, self._kind, self._start_time = trace, tracer.span_id(), kind, time_ns()

    @property
    def _record(self) -> SpanRecord:
        record = self._recorded
        return self._keep(_new_record(self._tracer.limits, *self._start_attributes())) if record is None else record

    def _keep(self, record: SpanRecord) -> SpanRecord:
        """Keep *record* as that of the span, or return the one that another thread has kept meanwhile."""
        # A lock might be held at a fork, and a list of each span costs more than all else here.
        _, first = _keeping.setdefault(id(self), (self, record))
        if self._recorded is None:
            self._recorded = first
        _keeping.pop(id(self), None)  # a thread that comes later finds the span's own record above
        return self._recorded

    # --- what readers of SDK spans read ---

    @property
    def parent(self) -> SpanContext | None:
        """Span context of the parent span, or None for a root span."""
        around: Any = self._around
        return around.get_span_context() if type(around) is FastSpan else around

    def become_root(self) -> None:
        """Remove the parent, and add a link to it, so that the span is exported as a root span."""
        if (parent := self.parent) is not None:
            self._more_links, self._around = (Link(parent),), None

    def backdate(self, start_ns: int) -> None:
        """Set the start of the span to *start_ns* nanoseconds since the epoch."""
        self._start_time = start_ns

    @property
    def name(self) -> str:
        """Current name of the span."""
        return self._record.name

    @property
    def status(self) -> Status:
        """Current status of the span."""
        return self._record.status

    @property
    def attributes(self) -> Mapping[str, AnyValue]:
        """Read-only view of the span's attributes."""
        return MappingProxyType(self._record.attributes)

    @property
    def events(self) -> Sequence[Event]:
        """Events added so far."""
        return tuple(self._record.events)

    @property
    def links(self) -> Sequence[Link]:
        """Links added so far."""
        return (*self._record.links, *self._more_links)

    @property
    def resource(self) -> Resource:
        """Resource of the tracer provider."""
        return self._tracer.resource

    @property
    def instrumentation_scope(self) -> InstrumentationScope:
        """Instrumentation scope of ragtrace."""
        return self._tracer.scope

    @property
    def dropped_attributes(self) -> int:
        """Number of attributes that were dropped because of the span limits."""
        return self._record.attributes.dropped

    @property
    def dropped_events(self) -> int:
        """Number of events that were dropped because of the span limits."""
        dropped: int = self._record.events.dropped
        return dropped

    @property
    def dropped_links(self) -> int:
        """Number of links that were dropped because of the span limits."""
        dropped: int = self._record.links.dropped
        return dropped

    @property
    def context(self) -> SpanContext:
        """Span context of the span."""
        return self.get_span_context()

    def get_span_context(self) -> SpanContext:
        """Return the span context, which is built on first use."""
        context = self._own_context
        if context is None:
            trace_id, flags, state = self.trace
            context = self._own_context = SpanContext(trace_id, self._span_id, False, flags, state)
        return context

    def to_json(self, indent: int | None = 4) -> str:
        """Return the span in its current state as JSON."""
        text: str = self._readable(self._end_time).to_json(indent)
        return text

    # --- the span API ---

    def is_recording(self) -> bool:
        """Return whether the span has not ended."""
        return not self._ended

    def _warn_if_ended(self, method: str) -> bool:
        if self._ended:
            log_safely(logging.WARNING, "%s came too late: on an ended span nothing can be changed", method)
        return self._ended

    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Set one attribute of the span."""
        if not self._warn_if_ended("set_attribute"):
            self._record.attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set several attributes of the span."""
        if self._warn_if_ended("set_attributes"):
            return
        record = self._recorded
        if record is None:  # the usual case: all attributes are put in at once
            name, first = self._start_attributes()
            made = _new_record(self._tracer.limits, name, _merge_attributes(first or {}, attributes))
            record = self._keep(made)
            if record is made:
                return
        record.attributes.update(attributes)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event to the span."""
        if not self._warn_if_ended("add_event"):
            record = self._record
            kept = record.bounded(attributes, record.limits.max_event_attributes)
            record.events.append(Event(name, kept, timestamp))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Add a link to another span. A link to an invalid context without attributes and trace state is ignored."""
        if not (context.is_valid or attributes or context.trace_state) or self._warn_if_ended("add_link"):
            return
        record = self._record
        record.links.append(Link(context, record.bounded(attributes, record.limits.max_link_attributes)))

    def update_name(self, name: str) -> None:
        """Replace the name of the span."""
        if not self._warn_if_ended("update_name"):
            self._record.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status of the span, unless it is already OK. The status UNSET is ignored."""
        if self._warn_if_ended("set_status"):
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
        """Add an exception event for *exception* to the span."""
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
        """End the span and hand it to the span processor, once."""
        if self._ended:
            return
        self._ended = True
        self._end_time = time_ns() if end_time is None else end_time
        ended = self._readable(self._end_time)
        self._start_attributes = lambda: ("", None)  # a kept span must not keep the step's texts alive
        self._tracer.emit(ended)

    def finish(self, attributes: Mapping[str, AnyValue], end_time: int) -> bool:
        """Set the last *attributes* and end the span in one step, which costs less than `set_attributes` and `end`.

        Returns:
            Whether the span has ended. It has not, and is left as it was, if it was read or changed before, or if any
            attribute must be cleaned, cut or dropped: then call `set_attributes` and `end`.
        """
        if self._recorded is None and not self._ended:
            name, first = self._start_attributes()
            merged = _merge_attributes(first or {}, attributes)
            if self._tracer.accepts_unchanged(merged):
                self._ended, self._end_time = True, end_time
                self._start_attributes = lambda: (name, first)  # a kept span must not keep the step's texts alive
                self._tracer.emit(self._copy(name, merged, (), self._more_links, UNSET, end_time))
        return self._ended

    def _readable(self, end_time: int | None) -> ReadableSpan:
        record = self._record
        links = record.links
        if self._more_links:
            links = bounded_list((*links, *self._more_links), None, links.dropped)
        return self._copy(record.name, record.attributes, record.events, links, record.status, end_time)

    def _copy(
        self,
        name: str,
        attributes: Mapping[str, AnyValue],
        events: Sequence[Event],
        links: Sequence[Link],
        status: Status,
        end_time: int | None,
    ) -> ReadableSpan:
        return ReadableSpan(
            name=name,
            context=self.get_span_context(),
            parent=self.parent,
            resource=self._tracer.resource,
            attributes=attributes,
            events=events,
            links=links,
            kind=self.kind,
            status=status,
            start_time=self.start_time,
            end_time=end_time,
            instrumentation_scope=self._tracer.scope,
        )


def _merge_attributes(first: Mapping[str, AnyValue], more: Mapping[str, AnyValue]) -> dict[str, AnyValue]:
    """Merge two attribute mappings in the order in which the SDK exports them.

    A repeated attribute takes the position that it has in *more*.
    """
    if first.keys().isdisjoint(more):
        return {**first, **more}
    return {**{key: value for key, value in first.items() if key not in more}, **more}


class FastTracer:
    """Tracer whose spans cost less CPU than the SDK's.

    It uses the ids, sampler, limits and resource of a tracer provider.

    Args:
        provider: ragtrace's own provider, or a `UserProvider`.
        processor: gets the ended spans; None if nothing is exported.
        release: version of the instrumentation scope.
        private: whether the spans are exported elsewhere than those of other providers: then the root span of a call
            below a span of another provider is exported as a root.

    Raises:
        Exception: what a user's own sampler raises in `get_description`.
    """

    def __init__(
        self, provider: SpanProvider, processor: SpanProcessor | None, release: str, *, private: bool = False
    ) -> None:
        self._provider, self._private = provider, private
        self.emit: Callable[[ReadableSpan], None] = (lambda span: None) if processor is None else processor.on_end
        self.limits = provider.limits
        self.scope = InstrumentationScope(semconv.SCOPE, release)
        ids, self._sampler = provider.id_generator, provider.sampler
        self.span_id, self._trace_id = ids.generate_span_id, ids.generate_trace_id
        traits = sampler_traits(self._sampler)
        self._keeps_roots, self._drops_roots, self._inherits, self.drops_children, self.ids_only = traits
        # Unknown flags of a remote parent are not passed on.
        self._known_flags = TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID
        self._random = TraceFlags.RANDOM_TRACE_ID if getattr(ids, "is_trace_id_random", bool)() else 0
        self._root_flags = TraceFlags(TraceFlags.SAMPLED | self._random)
        self._unsampled = TraceFlags(self._random)

    @property
    def resource(self) -> Resource:
        """Resource of the tracer provider, which changes in a forked child."""
        return self._provider.resource

    @property
    def usable(self) -> bool:
        """Whether this tracer can create spans now in place of the SDK.

        It can while no span processor reads spans when they start.
        """
        return self._provider.sees_ends_only

    def accepts_unchanged(self, attributes: Mapping[str, AnyValue]) -> bool:
        """Return whether the SDK would export *attributes* unchanged, without cleaning, truncating or dropping any."""
        most = self.limits.max_span_attributes
        if self.limits.max_span_attribute_length is not None or (most is not None and len(attributes) > most):
            return False
        return _NEED_NO_CLEANING.issuperset(map(type, attributes.values()))

    def start_span(self, context: Context, kind: SpanKind, start_attributes: StartAttributes) -> Span:
        """Start a span as a child of the current span of *context*.

        Args:
            start_attributes: called when the sampler, a reader or the end of the span needs them.
        """
        around = context.get(SPAN_KEY)
        if type(around) is FastSpan and self._inherits and around.trace[1] & _SAMPLED:
            return FastSpan(self, around.trace, around, kind, start_attributes)
        parent = None if around is None else get_current_span(context).get_span_context()
        if parent is None or not parent.is_valid:
            if self._keeps_roots:
                return FastSpan(self, (self._trace_id(), self._root_flags, None), None, kind, start_attributes)
            if self._drops_roots:
                return NonRecordingSpan(SpanContext(self._trace_id(), self.span_id(), False, self._unsampled))
            return self._ask_sampler(context, kind, start_attributes, None)
        if self._keeps_roots or (self._inherits and not parent.is_remote):
            flags = parent.trace_flags
            if flags & ~self._known_flags:
                flags = TraceFlags(flags & self._known_flags)
            if flags & TraceFlags.SAMPLED:
                return FastSpan(self, (parent.trace_id, flags, parent.trace_state), parent, kind, start_attributes)
            return NonRecordingSpan(SpanContext(parent.trace_id, self.span_id(), False, flags, parent.trace_state))
        return self._ask_sampler(context, kind, start_attributes, parent)

    def backdate(self, span: Span, start_ns: int) -> None:
        """Set the start time of the new span *span* to *start_ns* nanoseconds since the epoch."""
        if type(span) is FastSpan:
            span.backdate(start_ns)

    def separate_root(self, span: Span, context: Context) -> None:
        """Turn *span* into a root span if its parent in *context* belongs to another tracer provider.

        A parent in another process stays the parent: only its ids are known here, and it may be a span of ragtrace.
        """
        if not self._private or type(span) is not FastSpan:
            return
        around = context.get(SPAN_KEY)
        if around is None or type(around) is FastSpan or type(around) is NonRecordingSpan:
            return
        if getattr(around, "resource", None) is not self._provider.resource:
            span.become_root()

    def _ask_sampler(
        self, context: Context, kind: SpanKind, start_attributes: StartAttributes, parent: SpanContext | None
    ) -> Span:
        # A sampler that looks at ids only is not shown name and attributes, which cost time.
        name, attributes = ("", None) if self.ids_only else start_attributes()
        trace_id = self._trace_id() if parent is None else parent.trace_id
        result: Any = self._sampler.should_sample(context, trace_id, name, kind, attributes, ())
        flags = self._random if parent is None else parent.trace_flags & self._known_flags & ~TraceFlags.SAMPLED
        if result.decision.is_sampled():
            flags |= TraceFlags.SAMPLED
        state: TraceState | Any = result.trace_state
        if not result.decision.is_recording():
            return NonRecordingSpan(SpanContext(trace_id, self.span_id(), False, TraceFlags(flags), state))
        # A sampler may change the attributes that it was shown.
        known = start_attributes if self.ids_only else lambda: (name, result.attributes)
        return FastSpan(self, (trace_id, TraceFlags(flags), state), parent, kind, known)


def fast_tracer(tracer: object, release: str) -> FastTracer | None:
    """Create a `FastTracer` for the user's tracer provider, or return None if only the SDK can create the spans.

    Args:
        release: version of the instrumentation scope.
    """
    try:
        provider = user_provider(tracer)
        return None if provider is None else FastTracer(provider, provider.processor, release)
    except Exception as error:
        faults.record("looking at a tracer provider", error)
        return None
