"""The limit on the length of attributes is that of the SDK's own spans, for each reader."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ragtrace.span_reading.finished_span import FinishedSpan, from_sdk_span
from ragtrace.span_reading.readers import read_span

LONG = "Paris has many museums, gardens and cafes. " * 9
PARTS = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": LONG}]}])
SPANS: dict[str, tuple[str, dict[str, Any]]] = {
    "openinference": (
        "openinference.instrumentation.langchain",
        {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": LONG},
    ),
    "genai": (
        "opentelemetry.instrumentation.x",
        {"gen_ai.operation.name": "chat", "gen_ai.output.messages": PARTS},
    ),
    "pydantic-ai": (
        "pydantic-ai",
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a", "final_result": LONG, "all_messages": "[]"},
    ),
    "traceloop": (
        "opentelemetry.instrumentation.openai.v1",
        {"llm.request.type": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": LONG,
         "gen_ai.completion.0.content": "Yes."},
    ),
}  # fmt: skip


def _ended(scope: str, attributes: dict[str, Any], limit: int | None) -> FinishedSpan:
    """Return a span that the SDK ended, with values of at most *limit* characters."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(span_limits=SpanLimits(max_span_attribute_length=limit))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer(scope).start_as_current_span("chat", attributes=attributes):
        pass
    [span] = exporter.get_finished_spans()
    found = from_sdk_span(span)
    assert found is not None
    return found


@pytest.mark.parametrize("name", SPANS)
def test_texts_at_the_limit_of_the_provider_are_cut(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The readers say so where the provider has a limit that cut the text, and only there."""
    caplog.set_level(logging.ERROR, "opentelemetry")
    scope, attributes = SPANS[name]
    for limit, is_cut in ((100, True), (10_000, False), (None, False)):
        span = _ended(scope, attributes, limit)
        assert span.max_text_chars == limit
        reading = read_span(span)
        assert reading is not None
        assert reading.is_cut is is_cut
