"""Parser of the spans in an OTLP export request in protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.span_reading.finished_span import Attributes, FinishedSpan, error_type_of
from ragtrace.span_reading.otlp_json import has_remote_parent

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

_MOST_NESTING: Final = 64
_STATUS_ERROR: Final = 2
_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class UnreadableSpanError(ValueError):
    """Raised for an OTLP span without a valid id or time, or with too many or too deeply nested attributes."""


def spans_in(
    request: ExportTraceServiceRequest, *, most_attributes: int
) -> Iterator[FinishedSpan | UnreadableSpanError]:
    """Yield each span of an OTLP export *request*, or an error in place of a span that cannot be parsed.

    Args:
        request: the export request.
        most_attributes: attributes that a span may have, those of its events included.
    """
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            name = scope.scope.name
            for span in scope.spans:
                try:
                    yield _finished_span(span, name, most_attributes)
                except UnreadableSpanError as error:  # noqa: PERF203 - one bad span must not cost the others
                    yield error


def _finished_span(span: Span, scope: str, most_attributes: int) -> FinishedSpan:
    given = span.attributes
    n_attributes = len(given) + sum(len(event.attributes) for event in span.events)
    if n_attributes > most_attributes:
        raise UnreadableSpanError(f"more than {most_attributes} attributes")
    start, end, parent = span.start_time_unix_nano, span.end_time_unix_nano, span.parent_span_id
    if not (has_ids(span) and start and end):
        raise UnreadableSpanError("an id or a time is missing")
    trace_id = int.from_bytes(span.trace_id, "big")
    parent_id = int.from_bytes(parent, "big") if len(parent) == 8 else 0
    attributes = _attributes(given)
    events = tuple((event.name, _attributes(event.attributes)) for event in span.events)
    remote = bool(parent_id) and has_remote_parent(span.flags, span.kind)
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
    )


def has_ids(span: Span) -> bool:
    """Return whether *span* has a trace id and a span id of the right length that are not zero."""
    trace_id, span_id = span.trace_id, span.span_id
    return len(trace_id) == 16 and len(span_id) == 8 and trace_id != _NO_TRACE and span_id != _NO_SPAN


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
