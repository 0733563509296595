"""Common form of a finished span from the SDK or from a file, and the step of a RAG call that was read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanContext

from ragtrace.core import semconv
from ragtrace.core.limited_json import length_limit
from ragtrace.core.step import Step

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

Attributes = Mapping[str, Any]
"""Attribute values of any type, as on a span, by attribute name."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedSpan:
    """Ended span of any instrumentation, in the form from which steps of RAG calls are read."""

    context: SpanContext
    parent: SpanContext | None
    """Context of the parent span; None for the root span of a trace."""
    name: str
    attributes: Attributes
    start_ns: int
    """Start time, in nanoseconds since the epoch."""
    end_ns: int
    events: tuple[tuple[str, Attributes], ...] = ()
    """Name and attributes of each span event."""
    scope: str = ""
    """Name of the instrumentation scope."""
    error_type: str | None = None
    """Exception type that the span's status or exception event names; None if the operation did not fail."""
    max_text_chars: int | None = None
    """Length at which the provider cut attribute values; None if there was no limit, or it is not known."""
    lost_events: int = 0
    """Number of events beyond the provider's limit, which the span does not have."""

    def text(self, name: str) -> str | None:
        """Return the attribute *name* if it is a text, or None if it is missing or of another type."""
        value = self.attributes.get(name)
        return value if isinstance(value, str) else None

    @property
    def text_bytes(self) -> int:
        """Approximate size of the texts among the attributes, in bytes."""
        return sum(len(value) for value in self.attributes.values() if isinstance(value, str))

    def is_cut(self, text: str | None) -> bool:
        """Return whether *text*, an attribute's value, was probably truncated at the provider's length limit."""
        if text is None or self.max_text_chars is None or len(text) < self.max_text_chars:
            return text is not None and semconv.LIMITED_CHARS in self.attributes
        return True


@dataclass(slots=True, eq=False)
class SpanReading:
    """Step of a RAG call, as read from a finished span."""

    span: FinishedSpan
    step: Step
    """Ended step, with kind, texts, model, tokens and times from the span."""
    convention: str
    """Name of the attribute convention by which the span was read."""
    documents_without_text: int = 0
    """Number of documents on the span that have an id or a score but no text."""
    is_cut: bool = False
    """Whether a text of the step was truncated before it reached the span."""
    calls_tools: bool = False
    """Whether the model's answer is a request to call tools, and not yet the answer to the user."""
    begins_call: bool = False
    """Whether the instrumentation marks the span as the root of a request, whatever span it lies under."""
    is_ambiguous: bool = False
    """Whether it is not known which of some retrievals this generation used."""

    @property
    def span_id(self) -> int:
        """Id of the span, which is unique in its trace."""
        return self.span.context.span_id


def from_sdk_span(span: ReadableSpan) -> FinishedSpan | None:
    """Convert an ended span of the OpenTelemetry SDK to a `FinishedSpan`, or return None if it has no span context."""
    context = span.get_span_context()
    if context is None:
        return None
    attributes: Attributes = span.attributes or {}
    max_text_chars = length_limit(attributes)
    events = tuple((event.name, event.attributes or {}) for event in span.events)
    return FinishedSpan(
        context=context,
        parent=span.parent,
        name=span.name,
        attributes=attributes,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        events=events,
        scope="" if span.instrumentation_scope is None else span.instrumentation_scope.name,
        error_type=error_type_of(attributes, events, failed=not span.status.is_ok),
        max_text_chars=max_text_chars,
        lost_events=span.dropped_events,
    )


def error_type_of(attributes: Attributes, events: tuple[tuple[str, Attributes], ...], *, failed: bool) -> str | None:
    """Return the exception type of a failed span, from the span's attributes and events.

    Return None if the span did not fail.

    Args:
        failed: whether the status of the span is an error.
    """
    if not failed:
        return None
    named = [attributes.get(semconv.ERROR_TYPE)]
    named += [found.get(semconv.EXCEPTION_TYPE) for name, found in events if name == semconv.EVENT_EXCEPTION]
    return next((name for name in named if isinstance(name, str) and name), "Error")
