"""What spans and events say under the names of the OpenTelemetry GenAI and OpenInference conventions, and what not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.testing import Captured, FakeJudge
from tests.support.spans import Watching
from tests.support.watched import GOOD, WAIT_S, ask, watch

PASSAGES = [{"id": "a", "text": "Paris is big.", "score": 0.2}, {"id": "b", "text": "Mars is red.", "score": 0.4}]


@ragtrace.retrieve(source="places")
def search(query: str) -> list[dict[str, Any]]:
    return PASSAGES


@ragtrace.retrieve(source="ranker")
def rank(query: str, documents: list[dict[str, Any]], model: str, top_k: int = 1) -> list[dict[str, Any]]:
    return [{**documents[1], "score": 0.9}][:top_k]


@ragtrace.generate(model="tiny")
def write(question: str) -> Iterator[str]:
    yield "It is "
    yield "red."


@ragtrace.trace(name="guide")
def guide(question: str) -> str:
    rank(question, search(question), "rank-1")
    return "".join(write(question))


def named(captured: Captured, prefix: str) -> Mapping[str, Any]:
    """Return the attributes of the only span whose name begins with *prefix*."""
    assert ragtrace.flush(WAIT_S)
    [found] = [span.attributes for span in captured.spans if span.name.startswith(prefix)]
    return found or {}


def events(captured: Captured) -> dict[str, list[Mapping[str, Any]]]:
    """Return the attributes of all content events, by name of the event."""
    assert ragtrace.flush(WAIT_S)
    found: dict[str, list[Mapping[str, Any]]] = {}
    for event in captured.events:
        record = event.log_record
        if (record.event_name or "").endswith(".details"):
            assert record.severity_number is SeverityNumber.DEBUG
            found.setdefault(record.event_name or "", []).append(record.attributes or {})
    return found


# --- OpenTelemetry GenAI ---------------------------------------------------------------------------------------------


def test_a_streamed_generation_says_that_it_is_streamed() -> None:
    """`gen_ai.request.stream` is true on the chat span."""
    captured = watch(screen=None)
    assert list(write("which colour?"))
    assert named(captured, "chat")["gen_ai.request.stream"] is True


def test_a_generation_that_is_not_streamed_says_nothing_of_streaming() -> None:
    """The attribute is absent, not false: the convention asks for it if and only if the request is streaming."""
    captured = watch(screen=None)
    ask("where?")
    assert "gen_ai.request.stream" not in named(captured, "chat")


def test_an_inference_of_unknown_provider_says_so() -> None:
    """The attribute is required on inference spans, and only there."""
    captured = watch(screen=None)
    ask("where?")
    assert named(captured, "chat")["gen_ai.provider.name"] == "unknown"
    assert "gen_ai.provider.name" not in named(captured, "retrieval")
    assert "gen_ai.provider.name" not in named(captured, "invoke_workflow")


def test_contexts_that_no_retrieval_span_shows_are_on_the_root() -> None:
    """They are under ragtrace's own name: the convention defines `gen_ai.retrieval.documents` for retrievals only."""
    captured = watch(screen=FakeJudge(GOOD))
    with ragtrace.call("Which planet is red?", name="by-hand") as call:
        call.retrieved(PASSAGES)
        call.answered("Mars.")
    root = named(captured, "invoke_workflow")
    assert "gen_ai.retrieval.documents" not in root
    assert json.loads(root["ragtrace.contexts"]) == [
        {"id": "a", "score": 0.2, "content": "Paris is big."},
        {"id": "b", "score": 0.4, "content": "Mars is red."},
    ]


def test_documents_of_a_retrieval_are_on_its_span_only() -> None:
    """A root whose retrievals show their documents repeats none of them."""
    captured = watch(screen=FakeJudge(GOOD))
    ask("where?")
    assert "gen_ai.retrieval.documents" in named(captured, "retrieval")
    root = named(captured, "invoke_workflow")
    assert not {"gen_ai.retrieval.documents", "ragtrace.contexts"} & set(root)


def test_the_details_event_describes_inferences_only() -> None:
    """It has the provider, the models and the messages; workflow and retrieval have an event of ragtrace's own."""
    captured = watch(screen=None, capture_content="EVENT_ONLY")
    ask("where?")
    found = events(captured)
    assert set(found) == {"gen_ai.client.inference.operation.details", "ragtrace.operation.details"}
    [details] = found["gen_ai.client.inference.operation.details"]
    assert details["gen_ai.operation.name"] == "chat"
    assert details["gen_ai.provider.name"] == "unknown"
    assert details["gen_ai.request.model"] == "tiny"
    assert {"gen_ai.input.messages", "gen_ai.output.messages"} <= set(details)
    by_operation = {each["gen_ai.operation.name"]: each for each in found["ragtrace.operation.details"]}
    assert set(by_operation) == {"invoke_workflow", "retrieval"}
    assert [each["content"] for each in by_operation["retrieval"]["gen_ai.retrieval.documents"]] == [
        "Paris is a big city.",
        "Mars is a planet.",
    ]
    assert not any("content" in key or "messages" in key for key in named(captured, "chat"))


def test_the_details_event_of_a_failed_inference_has_its_error_type() -> None:
    """As the span has it."""

    @ragtrace.generate(model="tiny", provider="example")
    def fail(question: str) -> str:
        raise TimeoutError("no answer")

    captured = watch(screen=None, capture_content="SPAN_AND_EVENT")
    with pytest.raises(TimeoutError):
        fail("why?")
    [details] = events(captured)["gen_ai.client.inference.operation.details"]
    assert details["error.type"] == named(captured, "chat")["error.type"] == "TimeoutError"
    assert details["gen_ai.provider.name"] == "example"


# --- OpenInference ---------------------------------------------------------------------------------------------------

RERANKED = {
    "openinference.span.kind": "RERANKER",
    "reranker.query": "Which planet is red?",
    "reranker.model_name": "rank-1",
    "reranker.top_k": 1,
    "reranker.input_documents.0.document.id": "a",
    "reranker.input_documents.0.document.score": 0.2,
    "reranker.input_documents.0.document.content": "Paris is big.",
    "reranker.input_documents.1.document.id": "b",
    "reranker.input_documents.1.document.score": 0.4,
    "reranker.input_documents.1.document.content": "Mars is red.",
    "reranker.output_documents.0.document.id": "b",
    "reranker.output_documents.0.document.score": 0.9,
    "reranker.output_documents.0.document.content": "Mars is red.",
}


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "sdk"])
def test_a_re_ranking_has_the_reranker_attributes(fast: bool) -> None:
    """Query, model, top_k, and the documents before and after, on fast spans and on those of the SDK."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    for processor in (SimpleSpanProcessor(exporter), *(() if fast else (Watching(),))):
        provider.add_span_processor(processor)
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider, dialects=("openinference",)), screen=None
    )
    guide("Which planet is red?")
    assert ragtrace.flush(WAIT_S)
    by_name = {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}
    reranker = by_name["retrieval ranker"]
    assert {key: reranker.get(key) for key in RERANKED} == RERANKED
    assert not any(key.startswith("retrieval.documents") for key in reranker)
    retriever = by_name["retrieval places"]
    assert retriever["retrieval.documents.0.document.id"] == "a"
    assert not any(key.startswith("reranker.") for key in retriever)
    provider.shutdown()


def test_the_documents_given_to_a_re_ranking_are_redacted() -> None:
    """As every text on a span is."""
    captured = watch(
        screen=None,
        telemetry=ragtrace.TelemetryOptions(dialects=("openinference",)),
        redact=ragtrace.Redact(patterns=["Paris"]),
    )
    guide("Which planet is red?")
    assert "Paris" not in json.dumps(dict(named(captured, "retrieval ranker")))


def test_without_content_a_re_ranking_shows_no_texts() -> None:
    """Model and top_k stay, which are no content."""
    captured = watch(
        screen=None, telemetry=ragtrace.TelemetryOptions(dialects=("openinference",)), capture_content="NO_CONTENT"
    )
    guide("Which planet is red?")
    shown = {key for key in named(captured, "retrieval ranker") if key.startswith("reranker.")}
    assert shown == {"reranker.model_name", "reranker.top_k"}
