"""Encoder of finished spans: the body of an OTLP request, written field by field.

Building a protocol-buffer object for each attribute takes most of the time that an export costs the application's
process. What nearly every span consists of (texts, numbers and flags as attributes) is written directly here; a span
that has anything else, and everything that is around spans, is encoded by OpenTelemetry's own encoder. The result is
the same to the byte (a test compares them).

Source: opentelemetry-proto, trace/v1/trace.proto and common/v1/common.proto, which are stable; protocol-buffer encoding
as at protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import StatusCode

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

# Tags: number of the field, and how its value is written.
_TRACE_ID, _SPAN_ID, _PARENT, _NAME, _KIND = b"\x0a\x10", b"\x12\x08", b"\x22\x08", b"\x2a", b"\x30"
_START, _END, _ATTRIBUTE, _LOST_ATTRIBUTES = b"\x39", b"\x41", b"\x4a", b"\x50"
_LOST_EVENTS, _LOST_LINKS, _NO_STATUS, _FLAGS = b"\x60", b"\x70", b"\x7a\x00", b"\x85\x01"
_FIRST, _SECOND, _THIRD = b"\x0a", b"\x12", b"\x1a"
_TRUE, _FALSE, _INTEGER, _DOUBLE = b"\x10\x01", b"\x10\x00", b"\x18", b"\x21"

SDK_ENCODER: Final = "opentelemetry.exporter.otlp.proto.common.trace_encoder"
"""Module that is loaded on use; exporters load it in the background before that."""

_fixed64 = Struct("<Q").pack
_double = Struct("<d").pack
_LOCAL_PARENT: Final = Struct("<I").pack(0x100)
_REMOTE_PARENT: Final = Struct("<I").pack(0x300)
_SCALARS: Final = frozenset({str, bool, int, float})
_MOST_KNOWN: Final = 2_000
_SHORT_CHARS: Final = 40
_keys: dict[str, bytes] = {}
_known: dict[tuple[str, object, type], bytes] = {}
"""Whole attributes that may come again: names of models, of operations, flags."""


class _UnusualError(Exception):
    """Something that is left to OpenTelemetry's encoder."""


def encode(spans: Sequence[ReadableSpan]) -> bytes:
    """Return *spans* as an `ExportTraceServiceRequest`, grouped by resource and scope.

    Raises:
        Exception: whatever OpenTelemetry's encoder raises.
    """
    groups: dict[tuple[int, int], list[ReadableSpan]] = {}
    for span in spans:
        groups.setdefault((id(span.resource), id(span.instrumentation_scope)), []).append(span)
    return b"".join([_FIRST + _sized(_group(group)) for group in groups.values()])


def _group(spans: Sequence[ReadableSpan]) -> bytes:
    """Return `ResourceSpans` of spans with one resource and scope, which the encoder of the SDK describes."""
    around = _by_sdk(spans[0])
    scope = around.scope_spans[0]
    del scope.spans[:]
    head, tail = _without_schema(scope)
    body = b"".join([head, *[_SECOND + _sized(_span(span)) for span in spans], tail])
    del around.scope_spans[:]
    head, tail = _without_schema(around)
    return b"".join([head, _SECOND, _sized(body), tail])


def _without_schema(message: Any) -> tuple[bytes, bytes]:
    """Return *message* without its schema URL, and the schema URL, which follows the spans on the wire."""
    schema = message.schema_url
    message.ClearField("schema_url")
    return message.SerializePartialToString(), _THIRD + _sized(schema.encode()) if schema else b""


def _by_sdk(span: ReadableSpan) -> Any:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return encode_spans([span]).resource_spans[0]


def _span(span: ReadableSpan) -> bytes:
    try:
        return _plain_span(span)
    except (_UnusualError, UnicodeEncodeError):
        encoded: bytes = _by_sdk(span).scope_spans[0].spans[0].SerializePartialToString()
        return encoded


def _plain_span(span: ReadableSpan) -> bytes:
    context, parent = span.get_span_context(), span.parent
    if context is None or span.events or span.links or span.status.status_code is not StatusCode.UNSET:
        raise _UnusualError
    if not span.name or not span.start_time or not span.end_time or span.status.description or context.trace_state:
        raise _UnusualError
    parts = [
        *(_TRACE_ID, context.trace_id.to_bytes(16, "big"), _SPAN_ID, context.span_id.to_bytes(8, "big")),
        *(() if parent is None else (_PARENT, parent.span_id.to_bytes(8, "big"))),
        *(_NAME, _sized(span.name.encode()), _KIND, _varint(span.kind.value + 1)),
        *(_START, _fixed64(span.start_time), _END, _fixed64(span.end_time)),
    ]
    for key, value in (span.attributes or {}).items():
        if type(value) is str and len(value) > _SHORT_CHARS:
            _text(parts, key, value)
        elif type(value) in _SCALARS:
            parts.append(_known.get((key, value, type(value))) or _short(key, value))
        else:
            raise _UnusualError
    lost = (span.dropped_attributes, span.dropped_events, span.dropped_links)
    for tag, count in zip((_LOST_ATTRIBUTES, _LOST_EVENTS, _LOST_LINKS), lost, strict=True):
        if count:
            parts += (tag, _varint(count))
    parts += (_NO_STATUS, _FLAGS, _flags(parent))
    return b"".join(parts)


def _flags(parent: SpanContext | None) -> bytes:
    return _REMOTE_PARENT if parent is not None and parent.is_remote else _LOCAL_PARENT


def _text(parts: list[bytes], key: str, value: str) -> None:
    """Append a `KeyValue` to *parts*, without copying its text."""
    name = _keys.get(key) or _key(key)
    text = value.encode()
    length = _varint(len(text))
    size = len(length) + len(text) + 1
    inner = _varint(size)
    parts += (_ATTRIBUTE, _varint(len(name) + len(inner) + size + 1), name, _SECOND, inner, _FIRST, length, text)


def _short(key: str, value: object) -> bytes:
    name = _keys.get(key) or _key(key)
    written = _ATTRIBUTE + _sized(name + _SECOND + _sized(_value(value)))
    # Not numbers: nearly every one is new, and -0.0 would be taken for 0.0.
    if isinstance(value, (str, bool)) and len(_known) < _MOST_KNOWN:
        _known[key, value, type(value)] = written
    return written


def _key(key: str) -> bytes:
    written = _FIRST + _sized(key.encode())
    if len(_keys) < _MOST_KNOWN:
        _keys[key] = written
    return written


def _value(value: object) -> bytes:
    if type(value) is str:
        return _FIRST + _sized(value.encode())
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if type(value) is float:
        return _DOUBLE + _double(value)
    if type(value) is int and -(1 << 63) <= value < 1 << 63:
        return _INTEGER + _varint(value & 0xFFFFFFFFFFFFFFFF)
    raise _UnusualError


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    return _SMALL[number] if number < len(_SMALL) else _large(number)


def _large(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_SMALL: Final = [_large(number) for number in range(2_048)]
