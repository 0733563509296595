"""The messages that a generation is given: on its span, as turns of the conversation, and as contexts from tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.labels import Intention, Turn
from ragtrace.core.types import Judgement, RagCall
from tests.support.frameworks import library
from tests.support.watched import GOOD, watch

OPENAI: Any = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "How high is the tower?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    {"role": "tool", "tool_call_id": "1", "content": "It is 330 m high."},
    {"role": "assistant", "content": "330 m."},
    {"role": "user", "content": [{"type": "text", "text": "And how old?"}, {"type": "image_url", "image_url": {}}]},
]
SAID = [
    ("system", "Be short."),
    ("user", "How high is the tower?"),
    ("tool", "It is 330 m high."),
    ("assistant", "330 m."),
    ("user", "And how old?"),
]
TURNS = (
    Turn("user", "How high is the tower?"),
    Turn("assistant", "330 m."),
    Turn("user", "And how old?"),
    Turn("assistant", "Very."),
)


class Listener:
    """A judge that keeps the calls it is shown."""

    id, version, type = "listener", "1", "deterministic"

    def __init__(self, judgement: Judgement = GOOD) -> None:
        self.judgement = judgement
        self.calls: list[RagCall] = []

    def offers(self, metric: object) -> bool:
        return True

    def judge(self, call: RagCall) -> Judgement:
        self.calls.append(call)
        return self.judgement


@ragtrace.generate
def generate(messages: Any) -> str:
    return "Very."


def listen(function: Any, *args: Any, **settings: Any) -> tuple[list[tuple[str, str]] | None, RagCall]:
    """Role and text of each message on the chat span, and the call, of one run of *function*."""
    listener = Listener()
    captured = watch(screen=listener, **settings)
    function(*args)
    assert ragtrace.flush()
    (span,) = [each for each in captured.spans if (each.attributes or {}).get(semconv.OPERATION_NAME) == "chat"]
    shown: Any = (span.attributes or {}).get(semconv.INPUT_MESSAGES)
    (call,) = listener.calls
    if shown is None:
        return None, call
    messages = json.loads(shown)
    assert all([part["type"] for part in message["parts"]] == ["text"] for message in messages)
    return [(message["role"], message["parts"][0]["content"]) for message in messages], call


def test_the_chat_span_has_the_whole_prompt() -> None:
    """Of OpenAI's messages: in order, with roles; what has no text is left out."""
    shown, call = listen(generate, OPENAI)
    assert shown == SAID
    assert call.query == "And how old?"
    assert call.turns == TURNS


def langchain() -> Any:
    of = library("langchain_core.messages")
    tool = of.ToolMessage("It is 330 m high.", tool_call_id="1")
    return [
        of.SystemMessage("Be short."), of.HumanMessage("How high is the tower?"), of.AIMessage(""), tool,
        of.AIMessage("330 m."), of.HumanMessage("And how old?"),
    ]  # fmt: skip


def llama_index() -> Any:
    llms = library("llama_index.core.llms")
    return [llms.ChatMessage(role=role, content=text) for role, text in SAID]


def haystack() -> Any:
    module = library("haystack.dataclasses")
    message = module.ChatMessage
    call = module.ToolCall(tool_name="look_up", arguments={})
    return [
        message.from_system("Be short."), message.from_user("How high is the tower?"),
        message.from_tool("It is 330 m high.", origin=call), message.from_assistant("330 m."),
        message.from_user("And how old?"),
    ]  # fmt: skip


@pytest.mark.parametrize("make", [langchain, llama_index, haystack])
def test_messages_of_frameworks(make: Any) -> None:
    """The roles are those of the conventions, whatever the framework calls them."""
    shown, call = listen(generate, make())
    assert [message for message in shown or () if message[1]] == SAID
    assert call.turns == TURNS


def test_pairs_and_records_with_messages() -> None:
    """LangChain's short form; a state of LangGraph."""
    pairs = [("system", "Be short."), ("human", "Why?")]
    expected = [("system", "Be short."), ("user", "Why?")]
    assert listen(generate, pairs)[0] == expected
    assert listen(generate, {"messages": pairs})[0] == expected


@ragtrace.generate
def answer(question: str, chat_history: Any) -> str:
    return "Very."


def test_the_question_follows_its_history() -> None:
    """Where the history is an argument of its own."""
    shown, call = listen(answer, "And how old?", OPENAI[:5])
    assert shown == SAID
    assert call.turns == TURNS


@ragtrace.generate
def unclear(question: str, given: Any, more: Any = None) -> str:
    return "Very."


@pytest.mark.parametrize(
    "given",
    [
        (OPENAI,),
        (OPENAI[:1], OPENAI[1:]),
        ([{"role": "user", "content": "Why?"}, {"text": "a document"}],),
        ([{"type": "text", "text": "a part"}],),
        ([{"role": "editor", "content": "a person"}],),
        ([],),
    ],
    ids=["another question", "two lists", "not only messages", "parts", "another role", "empty"],
)
def test_what_is_ambiguous_is_left_alone(given: Any) -> None:
    """The span has the question, as it has without messages; nothing is made into turns or contexts."""
    shown, call = listen(unclear, "Where?", *given)
    assert shown == [("user", "Where?")]
    assert (call.turns, call.contexts) == (None, None)


def test_a_single_question_is_no_conversation() -> None:
    """Then the turns are gathered by the conversation's id."""
    assert listen(generate, OPENAI[:2])[1].turns is None


def test_tools_give_the_contexts_where_nothing_else_does() -> None:
    """An agent's retrieval is often a tool."""
    assert [each.text for each in listen(generate, OPENAI)[1].contexts or ()] == ["It is 330 m high."]


def test_documents_go_before_tools() -> None:
    """An empty list of them, too: then nothing was retrieved."""

    @ragtrace.generate
    def with_documents(messages: Any, docs: Any) -> str:
        return "Very."

    assert listen(with_documents, OPENAI, [])[1].contexts == ()


def test_messages_are_redacted_and_cut() -> None:
    """On the span, in the turns and in the contexts, as all texts are; the question is not counted twice."""
    messages = [
        {"role": "user", "content": "I am bob@example.org"},
        {"role": "tool", "content": "t" * 70},
        {"role": "user", "content": "q" * 60},
    ]
    shown, call = listen(generate, messages, redact=ragtrace.Redact([r"\S+@\S+"], max_chars=50))
    assert shown == [("user", "I am [redacted]"), ("tool", "t" * 50), ("user", "q" * 50)]
    assert call.turns == (Turn("user", "I am [redacted]"), Turn("user", "q" * 50), Turn("assistant", "Very."))
    assert [each.text for each in call.contexts or ()] == ["t" * 50]
    assert call.cut_chars == 30


def test_a_long_prompt_is_bounded_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """The last messages are kept; a conversation known in part has no turns."""
    messages = [{"role": "assistant" if number % 2 else "user", "content": str(number)} for number in range(1_001)]
    shown, call = listen(generate, messages)
    assert shown is not None
    assert [text for _, text in shown] == [str(number) for number in range(901, 1_001)]
    assert call.turns is None
    assert [record for record in caplog.records if "recorded only its last messages" in record.getMessage()]


def test_messages_that_change_afterwards_are_recorded_as_they_were() -> None:
    """An application adds the answer to the list that it gave."""

    def ask() -> None:
        messages: Any = [dict(message) for message in OPENAI]
        generate(messages)
        messages.append({"role": "assistant", "content": "Very."})
        messages[0]["content"] = "Be long."

    assert listen(ask)[0] == SAID


def test_no_content_means_no_messages() -> None:
    """The judge sees the turns all the same."""
    shown, call = listen(generate, OPENAI, capture_content="NO_CONTENT")
    assert (shown, call.turns) == (None, TURNS)


def test_a_judge_that_needs_turns_gets_them() -> None:
    """`completeness` is scored without a conversation id."""
    judge = Listener(Judgement(intentions=(Intention("the age", "satisfied", (2,)),)))
    captured = watch(screen=judge, metrics=["completeness"])
    generate(OPENAI)
    assert ragtrace.flush()
    values = dict(captured.spans[0].attributes or {})
    assert values["ragtrace.eval.completeness.score"] == 1.0
