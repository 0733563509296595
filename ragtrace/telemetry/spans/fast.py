"""Spans that cost the application little: ids and times now, everything else when they end.

A `LightSpan` is a span of the OpenTelemetry API, so that other instrumentations nest below it and users can annotate
it, and can be read like one of the SDK's; a `ReadableSpan` of the SDK's own is built from it when it ends. Used where
all processors are known to look at finished spans only; elsewhere the SDK makes the spans.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
)

from ragtrace.core import semconv
from ragtrace.system.faults import say
from ragtrace.telemetry.spans.span_record import UNSET, Recorded, bounded, recorded

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import TraceFlags, TraceState
    from opentelemetry.util.types import AnyValue, Attributes

    from ragtrace.telemetry.spans.tracer import LightTracer

Told: TypeAlias = "Callable[[], tuple[str, Attributes]]"
"""Gives what the SDK is told when a span starts: its name and first attributes."""
Trace: TypeAlias = "tuple[int, TraceFlags, TraceState | None]"
"""What all spans of a trace share in this process: its id, flags and state."""


class LightSpan(Span, ReadableSpan):
    """A span that is being recorded; ended, it becomes a plain `ReadableSpan`.

    Its name and first attributes are asked for when somebody first touches it, or when it ends.
    """

    _ended = False
    _end_time: int | None = None
    _own_context: SpanContext | None = None
    _recorded: Recorded | None = None
    _more_links: tuple[Link, ...] = ()

    _instrumentation_info = None
    """What the SDK's readers asked for before there were scopes."""

    def __init__(
        self,
        maker: LightTracer,
        trace: Trace,
        parent: LightSpan | SpanContext | None,
        kind: SpanKind,
        told: Told,
    ) -> None:
        self._maker, self._told, self._around = maker, told, parent
        self.trace, self._span_id, self._kind, self._start_time = trace, maker.span_id(), kind, time_ns()

    @property
    def _record(self) -> Recorded:
        record = self._recorded
        # Two threads may come here at once: whichever came first made the record.
        return self._keep(recorded(self._maker.limits, *self._told())) if record is None else record

    def _keep(self, record: Recorded) -> Recorded:
        kept: Recorded = vars(self).setdefault("_recorded", record)
        return kept

    # --- what readers of the SDK's spans find on them ---

    @property
    def parent(self) -> SpanContext | None:
        """Identity of the span around it."""
        around: Any = self._around
        return around.get_span_context() if type(around) is LightSpan else around

    def stand_alone(self) -> None:
        """Be exported as a root, with a link to the span around it."""
        if (parent := self.parent) is not None:
            self._more_links, self._around = (Link(parent),), None

    @property
    def name(self) -> str:
        """As it is now."""
        return self._record.name

    @property
    def status(self) -> Status:
        """As it is now."""
        return self._record.status

    @property
    def attributes(self) -> Mapping[str, AnyValue]:
        """What has been set so far."""
        return MappingProxyType(self._record.attributes)

    @property
    def events(self) -> Sequence[Event]:
        """What has been added so far."""
        return tuple(self._record.events)

    @property
    def links(self) -> Sequence[Link]:
        """The same of links."""
        return (*self._record.links, *self._more_links)

    @property
    def resource(self) -> Resource:
        """The provider's."""
        return self._maker.resource

    @property
    def instrumentation_scope(self) -> InstrumentationScope:
        """Ours."""
        return self._maker.scope

    @property
    def dropped_attributes(self) -> int:
        """How many had no room."""
        return self._record.attributes.dropped

    @property
    def dropped_events(self) -> int:
        """How many had no room."""
        dropped: int = self._record.events.dropped
        return dropped

    @property
    def dropped_links(self) -> int:
        """How many had no room."""
        dropped: int = self._record.links.dropped
        return dropped

    @property
    def context(self) -> SpanContext:
        """Its identity."""
        return self.get_span_context()

    def get_span_context(self) -> SpanContext:
        """Its identity: put together when somebody asks for it."""
        context = self._own_context
        if context is None:
            trace_id, flags, state = self.trace
            context = self._own_context = SpanContext(trace_id, self._span_id, False, flags, state)
        return context

    def to_json(self, indent: int | None = 4) -> str:
        """As it is now."""
        text: str = self._readable(self._end_time).to_json(indent)
        return text

    # --- what is done to it ---

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
            made = recorded(self._maker.limits, name, _together(first or {}, attributes))
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
        self._end_time = time_ns() if end_time is None else end_time
        ended = self._readable(self._end_time)
        self._told = _told_before  # what tells leads back here
        self._maker.emit(ended)

    def finish(self, attributes: Mapping[str, AnyValue], end_time: int) -> bool:
        """`set_attributes` and `end` at once, at little cost; False, and nothing is done, if somebody has touched it.

        Or if the attributes have to be cleaned, cut, or are too many.
        """
        if self._recorded is None and not self._ended:
            name, first = self._told()
            together = _together(first or {}, attributes)
            if self._maker.takes(together):
                self._ended, self._end_time = True, end_time
                self._told = lambda: (name, first)  # whoever keeps the span is not to keep all texts
                self._maker.emit(self._untouched(name, together, end_time))
        return self._ended

    def _untouched(self, name: str, attributes: Mapping[str, AnyValue], end_time: int) -> ReadableSpan:
        return ReadableSpan(
            name=name,
            context=self.get_span_context(),
            parent=self.parent,
            resource=self._maker.resource,
            attributes=attributes,
            links=self._more_links,
            kind=self.kind,
            status=UNSET,
            start_time=self.start_time,
            end_time=end_time,
            instrumentation_scope=self._maker.scope,
        )

    def _readable(self, end_time: int | None) -> ReadableSpan:
        record = self._record
        return ReadableSpan(
            name=record.name,
            context=self.get_span_context(),
            parent=self.parent,
            resource=self._maker.resource,
            attributes=record.attributes,
            events=record.events,
            links=bounded((*record.links, *self._more_links), None, record.links.dropped)
            if self._more_links
            else record.links,
            kind=self.kind,
            status=record.status,
            start_time=self.start_time,
            end_time=end_time,
            instrumentation_scope=self._maker.scope,
        )


def _together(first: Mapping[str, AnyValue], more: Mapping[str, AnyValue]) -> dict[str, AnyValue]:
    """Both, in the order in which the SDK has them: what is set again comes where it was set last."""
    if first.keys().isdisjoint(more):
        return {**first, **more}
    return {**{key: value for key, value in first.items() if key not in more}, **more}


def _told_before() -> tuple[str, Attributes]:
    """Everything that was told has been recorded."""
    return "", None
