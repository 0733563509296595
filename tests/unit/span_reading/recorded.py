"""Finished spans for tests of the readers: made by hand, or from recordings of real instrumentations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.trace import SpanContext

from ragtrace.span_reading.finished_span import Attributes, FinishedSpan
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.step_groups import StepGroup, group_steps
from ragtrace.span_reading.trace_spans import TraceSpans

RECORDED = Path(__file__).parents[2] / "files" / "recorded"
SECOND = 1_000_000_000


def span(
    attributes: Mapping[str, Any], name: str = "span", scope: str = "", *, limit: int | None = None
) -> FinishedSpan:
    """Return a finished root span of one second."""
    return FinishedSpan(
        SpanContext(1, 1, is_remote=False), None, name, attributes, 0, SECOND, scope=scope, max_text_chars=limit
    )


class Recording(NamedTuple):
    """Recording of one application under one instrumentation."""

    spans: tuple[FinishedSpan, ...]
    """In the order of their start."""
    calls: tuple[dict[str, Any], ...]
    """What the application itself knows of each request."""


@cache
def recording(name: str) -> Recording:
    """Return the recording *name*, such as "langchain_lcel-openinference-sync"."""
    calls = json.loads((RECORDED / f"{name}.calls.json").read_text(encoding="utf-8"))["calls"]
    lines = gzip.decompress((RECORDED / f"{name}.spans.jsonl.gz").read_bytes()).splitlines()
    groups = [group for line in lines for group in json.loads(line)["resourceSpans"]]
    found = [_span(each, scope) for group in groups for scope in group["scopeSpans"] for each in scope["spans"]]
    return Recording(tuple(sorted(found, key=lambda each: each.start_ns)), tuple(calls))


def _span(record: dict[str, Any], scope: dict[str, Any]) -> FinishedSpan:
    trace_id, parent = int(record["traceId"], 16), record.get("parentSpanId")
    return FinishedSpan(
        SpanContext(trace_id, int(record["spanId"], 16), is_remote=False),
        SpanContext(trace_id, int(parent, 16), is_remote=False) if parent else None,
        record["name"],
        _attributes(record),
        int(record["startTimeUnixNano"]),
        int(record["endTimeUnixNano"]),
        events=tuple((event["name"], _attributes(event)) for event in record.get("events", ())),
        scope=scope["scope"]["name"],
    )


def _attributes(record: dict[str, Any]) -> Attributes:
    return {each["key"]: _value(each["value"]) for each in record.get("attributes", ())}


def _value(value: dict[str, Any]) -> Any:
    for kind, found in value.items():
        if kind == "arrayValue":
            return tuple(_value(each) for each in found.get("values", ()))
        return int(found) if kind == "intValue" else found
    return None


def traces(spans: Iterable[FinishedSpan]) -> list[TraceSpans]:
    """Return the traces of *spans*, as an assembler has them when all spans have come in."""
    found: dict[int, TraceSpans] = {}
    for each in spans:
        trace = found.setdefault(each.context.trace_id, TraceSpans())
        span_id = each.context.span_id
        trace.parents[span_id] = 0 if each.parent is None else each.parent.span_id
        reading = read_span(each)
        if reading is not None:
            trace.readings[span_id], trace.seen[span_id] = reading, 0.0
    return list(found.values())


def groups(spans: Iterable[FinishedSpan]) -> list[StepGroup]:
    """Return the groups of the steps in *spans*, as an assembler forms them when all spans have come in."""
    return [group for trace in traces(spans) for group in group_steps(trace)]
