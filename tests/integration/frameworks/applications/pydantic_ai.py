"""Question answering by an agent of Pydantic AI with a retriever tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from corpus import QUESTIONS, Question
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from vector_index import VectorIndex


@dataclass
class Retrieved:
    """What the tool of one run found: the dependencies of the run."""

    index: VectorIndex
    texts: list[str] = field(default_factory=list)


def make_agent() -> Agent[Retrieved, str]:
    """Return an agent with one tool, which searches the documents."""
    agent = Agent(
        OpenAIChatModel("gpt-4o-mini"),
        deps_type=Retrieved,
        name="guide",
        instructions="Look the question up in the documents, then answer it from what they say.",
    )

    @agent.tool
    def search_documents(context: RunContext[Retrieved], query: str) -> list[dict[str, object]]:
        """Return the documents that are nearest to the query."""
        found = context.deps.index.search(query)
        context.deps.texts += [document.text for document in found]
        return [{"id": document.id, "content": document.text, "score": score} for document, score in found.items()]

    return agent


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    agent, index = make_agent(), VectorIndex()
    if mode in ("async", "astream"):
        asyncio.run(_answer_all(agent, index, mode, log))
        return
    for question in QUESTIONS:
        retrieved = Retrieved(index)
        if mode == "sync":
            answer = agent.run_sync(question.text, deps=retrieved, **_conversation(question)).output
        else:
            with agent.run_stream_sync(question.text, deps=retrieved, **_conversation(question)) as stream:
                answer = "".join(stream.stream_text(delta=True))
        _log_result(log, question, retrieved, answer)


async def _answer_all(agent: Agent[Retrieved, str], index: VectorIndex, mode: str, log: Callable[..., None]) -> None:
    for question in QUESTIONS:
        retrieved = Retrieved(index)
        if mode == "async":
            answer = (await agent.run(question.text, deps=retrieved, **_conversation(question))).output
        else:
            async with agent.run_stream(question.text, deps=retrieved, **_conversation(question)) as stream:
                answer = "".join([text async for text in stream.stream_text(delta=True)])
        _log_result(log, question, retrieved, answer)


def _conversation(question: Question) -> dict[str, Any]:
    return {"conversation_id": question.session} if "conversation_id" in signature(Agent.run).parameters else {}


def _log_result(log: Callable[..., None], question: Question, retrieved: Retrieved, answer: str) -> None:
    log(query=question.text, contexts=retrieved.texts, answer=answer, session=question.session, user=question.user)
