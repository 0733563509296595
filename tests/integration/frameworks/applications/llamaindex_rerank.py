"""Query engine of LlamaIndex that retrieves many nodes and lets a model choose the few that answer the question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from applications.llamaindex_query import make_index, make_model
from corpus import QUESTIONS, TOP_K
from llama_index.core import get_response_synthesizer
from llama_index.core.postprocessor import LLMRerank
from llama_index.core.query_engine import RetrieverQueryEngine


def make_engine(*, streaming: bool) -> RetrieverQueryEngine:
    """Return a query engine that retrieves twice as many nodes as the model gets to see."""
    return RetrieverQueryEngine(
        make_index().as_retriever(similarity_top_k=2 * TOP_K),
        get_response_synthesizer(llm=make_model(), streaming=streaming),
        node_postprocessors=[LLMRerank(llm=make_model(), top_n=TOP_K)],
    )


def run(mode: str, log: Callable[..., None], make_engine: Callable[..., RetrieverQueryEngine] = make_engine) -> None:
    """Answer the questions, one after the other."""
    engine = make_engine(streaming=mode in ("stream", "astream"))
    if mode in ("async", "astream"):
        asyncio.run(_run_async(engine, mode, log))
        return
    for session, user, query in QUESTIONS:
        response: Any = engine.query(query)
        answer = "".join(response.response_gen) if mode == "stream" else response.response
        log(query=query, contexts=_texts(response), answer=answer, session=session, user=user)


async def _run_async(engine: RetrieverQueryEngine, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in QUESTIONS:
        response: Any = await engine.aquery(query)
        if mode == "astream":
            answer = "".join([piece async for piece in response.async_response_gen()])
        else:
            answer = response.response
        log(query=query, contexts=_texts(response), answer=answer, session=session, user=user)


def _texts(response: Any) -> list[str]:
    return [found.node.get_content() for found in response.source_nodes]
