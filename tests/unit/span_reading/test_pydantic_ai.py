"""The reader of Pydantic AI's spans finds question, result and evidence of an agent's run, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core import semconv
from ragtrace.core.step import Message, Prompt
from ragtrace.core.types import Document, Usage
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.pydantic_ai import read
from tests.support.finished_spans import finished_span, recorded

TOWER = "The Eiffel Tower in Paris is 330 metres tall."
QUESTION = "How tall is the Eiffel Tower?"
SCOPE = "pydantic-ai"


def reading_of(attributes: dict[str, Any], **options: Any) -> SpanReading:
    """Return what the reader finds in a span of Pydantic AI with *attributes*."""
    found = read(finished_span(attributes, scope=SCOPE, **options))
    assert found is not None
    return found


def said(role: str, *texts: str) -> dict[str, Any]:
    """Return a message with texts."""
    return {"role": role, "parts": [{"type": "text", "content": text} for text in texts]}


def called(role: str = "user", result: Any = TOWER) -> list[dict[str, Any]]:
    """Return the messages of one tool call: the model's request, and the result in a message of *role*."""
    call = {"type": "tool_call", "id": "1", "name": "search", "arguments": "{}"}
    answer = {"type": "tool_call_response", "id": "1", "name": "search", "result": result}
    return [{"role": "assistant", "parts": [call]}, {"role": role, "parts": [answer]}]


@pytest.mark.parametrize(
    "form",
    ["native-sync", "native-async", "native-stream", "native-astream", "native-format2-sync", "native-format6-sync"],
)
def test_a_recorded_agent(form: str) -> None:
    """Question, result, passages of the tool, tokens and session equal what the application logged."""
    spans, calls = recorded(f"pydantic_ai-{form}")
    found = [reading for span in spans if (reading := read(span)) is not None]
    runs = [each.step for each in found if each.step.kind == "trace"]
    tools = [each.step for each in found if each.step.kind == "tool"]
    answers = [each.step for each in found if each.step.kind == "generate" and not each.calls_tools]
    for run, tool, answer, call in zip(runs, tools, answers, calls, strict=True):
        assert (run.query, run.answer, run.name) == (call["query"], call["answer"], "guide")
        assert run.conversation_id == call["session"]
        assert run.usage == Usage(call["input_tokens"], call["output_tokens"])
        assert [document.text for document in tool.documents or ()] == call["contexts"]
        assert answer.prompt_documents == tool.documents
        assert (answer.query, answer.answer) == (call["query"], call["answer"])
        assert answer.response_id == call["response_ids"][-1]


def test_a_recorded_agent_without_content() -> None:
    """`include_content=False` leaves the parts without texts."""
    spans, _ = recorded("pydantic_ai-native-textless-sync")
    for span in spans:
        found = read(span)
        if found is not None:
            step = found.step
            assert (step.query, step.answer, step.prompt, step.documents) == (None, None, None, None)


@pytest.mark.parametrize("role", ["user", "tool"])
def test_the_question_of_a_run_that_continues_a_conversation(role: str) -> None:
    """It is the first text of the user after the earlier runs, whatever role the tools' results have."""
    messages = [
        said("system", "Be short."), said("user", "Hello"), said("assistant", "Hi"),
        said("user", QUESTION), *called(role), said("user", "Fix the errors and try again."), said("assistant", TOWER),
    ]  # fmt: skip
    step = reading_of(
        {
            "gen_ai.operation.name": "invoke_agent",
            "pydantic_ai.all_messages": messages,
            "pydantic_ai.new_message_index": 2,
        }
    ).step
    assert step.query == QUESTION
    assert step.answer == TOWER
    turns = (Message("system", "Be short."), Message("user", "Hello"), Message("assistant", "Hi"))
    assert step.prompt == Prompt((*turns, Message("user", QUESTION)))


@pytest.mark.parametrize(
    ("result", "answer"),
    [(TOWER, TOWER), (json.dumps({"answer": TOWER, "confidence": 0.9}), TOWER), (json.dumps({"height": 330}), None)],
)
def test_a_structured_result(result: str, answer: str | None) -> None:
    """The answer is the field that holds one; raw JSON is none."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "final_result": result}
    assert reading_of(attributes).step.answer == answer


def test_format_1_has_lists_of_events() -> None:
    """Before `gen_ai.input.messages`, the messages were events in one attribute."""
    events = [
        {"event.name": "gen_ai.system.message", "content": "Be short.", "role": "system"},
        {"event.name": "gen_ai.user.message", "content": QUESTION, "role": "user"},
    ]
    choice = {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": TOWER}}
    chat = reading_of({"gen_ai.operation.name": "chat", "events": [*events, choice]}).step
    assert (chat.kind, chat.query, chat.answer) == ("generate", QUESTION, TOWER)
    run = reading_of({"agent_name": "guide", "all_messages_events": events, "final_result": TOWER}).step
    assert (run.kind, run.name, run.query, run.answer) == ("trace", "guide", QUESTION, TOWER)


def test_an_output_function_is_no_evidence() -> None:
    """It shapes the result of the run, and finds nothing."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "final_result"}
    attributes |= {"logfire.msg": "running output function: final_result", "gen_ai.tool.call.result": TOWER}
    assert read(finished_span(attributes, scope=SCOPE)) is None


def test_a_retried_tool_call_is_no_evidence() -> None:
    """Its result is the request to try again."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    attributes |= {"gen_ai.tool.call.result": "Fix the errors", "pydantic_ai.tool.retry.cause": "model_retry"}
    assert reading_of(attributes).step.documents is None


def test_scrubbed_texts_are_not_captured() -> None:
    """Logfire's mask in place of a result."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "final_result": "[Scrubbed due to 'password']"}
    assert reading_of(attributes).step.answer is None


def test_spans_of_others_are_left_to_their_readers() -> None:
    """The GenAI conventions alone do not make a span one of Pydantic AI."""
    assert read(finished_span({"gen_ai.operation.name": "chat"}, scope="opentelemetry.instrumentation.openai")) is None
    assert read(finished_span({"http.request.method": "GET"}, scope=SCOPE)) is None


_NAMES = sorted(value for key, value in vars(semconv).items() if key.startswith("PYDANTIC_") and isinstance(value, str))
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "parts", "content", "type", "event.name", "message"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(
    st.sampled_from(["chat", "execute_tool", "invoke_agent", None]),
    st.dictionaries(st.sampled_from(_NAMES), _JSON | _JSON.map(json.dumps), max_size=6),
)
def test_any_attributes_are_read_without_an_error(operation: str | None, attributes: dict[str, Any]) -> None:
    """Whatever stands under the names that the reader knows, it finds texts, or None."""
    span = finished_span({})
    every = {**attributes, "gen_ai.operation.name": operation, "gen_ai.tool.name": "x"}
    found = read(FinishedSpan(span.context, None, "span", every, 0, 0, scope=SCOPE))
    if found is not None:
        assert all(each is None or isinstance(each, str) for each in (found.step.query, found.step.answer))
        assert all(isinstance(document, Document) for document in found.step.documents or ())
