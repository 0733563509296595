"""`@ragtrace.tool`: results of an agent's tools as evidence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

import ragtrace
from ragtrace.core.types import RagCall
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, watch


def judged(run: Any, **settings: Any) -> RagCall:
    """Return the call that *run* makes, as the screen sees it."""
    judge = FakeJudge(GOOD)
    captured = watch(screen=judge, **settings)
    run()
    assert ragtrace.flush()
    (call,) = judge.calls
    assert captured.root()
    return call


def agent(use: Any) -> Any:
    """A traced function that uses a tool and answers."""

    @ragtrace.trace(name="agent")
    def ask(question: str) -> str:
        use(question)
        return "It is 330 metres tall."

    return lambda: ask("How tall?")


class TextPart:
    """A part of a result of MCP."""

    type = "text"

    def __init__(self, text: str) -> None:
        self.text = text


@pytest.mark.parametrize(
    ("result", "texts"),
    [
        ("330 metres", ["330 metres"]),
        (330, ["330"]),
        ({"height": 330, "unit": "m"}, ['{"height": 330, "unit": "m"}']),
        ([{"page_content": "one"}, {"page_content": "two"}], ["one", "two"]),
        ({"content": [{"type": "text", "text": "330 metres"}]}, ["330 metres"]),
    ],
)
def test_the_result_of_a_tool_is_evidence(result: object, texts: list[str]) -> None:
    """Texts, numbers, plain values, documents, and results of MCP."""
    call = judged(agent(ragtrace.tool(lambda question: result)))
    assert call.contexts is not None
    assert ([document.text for document in call.contexts], call.context_source) == (texts, "tool")


def test_a_retrieval_inside_a_tool_counts_once() -> None:
    """The tool's text is made of the same documents."""

    @ragtrace.retrieve
    def search(query: str) -> list[str]:
        return ["one", "two"]

    @ragtrace.tool
    def lookup(query: str) -> str:
        return "\n".join(search(query))

    call = judged(agent(lookup))
    assert call.contexts is not None
    assert ([document.text for document in call.contexts], call.context_source) == (["one", "two"], "retriever")


def test_what_an_agent_inside_a_tool_found_is_the_evidence() -> None:
    """The tool's result is the answer of that agent's model."""
    lookup = ragtrace.tool(lambda query: "The tower is 330 metres tall.")
    write = ragtrace.generate(lambda question, contexts: "It is tall.")
    ask = ragtrace.tool(lambda question: write(question, None if lookup(question) else []))
    call = judged(agent(ask))
    assert [document.text for document in call.contexts or ()] == ["The tower is 330 metres tall."]
    assert call.context_source == "tool"


def test_a_tool_that_merges_what_other_tools_found_counts_alone() -> None:
    """No model was called in it."""
    lookup = ragtrace.tool(lambda query: "one")
    call = judged(agent(ragtrace.tool(lambda query: f"{lookup(query)} and two")))
    assert [document.text for document in call.contexts or ()] == ["one and two"]


def test_tools_and_retrievals_side_by_side_are_all_evidence() -> None:
    """An agent may use both."""
    search = ragtrace.retrieve(lambda query: ["one"])
    lookup = ragtrace.tool(lambda query: "two")

    def use(question: str) -> None:
        search(question)
        lookup(question)

    call = judged(agent(use))
    assert call.contexts is not None
    assert [document.text for document in call.contexts] == ["one", "two"]
    assert call.context_source == "retriever+tool"


def test_the_span_of_a_tool_follows_the_conventions() -> None:
    """OpenTelemetry GenAI and OpenInference."""

    @ragtrace.tool(name="height", result=lambda found: found["text"])
    def lookup(query: str) -> dict[str, str]:
        return {"text": "330 metres", "secret": "x"}

    captured = watch(screen=None, telemetry=ragtrace.TelemetryOptions(dialects=["otel", "openinference"]))
    agent(lookup)()
    assert ragtrace.flush()
    (span,) = [each for each in captured.spans if each.name == "execute_tool height"]
    attributes = dict(span.attributes or {})
    assert json.loads(str(attributes.pop("gen_ai.tool.call.arguments"))) == {"query": "How tall?"}
    assert attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "height",
        "gen_ai.tool.call.result": "330 metres",
        "openinference.span.kind": "TOOL",
        "tool.name": "height",
        "input.value": "How tall?",
        "output.value": "330 metres",
    }


def test_tools_of_every_kind_of_function() -> None:
    """Coroutine functions and generators."""

    @ragtrace.tool
    async def wait(query: str) -> str:
        return "one"

    @ragtrace.tool
    def stream(query: str) -> Iterator[str]:
        yield "two"
        yield "three"

    def use(question: str) -> None:
        assert asyncio.run(wait(question)) == "one"
        assert list(stream(question)) == ["two", "three"]

    call = judged(agent(use))
    assert call.contexts is not None
    assert [document.text for document in call.contexts] == ["one", "two", "three"]


def test_an_error_in_a_tool_goes_on_to_the_agent() -> None:
    """It is no evidence."""

    @ragtrace.tool
    def fail(query: str) -> str:
        raise ValueError("down")

    def use(question: str) -> None:
        with pytest.raises(ValueError, match="down"):
            fail(question)

    assert judged(agent(use)).contexts is None
