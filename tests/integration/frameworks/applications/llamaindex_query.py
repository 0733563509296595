"""Query engine of LlamaIndex over a vector index."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
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


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    if mode in ("async", "astream"):
        asyncio.run(_run_async(mode, log))
        return
    engine = make_engine(streaming=mode == "stream")
    for session, user, query in QUESTIONS:
        response: Any = engine.query(query)
        answer = "".join(response.response_gen) if mode == "stream" else response.response
        log(query=query, contexts=_texts(response), answer=answer, session=session, user=user)


async def _run_async(mode: str, log: Callable[..., None]) -> None:
    engine = make_engine(streaming=mode == "astream")
    for session, user, query in QUESTIONS:
        response: Any = await engine.aquery(query)
        if mode == "astream":
            answer = "".join([piece async for piece in response.async_response_gen()])
        else:
            answer = response.response
        log(query=query, contexts=_texts(response), answer=answer, session=session, user=user)


def _texts(response: Any) -> list[str]:
    return [found.node.get_content() for found in response.source_nodes]
