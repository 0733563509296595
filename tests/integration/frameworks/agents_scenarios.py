"""Runs agents of the OpenAI Agents SDK under ragtrace's listener, and prints as JSON which calls ragtrace saw.

It runs in the environment of the SDK, with ragtrace from its source.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3]))

from agents import (
    Agent,
    GuardrailFunctionOutput,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
    input_guardrail,
    output_guardrail,
    set_trace_processors,
    set_tracing_disabled,
    trace,
)
from agents.exceptions import MaxTurnsExceeded
from corpus import DOCUMENTS, QUESTIONS
from framework_tracers import import_ragtrace
from model_server import ModelServer
from openai import AsyncOpenAI

import ragtrace
from ragtrace.core.types import Judgement
from ragtrace.testing import Captured, FakeJudge

QUESTION = QUESTIONS[0].text
TEXTS = [document.text for document in DOCUMENTS[:2]]


@function_tool
def search(query: str) -> str:
    """Return documents."""
    return json.dumps([{"content": text} for text in TEXTS])


@function_tool
def failing(query: str) -> str:
    """Fail."""
    raise LookupError("no index")


@function_tool
def decorated(query: str) -> str:
    """Return documents that a decorated function has found."""
    return "\n".join(found(query))


@ragtrace.retrieve(source="words")
def found(query: str) -> list[str]:
    """Return documents."""
    return TEXTS


def guide(*tools: Any, **options: Any) -> Agent[Any]:
    """Return an agent that answers questions."""
    model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI())
    return Agent(name="Guide", instructions="Answer from the documents.", tools=list(tools), model=model, **options)


async def ask(agent: Agent[Any], question: str = QUESTION, **options: Any) -> str:
    """Return the agent's answer."""
    return str((await Runner.run(agent, question, **options)).final_output)


async def handoff() -> list[str]:
    """An agent hands the question over to another one."""
    return [
        await ask(guide(handoffs=[guide()]), run_config=RunConfig(group_id="visit-7", trace_metadata={"user": "u1"}))
    ]


async def guardrails() -> list[str]:
    """Guardrails ask agents of their own, before the answer and after it."""

    @input_guardrail
    async def polite(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(await ask(guide(), "Is it polite? Say yes or no."), tripwire_triggered=False)

    @output_guardrail
    async def true(context: Any, agent: Any, answer: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(await ask(guide(), "Is it true? Say yes or no."), tripwire_triggered=False)

    return [await ask(guide(search, input_guardrails=[polite], output_guardrails=[true]))]


async def agent_as_tool() -> list[str]:
    """An agent is the tool of another one."""
    return [await ask(guide(guide(search).as_tool("expert", "Knows all.")))]


async def failing_tool() -> list[str]:
    """A tool raises an exception, which the SDK tells the model."""
    return [await ask(guide(failing))]


async def too_many_turns() -> list[str]:
    """The SDK stops the run with an exception."""
    try:
        await ask(guide(search), max_turns=1)
    except MaxTurnsExceeded:
        return []
    return ["no exception"]


async def at_once() -> list[str]:
    """Questions at the same time."""
    return await asyncio.gather(*(ask(guide(search), question.text) for question in QUESTIONS))


async def in_one_trace() -> list[str]:
    """Two runs in one trace of the application."""
    with trace("Visit", group_id="visit-8"):
        return [await ask(guide(search), question.text) for question in QUESTIONS[:2]]


async def in_decorated_function() -> list[str]:
    """A decorated function runs the agent."""

    @ragtrace.trace(name="guided")
    async def guided(question: str) -> str:
        return await ask(guide(search), question)

    return [await guided(QUESTION)]


async def decorated_inside() -> list[str]:
    """A tool calls a decorated function."""
    return [await ask(guide(decorated))]


async def disabled() -> list[str]:
    """The application has disabled the SDK's tracing."""
    set_tracing_disabled(True)
    await ask(guide(search))
    return []


SCENARIOS: list[Callable[[], Awaitable[list[str]]]] = [
    handoff, guardrails, agent_as_tool, failing_tool, too_many_turns, at_once, in_one_trace, in_decorated_function,
    decorated_inside, disabled,
]  # fmt: skip


def main() -> dict[str, Any]:
    """Run all scenarios and return what ragtrace saw of each."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("ragtrace").addHandler(handler)
    ragtrace.instrument("openai_agents")
    set_trace_processors([])  # else the SDK sends its traces to OpenAI; ragtrace's listener stays
    seen: dict[str, Any] = {}
    import_ragtrace()  # with a version, which `configure` reads
    for scenario in SCENARIOS:
        judge, captured = FakeJudge(Judgement()), Captured()
        # A new runtime: one asks its judge only once about the same texts.
        ragtrace.configure(exporter=captured.signals, screen=judge)
        answers = asyncio.run(scenario())
        ragtrace.flush()
        calls = [
            {
                "query": call.query, "answer": call.answer, "workflow": call.workflow, "source": call.context_source,
                "contexts": [document.text for document in call.contexts or ()], "session": call.conversation_id,
            }
            for call in judge.calls
        ]  # fmt: skip
        errors = [span.name for span in captured.spans if span.status.status_code.name == "ERROR"]
        traces = {span.context.trace_id for span in captured.spans if span.context}
        seen[scenario.__name__] = {
            "answers": answers, "calls": calls, "errors": errors, "roots": len(captured.roots()), "traces": len(traces),
        }  # fmt: skip
    return {**seen, "faults": dict(ragtrace.stats().faults), "messages": messages}


if __name__ == "__main__":
    with ModelServer([document.text for document in DOCUMENTS]) as server:
        os.environ.update(OPENAI_BASE_URL=server.url, OPENAI_API_KEY="none")
        sys.stdout.write(json.dumps(main()))
