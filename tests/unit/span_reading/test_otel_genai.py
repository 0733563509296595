"""The reader of OpenTelemetry GenAI spans finds what the instrumentations wrote, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ragtrace.core import semconv
from ragtrace.core.step import Message, Prompt, Step
from ragtrace.core.types import Document, DocumentsInPart, Timing, Usage
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading, from_sdk_span
from ragtrace.span_reading.otel_genai import read
from ragtrace.telemetry.spans.writer import SpanWriter
from tests.support.finished_spans import finished_span, recorded

TOWER = "The Eiffel Tower in Paris is 330 metres tall."
BRIDGE = "The Golden Gate Bridge spans 1280 metres."
QUESTION = "How tall is the Eiffel Tower?"


def reading_of(attributes: dict[str, Any], **options: Any) -> SpanReading:
    """Return what the reader finds in a span with *attributes*."""
    found = read(finished_span(attributes, **options))
    assert found is not None
    return found


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """Return a message as opentelemetry-util-genai 1.3b0 writes it."""
    return {"role": role, "parts": list(parts), "name": None}


def text(content: str) -> dict[str, Any]:
    """Return a part with a text."""
    return {"content": content, "type": "text"}


def chat(*messages: dict[str, Any], returned: Any = None, **more: Any) -> dict[str, Any]:
    """Return the attributes of a chat span."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": list(messages)}
    if returned is not None:
        attributes["gen_ai.output.messages"] = returned
    return {**attributes, **more}


# --- Generations ------------------------------------------------------------------------------------------------------


def test_a_chat_span_of_genai_openai() -> None:
    """opentelemetry-instrumentation-genai-openai 1.3b0, streamed, with content on the span."""
    found = reading_of(
        chat(
            message("system", text("Be short.")),
            message("user", text(QUESTION)),
            returned=[{"role": "assistant", "parts": [text(TOWER)], "finish_reason": "stop", "name": None}],
            **{
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-4o-mini",
                "gen_ai.request.stream": True,
                "gen_ai.response.model": "gpt-4o-mini-2024-07-18",
                "gen_ai.response.id": "chatcmpl-1",
                "gen_ai.response.finish_reasons": ("stop",),
                "gen_ai.response.time_to_first_chunk": 0.25,
                "gen_ai.usage.input_tokens": 65,
                "gen_ai.usage.output_tokens": 9,
                "gen_ai.conversation.id": "session-1",
            },
        )
    )
    step = found.step
    assert (step.kind, step.query, step.answer) == ("generate", QUESTION, TOWER)
    assert step.prompt == Prompt((Message("system", "Be short."), Message("user", QUESTION)))
    assert (step.provider, step.request_model, step.response_model) == (
        "openai",
        "gpt-4o-mini",
        "gpt-4o-mini-2024-07-18",
    )
    assert (step.response_id, step.finish_reasons, step.conversation_id) == ("chatcmpl-1", ("stop",), "session-1")
    assert (step.usage, step.timing, step.streamed) == (Usage(65, 9), Timing(2.0, 0.25), True)
    assert step.documents is None
    assert not found.calls_tools
    assert not found.is_cut


def test_variables_of_a_prompt_template_hold_question_and_documents() -> None:
    """opentelemetry-instrumentation-genai-langchain 1.3b0 writes them on the span of the model call."""
    found = reading_of(
        chat(
            message("user", text(f"Context: {TOWER}\nQuestion: {QUESTION}")),
            **{"gen_ai.prompt.variable.context": TOWER, "gen_ai.prompt.variable.question": QUESTION},
        )
    )
    assert (found.step.query, found.step.prompt_documents) == (QUESTION, (Document(TOWER),))


def test_a_reply_that_calls_a_tool_is_no_answer() -> None:
    """The model asks the application to search."""
    call = {"arguments": {"query": "tower"}, "name": "search", "id": "1", "type": "tool_call"}
    found = reading_of(chat(message("user", text(QUESTION)), returned=[message("assistant", call)]))
    assert (found.calls_tools, found.step.answer) == (True, None)


def test_reasoning_is_neither_answer_nor_question() -> None:
    """Parts of the type reasoning, and any other type that is no text, are left out."""
    reasoning = {"content": "Towers are tall.", "type": "reasoning"}
    unknown = {"content": "aGVsbG8=", "type": "blob", "modality": "image"}
    found = reading_of(
        chat(message("user", unknown, text(QUESTION)), returned=[message("assistant", reasoning, text(TOWER))])
    )
    assert (found.step.query, found.step.answer) == (QUESTION, TOWER)


def test_tool_results_since_the_question_are_documents() -> None:
    """Those of earlier turns are not."""
    old = {"response": BRIDGE, "id": "1", "type": "tool_call_response"}
    new = {"response": [{"id": "d1", "text": TOWER}], "id": "2", "type": "tool_call_response"}
    found = reading_of(
        chat(
            message("user", text("And the bridge?")),
            message("tool", old),
            message("user", text(QUESTION)),
            message("tool", new),
        )
    )
    assert found.step.prompt_documents == (Document(TOWER, "d1"),)
    assert found.step.query == QUESTION
    assert found.step.prompt is not None
    assert [each.role for each in found.step.prompt.messages] == ["user", "tool", "user", "tool"]


def test_results_of_the_providers_own_search_are_documents() -> None:
    """The file search of OpenAI's Responses API, with its results included."""
    searched = {
        "type": "file_search",
        "queries": ["tower"],
        "results": [{"file_id": "f1", "score": 0.9, "text": TOWER}],
    }
    part = {"name": "file_search", "server_tool_call": searched, "id": "1", "type": "server_tool_call"}
    found = reading_of(
        chat(message("user", text(QUESTION)), returned=[message("assistant", part), message("assistant", text(TOWER))])
    )
    assert found.step.prompt_documents == (Document(TOWER, "f1", 0.9),)
    assert (found.calls_tools, found.step.answer) == (False, TOWER)


def test_more_documents_than_are_read_are_marked() -> None:
    """A thousand are read."""
    for count, kind in ((1_000, tuple), (1_001, DocumentsInPart)):
        shown = json.dumps([{"content": f"Passage {each}."} for each in range(count)])
        found = reading_of({semconv.OPERATION_NAME: "retrieval", semconv.RETRIEVAL_DOCUMENTS: shown}).step.documents
        assert found is not None
        assert (len(found), type(found)) == (1_000, kind)


def test_of_several_choices_the_first_is_the_answer() -> None:
    """Each output message is one of the alternatives that were asked for."""
    returned = [message("assistant", text(TOWER)), message("assistant", text(BRIDGE))]
    found = reading_of(chat(message("user", text(QUESTION)), returned=returned, **{"gen_ai.request.choice.count": 2}))
    assert found.step.answer == TOWER


def test_content_that_is_not_on_the_span_stays_none() -> None:
    """Content capture off, or in log events only."""
    found = reading_of({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    assert (found.step.query, found.step.prompt, found.step.answer, found.step.documents) == (None, None, None, None)


def test_masked_texts_are_not_captured() -> None:
    """A mask of an instrumentation is neither a question nor an answer."""
    found = reading_of(chat(message("user", text("__REDACTED__")), returned=[message("assistant", text("[REDACTED]"))]))
    assert (found.step.query, found.step.prompt, found.step.answer) == (None, None, None)


def test_system_instructions_come_first_in_the_prompt() -> None:
    """They have an attribute of their own."""
    found = reading_of(chat(message("user", text(QUESTION)), **{"gen_ai.system_instructions": [text("Be short.")]}))
    assert found.step.prompt == Prompt((Message("system", "Be short."), Message("user", QUESTION)))


# --- Workflows and agents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "query"),
    [
        ('{"question": "How', None),
        ("[[" * 1_000, None),
        ("[urgent] where is it?", "[urgent] where is it?"),
        ('{"a": 1} is what in YAML?', '{"a": 1} is what in YAML?'),
    ],
    ids=["cut", "deep", "tag", "example"],
)
def test_a_message_of_broken_json_is_no_query(asked: str, query: str | None) -> None:
    """A question that begins like JSON is one."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": [message("user", text(asked))]}
    assert reading_of(attributes).step.query == query


def test_an_agent_span_with_a_conversation() -> None:
    """The last message of the user is the question, the last message of the agent is the answer."""
    found = reading_of(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "guide",
            "gen_ai.input.messages": [
                message("user", text("Hello")), message("assistant", text("Hi")), message("user", text(QUESTION)),
            ],
            "gen_ai.output.messages": [message("assistant", text("Let me see.")), message("assistant", text(TOWER))],
        }
    )  # fmt: skip
    step = found.step
    assert (step.kind, step.name, step.workflow, step.query, step.answer) == (
        "trace",
        "guide",
        "guide",
        QUESTION,
        TOWER,
    )
    assert step.prompt is not None
    assert len(step.prompt.messages) == 3


@pytest.mark.parametrize(
    ("state", "query"),
    [({"user_query": QUESTION}, QUESTION), ({"input": "", "n": 3}, None), ({"topic": "towers"}, None)],
)
def test_the_input_of_a_workflow_may_be_a_state(state: dict[str, Any], query: str | None) -> None:
    """genai-langchain 1.3b0 writes the JSON text of a LangGraph state as the text of a user message."""
    attributes = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "graph",
        "gen_ai.input.messages": [message("user", text(json.dumps(state)))],
        "gen_ai.output.messages": [message("assistant", text(json.dumps({"answer": TOWER})))],
    }
    step = reading_of(attributes).step
    assert (step.query, step.prompt, step.answer) == (query, None, TOWER)


def test_an_answer_that_is_an_unknown_record_is_none() -> None:
    """Raw JSON is never taken for what the user read."""
    attributes = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.output.messages": [message("assistant", text(json.dumps({"stage": {"n": 1}})))],
    }
    assert reading_of(attributes).step.answer is None


@pytest.mark.parametrize("operation", ["embeddings", "create_agent", "evaluation", "search_memory", "fetch_response"])
def test_other_operations_are_no_step(operation: str) -> None:
    """They are part of no RAG call."""
    assert read(finished_span({"gen_ai.operation.name": operation})) is None


def test_a_span_without_genai_attributes_is_no_step() -> None:
    """An HTTP request."""
    assert read(finished_span({"http.request.method": "GET"})) is None


# --- Retrievals -------------------------------------------------------------------------------------------------------


def test_documents_with_ids_only_are_counted() -> None:
    """opentelemetry-util-genai 1.3b0 exports no texts."""
    found = reading_of(
        {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.data_source.id": "guides",
            "gen_ai.retrieval.query.text": QUESTION,
            "gen_ai.retrieval.top_k": 3,
            "gen_ai.retrieval.documents": [{"id": "d1", "score": None}, {"id": "d2", "score": 0.5}],
        }
    )
    step = found.step
    assert (step.kind, step.name, step.query, step.top_k) == ("retrieve", "guides", QUESTION, 3)
    assert (step.documents, found.documents_without_text) == (None, 2)


def test_documents_with_texts_are_read_in_order() -> None:
    """Further fields of a document are permitted; a document without a text is counted beside them."""
    found = reading_of(
        {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.retrieval.documents": [
                {"id": "d1", "score": 0.9, "content": TOWER}, {"id": "d2"}, {"id": "d3", "content": BRIDGE},
            ],
        }
    )  # fmt: skip
    assert found.step.documents == (Document(TOWER, "d1", 0.9), Document(BRIDGE, "d3"))
    assert found.documents_without_text == 1


def test_structured_documents_are_read() -> None:
    """A value of the SDK that is no JSON text, as the convention prefers it."""
    documents = ({"id": "d1", "content": TOWER},)
    span = finished_span({"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": documents})
    found = read(span)
    assert found is not None
    assert found.step.documents == (Document(TOWER, "d1"),)


def test_no_documents_are_an_empty_result() -> None:
    """The retriever found nothing, which differs from a result that was not captured."""
    found = reading_of({"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": []})
    assert found.step.documents == ()
    assert reading_of({"gen_ai.operation.name": "retrieval"}).step.documents is None


def test_bare_strings_may_be_ids_and_are_no_documents() -> None:
    """Nothing says that they are texts."""
    found = reading_of({"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": ["d1", "d2"]})
    assert (found.step.documents, found.documents_without_text) == (None, 2)


def test_truncated_documents_are_seen_as_such() -> None:
    """The provider cut the JSON text in the middle."""
    whole = json.dumps([{"id": "d1", "content": TOWER}])
    attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": whole[:40]}
    for limit in (40, None):
        found = reading_of(attributes, max_text_chars=limit)
        assert (found.step.documents, found.is_cut) == (None, True)


# --- Tools ------------------------------------------------------------------------------------------------------------


def tool(result: Any, arguments: Any = None, **options: Any) -> SpanReading:
    """Return what the reader finds in the span of a tool call."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    attributes |= {"gen_ai.tool.call.result": result, "gen_ai.tool.call.arguments": arguments or {"query": QUESTION}}
    return reading_of(attributes, **options)


_RESULTS: list[tuple[Any, tuple[Document, ...] | None]] = [
    (TOWER, (Document(TOWER),)),
    ("", ()),
    ([TOWER, BRIDGE], (Document(TOWER), Document(BRIDGE))),
    ([{"id": "d1", "page_content": TOWER, "metadata": {}}], (Document(TOWER, "d1"),)),
    ({"results": [{"text": TOWER, "score": 0.5}]}, (Document(TOWER, None, 0.5),)),
    ({"height": 330}, (Document('{"height": 330}'),)),
    ({"text": "tower", "height": 330}, (Document('{"text": "tower", "height": 330}'),)),
    # An MCP tool: several parts, the first of them a passage as JSON.
    (
        {
            "content": [
                {"type": "text", "text": json.dumps({"id": "d1", "text": TOWER})},
                {"type": "text", "text": BRIDGE},
            ]
        },
        (Document(TOWER, "d1"), Document(BRIDGE)),
    ),
    ({"content": [{"type": "text", "text": "no such tool"}], "isError": True}, None),
    # A query engine of LlamaIndex as a tool (genai-llama-index 1.3b0).
    (
        {"response": TOWER, "source_nodes": [{"node": {"id_": "d1", "text": TOWER}, "score": 0.5}], "metadata": {}},
        (Document(TOWER, "d1", 0.5),),
    ),
    ("__REDACTED__", None),
]


@pytest.mark.parametrize(("result", "documents"), _RESULTS)
def test_the_result_of_a_tool(result: Any, documents: tuple[Document, ...] | None) -> None:
    """Its passages if it is a list of these, else its text."""
    found = tool(result)
    assert (found.step.kind, found.step.name, found.step.query) == ("tool", "search", QUESTION)
    assert found.step.documents == documents
    assert found.step.answer is None


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        (QUESTION, QUESTION),
        ({"location": "Paris"}, None),
        ("[old] tower", "[old] tower"),
        ('[{"broken', None),
        ("[" * 1_000 + "]" * 1_000, None),
        ([1], None),
    ],
)
def test_the_query_of_a_tool(arguments: Any, query: str | None) -> None:
    """Its search text, if it is plain which one that is."""
    assert tool(TOWER, arguments).step.query == query


def test_a_failed_tool_returned_no_evidence() -> None:
    """Its result is the message of an error."""
    found = tool("no connection", error_type="ConnectionError")
    assert found.step.documents is None
    assert found.step.error is not None
    assert found.step.error.type == "ConnectionError"


def test_a_call_of_an_mcp_tool() -> None:
    """The span of the MCP conventions, whose operation need not be named."""
    found = reading_of(
        {"mcp.method.name": "tools/call", "gen_ai.tool.name": "search", "gen_ai.tool.call.result": TOWER}
    )
    assert (found.step.kind, found.step.name, found.step.documents) == ("tool", "search", (Document(TOWER),))
    assert read(finished_span({"mcp.method.name": "tools/list"})) is None


# --- Older releases ---------------------------------------------------------------------------------------------------


def test_content_in_span_events() -> None:
    """Events with one message each: fields of their own (strands-agents) or one JSON text (azure-ai-inference)."""
    strands = (
        ("gen_ai.system.message", {"content": "Be short."}),
        ("gen_ai.user.message", {"content": json.dumps([{"text": QUESTION}])}),
        ("gen_ai.choice", {"message": json.dumps([{"text": TOWER}]), "finish_reason": "end_turn"}),
    )
    azure = (
        ("gen_ai.system.message", {"gen_ai.event.content": json.dumps({"role": "system", "content": "Be short."})}),
        ("gen_ai.user.message", {"gen_ai.event.content": json.dumps({"role": "user", "content": QUESTION})}),
        (
            "gen_ai.choice",
            {"gen_ai.event.content": json.dumps({"message": {"content": TOWER}, "finish_reason": "end_turn"})},
        ),
    )
    for events in (strands, azure):
        step = reading_of({"gen_ai.operation.name": "chat", "gen_ai.system": "aws.bedrock"}, events=events).step
        assert (step.provider, step.query, step.answer) == ("aws.bedrock", QUESTION, TOWER)
        assert step.prompt == Prompt((Message("system", "Be short."), Message("user", QUESTION)))
        assert step.finish_reasons == ("end_turn",)


def test_content_in_one_text() -> None:
    """The attributes and events before the conventions had messages."""
    prompt, completion = (
        json.dumps([{"role": "user", "content": QUESTION}]),
        json.dumps([{"role": "assistant", "content": TOWER}]),
    )
    events = (
        ("gen_ai.content.prompt", {"gen_ai.prompt": prompt}),
        ("gen_ai.content.completion", {"gen_ai.completion": completion}),
    )
    old = {"gen_ai.system": "openai", "gen_ai.response.finish_reasons": ("stop",), "gen_ai.usage.prompt_tokens": 3}
    for step in (
        reading_of(old, events=events).step,
        reading_of({**old, "gen_ai.prompt": QUESTION, "gen_ai.completion": TOWER}).step,
    ):
        assert (step.kind, step.query, step.answer, step.usage) == ("generate", QUESTION, TOWER, Usage(3, None))


def test_content_in_an_event_with_the_details() -> None:
    """A span event that carries the messages under their present names."""
    details = {"gen_ai.input.messages": json.dumps([message("user", text(QUESTION))])}
    events = (("gen_ai.client.inference.operation.details", details),)
    assert reading_of({"gen_ai.operation.name": "chat"}, events=events).step.query == QUESTION


# --- Recordings of real applications ----------------------------------------------------------------------------------

_MODES = ("sync", "async", "stream", "astream")


def readings(name: str) -> tuple[dict[str, list[SpanReading]], list[dict[str, Any]]]:
    """Return what the reader finds in a recording, by kind of step, and the calls that the application logged."""
    spans, calls = recorded(name)
    found = [reading for span in spans if (reading := read(span)) is not None]
    return {
        kind: [each for each in found if each.step.kind == kind] for kind in ("trace", "retrieve", "tool", "generate")
    }, calls


@pytest.mark.parametrize("mode", _MODES)
def test_a_chain_of_langchain_under_genai(mode: str) -> None:
    """Its workflow span has no content; the model call holds question and documents as variables of the prompt."""
    found, calls = readings(f"langchain_lcel-genai-{mode}")
    assert len(found["trace"]) == len(found["retrieve"]) == len(found["generate"]) == len(calls)
    for root, retrieval, generation, call in zip(
        *(found[kind] for kind in ("trace", "retrieve", "generate")), calls, strict=True
    ):
        assert (root.step.query, root.step.answer, root.step.conversation_id) == (None, None, call["session"])
        assert (retrieval.step.query, retrieval.step.documents) == (call["query"], None)
        assert retrieval.documents_without_text == len(call["contexts"])
        step = generation.step
        assert (step.query, step.answer) == (call["query"], call["answer"])
        assert step.prompt_documents == (Document("\n\n".join(call["contexts"])),)
        assert step.usage == Usage(call["input_tokens"], call["output_tokens"])
        assert step.streamed is (mode in ("stream", "astream"))


@pytest.mark.parametrize("mode", _MODES)
def test_an_agent_of_langgraph_under_genai(mode: str) -> None:
    """The agent's span has question and answer, the tool's result the documents."""
    found, calls = readings(f"langgraph_agent-genai-{mode}")
    assert len(found["trace"]) == len(found["tool"]) == len(calls)
    answers = [each for each in found["generate"] if not each.calls_tools]
    for root, tool_call, answer, call in zip(found["trace"], found["tool"], answers, calls, strict=True):
        assert (root.step.query, root.step.answer) == (call["query"], call["answer"])
        assert tool_call.step.documents == (Document("\n\n".join(call["contexts"])),)
        assert answer.step.prompt_documents == tool_call.step.documents
        assert answer.step.answer == call["answer"]
    assert all(each.step.answer is None for each in found["generate"] if each.calls_tools)


@pytest.mark.parametrize("mode", _MODES)
def test_the_plain_client_of_openai_under_genai(mode: str) -> None:
    """Model calls alone: the documents are in the prompt, which holds the question, too."""
    found, calls = readings(f"openai_plain-genai-{mode}")
    for each, call in zip(found["generate"], calls, strict=True):
        step = each.step
        assert (step.answer, step.response_id) == (call["answer"], call["response_ids"][0])
        assert step.usage == Usage(call["input_tokens"], call["output_tokens"])
        assert step.prompt is not None
        assert call["query"] in step.prompt.messages[-1].text
        assert all(context in step.prompt.messages[-1].text for context in call["contexts"])


@pytest.mark.parametrize("api", ["agents_sdk", "agents_sdk_responses"])
@pytest.mark.parametrize("mode", ["sync", "async", "astream"])
def test_replies_that_are_the_repr_of_a_response(api: str, mode: str) -> None:
    """openai-agents-v2 0.1.0 writes tool calls, and streamed replies, as Python objects; of these, records are read."""
    found, calls = readings(f"{api}-agents-v2-{mode}")
    agents = [each.step for each in found["trace"] if each.step.name == "Guide"]
    answers = [each.step for each in found["generate"] if each.step.answer is not None]
    for agent, tool_call, answer, call in zip(agents, found["tool"], answers, calls, strict=True):
        assert (agent.query, agent.answer) == (call["query"], call["answer"])
        assert (answer.query, answer.answer) == (call["query"], call["answer"])
        assert [document.text for document in tool_call.step.documents or ()] == call["contexts"]
        assert answer.prompt_documents in (None, tool_call.step.documents)
    assert all(each.step.answer is None for each in found["generate"] if each.calls_tools)
    assert len(found["generate"]) == 2 * len(calls)


# --- Hostile attributes -----------------------------------------------------------------------------------------------

_NAMES = sorted(
    {value for key, value in vars(semconv).items() if isinstance(value, str) and key[0].isupper() and "." in value}
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "parts", "content", "type", "text", "id", "message", "result"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
_VALUES = _JSON | _JSON.map(json.dumps) | st.binary(max_size=8) | st.tuples(st.text(max_size=4), _JSON)
_OPERATIONS = ("chat", "retrieval", "execute_tool", "invoke_agent", "invoke_workflow", "text_completion", "x")


@given(st.sampled_from(_OPERATIONS), st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=8))
def test_any_attributes_are_read_without_an_error(operation: str, attributes: dict[str, Any]) -> None:
    """Whatever stands under the names that the reader knows, it finds texts, or None."""
    span = finished_span({}, events=((semconv.OLD_EVENT_CHOICE, attributes), (semconv.EVENT_DETAILS, attributes)))
    found = read(
        FinishedSpan(span.context, None, "span", {**attributes, "gen_ai.operation.name": operation}, 0, 0, span.events)
    )
    if found is not None:
        step = found.step
        assert all(each is None or isinstance(each, str) for each in (step.query, step.answer, step.provider))
        assert all(isinstance(document.text, str) for document in step.documents or ())


# --- Spans of ragtrace itself -----------------------------------------------------------------------------------------

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20).filter(lambda each: set(each.strip()) != {"*"})
_LABEL = st.text(st.sampled_from("abcdef-_. "), min_size=1, max_size=12).filter(str.strip)
_COUNT = st.none() | st.integers(0, 1_000_000)
_DOCUMENTS = st.none() | st.lists(
    st.builds(Document, _TEXT, st.none() | _LABEL, st.none() | st.floats(-1e6, 1e6)), max_size=4
).map(tuple)
_PROMPTS = st.lists(
    st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool"]), _TEXT), min_size=1, max_size=4
).map(lambda messages: Prompt(tuple(messages)))


@st.composite
def recorded_steps(draw: st.DrawFn) -> Step:
    """Return a step as the decorators record it."""
    step = Step()
    step.kind = draw(st.sampled_from(["trace", "retrieve", "generate"]))
    step.name = "" if step.kind == "generate" else draw(st.just("") | _LABEL)
    step.conversation_id = draw(st.none() | _LABEL)
    step.query = draw(st.none() | _TEXT)
    step.ended = True
    step.end_ns = 3_000_000_000
    step.cut_chars = draw(st.integers(0, 5))
    if step.kind == "retrieve":
        step.documents, step.top_k, step.rerank = draw(_DOCUMENTS), draw(_COUNT), draw(st.booleans())
        return step
    step.answer, step.streamed = draw(st.none() | _TEXT), draw(st.booleans())
    step.abandoned = step.streamed and draw(st.booleans())
    if step.kind == "generate":
        step.prompt = draw(st.none() | _PROMPTS)
        step.provider, step.request_model, step.response_model = (draw(st.none() | _LABEL) for _ in range(3))
        step.response_id, step.finish_reasons = draw(st.none() | _LABEL), tuple(draw(st.lists(_LABEL, max_size=2)))
        step.usage = Usage(draw(_COUNT), draw(_COUNT))
        step.timing = Timing(2.0, draw(st.none() | st.floats(0, 1)) if step.streamed else None)
    else:
        step.contexts_here = draw(_DOCUMENTS)
    return step


@given(recorded_steps())
def test_a_span_of_ragtrace_reads_back_to_the_step_that_was_recorded(step: Step) -> None:
    """Through the writer and the SDK, in the GenAI conventions with content on the span."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    writer = SpanWriter(provider.get_tracer(semconv.SCOPE), None, None, dialects=("otel",), capture="SPAN_ONLY")
    step.span = writer.start_sdk_span(step, Context())
    writer.finish(step)
    (ended,) = exporter.get_finished_spans()
    span = from_sdk_span(ended)
    assert span is not None
    found = read(span)
    assert found is not None
    again = found.step
    assert not found.is_cut
    assert (again.kind, again.name, again.conversation_id) == (step.kind, step.name, step.conversation_id)
    assert (again.answer, again.streamed, again.abandoned) == (step.answer, step.streamed, step.abandoned)
    assert (again.provider, again.request_model, again.response_model) == (
        step.provider, step.request_model, step.response_model,
    )  # fmt: skip
    assert (again.response_id, again.finish_reasons, again.usage) == (step.response_id, step.finish_reasons, step.usage)
    assert (again.top_k, again.rerank, again.cut_chars) == (step.top_k, step.rerank, step.cut_chars)
    assert again.documents == (step.contexts_here if step.kind == "trace" else step.documents)
    has_question = step.prompt is None or any(each.role == "user" for each in step.prompt.messages)
    if step.query is not None or not has_question:
        assert again.query == step.query
    if step.prompt is not None:
        assert again.prompt == step.prompt
    if step.timing is not None and again.timing is not None:
        assert again.timing.first_s == step.timing.first_s
