"""Chat engine of LlamaIndex, which rewrites a follow-up question, retrieves and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from applications.llamaindex_query import make_index, make_model
from corpus import CONVERSATIONS, TOP_K
from llama_index.core.chat_engine.types import BaseChatEngine, ChatMode


class Chats:
    """Chat engines by session, over one index, with the texts behind the last answer."""

    def __init__(self) -> None:
        self.source_texts: list[str] = []
        self._index = make_index()
        self._engines: dict[str, BaseChatEngine] = {}

    def of(self, session: str) -> Any:
        """Return the engine that remembers the conversation of *session*."""
        if session not in self._engines:
            self._engines[session] = self._index.as_chat_engine(
                ChatMode.CONDENSE_PLUS_CONTEXT, llm=make_model(), similarity_top_k=TOP_K
            )
        return self._engines[session]

    def ask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        response = self.of(session).chat(query)
        self.source_texts = _texts(response)
        return str(response.response)

    async def aask(self, query: str, session: str, user: str) -> str:
        """Return the answer."""
        response = await self.of(session).achat(query)
        self.source_texts = _texts(response)
        return str(response.response)

    def stream(self, query: str, session: str, user: str) -> Iterator[str]:
        """Yield the answer as the model writes it."""
        response = self.of(session).stream_chat(query)
        self.source_texts = _texts(response)
        yield from response.response_gen

    async def astream(self, query: str, session: str, user: str) -> AsyncIterator[str]:
        """Yield the answer as the model writes it."""
        response = await self.of(session).astream_chat(query)
        self.source_texts = _texts(response)
        async for piece in response.async_response_gen():
            yield piece


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    chats = Chats()
    if mode in ("async", "astream"):
        asyncio.run(_run_async(chats, mode, log))
        return
    for session, user, query in CONVERSATIONS:
        answer = "".join(chats.stream(query, session, user)) if mode == "stream" else chats.ask(query, session, user)
        log(query=query, contexts=chats.source_texts, answer=answer, session=session, user=user)


async def _run_async(chats: Chats, mode: str, log: Callable[..., None]) -> None:
    for session, user, query in CONVERSATIONS:
        if mode == "astream":
            answer = "".join([piece async for piece in chats.astream(query, session, user)])
        else:
            answer = await chats.aask(query, session, user)
        log(query=query, contexts=chats.source_texts, answer=answer, session=session, user=user)


def _texts(response: Any) -> list[str]:
    return [found.node.get_content() for found in response.source_nodes]
