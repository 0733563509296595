"""Spans in the conventions of OpenLLMetry are read as the steps of a RAG call."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ragtrace.core import semconv
from ragtrace.core.step import Message, Prompt, Step, StepKind
from ragtrace.core.types import Document, Usage
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading, from_sdk_span
from ragtrace.span_reading.otlp_protobuf import read_span as read_otlp_span
from ragtrace.span_reading.traceloop import read
from tests.unit.span_reading.recorded import RECORDED, recording, span

LANGCHAIN = "opentelemetry.instrumentation.langchain"
LLAMA_INDEX = "opentelemetry.instrumentation.llamaindex"
FOUND = sorted(path.name.split(".")[0] for path in RECORDED.glob("*-openllmetry-*.spans.jsonl.gz"))
NAMES = [name for name in FOUND if re.search(r"-openllmetry(-openai)?-(a?sync|a?stream)$", name)]
HIDDEN = [name for name in FOUND if "-hidden" in name]
FRAMEWORKS = [name for name in NAMES if name.startswith(("langchain", "langgraph", "llamaindex"))]


def reading_of(attributes: dict[str, Any], name: str = "span", scope: str = "") -> SpanReading:
    """Return the reading of a span, which must be understood."""
    found = read(span(attributes, name, scope))
    assert found is not None
    return found


def entity(kind: str, given_: Any, returned: Any, name: str = "entity", scope: str = LANGCHAIN) -> Step:
    """Return the step of a span with arguments and result as JSON."""
    attributes = {
        "traceloop.span.kind": kind,
        "traceloop.entity.name": name,
        "traceloop.entity.input": json.dumps(given_),
        "traceloop.entity.output": json.dumps(returned),
    }
    return reading_of(attributes, scope=scope).step


# --- Recordings of real applications ----------------------------------------------------------------------------------


def readings(name: str, *kinds: StepKind) -> list[SpanReading]:
    """Return the readings of a recording's spans whose steps are of *kinds*."""
    return [each for each in _all_readings(name) if each.step.kind in kinds]


@cache
def _all_readings(name: str) -> list[SpanReading]:
    return [each for each in map(read, recording(name).spans) if each is not None]


def roots(name: str) -> list[Step]:
    """Return the workflows of a recording that have no span above them, or one that is no step."""
    above = {each.span.context.span_id for each in readings(name, "trace", "retrieve", "tool")}
    found = (
        each for each in readings(name, "trace") if each.span.parent is None or each.span.parent.span_id not in above
    )
    return [each.step for each in found]


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_invented(name: str) -> None:
    """The query and the answer of a root are those of the application, or None."""
    calls = recording(name).calls
    for root in roots(name):
        assert root.query in {call["query"] for call in calls} | {None}
        assert root.answer in {call["answer"] for call in calls} | {None}


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name.endswith("-sync")])
def test_a_root_has_the_query_and_the_answer(name: str) -> None:
    """The context of synchronous applications does not leak, and their roots end."""
    known = {call["query"]: call["answer"] for call in recording(name).calls}
    found = {step.query: step.answer for step in roots(name) if step.query is not None}
    assert found == known or (name.startswith("langchain_batch") and found.items() <= known.items() and found)


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if not name.startswith("langgraph_self_rag")])
def test_a_retriever_or_a_tool_has_the_contexts(name: str) -> None:
    """Only a model as re-ranker or judge shows its result in the state alone."""
    found = readings(name, "retrieve", "tool", "trace")
    texts = [[each.text for each in reading.step.documents or ()] for reading in found]
    assert all(call["contexts"] in texts for call in recording(name).calls)


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if "rerank" in name])
def test_a_reranker_is_known(name: str) -> None:
    """It is given nodes, and returns some of them; an asynchronous model as a re-ranker has no span."""
    found = [each.step for each in readings(name, "retrieve") if each.step.rerank]
    assert found or name == "llamaindex_rerank-openllmetry-astream"


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("agents_sdk", "haystack_2"))])
def test_a_model_call_has_its_answer_and_tokens(name: str) -> None:
    """Over chat completions, the Agents SDK shows neither."""
    exchanges = [each for call in recording(name).calls for each in call["exchanges"]]
    known = {(each["content"], each["input_tokens"], each["output_tokens"]) for each in exchanges}
    steps = [each.step for each in readings(name, "generate")]
    assert {(step.answer, step.usage.input_tokens, step.usage.output_tokens) for step in steps} == known
    ids = {each["id"]: each["content"] for each in exchanges}
    assert all(step.response_id is None or ids[step.response_id] == step.answer for step in steps)


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if name.startswith("langchain_lcel")])
def test_session_and_user_are_known(name: str) -> None:
    """They are association properties."""
    found = {(each.step.conversation_id, each.step.user_id) for each in readings(name, "trace", "retrieve", "generate")}
    assert found == {(call["session"], call["user"]) for call in recording(name).calls}


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_texts_were_not_captured(name: str) -> None:
    """With TRACELOOP_TRACE_CONTENT=false; tokens are known."""
    found = readings(name, "trace", "retrieve", "tool", "generate")
    for step in (each.step for each in found):
        assert (step.query, step.answer, step.prompt, step.documents) == (None, None, None, None)
    assert all(each.step.usage.input_tokens for each in found if each.step.kind == "generate")


def test_the_name_of_an_output_is_no_answer() -> None:
    """The model calls of Haystack have "replies" as their text (0.62.4)."""
    assert not readings("haystack_2_pipeline-openllmetry-sync", "generate")


# --- Spans in the form in which the packages write them ---------------------------------------------------------------


def test_the_messages_of_a_graph_are_read() -> None:
    """In LangChain's own JSON (langchain 0.62.4)."""

    def message(kind: str, text: str) -> dict[str, Any]:
        return {"lc": 1, "type": "constructor", "id": ["a", f"{kind}Message"], "kwargs": {"content": text}}

    asked = message("Human", "Why?")
    step = entity(
        "workflow",
        {"inputs": {"messages": [asked]}, "tags": [], "metadata": {}, "kwargs": {}},
        {"outputs": {"messages": [asked, message("AI", "Because.")]}, "kwargs": {}},
    )
    assert step.answer == "Because."


def test_the_arguments_of_a_decorated_function_hold_the_query() -> None:
    """By position or by name (traceloop-sdk 0.62.4)."""
    assert entity("workflow", {"args": ["Why?"], "kwargs": {}}, "Because.", scope="traceloop").query == "Why?"
    assert entity("workflow", {"args": [], "kwargs": {"question": "Why?"}}, "x", scope="traceloop").query == "Why?"
    assert entity("workflow", {"args": ["Why?", "And?"], "kwargs": {}}, "x", scope="traceloop").query is None
    assert entity("workflow", {"args": ["Why?"], "kwargs": {}}, "Because.", scope="traceloop").answer == "Because."


def test_a_tool_of_langchain_has_its_documents() -> None:
    """Its result is a message (langchain 0.62.4)."""
    message = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "ToolMessage"],
        "kwargs": {"content": "330 m", "type": "tool", "tool_call_id": "1"},
    }
    step = entity(
        "tool",
        {"input_str": "{'query': 'How tall?'}", "inputs": {"query": "How tall?"}, "tags": [], "kwargs": {}},
        {"output": message, "kwargs": {}},
        "search",
    )
    assert (step.kind, step.name, step.query, step.documents) == ("tool", "search", "How tall?", (Document("330 m"),))


def test_a_tool_of_the_agents_sdk_has_its_documents() -> None:
    """In the attributes of the GenAI conventions (openai-agents 0.62.4)."""
    step = reading_of(
        {
            "traceloop.span.kind": "tool",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.arguments": '{"query": "How tall?"}',
            "gen_ai.tool.call.result": '[{"id": "d1", "content": "330 m", "score": 0.5}]',
        }
    ).step
    assert (step.kind, step.name, step.query) == ("tool", "search", "How tall?")
    assert step.documents == (Document("330 m", "d1", 0.5),)


def test_a_retriever_that_found_nothing_has_no_documents() -> None:
    """Which differs from documents that were not captured."""
    attributes = {"traceloop.span.kind": "task", "gen_ai.operation.name": "vector_db_retrieve"}
    nothing = {**attributes, "traceloop.entity.output": '{"documents": [], "count": 0}'}
    assert reading_of(nothing).step.documents == ()
    assert reading_of(attributes).step.documents is None


@pytest.mark.parametrize("name", ["SentenceSplitter.workflow", "OpenAIEmbedding.workflow", "TitleExtractor.task"])
def test_the_preparation_of_documents_is_no_call(name: str) -> None:
    """Indexing runs without a question."""
    attributes = {"traceloop.span.kind": "workflow", "traceloop.entity.name": name}
    assert read(span(attributes, name, LLAMA_INDEX)) is None


def test_messages_of_older_releases_are_read() -> None:
    """Each field of each message is an attribute (openai 0.40)."""
    found = reading_of(
        {
            "llm.request.type": "chat",
            "gen_ai.system": "OpenAI",
            "gen_ai.request.model": "gpt-4o-mini",
            "gen_ai.prompt.0.role": "system",
            "gen_ai.prompt.0.content": "Answer briefly.",
            "gen_ai.prompt.1.role": "user",
            "gen_ai.prompt.1.content": '[{"type": "text", "text": "Why?"}]',
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "Because.",
            "gen_ai.completion.0.finish_reason": "stop",
            "gen_ai.usage.prompt_tokens": 5,
            "gen_ai.usage.completion_tokens": 2,
            "llm.is_streaming": True,
            "llm.user": "ada",
        }
    )
    step = found.step
    assert step.prompt == Prompt((Message("system", "Answer briefly."), Message("user", "Why?")))
    assert (step.query, step.answer, step.finish_reasons, step.streamed) == ("Why?", "Because.", ("stop",), True)
    assert (step.request_model, step.user_id, step.usage) == ("gpt-4o-mini", "ada", Usage(5, 2))
    assert not found.calls_tools


def test_a_tool_call_of_older_releases_is_no_answer() -> None:
    """Its fields are attributes, too (openai 0.40)."""
    found = reading_of(
        {
            "llm.request.type": "chat",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.tool_calls.0.name": "search",
            "gen_ai.completion.0.tool_calls.0.arguments": "{}",
        }
    )
    assert (found.step.answer, found.calls_tools) == (None, True)


def results(*found: dict[str, Any]) -> FinishedSpan:
    """Return the span of a search in a vector database, with an event for each result."""
    events = tuple(("db.query.result", attributes) for attributes in found)
    made = span({"db.system": "chroma", "db.chroma.query.n_results": 2}, "chroma.query")
    return FinishedSpan(made.context, None, made.name, made.attributes, 0, 1, events=events)


def test_a_search_in_chroma_has_its_documents() -> None:
    """A distance is no score (chromadb 0.62.4)."""
    found = read(
        results(
            {"db.query.result.id": "1", "db.query.result.distance": 0.1, "db.query.result.document": "a"},
            {"db.query.result.id": "2", "db.query.result.document": "b", "db.query.result.metadata": "{}"},
        )
    )
    assert found is not None
    assert (found.step.kind, found.step.top_k) == ("retrieve", 2)
    assert found.step.documents == (Document("a", "1"), Document("b", "2"))


@pytest.mark.parametrize(("results", "is_cut"), [(128, False), (129, True)])
@pytest.mark.parametrize("through", ["processor", "otlp"])
def test_results_beyond_the_limit_of_events_are_cut(through: str, results: int, is_cut: bool) -> None:
    """The SDK keeps the last 128 events of a span, and says how many it has dropped; OTLP says so, too."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with provider.get_tracer("opentelemetry.instrumentation.chromadb").start_as_current_span("chroma.query") as made:
        made.set_attribute("db.system", "chroma")
        for number in range(results):
            made.add_event("db.query.result", {"db.query.result.document": f"passage {number}"})
    (ended,) = kept.get_finished_spans()
    finished = from_sdk_span(ended)
    if through == "otlp":
        (sent,) = encode_spans([ended]).resource_spans[0].scope_spans[0].spans
        finished = read_otlp_span(sent, "opentelemetry.instrumentation.chromadb")
    assert finished is not None
    found = read(finished)
    assert found is not None
    assert (len(found.step.documents or ()), found.is_cut) == (128, is_cut)


def test_results_without_text_are_counted() -> None:
    """The application asked for ids and distances alone."""
    found = read(results({"db.query.result.id": "1"}, {"db.query.result.id": "2", "db.query.result.metadata": "[]"}))
    assert found is not None
    assert (found.step.documents, found.documents_without_text) == (None, 2)


def test_metadata_may_hold_the_text() -> None:
    """As Pinecone's does (pinecone 0.62.4)."""
    found = read(results({"db.query.result.id": "1", "db.query.result.metadata": '{"text": "a"}'}))
    assert found is not None
    assert found.step.documents == (Document("a", "1"),)


def test_other_spans_are_left_alone() -> None:
    """Of databases without results, of embeddings, and of other instrumentations."""
    assert read(span({"db.system": "postgresql"})) is None
    assert read(span({"traceloop.span.kind": "workflow", "gen_ai.operation.name": "embeddings"})) is None
    assert read(span({"gen_ai.operation.name": "chat"})) is None
    assert read(span({})) is None


@pytest.mark.parametrize("kind", ["workflow", "agent", "task", "tool"])
def test_json_that_was_cut_is_no_text(kind: str) -> None:
    """It is not understood, and the reading says that something was cut."""
    cut = json.dumps({"inputs": "Why? " * 30, "documents": ["text"] * 30})[:100]
    attributes = {"traceloop.span.kind": kind, "traceloop.entity.input": cut, "traceloop.entity.output": cut}
    found = reading_of(attributes)
    assert (found.step.query, found.step.answer, found.step.documents) == (None, None, None)
    assert found.is_cut


@pytest.mark.parametrize("kind", ["workflow", "agent", "task", "tool"])
def test_json_that_is_nested_too_deeply_is_no_query(kind: str) -> None:
    """It is not understood."""
    deep = "[" * 1_000 + "]" * 1_000
    found = read(span({"traceloop.span.kind": kind, "traceloop.entity.input": deep}))
    assert found is None or found.step.query is None


# --- Hostile spans ----------------------------------------------------------------------------------------------------

TEXT = some.text(max_size=20)
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | TEXT,
    lambda inner: some.lists(inner, max_size=3)
    | some.dictionaries(
        some.sampled_from(["inputs", "outputs", "kwargs", "args", "tags", "output", "input_str", "nodes", "node",
                           "score", "text", "raw", "blocks", "tool_name", "raw_output", "artifact", "content", "type",
                           "lc", "messages", "message", "documents", "query_bundle"]) | TEXT,
        inner, max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip
VALUE = (
    TEXT | JSON.map(lambda value: json.dumps(value)) | some.integers() | some.floats() | some.booleans() | some.none()
)
KEYS = [
    *(
        name
        for key, name in vars(semconv).items()
        if key.startswith(("TRACELOOP_", "DB_", "TOOL_", "OLD_")) and isinstance(name, str) and "." in name
    ),
    *("gen_ai.operation.name", "gen_ai.input.messages", "gen_ai.output.messages", "llm.request.type"),
    *(
        f"gen_ai.{what}.{at}.{part}"
        for what in ("prompt", "completion")
        for at in "01x"
        for part in ("role", "content", "tool_calls.0.name", "tool_calls")
    ),
]


@given(
    some.dictionaries(some.sampled_from(KEYS), VALUE, max_size=12),
    some.sampled_from(["workflow", "agent", "task", "tool", ""]),
    some.sampled_from(["", "chat", "vector_db_retrieve", "execute_tool"]),
    some.sampled_from(["", LANGCHAIN, LLAMA_INDEX]),
)
def test_any_attribute_may_be_of_any_type(attributes: dict[str, Any], kind: str, operation: str, scope: str) -> None:
    """Nothing is raised."""
    attributes = {**attributes, "traceloop.span.kind": kind, "gen_ai.operation.name": operation}
    made = span(attributes, scope=scope)
    events: tuple[tuple[str, dict[str, Any]], ...] = (("db.query.result", attributes), ("db.query.result", {}))
    found = read(FinishedSpan(made.context, None, "span", attributes, 0, 1, events=events, scope=scope))
    for text in () if found is None else (found.step.query, found.step.answer):
        assert text is None or isinstance(text, str)
