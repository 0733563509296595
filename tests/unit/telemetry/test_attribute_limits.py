"""Spans with more attributes than fit: the SDK would drop the first of them, which say what kind of span it is."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.core.types import Signals
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.spans import Watching
from tests.support.watched import GOOD, WAIT_S, ask

CROWDED = "attributes beyond the limit of a span"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


@ragtrace.retrieve(source="places")
def search(query: str) -> list[dict[str, Any]]:
    return [{"id": f"d{rank}", "text": f"passage {rank}", "score": 0.5} for rank in range(60)]


def users(exporter: InMemorySpanExporter, *processors: SpanProcessor, most: int = 40) -> TracerProvider:
    provider = TracerProvider(span_limits=SpanLimits(max_span_attributes=most), shutdown_on_exit=False)
    for processor in (SimpleSpanProcessor(exporter), *processors):
        provider.add_span_processor(processor)
    return provider


def retrieval(exporter: InMemorySpanExporter) -> ReadableSpan:
    search("where?")
    assert ragtrace.flush(WAIT_S)
    [span] = exporter.get_finished_spans()
    return span


def test_our_own_provider_has_room_for_many_documents() -> None:
    """Sixty with id, score and text in the OpenInference dialect: nothing is dropped."""
    exporter = InMemorySpanExporter()
    ragtrace.configure(
        exporter=Signals(spans=exporter, immediate=True),
        telemetry=ragtrace.TelemetryOptions(dialects=("openinference",)),
        screen=None,
    )
    span = retrieval(exporter)
    assert span.dropped_attributes == 0
    assert (span.attributes or {})["retrieval.documents.59.document.content"] == "passage 59"
    assert CROWDED not in faults.counts()


@pytest.mark.parametrize("name", ["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"])
def test_the_environment_has_the_last_word_on_the_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets a limit wants it kept."""
    monkeypatch.setenv(name, "30")
    exporter = InMemorySpanExporter()
    ragtrace.configure(
        exporter=Signals(spans=exporter, immediate=True),
        telemetry=ragtrace.TelemetryOptions(dialects=("openinference",)),
        screen=None,
    )
    assert len(retrieval(exporter).attributes or {}) == 30


@pytest.mark.parametrize("processors", [(), (Watching(),)], ids=["light", "sdk"])
def test_a_crowded_span_keeps_its_kind_and_its_best_documents(processors: tuple[SpanProcessor, ...]) -> None:
    """The last ones go, and how many attributes that were is counted."""
    exporter = InMemorySpanExporter()
    provider = users(exporter, *processors)
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider, dialects=("openinference",)), screen=None
    )
    attributes = retrieval(exporter).attributes or {}
    assert len(attributes) == 40
    assert attributes["openinference.span.kind"] == "RETRIEVER"
    assert attributes["retrieval.documents.0.document.id"] == "d0"
    assert "retrieval.documents.59.document.id" not in attributes
    assert faults.counts()[CROWDED] >= 3 * 60 - 40
    provider.shutdown()


def test_a_crowded_carrier_keeps_its_kind_and_its_scores() -> None:
    """What the OpenInference dialect says of them goes first."""
    exporter = InMemorySpanExporter()
    provider = users(exporter, most=20)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=FakeJudge(GOOD))
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    [carrier] = [span for span in exporter.get_finished_spans() if span.name.startswith("evaluate")]
    attributes = carrier.attributes or {}
    assert len(attributes) == 20
    assert attributes["openinference.span.kind"] == "EVALUATOR"
    assert "gen_ai.operation.name" in attributes
    assert faults.counts()[CROWDED] > 0
    provider.shutdown()
