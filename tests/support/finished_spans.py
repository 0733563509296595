"""Finished spans made by hand, for the tests of the readers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from opentelemetry.trace import SpanContext

from ragtrace.span_reading.finished_span import FinishedSpan

_RECORDINGS = Path(__file__).parents[1] / "files" / "recorded"
START_NS = 1_700_000_000_000_000_000


def finished_span(
    attributes: dict[str, Any],
    *,
    name: str = "span",
    events: tuple[tuple[str, dict[str, Any]], ...] = (),
    scope: str = "",
    error_type: str | None = None,
    max_text_chars: int | None = None,
) -> FinishedSpan:
    """Return a finished span of two seconds with *attributes*; lists and dicts in them become JSON texts."""
    written = {
        key: json.dumps(value) if isinstance(value, (list, dict)) else value for key, value in attributes.items()
    }
    return FinishedSpan(
        context=SpanContext(1, 2, is_remote=False),
        parent=None,
        name=name,
        attributes=written,
        start_ns=START_NS,
        end_ns=START_NS + 2_000_000_000,
        events=events,
        scope=scope,
        error_type=error_type,
        max_text_chars=max_text_chars,
    )


def recorded(name: str) -> tuple[list[FinishedSpan], list[dict[str, Any]]]:
    """Return the spans of a recording in tests/files/recorded, and the calls that its application logged."""
    lines = gzip.decompress((_RECORDINGS / f"{name}.spans.jsonl.gz").read_bytes()).splitlines()
    scopes = [
        scope for line in lines for resource in json.loads(line)["resourceSpans"] for scope in resource["scopeSpans"]
    ]
    calls: list[dict[str, Any]] = json.loads((_RECORDINGS / f"{name}.calls.json").read_text(encoding="utf-8"))["calls"]
    return [_span(span, scope["scope"]["name"]) for scope in scopes for span in scope["spans"]], calls


def _span(span: dict[str, Any], scope: str) -> FinishedSpan:
    return FinishedSpan(
        context=SpanContext(int(span["traceId"], 16), int(span["spanId"], 16), is_remote=False),
        parent=None,
        name=span["name"],
        attributes=_attributes(span),
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        events=tuple((event["name"], _attributes(event)) for event in span.get("events", ())),
        scope=scope,
        error_type="Error" if span.get("status", {}).get("code") == 2 else None,
    )


def _attributes(record: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: _value(each["value"]) for each in record.get("attributes", ())}


def _value(value: dict[str, Any]) -> Any:
    for kind, inner in value.items():
        if kind == "intValue":
            return int(inner)
        if kind == "arrayValue":
            return tuple(_value(each) for each in inner.get("values", ()))
        return inner
    return None
