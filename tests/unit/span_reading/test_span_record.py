"""Span records of Phoenix and of the SDK are read as what they say."""

from __future__ import annotations

from pathlib import Path

from ragtrace.span_reading.finished_span import from_sdk_span
from tests.support.span_files import PARENT, SPAN, TRACE, only_span, sdk_spans, span_file


def test_a_record_of_the_sdk_is_read(tmp_path: Path) -> None:
    """As ConsoleSpanExporter writes it, over several lines; its times have microseconds."""
    sent = sdk_spans()[1]
    read = only_span(span_file(tmp_path, sent.to_json()))
    expected = from_sdk_span(sent)
    assert expected is not None
    assert read.context.span_id == expected.context.span_id
    assert read.attributes == dict(expected.attributes)
    assert abs(read.start_ns - expected.start_ns) <= 1000


def test_a_span_of_phoenix_is_read(tmp_path: Path) -> None:
    """In the form of its REST API: kind beside the attributes, a page around the spans, times with a zone."""
    record = {
        "id": "U3Bhbjox",
        "name": "retrieve",
        "context": {"trace_id": TRACE, "span_id": SPAN},
        "span_kind": "RETRIEVER",
        "parent_id": PARENT,
        "start_time": "2026-11-01T12:00:00.000001+00:00",
        "end_time": "2026-11-01T12:00:01Z",
        "status_code": "ERROR",
        "attributes": {
            "input.value": "Why?",
            "retrieval": {"documents": [{"document": {"content": "Because.", "score": 0.5}}]},
            "tags": ["a", "b"],
        },
        "events": [{"name": "exception", "timestamp": "2026", "attributes": {"exception.type": "TimeoutError"}}],
    }
    span = only_span(span_file(tmp_path, {"data": [record], "next_cursor": None}))
    assert span.attributes == {
        "input.value": "Why?",
        "retrieval.documents.0.document.content": "Because.",
        "retrieval.documents.0.document.score": 0.5,
        "tags": ("a", "b"),
        "openinference.span.kind": "RETRIEVER",
    }
    assert (span.start_ns, span.end_ns) == (1793534400000001000, 1793534401000000000)
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.error_type == "TimeoutError"
