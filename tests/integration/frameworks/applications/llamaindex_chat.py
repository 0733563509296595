"""Chat engine of LlamaIndex, which rewrites a follow-up question, retrieves and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from applications.llamaindex_query import make_index, make_model
from corpus import CONVERSATIONS, TOP_K
from llama_index.core.chat_engine.types import BaseChatEngine, ChatMode


class Chats:
    """Chat engines by session, over one index."""

    def __init__(self) -> None:
        self._index = make_index()
        self._engines: dict[str, BaseChatEngine] = {}

    def of(self, session: str) -> Any:
        """Return the engine that remembers the conversation of *session*."""
        if session not in self._engines:
            self._engines[session] = self._index.as_chat_engine(
                ChatMode.CONDENSE_PLUS_CONTEXT, llm=make_model(), similarity_top_k=TOP_K
            )
        return self._engines[session]


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    chats = Chats()
    if mode in ("async", "astream"):
        asyncio.run(_run_async(chats, mode, log))
        return
    for session, user, query in CONVERSATIONS:
        if mode == "stream":
            response = chats.of(session).stream_chat(query)
            answer = "".join(response.response_gen)
        else:
            response = chats.of(session).chat(query)
            answer = response.response
        log(query=query, contexts=_texts(response), answer=answer, session=session, user=user)


async def _run_async(chats: Chats, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in CONVERSATIONS:
        if mode == "astream":
            response = await chats.of(session).astream_chat(query)
            answer = "".join([piece async for piece in response.async_response_gen()])
        else:
            response = await chats.of(session).achat(query)
            answer = response.response
        log(query=query, contexts=_texts(response), answer=answer, session=session, user=user)


def _texts(response: Any) -> list[str]:
    return [found.node.get_content() for found in response.source_nodes]
