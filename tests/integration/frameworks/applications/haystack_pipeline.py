"""Question answering by a pipeline of Haystack: embedder, retriever, ranker, prompt, generator, answer builder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import haystack
from corpus import DOCUMENTS, QUESTIONS, TOP_K
from haystack import Document, Pipeline
from haystack.components.builders import AnswerBuilder, ChatPromptBuilder
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.rankers import LostInTheMiddleRanker
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore

TEMPLATE = """Context:
{% for document in documents %}{{ document.content }}

{% endfor %}Question: {{ question }}"""
SYSTEM = "Answer the question from the context. Say so if the context does not hold the answer."
LATEST_USAGE = {"stream_options": {"include_usage": True}}


def make_pipeline(kind: type[Pipeline] = Pipeline) -> Pipeline:
    """Return a pipeline that takes a question and gives an answer with its documents."""
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    documents = [Document(id=id_, content=text, meta={"title": title}) for id_, title, text in DOCUMENTS]
    store.write_documents(OpenAIDocumentEmbedder(progress_bar=False).run(documents)["documents"])
    pipeline = kind()
    pipeline.add_component("embedder", OpenAITextEmbedder())
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=TOP_K + 1))
    pipeline.add_component("ranker", LostInTheMiddleRanker(top_k=TOP_K))
    template = [ChatMessage.from_system(SYSTEM), ChatMessage.from_user(TEMPLATE)]
    pipeline.add_component("prompt", ChatPromptBuilder(template, required_variables=["documents", "question"]))
    pipeline.add_component("llm", OpenAIChatGenerator(model="gpt-4o-mini"))
    pipeline.add_component("answer", AnswerBuilder())
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("retriever.documents", "ranker.documents")
    pipeline.connect("ranker.documents", "prompt.documents")
    pipeline.connect("ranker.documents", "answer.documents")
    pipeline.connect("prompt.prompt", "llm.messages")
    pipeline.connect("llm.replies", "answer.replies")
    return pipeline


class QuestionAnswering:
    """A pipeline, with the result of its last run."""

    def __init__(self, pipeline: Any) -> None:
        self.result: dict[str, Any] = {}
        self._pipeline = pipeline

    def ask(self, query: str, session: str, user: str, *, streams: bool) -> str:
        """Return the answer, which the model writes at once or, where it *streams*, piece by piece."""
        inputs = _inputs(query)
        if streams:
            inputs["llm"] = {"streaming_callback": lambda chunk: None, "generation_kwargs": LATEST_USAGE}
        self.result = self._pipeline.run(inputs)
        return str(self.result["answer"]["answers"][0].data)

    async def aask(self, query: str, session: str, user: str, *, streams: bool) -> str:
        """Return the answer, which the model writes at once or, where it *streams*, piece by piece."""
        inputs = _inputs(query)
        if not streams:
            self.result = await self._pipeline.run_async(inputs)
        elif hasattr(self._pipeline, "stream"):
            stream = self._pipeline.stream({**inputs, "llm": {"generation_kwargs": LATEST_USAGE}})
            async for _ in stream:
                pass
            self.result = stream.result
        else:
            self.result = await self._pipeline.run_async(
                {**inputs, "llm": {"streaming_callback": _ignore, "generation_kwargs": LATEST_USAGE}}
            )
        return str(self.result["answer"]["answers"][0].data)


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    if mode in ("async", "astream"):
        asyncio.run(_run_async(mode, log))
        return
    answering = QuestionAnswering(make_pipeline())
    for session, user, query in QUESTIONS:
        answering.ask(query, session, user, streams=mode == "stream")
        _log_result(log, session, user, answering.result)


async def _run_async(mode: str, log: Callable[..., None]) -> None:
    # Haystack 2 runs asynchronously in a class of its own.
    answering = QuestionAnswering(make_pipeline(getattr(haystack, "AsyncPipeline", Pipeline)))
    for session, user, query in QUESTIONS:
        await answering.aask(query, session, user, streams=mode == "astream")
        _log_result(log, session, user, answering.result)


def _inputs(question: str) -> dict[str, dict[str, Any]]:
    return {"embedder": {"text": question}, "prompt": {"question": question}, "answer": {"query": question}}


async def _ignore(chunk: object) -> None:
    """Take a chunk of a streamed answer."""


def _log_result(log: Callable[..., None], session: str, user: str, result: dict[str, Any]) -> None:
    answer = result["answer"]["answers"][0]
    log(
        query=answer.query,
        contexts=[document.content for document in answer.documents],
        answer=answer.data,
        session=session,
        user=user,
    )
