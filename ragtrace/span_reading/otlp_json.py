"""Parser of span files: OTLP JSON as the Collector's file exporter writes it, and span records of Phoenix.

OTLP JSON: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding; files of it:
https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/. Span records are the objects of Phoenix's REST API and
client (`{"context": {"trace_id": ..., "span_id": ...}, "attributes": {...}, ...}`), whose form is that of
`ReadableSpan.to_json()` of the OpenTelemetry SDK.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from gzip import BadGzipFile, GzipFile
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, cast

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core import semconv
from ragtrace.span_reading.finished_span import Attributes, FinishedSpan, error_type_of

MOST_LINE_BYTES: Final = 128 * 2**20
"""Most bytes of one line, or of a file that is one JSON document over several lines; reading takes several times the
memory."""
_BOM: Final = b"\xef\xbb\xbf"
_GZIP: Final = b"\x1f\x8b"
_SCOPE_LISTS: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")
_RESOURCE_LISTS: Final = ("resourceSpans", "resource_spans", "batches")
_OTHER_SIGNALS: Final = ("resourceLogs", "resource_logs", "resourceMetrics", "resource_metrics", "resourceProfiles")
_WRAPPERS: Final = ("data", "trace", "traces", "result", "spans")
"""Keys under which the APIs of Phoenix, Tempo and Jaeger wrap spans."""
_MOST_WRAPPERS: Final = 4
_MOST_NESTING: Final = 64
_KNOWS_PARENT: Final = 0x100
"""Bit of an OTLP span's `flags` that says that `_REMOTE_PARENT` is valid."""
_REMOTE_PARENT: Final = 0x200
"""Bit of an OTLP span's `flags` that says that the parent is in another process."""
_ENTRY_KINDS: Final = (2, 5, "SPAN_KIND_SERVER", "SPAN_KIND_CONSUMER")
"""Kinds of spans that begin work on behalf of another process."""
_HEX: Final = re.compile(r"[0-9a-fA-F]+\Z")
_BASE64: Final = re.compile(r"[0-9a-zA-Z+/]+={0,2}\Z")
_ERROR_CODES: Final = (2, "2", "STATUS_CODE_ERROR", "ERROR")


@dataclass(frozen=True, slots=True)
class UnreadableSpan:
    """Error record for a line of a span file, or for one span in the line, that cannot be parsed."""

    line: int
    error: str


class SpanFile:
    """File of finished spans, which is parsed line by line during iteration and can be iterated once.

    A line is an OTLP JSON document, a span record, or a list of these. A file that is one JSON document over several
    lines is read as a whole, up to `MOST_LINE_BYTES`. The file may be compressed by gzip.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = max(1, path.stat().st_size)
        self._read = 0
        self.reader = OtlpJsonReader()
        self.n_spans = 0
        """Number of spans read so far."""

    @property
    def share_read(self) -> float:
        """Share of the span file that has been read so far, from 0 to 1."""
        return min(1.0, self._read / self._size)

    def __iter__(self) -> Generator[FinishedSpan | UnreadableSpan, None, None]:
        for line, document in self._documents():
            for found in [document] if isinstance(document, UnreadableSpan) else self.reader.spans_in(line, document):
                self.n_spans += isinstance(found, FinishedSpan)
                yield found

    # --- file to JSON documents ---------------------------------------------------------------------------------------

    def _documents(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the JSON document of each line, or an `UnreadableSpan` for a line that is not JSON."""
        documents = self._documents_over_lines()
        if documents is not None:
            self._read = self._size
            yield from ((1, document) for document in documents)
            return
        number = 0
        try:
            with self._path.open("rb") as stored:
                file = _decompressed(stored)
                while raw := file.readline(MOST_LINE_BYTES):
                    number += 1
                    if len(raw) == MOST_LINE_BYTES and not raw.endswith(b"\n"):
                        while (more := file.readline(MOST_LINE_BYTES)) and not more.endswith(b"\n"):
                            pass
                        too_long = f"longer than {MOST_LINE_BYTES} bytes; write smaller batches"
                        document: Any = UnreadableSpan(number, too_long)
                    elif raw.strip(b" \t\r\n\0"):  # a file system that ran full leaves zeros
                        document = _parse(number, raw.removeprefix(_BOM) if number == 1 else raw)
                    else:
                        continue
                    self._read = stored.tell()
                    yield number, document
                self._read = stored.tell()
        except (EOFError, BadGzipFile, zlib.error) as error:
            yield number + 1, UnreadableSpan(number + 1, f"the gzip data is cut off or damaged here: {error}")

    def _documents_over_lines(self) -> list[Any] | None:
        """Return the JSON documents of a file if they extend over several lines, or None if it is JSON Lines."""
        try:
            with self._path.open("rb") as stored:
                file = _decompressed(stored)
                first = file.readline(MOST_LINE_BYTES).removeprefix(_BOM)
                while first.isspace():
                    first = file.readline(MOST_LINE_BYTES)
                if self._size > MOST_LINE_BYTES or not isinstance(_parse(1, first), UnreadableSpan):
                    return None
                rest = file.read(MOST_LINE_BYTES)  # the size of compressed data says little
        except (EOFError, BadGzipFile, zlib.error):
            return None
        if len(rest) == MOST_LINE_BYTES:
            return None
        try:
            text = (first + rest).decode("utf-8").rstrip()
            documents: list[Any] = []
            decoder, position = json.JSONDecoder(), 0
            while position < len(text):
                document, position = decoder.raw_decode(text, position)
                documents.append(document)
                while text[position : position + 1].isspace():
                    position += 1
        except (ValueError, RecursionError):
            return None
        return documents


class OtlpJsonReader:
    """Parser of the spans in JSON documents: OTLP JSON, span records, or lists of either."""

    def __init__(self) -> None:
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
        yield UnreadableSpan(line, f"neither OTLP JSON with resourceSpans nor a span record: {_shown(document)}")

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
            span = _object(fields)
            return self._record(span) if isinstance(span.get("context"), dict) else self._otlp_span(span, scope)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            return UnreadableSpan(line, str(error))

    def _otlp_span(self, span: Mapping[str, Any], scope: str) -> FinishedSpan:
        trace_id = _id(_first(span, "traceId", "trace_id"), 16, "traceId")
        remote = has_remote_parent(_parse_integer(span.get("flags") or 0), span.get("kind"))
        parent_id = _parent_id(_first(span, "parentSpanId", "parent_span_id"))
        attributes = self._attributes(span.get("attributes"))
        events = tuple(
            (_name(event), self._attributes(event.get("attributes")))
            for event in map(_object, _as_list(span.get("events")))
        )
        status = span.get("status")
        failed = isinstance(status, dict) and cast("dict[str, Any]", status).get("code") in _ERROR_CODES
        start = _parse_integer(_first(span, "startTimeUnixNano", "start_time_unix_nano"))
        end = _parse_integer(_first(span, "endTimeUnixNano", "end_time_unix_nano"))
        return FinishedSpan(
            context=_context(trace_id, _id(_first(span, "spanId", "span_id"), 8, "spanId")),
            parent=_context(trace_id, parent_id, is_remote=remote) if parent_id else None,
            name=_name(span),
            attributes=attributes,
            start_ns=_time(start, "startTimeUnixNano"),
            end_ns=_time(end, "endTimeUnixNano"),
            events=events,
            scope=scope,
            error_type=error_type_of(attributes, events, failed=failed),
        )

    def _record(self, span: Mapping[str, Any]) -> FinishedSpan:
        """Parse a span record, as written by Phoenix or by the OpenTelemetry SDK's `to_json`."""
        context = cast("dict[str, Any]", span["context"])
        trace_id = _id(context.get("trace_id"), 16, "trace_id")
        parent_id = _parent_id(span.get("parent_id"))
        attributes = dict(_flattened(span.get("attributes")))
        kind = span.get("span_kind")
        if isinstance(kind, str) and kind not in ("", "UNKNOWN"):
            attributes.setdefault(semconv.OI_KIND, kind)
        events = tuple(
            (_name(event), dict(_flattened(event.get("attributes"))))
            for event in map(_object, _as_list(span.get("events")))
        )
        status = span.get("status")
        if isinstance(status, dict):
            span = {**span, **cast("dict[str, Any]", status)}
        return FinishedSpan(
            context=_context(trace_id, _id(context.get("span_id"), 8, "span_id")),
            parent=_context(trace_id, parent_id) if parent_id else None,
            name=_name(span),
            attributes=attributes,
            start_ns=_nanoseconds(span.get("start_time"), "start_time"),
            end_ns=_nanoseconds(span.get("end_time"), "end_time"),
            events=events,
            error_type=error_type_of(attributes, events, failed=span.get("status_code") in _ERROR_CODES),
        )

    # --- attributes ---------------------------------------------------------------------------------------------------

    def _attributes(self, listed: Any) -> Attributes:
        """Convert an OTLP list of key-value pairs to attributes. A list value becomes a tuple, as in the SDK."""
        found: dict[str, Any] = {}
        for item in _as_list(listed):
            try:
                name, value = _key(item), _value(item.get("value"), 0)
                found[name] = tuple(cast("list[object]", value)) if isinstance(value, list) else value
            except (ValueError, OverflowError):  # noqa: PERF203 - one bad attribute must not cost the others
                self.n_unread_attributes += 1
        return found


def has_remote_parent(flags: int, kind: object) -> bool:
    """Return whether the parent of a span is in another process.

    Args:
        flags: the flags of the OTLP span, which say so if its SDK knows the bits of the parent.
        kind: the kind of the span; the parent of a server's or a consumer's span is remote.
    """
    return bool(flags & _REMOTE_PARENT) if flags & _KNOWS_PARENT else kind in _ENTRY_KINDS


def _decompressed(stored: BufferedReader) -> BufferedReader | GzipFile:
    """Return a file object with the bytes of *stored*, decompressed if they are in gzip format."""
    return GzipFile(fileobj=stored) if stored.peek(2).startswith(_GZIP) else stored


def _parse(number: int, raw: bytes) -> Any:
    """Parse the line *raw* as JSON, or return an `UnreadableSpan` if it is not JSON."""
    try:
        return json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        needed = "a file of OTLP JSON is needed, uncompressed or compressed by gzip"
        return UnreadableSpan(number, f"not UTF-8 at byte {error.start}; {needed}")
    except RecursionError:
        return UnreadableSpan(number, "nested too deeply to be read")
    except ValueError as error:
        return UnreadableSpan(number, f"not JSON: {error}")


def _value(value: Any, depth: int) -> Any:
    """Convert an OTLP `AnyValue` to a Python value, or to None if it is empty.

    Raises:
        ValueError: it is none of the types of OTLP, or nested too deeply.
    """
    if value is None:
        return None
    if not isinstance(value, dict) or depth > _MOST_NESTING:
        raise ValueError(f"not a value of OTLP: {_shown(value)}")
    # Phoenix's models also list, as null, the types that a value does not have.
    given = {name: content for name, content in cast("dict[str, Any]", value).items() if content is not None}
    for name, content in given.items():
        match name:
            case "stringValue" | "string_value":
                return _text(content)
            case "boolValue" | "bool_value":
                return _boolean(content)
            case "intValue" | "int_value":
                return _parse_integer(content)
            case "doubleValue" | "double_value":
                return _number(content)
            case "bytesValue" | "bytes_value":
                return base64.b64decode(_text(content))
            case "arrayValue" | "array_value":
                return [_value(each, depth + 1) for each in _values(content)]
            case "kvlistValue" | "kvlist_value":
                return {_key(each): _value(each.get("value"), depth + 1) for each in _values(content)}
            case _:
                continue
    if given:
        raise ValueError(f"not a value of OTLP: {_shown(value)}")
    return None


def _values(content: Any) -> list[Any]:
    """Return the items of an OTLP array or key-value list.

    Protobuf's JSON leaves the key `values` out of an empty one.
    """
    listed = cast("dict[str, Any]", content).get("values", []) if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise ValueError(f"not a list of OTLP: {_shown(content)}")
    return cast("list[object]", listed)


def _flattened(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a span record under dotted names, also where Phoenix nests them."""
    for name, each in ({} if value is None else _object(value)).items():
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


# --- fields of a span -------------------------------------------------------------------------------------------------


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    """Return the first of the fields *names* that is present and not null, or None."""
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _scoped_spans(resource: Any) -> Iterator[tuple[Any, str]]:
    """Yield each span below an OTLP resource, with the name of its instrumentation scope.

    Raises:
        ValueError: the structure is not OTLP's.
    """
    for scope_spans in map(_object, _as_list(_first(_object(resource), *_SCOPE_LISTS))):
        scope = _first(scope_spans, "scope", "instrumentationLibrary", "instrumentation_library")
        name = "" if scope is None else _name(_object(scope))
        for span in _as_list(scope_spans.get("spans")):
            yield span, name


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"not an object: {_shown(value)}")
    return cast("dict[str, Any]", value)


def _as_list(value: Any) -> list[Any]:
    """Return *value* if it is a list, or an empty list if it is null.

    Protobuf's JSON may write null in place of an empty list.

    Raises:
        ValueError: it is neither.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"not a list: {_shown(value)}")
    return cast("list[object]", value)


def _context(trace_id: int, span_id: int, *, is_remote: bool = False) -> SpanContext:
    """Return the span context of an exported span, with the sampled flag set.

    Not every exporter writes the flag.
    """
    return SpanContext(trace_id, span_id, is_remote=is_remote, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _id(value: Any, n_bytes: int, name: str) -> int:
    """Parse a trace id or span id of *n_bytes* bytes, in hexadecimal or base64.

    OTLP JSON has hexadecimal ids (perhaps with 0x or as a UUID), protobuf's JSON base64.

    Raises:
        ValueError: it is neither, or zero.
    """
    number = _id_or_zero(value, n_bytes, name)
    if not number:
        raise ValueError(f"{name} must not be zero")
    return number


def _id_or_zero(value: Any, n_bytes: int, name: str) -> int:
    if isinstance(value, str):
        text = value.removeprefix("0x").replace("-", "") if len(value) in (36, 2 + 2 * n_bytes) else value
        if len(text) == 2 * n_bytes and _HEX.match(text):
            return int(text, 16)
        if len(text.rstrip("=")) == (n_bytes * 4 + 2) // 3 and _BASE64.match(text):
            return int.from_bytes(base64.b64decode(text.rstrip("=") + "=="), "big")
    raise ValueError(f"{name} must be {n_bytes} bytes in hexadecimal or base64, got {_shown(value)}")


def _parent_id(value: Any) -> int:
    """Return the parent's span id, or 0 if it is missing, empty or zero, as for a root span."""
    return _id_or_zero(value, 8, "parentSpanId") if value else 0


def _parse_integer(value: Any) -> int:
    """Parse a whole number, which protobuf's JSON writes as a string if it has 64 bits.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str, float)):
        raise ValueError(f"not a whole number: {_shown(value)}")
    if isinstance(value, float) and not value.is_integer():  # neither are NaN and Infinity
        raise ValueError(f"not a whole number: {_shown(value)}")
    return int(value)


def _number(value: Any) -> float:
    """Parse a floating-point number. Protobuf's JSON writes "NaN", "Infinity" and "-Infinity" as strings."""
    if isinstance(value, bool) or not isinstance(value, (int, str, float)):
        raise ValueError(f"not a number: {_shown(value)}")
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"not a boolean: {_shown(value)}")
    return value


def _time(nanoseconds: int, name: str) -> int:
    if nanoseconds <= 0:
        raise ValueError(f"{name} must be later than 1970, got {nanoseconds}")
    return nanoseconds


def _nanoseconds(value: Any, name: str) -> int:
    """Convert an ISO 8601 time to nanoseconds since the epoch.

    A time without a zone is taken as UTC, as Phoenix writes it.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a time in ISO 8601, got {_shown(value)}")
    text = f"{value[:-1]}+00:00" if value.endswith("Z") else value  # Python 3.10 does not read the Z
    found = datetime.fromisoformat(text)
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
    whole = zoned.replace(microsecond=0)
    return _time(int(whole.timestamp()) * 1_000_000_000 + zoned.microsecond * 1_000, name)


def _name(fields: Mapping[str, Any]) -> str:
    name = fields.get("name")
    return name if isinstance(name, str) else ""


def _key(item: Any) -> str:
    return _text(_object(item).get("key"))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a text: {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """Describe a JSON value for an error message, without the texts in it.

    Of an object the first keys are shown, of a list or string only the length.
    """
    if isinstance(value, dict):
        return f"an object with {', '.join(list(map(repr, cast('dict[str, Any]', value)))[:5]) or 'no keys'}"
    if isinstance(value, (str, list)):
        return f"{type(cast('object', value)).__name__} of length {len(cast('str', value))}"
    return repr(value)[:40]
