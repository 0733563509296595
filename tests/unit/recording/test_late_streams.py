"""Responses whose text is read from them later, by a method: the call ends with its reader, and has the full answer."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import ragtrace
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.frameworks import library
from tests.support.guards import guard, tally
from tests.support.guards import watch as watch_guarded
from tests.support.watched import GOOD, watch

chat = partial(library, "llama_index.core.chat_engine.types")


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def engine() -> Any:
    """A chat engine whose model repeats what it is told."""
    model, memory = library("llama_index.core.llms").MockLLM(), library("llama_index.core.memory").ChatMemoryBuffer
    return library("llama_index.core.chat_engine").SimpleChatEngine.from_defaults(
        llm=model, memory=memory.from_defaults()
    )


def answers(captured: Any) -> list[Any]:
    """The answers that the judge was given."""
    return [dict(span.attributes or {}).get("gen_ai.output.messages") for span in captured.roots()]


def test_an_asynchronous_chat_engine_is_observed_to_the_end() -> None:
    """Its response passes for its class, and what is read from it is the answer."""

    @ragtrace.trace
    async def ask(message: str) -> Any:
        return await engine().astream_chat(message)

    async def read() -> tuple[bool, str]:
        response = await ask("How high is the tower?")
        return isinstance(response, chat().StreamingAgentChatResponse), "".join(
            [piece async for piece in response.async_response_gen()]
        )

    captured = watch(screen=FakeJudge(GOOD))
    passes, text = asyncio.run(read())
    assert passes
    assert "How high is the tower?" in text
    assert ragtrace.flush()
    assert ragtrace.stats().pending == 0
    (answer,) = answers(captured)
    assert "How high is the tower?" in answer
    assert captured.root().attributes is not None
    assert not captured.root().attributes["ragtrace.abandoned"]


def test_a_plain_chat_engine_is_observed_to_the_end() -> None:
    """The same with the generator that is a property."""

    @ragtrace.trace
    def ask(message: str) -> Any:
        return engine().stream_chat(message)

    captured = watch(screen=FakeJudge(GOOD))
    assert "How high" in "".join(ask("How high is the tower?").response_gen)
    assert ragtrace.flush()
    (answer,) = answers(captured)
    assert "How high is the tower?" in answer


@pytest.mark.parametrize("stream", [None, "sentence"])
def test_a_guard_refuses_a_chat_engine_that_is_announced_and_counts_another(stream: str | None) -> None:
    """Its text is read later, by methods that no guard can hold."""
    watch_guarded(FakeJudge(GOOD))
    decorate = ragtrace.trace(name="guarded", guard=guard("raise", stream=stream))

    made = chat().StreamingAgentChatResponse()

    def ask(message: str) -> Any:
        return made

    def announced(message: str) -> Any:
        return made

    announced.__annotations__["return"] = type(made)
    with pytest.raises(ragtrace.SettingsError, match="whose text comes after it has returned"):
        decorate(announced)
    assert isinstance(decorate(ask)("How high is the tower?"), type(made))
    gc.collect()
    assert ragtrace.flush()
    assert (tally().verdicts, tally().actions) == ({"unscored": 1}, {"released": 1})


def test_a_response_that_is_read_in_another_way_is_read_when_it_is_let_go() -> None:
    """Its field has the text by then."""

    @ragtrace.trace
    def ask(message: str) -> Any:
        return chat().StreamingAgentChatResponse()

    captured = watch(screen=FakeJudge(GOOD))
    response = ask("How high is the tower?")
    response.response = "324 m"  # as its own `print_response_stream` does, once it is through
    del response
    gc.collect()
    assert ragtrace.flush()
    (answer,) = answers(captured)
    assert "324 m" in answer


def test_a_response_that_is_still_being_written_is_read_when_it_is_let_go() -> None:
    """A thread of LlamaIndex writes its field `response` piece by piece, and may have begun when it is returned."""

    @ragtrace.trace
    def ask(message: str) -> Any:
        return chat().StreamingAgentChatResponse(response="324 ")

    captured = watch(screen=FakeJudge(GOOD))
    response = ask("How high is the tower?")
    response.response = "324 metres"
    del response
    gc.collect()
    assert ragtrace.flush()
    (answer,) = answers(captured)
    assert "324 metres" in answer


@pytest.mark.parametrize("text", ["", "324 "])
def test_a_response_that_is_still_being_written_never_passes_a_guard(text: str) -> None:
    """Its beginning says nothing of the rest, which leaves unchecked."""
    watch_guarded(FakeJudge(GOOD))

    @ragtrace.trace(name="guarded", guard=guard("raise", metric="answered"))
    def ask(message: str) -> Any:
        return chat().StreamingAgentChatResponse(response=text)

    ask("How high is the tower?")
    gc.collect()
    assert ragtrace.flush()
    assert (tally().verdicts, tally().actions) == ({"unscored": 1}, {"released": 1})


def test_a_response_that_nobody_reads_has_no_answer() -> None:
    """Its text was still to come: that is no empty answer."""

    @ragtrace.trace
    def ask(message: str) -> Any:
        return chat().StreamingAgentChatResponse()

    captured = watch(screen=FakeJudge(GOOD))
    ask("How high is the tower?")
    gc.collect()
    assert ragtrace.flush()
    assert answers(captured) == [None]


@dataclass(frozen=True)
class Sealed:
    """A response whose stream cannot be replaced."""

    response_gen: Iterator[str]
    source_nodes: tuple[dict[str, str], ...] = ({"text": "The tower is 330 metres tall."},)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("decorator", [ragtrace.trace, ragtrace.generate], ids=["trace", "generate"])
def test_a_stream_that_cannot_be_followed_is_no_answer_that_declines(decorator: Any) -> None:
    """No metric has a number, as the text was not captured."""

    @decorator
    def ask(message: str) -> Sealed:
        return Sealed(iter(["It is ", "330 metres tall."]))

    captured = watch(screen=FakeJudge(GOOD), metrics=["answered", "consistency"])
    assert "".join(ask("How high is the tower?").response_gen) == "It is 330 metres tall."
    assert ragtrace.flush()
    (root,) = captured.roots()
    found = dict(root.attributes or {})
    assert found["ragtrace.eval.answered.reason"] == found["ragtrace.eval.consistency.reason"] == "answer_not_captured"
    assert "ragtrace.eval.answered.score" not in found


@ragtrace.generate
def speak(message: str) -> Iterator[str]:
    return (word for word in message.split())


def test_a_returned_stream_that_nobody_reads_is_no_answer_that_declines() -> None:
    """Nor is it a fault that it had no text."""
    captured = watch(screen=FakeJudge(GOOD), metrics=["answered"])
    speak("How high is the tower?")
    gc.collect()
    assert ragtrace.flush()
    assert dict(captured.root().attributes or {})["ragtrace.eval.answered.reason"] == "answer_not_captured"
    assert ragtrace.stats().faults == {}


def test_a_finished_response_comes_back_as_it_is() -> None:
    """Its text is there already."""

    @ragtrace.trace
    def ask(message: str) -> Any:
        return made

    captured = watch(screen=FakeJudge(GOOD))
    made = chat().AgentChatResponse(response="324 m")
    assert ask("How high is the tower?") is made
    assert ragtrace.flush()
    assert "324 m" in answers(captured)[0]


def test_a_trace_without_an_answer_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """What it returned was not understood, and no generation ran inside it."""

    @ragtrace.trace
    def ask(message: str) -> dict[str, int]:
        return {"foo": 1}

    captured = watch(screen=FakeJudge(GOOD))
    caplog.set_level(logging.WARNING, "ragtrace")
    ask("How high is the tower?")
    ask("How high is the tower?")
    assert ragtrace.flush()
    assert answers(captured) == [None, None]
    assert [record.getMessage() for record in caplog.records if "no answer" in record.getMessage()] != []
    assert sum(count for place, count in ragtrace.stats().faults.items() if place.startswith("capture.answer")) == 2


def test_an_empty_answer_is_one() -> None:
    """A record that says "" has answered with nothing."""

    @ragtrace.trace
    def ask(message: str) -> dict[str, str]:
        return {"answer": ""}

    captured = watch(screen=FakeJudge(GOOD))
    ask("How high is the tower?")
    assert ragtrace.flush()
    assert answers(captured) != [None]


def test_tokens_and_model_can_be_attached_by_hand() -> None:
    """Where the generator yields bare text; of several requests, the tokens are added up."""

    @ragtrace.generate
    def answer(question: str) -> Iterator[str]:
        yield "324 "
        ragtrace.usage(input_tokens=10, output_tokens=2, model="tiny-2024")
        ragtrace.usage(input_tokens=5, output_tokens=1)
        yield "m"

    captured = watch()
    assert "".join(answer("How high?")) == "324 m"
    assert ragtrace.flush()
    attributes = dict(captured.root().attributes or {})
    assert attributes["gen_ai.usage.input_tokens"] == 15
    assert attributes["gen_ai.usage.output_tokens"] == 3
    assert attributes["gen_ai.response.model"] == "tiny-2024"


def test_usage_outside_a_call_is_told_and_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It never raises."""
    watch()
    ragtrace.usage(input_tokens=3)
    assert "outside a traced call" in caplog.text
