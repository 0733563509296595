"""Question answering by an agent of the OpenAI Agents SDK with a retriever tool, over the Responses API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from agents import Agent, Model, OpenAIResponsesModel, RunConfig, RunContextWrapper, Runner, function_tool
from corpus import QUESTIONS, Question
from openai import AsyncOpenAI
from vector_index import VectorIndex


@dataclass
class Retrieved:
    """What the tool of one run found: the context object of the run."""

    index: VectorIndex
    texts: list[str] = field(default_factory=list)


@function_tool
def search_documents(context: RunContextWrapper[Retrieved], query: str) -> str:
    """Return the documents that are nearest to the query.

    Args:
        query: what to look for.
    """
    found = context.context.index.search(query)
    context.context.texts += [document.text for document in found]
    records = [{"id": document.id, "content": document.text, "score": score} for document, score in found.items()]
    return json.dumps(records, ensure_ascii=False)


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    run_agent(OpenAIResponsesModel("gpt-4o-mini", AsyncOpenAI()), mode, log)


def run_agent(model: Model, mode: str, log: Callable[..., None]) -> None:
    """Answer the questions with *model*, one after the other; the SDK streams asynchronously only."""
    agent = Agent[Retrieved](
        name="Guide",
        instructions="Look the question up in the documents, then answer it from what they say.",
        tools=[search_documents],
        model=model,
    )
    index = VectorIndex()
    if mode == "sync":
        for question in QUESTIONS:
            retrieved = Retrieved(index)
            result = Runner.run_sync(agent, question.text, context=retrieved, run_config=_config(question))
            _log_result(log, question, retrieved, result.final_output)
        return
    asyncio.run(_answer_all(agent, index, mode, log))


async def _answer_all(agent: Agent[Retrieved], index: VectorIndex, mode: str, log: Callable[..., None]) -> None:
    for question in QUESTIONS:
        retrieved = Retrieved(index)
        if mode == "async":
            result = await Runner.run(agent, question.text, context=retrieved, run_config=_config(question))
            answer = result.final_output
        else:
            streamed = Runner.run_streamed(agent, question.text, context=retrieved, run_config=_config(question))
            async for _ in streamed.stream_events():
                pass
            answer = streamed.final_output
        _log_result(log, question, retrieved, answer)


def _config(question: Question) -> RunConfig:
    return RunConfig(
        workflow_name="Guide", group_id=question.session, trace_metadata={"user": question.user}, tracing_disabled=False
    )


def _log_result(log: Callable[..., None], question: Question, retrieved: Retrieved, answer: str) -> None:
    log(query=question.text, contexts=retrieved.texts, answer=answer, session=question.session, user=question.user)
