"""The part of a backend's OTLP response that says which items of an accepted request it did not store.

Source: opentelemetry-proto, OTLP specification, "Partial Success": status 200 with a number of rejected items and a
message. A client must not send them again. With 0 rejected items the message is a warning.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ragtrace.core.endpoints import Rejected
from ragtrace.system.faults import faults, printable

if TYPE_CHECKING:
    from ragtrace_exporters.otlp import Signal

_COUNTS: Final = {"traces": "rejected_spans", "metrics": "rejected_data_points", "logs": "rejected_log_records"}
_SHOWN_CHARS: Final = 300


NONE: Final = Rejected()


def rejected_of_message(signal: Signal, response: Any) -> Rejected:
    """Return what the *response* to an export of *signal*, an OTLP message, says was rejected.

    A warning for a request that was stored as a whole is logged once.
    """
    partial = response.partial_success
    return _rejected(signal, getattr(partial, _COUNTS[signal]), partial.error_message)


def is_web_page(response: Any) -> bool:
    """Return whether an HTTP *response* is a page for people: a login, or another server than a receiver of OTLP."""
    return "text/html" in response.headers.get("content-type", "").lower()


WEB_PAGE: Final = "a web page and no answer of a receiver of OTLP; is that its address, and is nothing before it?"


def rejected_of_http(signal: Signal, response: Any) -> Rejected:
    """Return what the HTTP *response* to an export of *signal*, of the library requests, says was rejected.

    A body that is no OTLP message says nothing: the status has said that the request was accepted.
    """
    if response.status_code >= 300 or not response.content:
        return NONE
    with suppress(Exception):
        if "json" in response.headers.get("content-type", ""):
            first, *words = _COUNTS[signal].split("_")
            partial: Any = json.loads(response.content).get("partialSuccess") or {}
            count = partial.get("".join((first, *(word.title() for word in words)))) or 0
            return _rejected(signal, int(count), str(partial.get("errorMessage") or ""))
        # The responses to all signals have the same fields, by number.
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        partial = ExportTraceServiceResponse.FromString(response.content).partial_success
        return _rejected(signal, partial.rejected_spans, partial.error_message)
    return NONE


def _rejected(signal: Signal, count: int, message: str) -> Rejected:
    shown = printable(faults.message(Exception(message)), _SHOWN_CHARS) if message else ""
    if count <= 0 and shown:
        faults.log_once(f"{signal} accepted with a message", "the backend takes %s, and says: %s", signal, shown)
    return Rejected(max(0, count), shown)
