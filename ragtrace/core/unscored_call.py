"""RAG call that one process hands to another unscored, and its form in JSON, for the spool file and the fleet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from ragtrace.core.labels import CitedPart, Turn
from ragtrace.core.tags import read_tags
from ragtrace.core.types import Document, RagCall, Timing, Usage


class UnscoredCall(NamedTuple):
    """Redacted RAG call, with the ids of the evaluators that have not scored it yet."""

    call: RagCall
    pending_evaluators: tuple[str, ...]
    """Ids of the evaluators that have not scored the call yet."""
    response_id: str | None = None
    probability: float | None = None
    """Inclusion probability with which the judge was to see the call; None: the sampler had not decided yet."""
    reason: str = ""
    """Reason of the sampling decision behind the probability; empty: not known, or there was no decision yet."""

    @property
    def identity(self) -> str:
        """Key of the call in the spool file: trace id and span id in hexadecimal, or "" without a span."""
        span = self.call.span
        return "" if span is None else f"{span.trace_id:032x}{span.span_id:016x}"


# Looked up once, as a process at shutdown has little time for thousands of calls.
_NAMES: Final[Mapping[type, tuple[str, ...]]] = {
    kind: tuple(each.name for each in fields(kind)) for kind in (Document, Timing, Usage, Turn, CitedPart)
}
_OF_A_CALL: Final = tuple(each.name for each in fields(RagCall) if each.name != "span")


def encode(unscored: UnscoredCall) -> str:
    """Encode an unscored RAG call as one line of JSON.

    It is ASCII, so that SQLite accepts texts with lone surrogates too.
    """
    record = {
        "call": {name: _to_json_value(getattr(unscored.call, name)) for name in _OF_A_CALL},
        "span": _span_record(unscored.call.span),
        "open": unscored.pending_evaluators,
        "response_id": unscored.response_id,
        "probability": unscored.probability,
        "reason": unscored.reason,
    }
    return json.dumps(record)


def _to_json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json_value(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Mapping):  # tags
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    names = _NAMES.get(type(value))  # pyright: ignore[reportUnknownArgumentType]
    return value if names is None else {name: _to_json_value(getattr(value, name)) for name in names}


def decode(text: str) -> UnscoredCall:
    """Create an unscored RAG call from JSON text written by `encode`, ignoring unknown fields.

    Raises:
        ValueError, TypeError, KeyError: *text* does not come from `encode`.
    """
    record = json.loads(text)
    found = {name: value for name, value in record["call"].items() if name in _OF_A_CALL}
    found |= {name: read(found[name]) for name, read in _READERS.items() if name in found}
    call = RagCall(**found, span=_span_from_record(record["span"]))
    # Calls that an older version wrote have no reason.
    reason = record.get("reason", "")
    return UnscoredCall(call, tuple(record["open"]), record["response_id"], record["probability"], reason)


def _span_record(span: SpanContext | None) -> dict[str, Any] | None:
    if span is None:
        return None
    state = span.trace_state.to_header()
    return {"trace": f"{span.trace_id:x}", "span": f"{span.span_id:x}", "flags": int(span.trace_flags), "state": state}


def _span_from_record(record: Mapping[str, Any] | None) -> SpanContext | None:
    if record is None:
        return None
    return SpanContext(
        int(record["trace"], 16),
        int(record["span"], 16),
        is_remote=True,  # the span was created in another process
        trace_flags=TraceFlags(record["flags"]),
        trace_state=TraceState.from_header([record["state"]] if record["state"] else []),
    )


def _reader_of_one(kind: Callable[..., Any]) -> Callable[[Any], Any]:
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]

    def read(value: Any) -> Any:
        return (
            None if value is None else kind(**{name: _as_tuple(item) for name, item in value.items() if name in names})
        )

    return read


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _reader_of_many(kind: Callable[..., Any]) -> Callable[[Any], Any]:
    read = _reader_of_one(kind)
    return lambda value: None if value is None else tuple(read(item) for item in value)


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "contexts": _reader_of_many(Document),
    "reference_contexts": _reader_of_many(Document),
    "turns": _reader_of_many(Turn),
    "earlier_turns": _reader_of_many(Turn),
    "parts": _reader_of_many(CitedPart),
    "runs": _as_tuple,
    "tags": read_tags,
    "timing": _reader_of_one(Timing),
    "usage": _reader_of_one(Usage),
    "total_usage": _reader_of_one(Usage),
}
