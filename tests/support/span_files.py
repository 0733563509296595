"""Files of spans in OTLP JSON, spans of the SDK to write into them, and what two readers of a span must agree on."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.otlp_json import UnreadableSpan
from ragtrace.span_reading.span_file import SpanFile

TRACE = "5b8efff798038103d269b633813fc60c"
SPAN = "eee19b7ec3c1b174"
PARENT = "eee19b7ec3c1b173"


def span_fields(**fields: Any) -> dict[str, Any]:
    """Return a span of OTLP JSON with *fields* in addition to ids, name and times."""
    times = {"startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000"}
    return {"traceId": TRACE, "spanId": SPAN, "name": "ask", **times, **fields}


def span_request(*spans: Any) -> dict[str, Any]:
    """Return an export request of OTLP JSON with *spans* of one scope."""
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "library"}, "spans": list(spans)}]}]}


def span_file(tmp_path: Path, *lines: Any) -> SpanFile:
    """Write *lines*, JSON unless they are texts, and return the file to be read."""
    path = tmp_path / "spans.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return SpanFile(path)


def only_span(file: SpanFile) -> FinishedSpan:
    """Return the only span of *file*."""
    (span,) = file
    assert isinstance(span, FinishedSpan), span
    return span


def sdk_spans() -> list[ReadableSpan]:
    """Three spans of the SDK: a root with all types of attributes, a child that failed, and one of a remote parent."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("the.library")
    with tracer.start_as_current_span("root", kind=SpanKind.SERVER) as root:
        root.set_attributes({"text": "Größe", "yes": True, "count": 2**62, "share": 0.25})
        root.set_attributes({"list": ["a", "b"], "numbers": [1, 2], "empty": []})
        root.add_event("noted", {"why": "because"})
        with pytest.raises(KeyError), tracer.start_as_current_span("child"):
            raise KeyError("x")
    remote = SpanContext(int(TRACE, 16), int(PARENT, 16), is_remote=True, trace_flags=TraceFlags(1))
    tracer.start_span("continued", set_span_in_context(NonRecordingSpan(remote))).end()
    provider.shutdown()
    return list(exporter.get_finished_spans())


def comparable(span: FinishedSpan | UnreadableSpan | None) -> tuple[Any, ...]:
    """Return all that is read from a span."""
    assert isinstance(span, FinishedSpan), span
    parent = None if span.parent is None else (span.parent.trace_id, span.parent.span_id, span.parent.is_remote)
    ids = (span.context.trace_id, span.context.span_id, int(span.context.trace_flags) & 1, parent)
    events = [(name, dict(attributes)) for name, attributes in span.events]
    rest = (span.name, dict(span.attributes), events, span.scope, span.error_type)
    return (*ids, *rest, span.start_ns, span.end_ns)


def with_hexadecimal_ids(request: dict[str, Any]) -> dict[str, Any]:
    """*request* with ids in hexadecimal, as OTLP JSON has them, instead of protobuf's base64."""
    for span in (span for each in request["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]):
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64decode(span[name]).hex()
    return request
