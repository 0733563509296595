"""Reader of spans in OTLP messages, whichever encoding the messages were received in.

`otlp_json` makes messages of OTLP JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.span_reading.finished_span import Attributes, FinishedSpan, error_type_of
from ragtrace.span_reading.json_fields import SPAN_ID_BYTES, TRACE_ID_BYTES

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

_MOST_NESTING: Final = 64
_STATUS_ERROR: Final = 2
_NO_TRACE: Final = bytes(TRACE_ID_BYTES)
_NO_SPAN: Final = bytes(SPAN_ID_BYTES)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
"""Trace flags of an exported span. Not every exporter writes them."""
_REMOTE_PARENT: Final = 0x200
"""Bit of an OTLP span's `flags` that says that the parent is in another process."""
_ENTRY_KINDS: Final = (2, 5)
"""Kinds of spans that begin work on behalf of another process: of servers and of consumers."""


class UnreadableSpanError(ValueError):
    """Raised for an OTLP span without a valid id or time, or with too many or too deeply nested attributes."""


def spans_in(
    request: ExportTraceServiceRequest, *, most_attributes: int
) -> Iterator[FinishedSpan | UnreadableSpanError]:
    """Yield each span of an OTLP export *request*, or an error in place of a span that cannot be read.

    Args:
        request: the export request.
        most_attributes: attributes that a span may have, those of its events included.
    """
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            name = scope.scope.name
            for span in scope.spans:
                try:
                    yield read_span(span, name, most_attributes)
                except UnreadableSpanError as error:  # noqa: PERF203 - one bad span must not cost the others
                    yield error


def read_span(span: Span, scope: str, most_attributes: int | None = None) -> FinishedSpan:
    """Convert an OTLP *span* to a `FinishedSpan`.

    Args:
        span: the message.
        scope: name of its instrumentation scope.
        most_attributes: attributes that a span may have, those of its events included; None: any number.

    Raises:
        UnreadableSpanError: an id or a time is missing, or there are too many or too deeply nested attributes.
    """
    given = span.attributes
    if most_attributes is not None:
        n_attributes = len(given) + sum(len(event.attributes) for event in span.events)
        if n_attributes > most_attributes:
            raise UnreadableSpanError(f"more than {most_attributes} attributes")
    start, end, parent = span.start_time_unix_nano, span.end_time_unix_nano, span.parent_span_id
    if not (has_ids(span) and start and end):
        raise UnreadableSpanError(_what_is_missing(span))
    trace_id = int.from_bytes(span.trace_id, "big")
    parent_id = int.from_bytes(parent, "big") if len(parent) == SPAN_ID_BYTES else 0
    attributes = _attributes(given)
    events = tuple((event.name, _attributes(event.attributes)) for event in span.events)
    remote = bool(parent_id) and _has_remote_parent(span)
    return FinishedSpan(
        context=SpanContext(trace_id, int.from_bytes(span.span_id, "big"), is_remote=False, trace_flags=_SAMPLED),
        parent=SpanContext(trace_id, parent_id, is_remote=remote, trace_flags=_SAMPLED) if parent_id else None,
        name=span.name,
        attributes=attributes,
        start_ns=start,
        end_ns=end,
        events=events,
        scope=scope,
        error_type=error_type_of(attributes, events, failed=span.status.code == _STATUS_ERROR),
        lost_events=span.dropped_events_count,
    )


def has_ids(span: Span) -> bool:
    """Return whether *span* has a trace id and a span id of the right length that are not zero."""
    trace_id, span_id = span.trace_id, span.span_id
    return (
        len(trace_id) == TRACE_ID_BYTES
        and len(span_id) == SPAN_ID_BYTES
        and trace_id != _NO_TRACE
        and span_id != _NO_SPAN
    )


def _what_is_missing(span: Span) -> str:
    for name, value, size in (("traceId", span.trace_id, TRACE_ID_BYTES), ("spanId", span.span_id, SPAN_ID_BYTES)):
        if len(value) != size:
            return f"{name} must be {size} bytes, got {len(value)}"
        if not any(value):
            return f"{name} must not be zero"
    return f"{'endTimeUnixNano' if span.start_time_unix_nano else 'startTimeUnixNano'} must be later than 1970, got 0"


def _has_remote_parent(span: Span) -> bool:
    """Return whether the parent of *span* is in another process.

    The flags say so if the SDK of the span knows the bits; else the parent of a server's or consumer's span is remote.
    """
    # Bit of an OTLP span's `flags` that says that `_REMOTE_PARENT` is valid.
    return bool(span.flags & _REMOTE_PARENT) if span.flags & 0x100 else span.kind in _ENTRY_KINDS


def _attributes(listed: Iterable[KeyValue]) -> Attributes:
    """Convert an OTLP list of key-value pairs to attributes. A list value becomes a tuple, as in the SDK."""
    found: dict[str, Any] = {}
    for item in listed:
        given = item.value
        if text := given.string_value:  # most values are texts, and asking for the type would take as long again
            found[item.key] = text
            continue
        value = _value(given, 0)
        found[item.key] = tuple(cast("list[object]", value)) if isinstance(value, list) else value
    return found


def _value(value: AnyValue, depth: int) -> Any:
    """Convert an OTLP `AnyValue` to a Python value, or to None if it is empty.

    Raises:
        UnreadableSpanError: it is nested too deeply.
    """
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value" or kind == "kvlist_value":
        if depth > _MOST_NESTING:
            raise UnreadableSpanError("attributes are nested too deeply")
        if kind == "array_value":
            return [_value(each, depth + 1) for each in value.array_value.values]
        return {each.key: _value(each.value, depth + 1) for each in value.kvlist_value.values}
    return getattr(value, kind)
