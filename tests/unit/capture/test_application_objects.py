"""Envelopes, failures, extra fields and tool results in the objects of applications are read as what they are."""

from __future__ import annotations

import importlib.util
import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from ragtrace.capture import fields, find_answer, find_documents, find_query, find_tool_result
from ragtrace.capture.arguments import find_prompt
from ragtrace.core.types import Document
from ragtrace.span_reading.messages import result_documents

ANSWER = "The tower is 330 metres tall."
HISTORY = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "In Paris."}]
ASKED = {"role": "user", "content": "How tall is it?"}


class Open(BaseModel):
    """Model of an API client, which keeps the fields that it does not declare."""

    model_config = ConfigDict(extra="allow")
    id: str | None = None


class Derived(Open):
    """Model that takes the permission from its base."""

    n: int = 0


@pytest.mark.parametrize("model", [Open, Derived])
def test_undeclared_fields_of_a_pydantic_model_are_read(model: Any) -> None:
    """As those that a provider adds to its replies, and the columns of a row."""
    assert find_documents([model(id="7", text=ANSWER, score=0.5)]) == (Document(ANSWER, "7", 0.5),)
    found = find_answer(model(answer=ANSWER, context=["A passage."]))
    assert found is not None
    assert (found.text, found.documents) == (ANSWER, (Document("A passage."),))


@pytest.mark.parametrize(
    "envelope",
    [
        {"status": "ok", "message": "Success", "data": {"answer": ANSWER}},
        {"success": True, "message": "Request processed", "result": {"answer": ANSWER}},
        {"code": 0, "error": None, "message": "", "data": {"output_text": ANSWER}},
        {"error": False, "message": "done", "data": {"response": {"text": ANSWER}}},
    ],
)
def test_the_message_of_an_envelope_is_its_status(envelope: Any) -> None:
    """The answer is in the data beside it, of a dict as of an object."""
    for value in (envelope, SimpleNamespace(**envelope)):
        found = find_answer(value)
        assert found is not None
        assert found.text == ANSWER


def test_a_message_without_data_is_the_answer() -> None:
    """Many applications have no other field."""
    found = find_answer({"status": "ok", "message": ANSWER})
    assert found is not None
    assert found.text == ANSWER


@pytest.mark.parametrize("error", [True, "timeout", 500, {"code": 429, "message": "Too many requests"}])
def test_a_record_with_an_error_is_no_answer(error: object) -> None:
    """Neither its message nor a part of it."""
    assert find_answer({"error": error, "message": "The model timed out"}) is None
    assert find_answer({"error": error, "answer": None, "data": {"message": "The model timed out"}}) is None


@pytest.mark.parametrize(
    "failed",
    [
        {"content": [{"type": "text", "text": "No such index"}], "isError": True},
        {"type": "tool_result", "content": "No such index", "is_error": True},
        {"status": "error", "content": "No such index"},
        {"status": "error", "content": [{"text": "No such index"}], "toolUseId": "1"},
    ],
)
def test_the_message_of_a_failed_tool_is_no_evidence(failed: Any) -> None:
    """For a decorated tool, with a dict or an object, as for one that is read from spans."""
    assert find_tool_result(failed) is None
    assert find_tool_result(SimpleNamespace(**failed)) is None
    assert result_documents(failed) is None


def _anthropic(*parts: dict[str, Any]) -> list[Any]:
    use = {"type": "tool_use", "id": "1", "name": "search", "input": {}}
    return [*HISTORY, ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": list(parts)}]


@pytest.mark.parametrize("content", ["330 metres.", [{"type": "text", "text": "330 metres."}]])
def test_results_of_tools_in_a_message_of_the_user_are_results(content: object) -> None:
    """Anthropic sends them so; the question is the last message of the user that has a text."""
    messages = _anthropic({"type": "tool_result", "tool_use_id": "1", "content": content})
    assert find_query(messages) == "How tall is it?"
    prompt = find_prompt(messages)
    assert prompt is not None
    assert [(each.role, each.text) for each in prompt.messages[-2:]] == [
        ("user", "How tall is it?"),
        ("tool", "330 metres."),
    ]


def test_a_text_beside_results_follows_them_and_failed_results_are_left_out() -> None:
    """The parts keep their order: results first, then the text."""
    failed = {"type": "tool_result", "content": "No such index", "is_error": True}
    good = [{"type": "tool_result", "content": f"Fact {n}."} for n in (1, 2)]
    prompt = find_prompt(_anthropic(good[0], failed, good[1], {"type": "text", "text": "Be brief."}))
    assert prompt is not None
    assert [each.text for each in prompt.messages[-3:]] == ["Fact 1.", "Fact 2.", "Be brief."]
    assert [each.role for each in prompt.messages[-3:]] == ["tool", "tool", "user"]


@pytest.mark.parametrize("kind", ["reasoning", "function_call", "item_reference", "web_search_call"])
def test_items_of_the_responses_api_do_not_hide_the_prompt(kind: str) -> None:
    """Reasoning and calls have no role; the output of a call is the result of a tool."""
    output = {"type": "function_call_output", "call_id": "1", "output": "330 metres."}
    prompt = find_prompt([*HISTORY, ASKED, {"type": kind, "id": "r"}, output])
    assert prompt is not None
    assert [each.role for each in prompt.messages] == ["user", "assistant", "user", "tool"]


def test_an_item_of_an_unknown_type_is_no_message() -> None:
    """A list of other records may be anything."""
    assert find_prompt([ASKED, {"type": "something", "id": "r"}]) is None


def test_to_examine_a_class_examines_no_other() -> None:
    """The first call of a process waits for its own classes alone: with a module that has examined none yet."""
    spec = importlib.util.spec_from_file_location("fresh_fields", fields.__file__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = fresh  # its dataclasses look there
    spec.loader.exec_module(fresh)
    examined: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "_examine":
            examined.append(frame.f_locals["cls"].__name__)

    sys.setprofile(note)
    try:
        fresh.shape_of(type("Fresh", (), {}))
    finally:
        sys.setprofile(None)
        del sys.modules[spec.name]
    assert examined == ["Fresh"]
