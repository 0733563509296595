"""Spans in the conventions of OpenInference are read as the steps of a RAG call."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ragtrace.core import semconv
from ragtrace.core.step import Message, Prompt, Step, StepKind
from ragtrace.core.types import Document, Usage
from ragtrace.dialects import openinference as dialect
from ragtrace.dialects.otel_genai import Attributes
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.openinference import read
from tests.unit.span_reading.recorded import RECORDED, recording, span

LANGCHAIN = "openinference.instrumentation.langchain"
LLAMA_INDEX = "openinference.instrumentation.llama_index"
HAYSTACK = "openinference.instrumentation.haystack"
AGENTS = "openinference.instrumentation.openai_agents"
FOUND = sorted(path.name.split(".")[0] for path in RECORDED.glob("*-openinference-*.spans.jsonl.gz"))
NAMES = [
    name
    for name in FOUND
    if re.search(r"-openinference(-retriever)?-(a?sync|a?stream)$", name) and not name.startswith("pydantic_ai")
]
HIDDEN = [name for name in FOUND if "-hidden" in name]


def reading_of(kind: str, attributes: dict[str, Any], name: str = "span", scope: str = "") -> SpanReading:
    """Return the reading of a span of *kind*, which must be understood."""
    found = read(span({"openinference.span.kind": kind, **attributes}, name, scope))
    assert found is not None
    return found


def step_of(kind: str, attributes: dict[str, Any], name: str = "span", scope: str = "") -> Step:
    """Return the step in the reading of a span of *kind*."""
    return reading_of(kind, attributes, name, scope).step


# --- Recordings of real applications ----------------------------------------------------------------------------------


def readings(name: str, *kinds: StepKind) -> list[SpanReading]:
    """Return the readings of a recording's spans whose steps are of *kinds*."""
    return [each for each in _all_readings(name) if each.step.kind in kinds]


@cache
def _all_readings(name: str) -> list[SpanReading]:
    return [each for each in map(read, recording(name).spans) if each is not None]


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_invented(name: str) -> None:
    """The query and the answer of a root are those of the application, or None."""
    known = {(call["query"], call["answer"]) for call in recording(name).calls}
    for root in readings(name, "trace"):
        if root.span.parent is None:
            assert root.step.query in {query for query, _ in known} | {None}
            assert root.step.answer in {answer for _, answer in known} | {None}


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("openai_plain", "agents_sdk"))])
def test_a_root_has_the_query_and_the_answer(name: str) -> None:
    """Haystack, and a streaming engine of LlamaIndex, show their answer as a text on the model's span alone."""
    server = {each.context.span_id for each in recording(name).spans if each.parent is None and read(each) is None}
    roots = [
        each.step for each in readings(name, "trace") if each.span.parent is None or each.span.parent.span_id in server
    ]
    calls = recording(name).calls
    assert sorted(str(step.query) for step in roots) == sorted(call["query"] for call in calls)
    if not (name.startswith("haystack") or (name.startswith("llamaindex") and name.endswith("stream"))):
        known = {call["query"]: call["answer"] for call in calls}
        assert all(step.answer == known[step.query] for step in roots)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if not name.startswith(("openai_plain", "langgraph_self_rag"))]
)
def test_a_retriever_or_a_tool_has_the_contexts(name: str) -> None:
    """In the order in which the application got them; a model as re-ranker or judge shows them in the state alone."""
    found = [each.step.documents for each in readings(name, "retrieve", "tool", "trace")]
    texts = [[document.text for document in documents or ()] for documents in found]
    assert all(call["contexts"] in texts for call in recording(name).calls)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_call_has_its_answer_and_tokens(name: str) -> None:
    """The chat completions API shows no tokens where the Agents SDK streams."""
    steps = [each.step for each in readings(name, "generate")]
    exchanges = [each for call in recording(name).calls for each in call["exchanges"]]
    assert sorted(str(step.answer) for step in steps) == sorted(str(each["content"]) for each in exchanges)
    ids = {each["id"]: each for each in exchanges}
    for step in steps:
        assert step.prompt is not None
        assert step.response_id is None or ids[step.response_id]["content"] == step.answer
    if not (name.startswith("agents_sdk") and "responses" not in name and name.endswith("stream")):
        tokens = sorted((each["input_tokens"], each["output_tokens"]) for each in exchanges)
        assert sorted((step.usage.input_tokens, step.usage.output_tokens) for step in steps) == tokens


@pytest.mark.parametrize("name", NAMES)
def test_a_model_call_that_only_calls_tools_is_known(name: str) -> None:
    """Its reply is not yet the answer."""
    exchanges = [each for call in recording(name).calls for each in call["exchanges"]]
    assert [each.calls_tools for each in readings(name, "generate")] == [bool(each["tool_calls"]) for each in exchanges]


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_texts_were_not_captured(name: str) -> None:
    """Tokens and the number of documents are known."""
    found = readings(name, "trace", "retrieve", "tool", "generate")
    for step in (each.step for each in found):
        assert (step.query, step.answer, step.prompt, step.documents) == (None, None, None, None)
    assert {each.documents_without_text for each in found} == {0, 3}
    assert all(each.step.usage.input_tokens for each in found if each.step.kind == "generate")


def test_a_session_and_a_user_come_from_langchain() -> None:
    """The user stands in the metadata alone."""
    root = readings("langchain_lcel-openinference-sync", "trace")[0].step
    assert (root.conversation_id, root.user_id) == ("session-1", "ada")


# --- Spans in the form in which the packages write them ---------------------------------------------------------------


def test_the_state_of_a_graph_is_no_query() -> None:
    """Of LangGraph's messages the last question is the query, and the last reply the answer (langchain 0.1.80)."""
    human = {"type": "human", "data": {"content": "Why?", "type": "human"}}
    said: dict[str, Any] = {"type": "ai", "data": {"content": "Because.", "type": "ai", "tool_calls": []}}
    step = step_of(
        "CHAIN",
        {
            "input.value": json.dumps({"messages": [{"role": "user", "content": "Why?"}]}),
            "input.mime_type": "application/json",
            "output.value": json.dumps({"messages": [human, said]}),
            "output.mime_type": "application/json",
        },
        "LangGraph",
        LANGCHAIN,
    )
    assert (step.name, step.query, step.answer) == ("LangGraph", "Why?", "Because.")
    assert step.prompt == Prompt((Message("user", "Why?"),))


def test_a_state_that_repeats_its_input_is_no_answer() -> None:
    """The answer is what a workflow added to its state."""
    given_ = {"message": "Why?", "language": "en"}
    step = step_of(
        "CHAIN",
        {"input.value": json.dumps(given_), "output.value": json.dumps({**given_, "reply": "Because."})},
        scope=LANGCHAIN,
    )
    assert (step.query, step.answer) == ("Why?", "Because.")


def test_a_state_that_is_not_understood_is_neither() -> None:
    """Raw JSON is no query and no answer."""
    step = step_of("CHAIN", {"input.value": '{"city": "Rome"}', "output.value": '[{"degrees": 30}]'})
    assert (step.query, step.answer) == (None, None)


@pytest.mark.parametrize(
    "text", ['"Paris" is the answer', "[1] Paris is the capital [2]", "{braces}", '"Paris"', "[Paris]"]
)
def test_a_text_that_is_no_json_is_the_text(text: str) -> None:
    """Answers begin with quotes and brackets, which LangChain's instrumentation takes for JSON."""
    attributes = {"output.value": text}
    if text[-1] in "]}":
        attributes["output.mime_type"] = "application/json"
    assert step_of("CHAIN", attributes, scope=LANGCHAIN).answer == text


def test_json_that_was_cut_is_no_text() -> None:
    """It is not understood, and the reading says that something was cut."""
    cut = json.dumps({"messages": [["user", "Why? " * 40]]})[:100]
    found = read(
        span({"openinference.span.kind": "CHAIN", "input.value": cut, "input.mime_type": "application/json"}, limit=100)
    )
    assert found is not None
    assert found.step.query is None
    assert found.is_cut


@pytest.mark.parametrize("kind", ["CHAIN", "AGENT", "RETRIEVER", "RERANKER", "TOOL", "LLM"])
def test_masked_texts_were_not_captured(kind: str) -> None:
    """With OPENINFERENCE_HIDE_INPUTS and OPENINFERENCE_HIDE_OUTPUTS."""
    masked = "__REDACTED__"
    attributes = {
        "input.value": masked,
        "output.value": masked,
        "reranker.query": masked,
        "tool.name": "search",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": masked,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": masked,
    }
    step = step_of(kind, attributes)
    assert (step.query, step.prompt, step.documents, step.answer) == (None, None, None, None)


def test_documents_whose_text_is_masked_are_counted() -> None:
    """With OPENINFERENCE_HIDE_RETRIEVAL_DOCUMENTS."""
    found = reading_of(
        "RETRIEVER",
        {
            "retrieval.documents.0.document.content": "__REDACTED__",
            "retrieval.documents.0.document.id": "a",
            "retrieval.documents.1.document.score": 0.5,
            "output.value": "__REDACTED__",
        },
    )
    assert found.documents_without_text == 2
    assert found.step.documents is None


def test_a_retriever_that_found_nothing_has_no_documents() -> None:
    """Which differs from documents that were not captured."""
    nothing = {"input.value": "Why?", "output.value": '{"documents": []}', "output.mime_type": "application/json"}
    assert step_of("RETRIEVER", nothing, scope=LANGCHAIN).documents == ()
    assert step_of("RETRIEVER", {"input.value": "Why?"}, scope=LANGCHAIN).documents is None


def test_documents_come_in_the_order_of_their_numbers() -> None:
    """Ten after nine, whatever the order of the attributes."""
    attributes = {f"retrieval.documents.{rank}.document.content": f"text {rank}" for rank in reversed(range(12))}
    documents = step_of("RETRIEVER", attributes).documents
    assert documents is not None
    assert [each.text for each in documents] == [f"text {rank}" for rank in range(12)]


def test_documents_that_the_sdk_dropped_are_noticed() -> None:
    """Of more than 128 attributes a span keeps the last ones."""
    attributes = {f"retrieval.documents.{rank}.document.content": "text" for rank in range(3, 9)}
    assert reading_of("RETRIEVER", attributes).is_cut


def test_a_reranker_has_the_documents_that_it_returned() -> None:
    """And those that it was given (haystack 0.1.46, llama-index 4.6.1)."""
    step = step_of(
        "RERANKER",
        {
            "reranker.query": "Why?",
            "reranker.top_k": 1,
            "reranker.input_documents.0.document.content": "a",
            "reranker.input_documents.1.document.content": "b",
            "reranker.output_documents.0.document.content": "b",
            "reranker.output_documents.0.document.score": 0.9,
            "reranker.output_documents.0.document.id": "2",
        },
    )
    assert (step.kind, step.rerank, step.query, step.top_k) == ("retrieve", True, "Why?", 1)
    assert step.documents == (Document("b", "2", 0.9),)
    assert step.reranked == (Document("a"), Document("b"))


def test_a_prompt_builder_is_no_model_call() -> None:
    """Haystack's instrumentation gives it the kind LLM, and its prompt as the output (0.1.46)."""
    attributes = {"llm.prompt_template.template": "Answer {{q}}", "output.value": "Answer Why?"}
    assert read(span({"openinference.span.kind": "LLM", **attributes}, "PromptBuilder.run", HAYSTACK)) is None


def test_the_arguments_of_a_pipeline_hold_the_query() -> None:
    """By component; an answer that is the `str()` of an object is no text of the application (haystack 0.1.46)."""
    said = (
        "GeneratedAnswer(data=\"It's 330 m.\", query='How tall?', documents=[Document(id=d1, content: '...')], meta={})"
    )
    step = step_of(
        "CHAIN",
        {
            "input.value": json.dumps(
                {"data": {"embedder": {"text": "How tall?"}, "prompt": {"question": "How tall?"}}}
            ),
            "output.value": json.dumps({"answers": {"answers": [said]}}),
        },
        "Pipeline.run",
        HAYSTACK,
    )
    assert (step.query, step.answer, step.documents) == ("How tall?", None, None)


def test_the_argument_of_a_langchain_tool_is_its_query() -> None:
    """LangChain writes arguments as `str()` of a dict, and the result as a message (0.1.80)."""
    message = {"content": "330 m", "type": "tool", "tool_call_id": "1", "artifact": None, "status": "success"}
    step = step_of(
        "TOOL",
        {
            "tool.name": "search",
            "input.value": "{'query': 'How tall?'}",
            "output.value": json.dumps({"type": "tool", "data": message}),
            "output.mime_type": "application/json",
        },
        "search",
        LANGCHAIN,
    )
    assert (step.name, step.query, step.documents) == ("search", "How tall?", (Document("330 m"),))
    assert step.answer is None


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        ("plain text", ["plain text"]),
        ('["a", "b"]', ["a", "b"]),
        ('[{"content": "a", "score": 0.5}, {"content": "b"}]', ["a", "b"]),
        ('{"temperature": 21}', ['{"temperature": 21}']),
        ("[1, 2]", ["[1, 2]"]),
        ('{"results": [{"text": "a"}]}', ["a"]),
        ("", []),
        (42, ["42"]),
    ],
)
def test_the_result_of_a_tool_is_passages_or_one_document(output: Any, texts: list[str]) -> None:
    """As the model was given it."""
    documents = step_of("TOOL", {"tool.name": "search", "output.value": output}).documents
    assert documents is not None
    assert [each.text for each in documents] == texts


def test_a_handoff_is_no_tool() -> None:
    """The Agents SDK's instrumentation gives it the kind TOOL, and the names of the agents (2.6.0)."""
    attributes = {"openinference.span.kind": "TOOL", "input.value": "Guide", "output.value": "Expert"}
    assert read(span(attributes, "handoff to Expert", AGENTS)) is None


def test_reasoning_is_no_answer() -> None:
    """Nor are the hosted tools that ran before it, whose results are documents (openai-agents 2.6.0)."""
    prefix = "llm.output_messages"
    found = reading_of(
        "LLM",
        {
            f"{prefix}.0.message.role": "assistant",
            f"{prefix}.0.message.contents.0.message_content.type": "reasoning",
            f"{prefix}.0.message.contents.0.message_content.text": "Hm.",
            f"{prefix}.1.message.role": "assistant",
            f"{prefix}.1.message.tool_calls.0.tool_call.function.name": "file_search_call",
            f"{prefix}.2.message.role": "tool",
            f"{prefix}.2.message.content": '[{"file_id": "f1", "text": "330 m", "score": 0.9}]',
            f"{prefix}.3.message.role": "assistant",
            f"{prefix}.3.message.content": "It is 330 m tall.",
        },
    )
    assert (found.step.answer, found.calls_tools) == ("It is 330 m tall.", False)
    assert found.step.documents == (Document("330 m", "f1", 0.9),)


def test_text_beside_a_tool_call_is_no_answer() -> None:
    """The model says what it will do, and calls the tool."""
    found = reading_of(
        "LLM",
        {
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "Let me look.",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search",
        },
    )
    assert (found.step.answer, found.calls_tools) == (None, True)


def test_a_structured_answer_is_the_answer() -> None:
    """Pydantic AI's models give it through a tool named final_result (0.1.30)."""
    found = reading_of(
        "LLM",
        {
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "final_result",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"answer": "Paris"}',
        },
    )
    assert (found.step.answer, found.calls_tools) == ("Paris", False)


def test_a_text_completion_has_prompt_and_answer() -> None:
    """Its attributes are a list in older releases, numbered in newer ones (openai 0.1.66)."""
    choices = {"llm.choices.0.completion.text": "Because."}
    for prompts in ({"llm.prompts": ("Why?",)}, {"llm.prompts.0.prompt.text": "Why?"}):
        step = step_of("LLM", {**prompts, **choices})
        assert (step.query, step.answer) == ("Why?", "Because.")


@pytest.mark.parametrize("count", ["12", 1.5, True, -1, None, (3,)])
def test_tokens_that_are_no_whole_numbers_are_not_counted(count: Any) -> None:
    """A wrong number is worse than none."""
    attributes = {"llm.token_count.prompt": count, "llm.token_count.completion": 3, "llm.model_name": "m"}
    assert step_of("LLM", attributes).usage == Usage(None, 3)


@pytest.mark.parametrize("kind", ["EMBEDDING", "GUARDRAIL", "EVALUATOR", "PROMPT", "UNKNOWN", "DECISION", "", 3, None])
def test_other_kinds_are_no_steps(kind: Any) -> None:
    """They are no part of the call."""
    assert read(span({"openinference.span.kind": kind, "input.value": "Why?"})) is None


def test_a_span_of_another_convention_is_left_alone() -> None:
    """It has no kind of OpenInference, or its own attributes say more."""
    assert read(span({"gen_ai.operation.name": "chat", "input.value": "Why?"})) is None
    own = {"openinference.span.kind": "LLM", "gen_ai.operation.name": "chat"}
    assert read(span(own, scope="pydantic-ai")) is None
    assert read(span(own, scope="ragtrace")) is None
    assert read(span(own)) is not None


# --- Hostile spans ----------------------------------------------------------------------------------------------------

TEXT = some.text(max_size=20)
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | TEXT | some.just("Document(id=1, content: 'x')"),
    lambda inner: some.lists(inner, max_size=3)
    | some.dictionaries(
        some.sampled_from(["messages", "kwargs", "lc", "id", "type", "data", "role", "content", "blocks", "documents",
                           "query", "output", "provider_data", "llm_output", "object", "artifact"]) | TEXT,
        inner, max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip
VALUE = (
    TEXT
    | JSON.map(lambda value: json.dumps(value))
    | some.integers()
    | some.floats()
    | some.booleans()
    | some.none()
    | some.lists(TEXT | some.integers(), max_size=3).map(tuple)
)
KEYS = [
    *(name for key, name in vars(semconv).items() if key.startswith("OI_") and isinstance(name, str) and "." in name),
    *(semconv.oi_document(rank, part) for rank in (0, 1, 7) for part in ("content", "id", "score", "metadata")),
    *(
        f"{prefix}.{rank}.{part}"
        for prefix in ("llm.input_messages", "llm.output_messages", "retrieval.documents", "reranker.output_documents")
        for rank in ("0", "1", "x", "99999999999")
        for part in (
            "message.role", "message.content", "message.contents.0.message_content.text",
            "message.function_call_name", "message.tool_calls.0.tool_call.function.name", "document.content",
            "document.score",
        )
    ),
]  # fmt: skip


@given(
    some.dictionaries(some.sampled_from(KEYS), VALUE, max_size=12),
    some.sampled_from(["CHAIN", "AGENT", "LLM", "RETRIEVER", "RERANKER", "TOOL"]),
    some.sampled_from(["", LANGCHAIN, LLAMA_INDEX, HAYSTACK, AGENTS]),
)
def test_any_attribute_may_be_of_any_type(attributes: dict[str, Any], kind: str, scope: str) -> None:
    """Nothing is raised, and no text is made up."""
    found = read(span({**attributes, "openinference.span.kind": kind}, scope=scope))
    said = [text for value in attributes.values() for text in strings_in(value)]
    for text in () if found is None else (found.step.query, found.step.answer):
        assert not text or any(each and each in text for each in said)


def strings_in(value: Any) -> list[str]:
    """Return all strings in *value*, a value of an attribute, and in what it encodes."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return [value]
        return [value, *(() if isinstance(parsed, str) and parsed == value else strings_in(parsed))]
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    return (
        [text for each in cast("list[Any]", value) for text in strings_in(each)]
        if isinstance(value, (list, tuple))
        else []
    )


def test_a_span_of_many_attributes_is_read_once() -> None:
    """Ten thousand documents are cut to those that are kept for a call."""
    attributes = {f"retrieval.documents.{rank}.document.content": f"text {rank}" for rank in range(10_000)}
    documents = step_of("RETRIEVER", attributes).documents
    assert documents is not None
    assert documents[0].text == "text 0"


def test_json_of_great_depth_is_no_text() -> None:
    """It is not followed to its end."""
    deep = '{"input": ' * 900 + '"Why?"' + "}" * 900
    assert step_of("CHAIN", {"input.value": deep, "input.mime_type": "application/json"}).query is None


MODEL = {"llm.model_name": "m"}
UNREADABLE = [
    '{"question": "How',
    '{"question": "How tall is it?"',
    '{"question": "How tall is it?", "stream": tr',
    '{\n  "question": "How tall?",\n  "top_k": 1.',
    '{"question": "How tall?", ...',
    '{"question": "Is it 5 \\u20a',
    '{"question": "How\ntall?"}',
    '{"',
    "[[",
    '["How tall is it?", ',
    '[{"role": "user", "content": "How tall',
    "[" * 1_000,
    "[" * 1_000 + "]" * 1_000,
    '{"question": ' * 100_000,
    '{"question": ' * 1_000 + '"How?"' + "}" * 1_000,
]
QUESTIONS = [
    "[urgent] where is my order?",
    "{name} what is this?",
    "[] or list(): which is faster?",
    '{"a": 1} is what in YAML?',
    '{"a": tru} does not parse, why?',
    "[[1, 2], [3, 4]] is invertible?",
    "[[Eiffel Tower]] how tall is it?",
    '["How tall?"] is a list of what?',
    '"Moby-Dick" was written by whom?',
]


@pytest.mark.parametrize("mime", [{}, {"input.mime_type": "application/json"}], ids=["no type", "json"])
@pytest.mark.parametrize("kind", ["CHAIN", "RETRIEVER", "LLM", "TOOL"])
def test_json_that_cannot_be_read_is_no_query(kind: str, mime: dict[str, str]) -> None:
    """It breaks off, is nested too deeply, or has a line break in a text."""
    taken = [text for text in UNREADABLE if step_of(kind, {"input.value": text, **MODEL, **mime}).query is not None]
    assert taken == []


@pytest.mark.parametrize("mime", [{}, {"input.mime_type": "text/plain"}], ids=["no type", "text"])
@pytest.mark.parametrize("kind", ["CHAIN", "RETRIEVER", "LLM", "TOOL"])
def test_a_question_that_begins_like_json_is_a_query(kind: str, mime: dict[str, str]) -> None:
    """A person wrote more after the bracket, and JSON does not just end too early there."""
    assert [step_of(kind, {"input.value": text, **MODEL, **mime}).query for text in QUESTIONS] == QUESTIONS


def test_a_text_that_is_falsely_declared_as_json_is_no_query() -> None:
    """It cannot be told from JSON that is broken."""
    attributes = {"input.mime_type": "application/json"}
    found = [step_of("CHAIN", {"input.value": text, **attributes}).query for text in QUESTIONS]
    assert found == [None] * len(QUESTIONS)


def test_a_plain_question_declared_as_json_is_a_query() -> None:
    """Nobody would take it for JSON that is broken."""
    assert step_of("CHAIN", {"input.value": "How tall?", "input.mime_type": "application/json"}).query == "How tall?"


def test_an_answer_that_breaks_off_like_json_stays_an_answer() -> None:
    """Where nothing declares it as JSON, a model may have written it so."""
    assert step_of("CHAIN", {"input.value": "Why?", "output.value": '{"a": "Bec'}).answer == '{"a": "Bec'


# --- Round trip -------------------------------------------------------------------------------------------------------

LABEL = some.none() | some.text(min_size=1, max_size=20).filter(lambda text: text.strip() not in ("", "REDACTED"))
DOCUMENTS = some.none() | some.lists(
    some.builds(Document, TEXT, LABEL, some.none() | some.floats(allow_nan=False, allow_infinity=False)), max_size=4
).map(tuple)


@given(
    some.sampled_from(["trace", "retrieve", "generate"]), some.booleans(), LABEL, LABEL, LABEL, some.none() | TEXT,
    some.none() | TEXT, DOCUMENTS, some.none() | some.integers(0, 10**9), some.none() | some.integers(0, 10**9),
)  # fmt: skip
def test_a_recorded_step_is_read_back(
    kind: StepKind, rerank: bool, session: str | None, user: str | None, model: str | None, query: str | None,
    answer: str | None, documents: tuple[Document, ...] | None, given_tokens: int | None, tokens: int | None,
) -> None:  # fmt: skip
    """From the attributes that ragtrace's own dialect of OpenInference writes."""
    step = Step()
    step.kind, step.conversation_id, step.user_id, step.query = kind, session, user, query
    if kind == "retrieve":
        step.rerank, step.documents = rerank, documents
    else:
        step.answer, step.contexts_here = answer, documents
    if kind == "generate":
        step.request_model, step.usage = model, Usage(given_tokens, tokens)
    attributes: Attributes = {}
    for add in (dialect.add_start, dialect.add_end, dialect.add_content):
        add(attributes, step)
    if kind == "retrieve" and documents is not None:
        attributes[semconv.DOCUMENT_COUNT] = len(documents)
    found = read(span(attributes, scope="ragtrace"))
    assert found is not None
    back = found.step
    for field in ("kind", "conversation_id", "user_id", "query", "answer", "usage", "rerank", "request_model"):
        assert getattr(back, field) == getattr(step, field), field
    assert (back.documents or None) == (documents or None)
    if kind == "retrieve":
        assert back.documents == documents
    assert not found.is_cut
    assert not found.documents_without_text
