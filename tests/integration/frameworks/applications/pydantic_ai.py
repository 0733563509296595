"""Question answering by an agent of Pydantic AI with a retriever tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from corpus import QUESTIONS
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from vector_index import VectorIndex


@dataclass
class Retrieved:
    """What the tool of one run found: the dependencies of the run."""

    index: VectorIndex
    texts: list[str] = field(default_factory=list)

    def find(self, query: str) -> list[dict[str, object]]:
        """Return the documents that are nearest to *query*."""
        found = self.index.search(query)
        self.texts += [document.text for document in found]
        return [{"id": document.id, "content": document.text, "score": score} for document, score in found.items()]


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
        return context.deps.find(query)

    return agent


class Guide:
    """Agent that looks a question up with its tool, with the texts behind its last answer."""

    def __init__(self) -> None:
        self.source_texts: list[str] = []
        self._agent, self._index = make_agent(), VectorIndex()

    def ask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        return self._agent.run_sync(query, **self._options(session)).output

    async def aask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        return (await self._agent.run(query, **self._options(session))).output

    def stream(self, query: str, session: str, user: str) -> Iterator[str]:
        """Yield the answer as the model writes it."""
        with self._agent.run_stream_sync(query, **self._options(session)) as stream:
            yield from stream.stream_text(delta=True)

    async def astream(self, query: str, session: str, user: str) -> AsyncIterator[str]:
        """Yield the answer as the model writes it."""
        async with self._agent.run_stream(query, **self._options(session)) as stream:
            async for piece in stream.stream_text(delta=True):
                yield piece

    def _options(self, session: str) -> dict[str, Any]:
        retrieved = Retrieved(self._index)
        self.source_texts = retrieved.texts
        conversation = {"conversation_id": session} if "conversation_id" in signature(Agent.run).parameters else {}
        return {"deps": retrieved, **conversation}


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    guide = Guide()
    if mode in ("async", "astream"):
        asyncio.run(_run_async(guide, mode, log))
        return
    for session, user, query in QUESTIONS:
        answer = "".join(guide.stream(query, session, user)) if mode == "stream" else guide.ask(query, session, user)
        log(query=query, contexts=guide.source_texts, answer=answer, session=session, user=user)


async def _run_async(guide: Guide, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in QUESTIONS:
        if mode == "astream":
            answer = "".join([piece async for piece in guide.astream(query, session, user)])
        else:
            answer = await guide.aask(query, session, user)
        log(query=query, contexts=guide.source_texts, answer=answer, session=session, user=user)
