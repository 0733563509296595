"""Reader of the spans in JSON documents: OTLP JSON, span records, and lists of either.

`google.protobuf.json_format` makes messages of OTLP JSON, which `otlp_protobuf` reads. One step comes before: OTLP JSON
has ids in hexadecimal, protobuf's own JSON in base64.

Source: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.json_fields import SPAN_ID_BYTES, TRACE_ID_BYTES, list_of, object_of, parse_id, shown
from ragtrace.span_reading.otlp_protobuf import read_span
from ragtrace.span_reading.span_record import read_record

# The names of the current OTLP come first, in either spelling; then those of older releases, and of Tempo.
_SCOPE_LISTS: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")
_RESOURCE_LISTS: Final = ("resourceSpans", "resource_spans", "batches")
_OTHER_SIGNALS: Final = ("resourceLogs", "resource_logs", "resourceMetrics", "resource_metrics", "resourceProfiles")
_WRAPPERS: Final = ("data", "trace", "traces", "result", "spans")
"""Keys under which the APIs of Phoenix, Tempo and Jaeger wrap spans."""
_MOST_WRAPPERS: Final = 4
_TRACE_ID, _SPAN_ID, _PARENT_ID = ("traceId", "trace_id"), ("spanId", "span_id"), ("parentSpanId", "parent_span_id")
_VALID_IDS: Final = ((_TRACE_ID, TRACE_ID_BYTES), (_SPAN_ID, SPAN_ID_BYTES))
_ID_FIELDS: Final = (*_TRACE_ID, *_SPAN_ID, *_PARENT_ID)
_NOT_PARSED: Final = frozenset({*_ID_FIELDS, "links"})
"""Fields of a span that are kept from `json_format`: it takes ids for base64. Links have ids, too, and are not read."""
_VALUE_TYPES: Final = frozenset(name for field in AnyValue.DESCRIPTOR.fields for name in (field.name, field.json_name))
MessageT = TypeVar("MessageT", bound=Message)


@dataclass(frozen=True, slots=True)
class UnreadableSpan:
    """Error record for a line of a span file, or for one span in the line, that cannot be read."""

    line: int
    error: str


class OtlpJsonReader:
    """Reader of the spans in JSON documents: OTLP JSON, span records, or lists of either.

    Args:
        most_attributes: attributes that a span may have, those of its events included; None: any number.
    """

    def __init__(self, most_attributes: int | None = None) -> None:
        self._most_attributes = most_attributes
        self.n_other_signals = 0
        """Number of documents read so far that hold logs, metrics or profiles."""
        self.n_unread_attributes = 0
        """Number of attributes left out so far because the value is not an OTLP value."""

    def spans_in(self, line: int, document: Any, depth: int = 0) -> Iterator[FinishedSpan | UnreadableSpan]:
        """Yield the spans in a JSON document of a span file, also from lists and wrapping objects.

        *line* is the document's line number, *depth* the number of objects around it.
        """
        if isinstance(document, list):
            for each in cast("list[object]", document):
                yield from self.spans_in(line, each, depth)
            return
        if isinstance(document, dict):
            fields = cast("dict[str, Any]", document)
            groups = _first(fields, *_RESOURCE_LISTS)
            if groups is not None:
                yield from self._spans_of_resources(line, groups)
                return
            if any(name in fields for name in _OTHER_SIGNALS):
                self.n_other_signals += 1
                return
            if _first(fields, "spanId", "span_id", "context") is not None:
                yield self._span(line, fields, "")
                return
            if not fields:  # an empty export request
                return
            inner = _first(fields, *_WRAPPERS)
            if isinstance(inner, (list, dict)) and depth < _MOST_WRAPPERS:
                yield from self.spans_in(line, inner, depth + 1)
                return
        yield UnreadableSpan(line, f"neither OTLP JSON with resourceSpans nor a span record: {shown(document)}")

    def _spans_of_resources(self, line: int, resources: Any) -> Iterator[FinishedSpan | UnreadableSpan]:
        for resource in cast("list[object]", resources) if isinstance(resources, list) else [resources]:
            try:
                spans = list(_scoped_spans(resource))
            except ValueError as error:  # noqa: PERF203 - one bad resource must not cost the others
                yield UnreadableSpan(line, str(error))
            else:
                yield from (self._span(line, span, scope) for span, scope in spans)

    def _span(self, line: int, fields: Any, scope: str) -> FinishedSpan | UnreadableSpan:
        try:
            span = object_of(fields)
            if isinstance(span.get("context"), dict):
                return read_record(span)
            return read_span(self._message(span), scope, self._most_attributes)
        except (ValueError, TypeError, OverflowError) as error:
            return UnreadableSpan(line, str(error))
        except RecursionError:
            return UnreadableSpan(line, "nested too deeply to be read")

    def _message(self, span: Mapping[str, Any]) -> Span:
        """Make a message of a *span* of OTLP JSON.

        Raises:
            ValueError: a field has no value of OTLP.
        """
        parent = _first(span, *_PARENT_ID)
        message = Span(
            trace_id=parse_id(_first(span, *_TRACE_ID), TRACE_ID_BYTES, "traceId"),
            span_id=parse_id(_first(span, *_SPAN_ID), SPAN_ID_BYTES, "spanId"),
            parent_span_id=parse_id(parent, SPAN_ID_BYTES, "parentSpanId") if parent else b"",
        )
        fields = {name: value for name, value in span.items() if name not in _NOT_PARSED}
        if _has_pairs(fields):
            try:
                return _parse(fields, message)
            except ParseError:
                pass
        fields = self._mended(fields)
        try:
            return _parse(fields, message)
        except ParseError:  # whose text quotes contents
            raise ValueError(_bad_field(fields)) from None

    def _mended(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the *fields* of a span, or of an event, without the attributes that have no value of OTLP."""
        fields = _repaired(fields)
        listed = list_of(fields.get("attributes"))
        kept = [item for item in listed if _is_pair(item) and _is_parsed(item)]
        self.n_unread_attributes += len(listed) - len(kept)
        mended = {**fields, "attributes": kept}
        if "events" in mended:
            mended["events"] = [self._mended(object_of(event)) for event in list_of(mended["events"])]
        return mended


# --- JSON to messages -------------------------------------------------------------------------------------------------


def _parse(fields: dict[str, Any], message: MessageT) -> MessageT:
    ParseDict(fields, message, ignore_unknown_fields=True)
    return message


def _is_parsed(pair: dict[str, Any]) -> bool:
    try:
        _parse(pair, KeyValue())
    except ParseError:
        return False
    return True


def _has_pairs(fields: Mapping[str, Any]) -> bool:
    """Return whether all attributes of a span and of its events have the form of OTLP.

    Raises:
        ValueError: the structure is not OTLP's.
    """
    events = map(object_of, list_of(fields.get("events")))
    return all(map(_is_pair, list_of(fields.get("attributes")))) and all(map(_has_pairs, events))


def _is_pair(item: Any) -> bool:
    """Return whether *item* has the form of a key-value pair of OTLP, with a value of a known type or an empty one.

    `json_format` would leave out what it does not know, and take a text for a message without known fields.
    """
    if not isinstance(item, dict):
        return False
    pair = cast("dict[str, Any]", item)
    value: Any = pair.get("value")
    has_type = isinstance(value, dict) and not _VALUE_TYPES.isdisjoint(cast("dict[str, Any]", value))
    return isinstance(pair.get("key"), str) and (has_type or value is None or value == {})


def _repaired(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON *fields* with what protobuf's JSON cannot have written as it has it.

    Half a character, as JavaScript leaves at the end of a text that it has cut, becomes the replacement character. The
    bare numbers NaN and Infinity become texts.
    """
    text = json.dumps(fields, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    repaired: dict[str, Any] = json.loads(text, parse_constant=str)
    return repaired


def _bad_field(fields: dict[str, Any]) -> str:
    """Return the error message for the first of the *fields* of a span that has no value of OTLP."""
    for name, value in fields.items():
        try:
            _parse({name: value}, Span())
        except ParseError:  # noqa: PERF203
            return f"{name} has no value of OTLP: {shown(value)}"
    return "a field has no value of OTLP"


def span_ids(document: Any) -> Iterator[bool]:
    """Yield a bool for each span in an export request of OTLP JSON: whether its trace id and span id are valid.

    Raises:
        ValueError: the structure is not OTLP's.
    """
    for span in _raw_spans(document):
        try:
            yield all(any(parse_id(_first(span, *names), size, "")) for names, size in _VALID_IDS)
        except ValueError:  # noqa: PERF203 - one bad span must not cost the others
            yield False


def export_request(document: Any) -> ExportTraceServiceRequest:
    """Make a message of an export request of OTLP JSON. The ids in *document* become base64.

    Raises:
        ValueError: the structure or a value is not OTLP's.
    """
    for span in _raw_spans(document):
        for fields in (span, *map(object_of, list_of(span.get("links")))):
            for name in _ID_FIELDS:
                if value := fields.get(name):
                    size = TRACE_ID_BYTES if name in _TRACE_ID else SPAN_ID_BYTES
                    fields[name] = base64.b64encode(parse_id(value, size, name)).decode()
    try:
        try:
            return _parse(document, ExportTraceServiceRequest())
        except ParseError:
            return _parse(_repaired(document), ExportTraceServiceRequest())
    except ParseError:  # whose text quotes contents
        raise ValueError("a value has the wrong type") from None


def _raw_spans(document: Any) -> Iterator[dict[str, Any]]:
    for resource in map(object_of, list_of(_first(object_of(document), *_RESOURCE_LISTS[:2]))):
        for scope in map(object_of, list_of(_first(resource, *_SCOPE_LISTS[:2]))):
            yield from map(object_of, list_of(scope.get("spans")))


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    """Return the first of the fields *names* that is present and not null, or None."""
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _scoped_spans(resource: Any) -> Iterator[tuple[Any, str]]:
    """Yield each span below an OTLP resource, with the name of its instrumentation scope.

    Raises:
        ValueError: the structure is not OTLP's.
    """
    for scope_spans in map(object_of, list_of(_first(object_of(resource), *_SCOPE_LISTS))):
        scope = _first(scope_spans, "scope", "instrumentationLibrary", "instrumentation_library")
        name = "" if scope is None else object_of(scope).get("name")
        for span in list_of(scope_spans.get("spans")):
            yield span, name if isinstance(name, str) else ""
