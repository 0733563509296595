"""OTLP export requests received by the gateway: decompression within limits, validation, and the results."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ragtrace.span_reading.otlp_json import export_request, span_ids
from ragtrace.span_reading.otlp_protobuf import has_ids

Content: TypeAlias = Literal["protobuf", "json"]
Status: TypeAlias = Literal["accepted", "invalid", "unsupported", "too_large", "unauthenticated", "unavailable"]
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
"""Value of zlib's `wbits` for each HTTP content encoding."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """OTLP export request with spans, as received by the gateway."""

    body: bytes
    """Body as received, which is forwarded unchanged."""
    content: Content
    encoding: str = ""
    """HTTP content encoding of the body: empty, `identity`, `gzip` or `deflate`."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Validated contents of an OTLP export request."""

    body: bytes
    """Body after decompression."""
    content: Content
    spans: int
    without_ids: int
    """Number of spans without a valid trace id or span id."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Result of an OTLP export request, as sent in an HTTP or gRPC response."""

    status: Status
    reason: str = ""
    """Reason of a refusal in one word, for the gateway's metrics; empty: accepted."""
    message: str = ""
    """Reason of a refusal as text, for the client; empty: accepted."""
    retry_after: float | None = None
    """Seconds after which the client may try again; None: no time is given."""
    response: bytes = b""
    """Response message of OTLP in the content type of the request; empty: all spans were accepted."""
    rejected: int = 0
    """Number of spans in an accepted request that were not accepted."""


class RefusedError(Exception):
    """Raised for an OTLP export request that the gateway refuses."""

    def __init__(self, status: Status, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.result = ExportResult(status, reason, message, retry_after)


def read_payload(request: ExportRequest, most_bytes: int) -> Payload:
    """Decompress and validate an OTLP export *request*, and return its contents.

    Raises:
        RefusedError: it is no OTLP, is compressed in an unknown way, or is longer than *most_bytes*.
    """
    body = _decompress(request, most_bytes)
    try:
        flags = _valid_ids_of_json(body) if request.content == "json" else _valid_ids_of_protobuf(body)
    except (DecodeError, ValueError, RecursionError) as error:
        shown = f"JSON: {error}" if request.content == "json" else "protobuf"
        raise RefusedError("invalid", "malformed", f"the body is no ExportTraceServiceRequest in {shown}") from None
    return Payload(body, request.content, len(flags), flags.count(False))


def _decompress(request: ExportRequest, most_bytes: int) -> bytes:
    if request.encoding in ("", "identity"):
        if len(request.body) > most_bytes:
            raise _too_large(most_bytes)
        return request.body
    bits = _WINDOW_BITS.get(request.encoding)
    if bits is None:
        raise RefusedError("unsupported", "encoding", "the content encoding must be gzip, deflate or identity")
    stream = zlib.decompressobj(bits)
    try:
        body = stream.decompress(request.body, most_bytes + 1)
    except zlib.error:
        raise RefusedError("invalid", "malformed", f"the body cannot be decompressed as {request.encoding}") from None
    if len(body) > most_bytes:
        raise _too_large(most_bytes)
    if not stream.eof or stream.unused_data:
        raise RefusedError("invalid", "malformed", f"the body is not one {request.encoding} stream")
    return body


def _too_large(most_bytes: int) -> RefusedError:
    # In no variable where it is raised: frame and exception would keep each other, and the body with them.
    return RefusedError("too_large", "too_large", f"the request is larger than {most_bytes:,} bytes")


def _valid_ids_of_protobuf(body: bytes) -> list[bool]:
    """Return a bool for each span in an OTLP request in protobuf: whether its ids are valid."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        has_ids(span) for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
    ]


def _valid_ids_of_json(body: bytes) -> list[bool]:
    """Return a bool for each span in an OTLP request in JSON: whether its ids are valid."""
    return list(span_ids(json.loads(body)))


# --- JSON and protobuf ------------------------------------------------------------------------------------------------


def json_to_protobuf(body: bytes) -> bytes:
    """Convert the OTLP export request *body* from JSON to protobuf, for an upstream that does not accept JSON.

    Raises:
        RefusedError: a value has the wrong type.
    """
    try:
        return bytes(export_request(json.loads(body)).SerializeToString())
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            "invalid", "malformed", f"the body is no ExportTraceServiceRequest in JSON: {error}"
        ) from None


def partial_success(rejected: int, message: str, content: Content) -> bytes:
    """Encode an OTLP partial-success response, which reports the number of rejected spans."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = rejected
    response.partial_success.error_message = message
    return encode_message(response, content)


def encode_message(message: Any, content: Content) -> bytes:
    """Encode a protobuf message in the content type *content*."""
    if content == "protobuf":
        return bytes(message.SerializeToString())
    return str(MessageToJson(message, indent=None)).encode()


def read_response(body: bytes, received: Content, wanted: Content) -> tuple[bytes, int]:
    """Convert an upstream's OTLP response to the content type *wanted*, and return it with the number of rejected
    spans.

    Something else than a response message counts as a full success: its status has said so.

    Args:
        body: body of the response.
        received: content type of *body*.
        wanted: content type that the client understands.
    """
    try:
        if received == "json":
            document: Any = json.loads(body or b"{}")
            response = ParseDict(document, ExportTraceServiceResponse(), ignore_unknown_fields=True)
        else:
            response = ExportTraceServiceResponse.FromString(body)
    except (DecodeError, ParseError, ValueError, RecursionError):
        return b"", 0
    if received != wanted:
        body = encode_message(response, wanted)
    return body, max(0, response.partial_success.rejected_spans)
