"""Question answering by an agent of the OpenAI Agents SDK with a retriever tool, over the Responses API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from agents import (
    Agent,
    Model,
    OpenAIResponsesModel,
    RawResponsesStreamEvent,
    RunConfig,
    RunContextWrapper,
    Runner,
    function_tool,
)
from corpus import QUESTIONS
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from vector_index import VectorIndex


@dataclass
class Retrieved:
    """What the tool of one run found: the context object of the run."""

    index: VectorIndex
    texts: list[str] = field(default_factory=list)

    def find(self, query: str) -> list[dict[str, object]]:
        """Return the documents that are nearest to *query*."""
        found = self.index.search(query)
        self.texts += [document.text for document in found]
        return [{"id": document.id, "content": document.text, "score": score} for document, score in found.items()]


@function_tool
def search_documents(context: RunContextWrapper[Retrieved], query: str) -> str:
    """Return the documents that are nearest to the query.

    Args:
        query: what to look for.
    """
    return json.dumps(context.context.find(query), ensure_ascii=False)


class Guide:
    """Agent that looks a question up with its tool, with the texts behind its last answer."""

    def __init__(self, model: Model) -> None:
        self.source_texts: list[str] = []
        self._index = VectorIndex()
        self._agent = Agent[Retrieved](
            name="Guide",
            instructions="Look the question up in the documents, then answer it from what they say.",
            tools=[search_documents],
            model=model,
        )

    def ask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        return str(Runner.run_sync(self._agent, query, **self._options(session, user)).final_output)

    async def aask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        return str((await Runner.run(self._agent, query, **self._options(session, user))).final_output)

    async def astream(self, query: str, session: str, user: str) -> AsyncIterator[str]:
        """Yield the answer as the model writes it; the SDK streams asynchronously only."""
        streamed = Runner.run_streamed(self._agent, query, **self._options(session, user))
        async for event in streamed.stream_events():
            if isinstance(event, RawResponsesStreamEvent) and isinstance(event.data, ResponseTextDeltaEvent):
                yield event.data.delta

    def _options(self, session: str, user: str) -> dict[str, Any]:
        retrieved = Retrieved(self._index)
        self.source_texts = retrieved.texts
        config = RunConfig(
            workflow_name="Guide", group_id=session, trace_metadata={"user": user}, tracing_disabled=False
        )
        return {"context": retrieved, "run_config": config}


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    run_agent(OpenAIResponsesModel("gpt-4o-mini", AsyncOpenAI()), mode, log)


def run_agent(model: Model, mode: str, log: Callable[..., None]) -> None:
    """Answer the questions with *model*, one after the other."""
    guide = Guide(model)
    if mode != "sync":
        asyncio.run(_run_async(guide, mode, log))
        return
    for session, user, query in QUESTIONS:
        answer = guide.ask(query, session, user)
        log(query=query, contexts=guide.source_texts, answer=answer, session=session, user=user)


async def _run_async(guide: Guide, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in QUESTIONS:
        if mode == "async":
            answer = await guide.aask(query, session, user)
        else:
            answer = "".join([piece async for piece in guide.astream(query, session, user)])
        log(query=query, contexts=guide.source_texts, answer=answer, session=session, user=user)
