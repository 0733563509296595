"""Reader of span records: the objects of Phoenix's REST API and client, and of the OpenTelemetry SDK.

A record is `{"context": {"trace_id": ..., "span_id": ...}, "attributes": {...}, ...}`, the form of
`ReadableSpan.to_json()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, Final, cast

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core import semconv
from ragtrace.span_reading.finished_span import FinishedSpan, error_type_of
from ragtrace.span_reading.json_fields import SPAN_ID_BYTES, TRACE_ID_BYTES, list_of, object_of, parse_id, shown

_MOST_NESTING: Final = 64
_ERROR_CODES: Final = (2, "2", "STATUS_CODE_ERROR", "ERROR")


def read_record(span: Mapping[str, Any]) -> FinishedSpan:
    """Convert a span record to a `FinishedSpan`.

    Raises:
        ValueError: an id or a time is missing or no such value, or the attributes are nested too deeply.
    """
    context = cast("dict[str, Any]", span["context"])
    trace_id = _number_of(context.get("trace_id"), TRACE_ID_BYTES, "trace_id")
    span_id = _number_of(context.get("span_id"), SPAN_ID_BYTES, "span_id")
    parent = span.get("parent_id")  # missing, empty or zero in a root span
    parent_id = int.from_bytes(parse_id(parent, SPAN_ID_BYTES, "parent_id"), "big") if parent else 0
    attributes = dict(_flattened(span.get("attributes")))
    kind = span.get("span_kind")
    if isinstance(kind, str) and kind not in ("", "UNKNOWN"):
        attributes.setdefault(semconv.OI_KIND, kind)
    events = tuple(
        (_name(event), dict(_flattened(event.get("attributes"))))
        for event in map(object_of, list_of(span.get("events")))
    )
    status = span.get("status")
    if isinstance(status, dict):
        span = {**span, **cast("dict[str, Any]", status)}
    return FinishedSpan(
        context=_context(trace_id, span_id),
        parent=_context(trace_id, parent_id) if parent_id else None,
        name=_name(span),
        attributes=attributes,
        start_ns=_nanoseconds(span.get("start_time"), "start_time"),
        end_ns=_nanoseconds(span.get("end_time"), "end_time"),
        events=events,
        error_type=error_type_of(attributes, events, failed=span.get("status_code") in _ERROR_CODES),
    )


def _flattened(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a span record under dotted names, also where Phoenix nests them."""
    for name, each in ({} if value is None else object_of(value)).items():
        yield from _flattened_one(f"{prefix}{name}", each, depth)


def _flattened_one(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _MOST_NESTING:
        raise ValueError("attributes are nested too deeply to be read")
    if isinstance(value, dict):
        yield from _flattened(cast("dict[str, Any]", value), f"{name}.", depth + 1)
    elif isinstance(value, list):
        items = cast("list[object]", value)
        if not any(isinstance(item, dict) for item in items):
            yield name, tuple(items)
            return
        for index, item in enumerate(items):
            yield from _flattened_one(f"{name}.{index}", item, depth + 1)
    else:
        yield name, value


def _number_of(value: Any, n_bytes: int, name: str) -> int:
    """Parse an id as a number.

    Raises:
        ValueError: it is no id, or zero.
    """
    number = int.from_bytes(parse_id(value, n_bytes, name), "big")
    if not number:
        raise ValueError(f"{name} must not be zero")
    return number


def _context(trace_id: int, span_id: int) -> SpanContext:
    """Return the span context of an exported span, with the sampled flag set, which a record does not have."""
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(value: Any, name: str) -> int:
    """Convert an ISO 8601 time to nanoseconds since the epoch.

    A time without a zone is taken as UTC, as Phoenix writes it.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a time in ISO 8601, got {shown(value)}")
    text = f"{value[:-1]}+00:00" if value.endswith("Z") else value  # Python 3.10 does not read the Z
    found = datetime.fromisoformat(text)
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    whole = zoned.replace(microsecond=0)
    nanoseconds = int(whole.timestamp()) * 1_000_000_000 + zoned.microsecond * 1_000
    if nanoseconds <= 0:
        raise ValueError(f"{name} must be later than 1970, got {nanoseconds}")
    return nanoseconds


def _name(fields: Mapping[str, Any]) -> str:
    name = fields.get("name")
    return name if isinstance(name, str) else ""
