"""Query engine of LlamaIndex over a vector index."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from corpus import DOCUMENTS, QUESTIONS, TOP_K
from llama_index.core import VectorStoreIndex, get_response_synthesizer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike


def make_index() -> VectorStoreIndex:
    """Return a vector index, in memory, of the documents."""
    embedding = OpenAILikeEmbedding("text-embedding-3-small", api_base=os.environ["OPENAI_BASE_URL"], api_key="none")
    nodes = [TextNode(id_=each.id, text=each.text) for each in DOCUMENTS]
    return VectorStoreIndex(nodes, embed_model=embedding)


def make_model() -> OpenAILike:
    """Return the chat model."""
    return OpenAILike(
        "gpt-4o-mini",
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key="none",
        is_chat_model=True,
        additional_kwargs={"stream_options": {"include_usage": True}},
    )


def make_engine(*, streaming: bool) -> RetrieverQueryEngine:
    """Return a query engine that retrieves and then lets the model write the answer."""
    return RetrieverQueryEngine(
        make_index().as_retriever(similarity_top_k=TOP_K),
        get_response_synthesizer(llm=make_model(), streaming=streaming),
    )


class QuestionAnswering:
    """Query engine, with the texts behind the last answer."""

    def __init__(self, *, streaming: bool) -> None:
        self.source_texts: list[str] = []
        self._engine: Any = make_engine(streaming=streaming)

    def ask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        response = self._engine.query(query)
        self.source_texts = _texts(response)
        return str(response.response)

    async def aask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        response = await self._engine.aquery(query)
        self.source_texts = _texts(response)
        return str(response.response)

    def stream(self, query: str, session: str, user: str) -> Iterator[str]:
        """Yield the answer as the model writes it."""
        response = self._engine.query(query)
        self.source_texts = _texts(response)
        yield from response.response_gen

    async def astream(self, query: str, session: str, user: str) -> AsyncIterator[str]:
        """Yield the answer as the model writes it."""
        response = await self._engine.aquery(query)
        self.source_texts = _texts(response)
        async for piece in response.async_response_gen():
            yield piece


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    if mode in ("async", "astream"):
        asyncio.run(_run_async(mode, log))
        return
    answering = QuestionAnswering(streaming=mode == "stream")
    for session, user, query in QUESTIONS:
        if mode == "stream":
            answer = "".join(answering.stream(query, session, user))
        else:
            answer = answering.ask(query, session, user)
        log(query=query, contexts=answering.source_texts, answer=answer, session=session, user=user)


async def _run_async(mode: str, log: Callable[..., None]) -> None:
    answering = QuestionAnswering(streaming=mode == "astream")
    for session, user, query in QUESTIONS:
        if mode == "astream":
            answer = "".join([piece async for piece in answering.astream(query, session, user)])
        else:
            answer = await answering.aask(query, session, user)
        log(query=query, contexts=answering.source_texts, answer=answer, session=session, user=user)


def _texts(response: Any) -> list[str]:
    return [found.node.get_content() for found in response.source_nodes]
