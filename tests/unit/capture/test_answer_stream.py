"""Streamed answers: parts, whole texts so far, events, pairs and what is none of the answer or not known."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragtrace
from ragtrace.capture import AnswerStream
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.examples import examples
from tests.support.ids import readable
from tests.support.watched import GOOD, search, watch

TOKENS = ["The ", "Eiffel ", "Tower ", "is ", "330 ", "metres ", "tall."]
WHOLE = "".join(TOKENS)
SO_FAR = [WHOLE[: WHOLE.index(token) + len(token)] for token in TOKENS]


@dataclass
class ChatResponse:
    """A piece of an application's own, named as one of LlamaIndex is."""

    content: str


@dataclass
class AnswerNode:
    """An answer of an application's own, named as a passage."""

    answer: str


class Chunk:
    """A chunk of a model, as LangChain's."""

    def __init__(self, content: str) -> None:
        self.content, self.type = content, "AIMessageChunk"


def text_of_stream(pieces: Sequence[object]) -> str | None:
    """Text of the answer of a stream; None: it is not known."""
    stream = AnswerStream()
    for piece in pieces:
        stream.add(piece)
    found = stream.answer()
    return None if found is None else found.text


FORMS: dict[str, Callable[[str], object]] = {
    "text": str,
    "dict": lambda text: {"answer": text},
    "message": lambda text: {"role": "assistant", "content": text},
    "object": ChatResponse,
    "passage": AnswerNode,
    "nested": lambda text: {"message": {"role": "assistant", "content": text}, "done": False},
    "pair": lambda text: (Chunk(text), {"langgraph_node": "model"}),
    "mode": lambda text: ("messages", (Chunk(text), {"langgraph_node": "model"})),
    "subgraph": lambda text: (("graph:1",), "messages", (Chunk(text), {})),
    "text with metadata": lambda text: (text, {"step": 1}),
    "kind and text": lambda text: ("token", text),
    "envelope": lambda text: {"event": "message", "data": text},
}


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "texts",
    [
        TOKENS,
        SO_FAR,
        [*TOKENS, WHOLE],
        [*SO_FAR, WHOLE],
        [f" {WHOLE[:10]}", WHOLE[10:], WHOLE],
        [f"{text}▌" for text in SO_FAR] + [WHOLE],
        list(WHOLE),
        [WHOLE[:end] for end in range(1, len(WHOLE) + 1)],
        [WHOLE[:24], WHOLE],
    ],
    ids=["parts", "so far", "final copy", "last twice", "stripped copy", "cursor", "letters", "by letter", "two"],
)
def test_a_stream_has_its_text_once(make: Callable[[str], object], texts: list[str]) -> None:
    """Whether its pieces are parts, or hold the whole text so far, and whatever they are made of."""
    found = text_of_stream([make(text) for text in texts])
    assert found is not None
    assert found.strip() == WHOLE


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("first", ["An", "An implementation", "implementation:"])
def test_a_long_word_may_begin_as_one_before_it(make: Callable[[str], object], first: str) -> None:
    """Pieces that hold the whole text so far follow each other; words do not."""
    pieces = [
        first,
        " implementation",
        " differs",
        " from",
        " other",
        " implementations",
        " and implementation.",
        " End",
    ]
    assert text_of_stream([make(piece) for piece in pieces]) == "".join(pieces)


@pytest.mark.parametrize(
    "pieces",
    [
        ["ha", "ha"],
        ["y", "yes"],
        ["1", "1", "11"],
        ["Searching...", *SO_FAR],
        [*SO_FAR, "And something else."],
        ["The ", {"odd": "tower"}, "is tall."],
        [{"result": "a search"}, {"answer": "tall"}, {"response": "other"}],
        [{"type": "x", "content": "a"}, {"type": "y", "content": "b"}],
        [("route", "search"), ("route", "write")],
        [(ChatResponse("a"), ChatResponse("b"))],
        [("messages", (Chunk(node), {"langgraph_node": node})) for node in ("rewrite", "model")],
        ['{"token": "The "}\n', '{"token": "tower"}\n'],
        ['{"token": "The "}', '{"token": "tower"}'],
        ['0:"The "\n', '0:"tower"\n', 'd:{"finishReason":"stop"}\n'],
        ['"The "\n', '"tower"\n'],
    ],
    ids=readable,
)  # fmt: skip
def test_what_is_not_known_is_no_answer(pieces: list[object]) -> None:
    """Neither a part of it, nor a text twice, nor a guess."""
    assert text_of_stream(pieces) is None


@pytest.mark.parametrize("none", ["status", "tool_call", "thinking", "on_tool_end", "source"])
def test_pieces_of_other_types_are_none_of_the_answer(none: str) -> None:
    """A status, a tool's result and a thought have texts, too."""
    pieces = [{"type": none, "content": "Searching the web"}, *({"type": "token", "content": text} for text in TOKENS)]
    assert text_of_stream(pieces) == WHOLE


@pytest.mark.parametrize("word", ["tool", "status", "answer", "messages", "done"])
def test_a_word_of_a_text_is_not_the_kind_of_its_metadata(word: str) -> None:
    """Pairs of a text and metadata show what they are, unless they begin with such a word."""
    said: list[object] = [("The ", {"step": 1}), (word, {"step": 1}), (" is tall.", {"step": 1})]
    assert text_of_stream(said) == f"The {word} is tall."
    assert text_of_stream(said[1:]) is None
    assert text_of_stream(said[1:2]) is None


def test_a_kind_with_facts_is_none_of_the_answer() -> None:
    """As a status and the end of a stream."""
    pieces = [("status", {"step": 1}), *(("token", text) for text in TOKENS), ("done", {"usage": {"total": 3}})]
    assert text_of_stream(pieces) == WHOLE


@pytest.mark.parametrize("role", ["user", "human", "tool", "system"])
def test_messages_of_others_are_none_of_the_answer(role: str) -> None:
    """A graph streams its tools' messages with the model's."""
    pieces = [{"role": role, "content": "330 m"}, *({"role": "assistant", "content": text} for text in TOKENS)]
    assert text_of_stream(pieces) == WHOLE


def test_the_state_of_a_graph_is_the_answer_if_nothing_else_is() -> None:
    """Of the changes and the states of its nodes, the last one with a message of the assistant counts."""
    asked, said = {"role": "user", "content": "How tall?"}, {"role": "assistant", "content": WHOLE}
    assert text_of_stream([{"ask": {"messages": [asked]}}, {"model": {"messages": [said]}}]) == WHOLE
    assert text_of_stream([{"messages": [said, asked]}, {"messages": [said, asked, said]}]) == WHOLE
    assert text_of_stream([{"messages": [said, asked]}]) is None
    modes = [*(("messages", (Chunk(text), {})) for text in TOKENS), ("updates", {"m": {"messages": [said]}})]
    assert text_of_stream(modes) == WHOLE


def test_events_that_repeat_each_other_count_once() -> None:
    """Helpers of SDKs pass the raw events on, add events with snapshots, and end with the whole text."""
    anthropic: list[object] = []
    openai: list[object] = []
    for text, so_far in zip(TOKENS, SO_FAR, strict=True):
        anthropic += [
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}},
            {"type": "text", "text": text, "snapshot": so_far},
        ]
        openai += [
            {"type": "chunk", "chunk": {"choices": [{"index": 0, "delta": {"content": text}}]}, "snapshot": {}},
            {"type": "content.delta", "delta": text, "snapshot": so_far},
        ]
    openai.append({"type": "content.done", "content": WHOLE})
    assert text_of_stream(anthropic) == text_of_stream(anthropic[1::2]) == WHOLE
    assert text_of_stream(openai) == text_of_stream(openai[1::2]) == text_of_stream(openai[-1:]) == WHOLE


def test_the_cost_of_whole_texts_is_linear() -> None:
    """Each piece is compared with the one before, not with all; the end of a long answer is kept."""
    words = [f"Word {number}. " for number in range(2_000)]
    so_far = list(accumulate(words))
    assert text_of_stream(so_far) == so_far[-1]


@given(st.lists(st.sampled_from(["The ", "tower ", "is ", "tall. "]), min_size=3, max_size=9), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_an_unknown_piece_leaves_no_part(texts: list[str], data: st.DataObject) -> None:
    """Wherever it comes."""
    at = data.draw(st.integers(0, len(texts)))
    assert text_of_stream([*texts[:at], {"odd": "piece"}, *texts[at:]]) is None


def test_the_log_names_the_class_and_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    """Of a stream that is not understood, and of a tool's result."""
    faults.clear()
    captured = watch()

    @ragtrace.tool
    def look_up(query: str) -> object:
        return {"height": {330}}

    @ragtrace.generate
    def odd(question: str) -> Iterator[object]:
        look_up(question)
        yield from ({"odd": text} for text in TOKENS)

    list(odd("How tall?"))
    assert ragtrace.flush()
    assert (captured.root().attributes or {})["ragtrace.eval.answered.reason"] == "answer_not_captured"
    said = [line for line in caplog.messages if "found no" in line and "query" not in line]
    assert any("odd, which has pieces of dict; give answer=" in line for line in said)
    assert any("look_up; say where it is with result=" in line for line in said)


@pytest.mark.parametrize("stream", ["all", "sentence"])
def test_a_guard_judges_no_text_that_is_not_known(stream: Literal["all", "sentence"]) -> None:
    """What is framed, or was not understood, leaves unchecked and in its order, as `on_error` says."""
    framed = ['{"token": "Rome is old."}\n', '{"token": "Paris is big."}\n']
    for pieces in (framed, ["Rome ", {"odd": "is old. "}, "Paris."]):
        judge = FakeJudge(GOOD)
        watch(screen=judge)

        @ragtrace.trace(guard=ragtrace.Guard("consistency", below=0.5, action="raise", stream=stream))
        def ask(question: str, pieces: list[Any] = pieces) -> Iterator[object]:
            search(question)
            yield from pieces

        assert list(ask("Where is Rome?")) == pieces
        assert ragtrace.flush()
        assert judge.calls == []


def test_chunks_of_a_crew_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not say which task they are of, and only the last task writes the answer."""
    module = types.ModuleType("crewai.made")
    chunk: Any = type("StreamChunk", (types.SimpleNamespace,), {"__module__": "crewai.made"})
    vars(module)["StreamChunk"] = chunk
    monkeypatch.setitem(sys.modules, "crewai.made", module)
    stream = AnswerStream()
    for text in ("It is ", "330 metres ", "tall."):
        stream.add(chunk(content=text, task_index=0, task_id=""))
    assert stream.answer() is None
    assert stream.unknown == "pieces of StreamChunk"
