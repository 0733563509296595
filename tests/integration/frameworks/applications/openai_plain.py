"""Question answering with the client of OpenAI and a vector search in numpy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from corpus import DOCUMENTS, QUESTIONS, TOP_K
from openai import AsyncOpenAI, OpenAI

MODEL = "gpt-4o-mini"
EMBEDDING_MODEL = "text-embedding-3-small"
INSTRUCTIONS = "Answer the question from the context. Say so if the context does not hold the answer."


class QuestionAnswering:
    """Vector search over the documents, and a model that answers from what the search finds."""

    def __init__(self) -> None:
        self._client, self._async_client = OpenAI(), AsyncOpenAI()
        self.source_texts: list[str] = []
        """Texts behind the last answer."""
        embedded = self._client.embeddings.create(model=EMBEDDING_MODEL, input=[each.text for each in DOCUMENTS])
        self._vectors = np.array([item.embedding for item in embedded.data])

    def retrieve(self, query: str) -> list[str]:
        """Return the texts of the documents nearest to *query*."""
        return self._nearest(self._client.embeddings.create(model=EMBEDDING_MODEL, input=query))

    async def aretrieve(self, query: str) -> list[str]:
        """Return the texts of the documents nearest to *query*."""
        return self._nearest(await self._async_client.embeddings.create(model=EMBEDDING_MODEL, input=query))

    def _nearest(self, embedded: Any) -> list[str]:
        order = np.argsort(-(self._vectors @ np.array(embedded.data[0].embedding)), kind="stable")
        return [DOCUMENTS[index].text for index in order[:TOP_K]]

    def answer(self, query: str, texts: list[str], user: str) -> str:
        """Return the model's answer."""
        completion = self._client.chat.completions.create(**_request(query, texts, user))
        return completion.choices[0].message.content or ""

    async def aanswer(self, query: str, texts: list[str], user: str) -> str:
        """Return the model's answer."""
        completion = await self._async_client.chat.completions.create(**_request(query, texts, user))
        return completion.choices[0].message.content or ""

    def stream(self, query: str, texts: list[str], user: str) -> Iterator[str]:
        """Yield the model's answer as the model writes it."""
        for chunk in self._client.chat.completions.create(**_request(query, texts, user), **_STREAMED):
            if chunk.choices:
                yield chunk.choices[0].delta.content or ""

    async def astream(self, query: str, texts: list[str], user: str) -> AsyncIterator[str]:
        """Yield the model's answer as the model writes it."""
        async for chunk in await self._async_client.chat.completions.create(
            **_request(query, texts, user), **_STREAMED
        ):
            if chunk.choices:
                yield chunk.choices[0].delta.content or ""

    def ask(self, query: str, session: str, user: str) -> str:
        """Find the documents nearest to *query*, and return the model's answer."""
        self.source_texts = self.retrieve(query)
        return self.answer(query, self.source_texts, user)

    async def aask(self, query: str, session: str, user: str) -> str:
        """Find the documents nearest to *query*, and return the model's answer."""
        self.source_texts = await self.aretrieve(query)
        return await self.aanswer(query, self.source_texts, user)

    def ask_stream(self, query: str, session: str, user: str) -> Iterator[str]:
        """Find the documents nearest to *query*, and yield the model's answer as the model writes it."""
        self.source_texts = self.retrieve(query)
        yield from self.stream(query, self.source_texts, user)

    async def ask_astream(self, query: str, session: str, user: str) -> AsyncIterator[str]:
        """Find the documents nearest to *query*, and yield the model's answer as the model writes it."""
        self.source_texts = await self.aretrieve(query)
        async for piece in self.astream(query, self.source_texts, user):
            yield piece


_STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def _request(query: str, texts: list[str], user: str) -> dict[str, Any]:
    context = "\n\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1))
    messages = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": f"Context:\n{context}\n\nQuestion: {query}"},
    ]
    return {"model": MODEL, "messages": messages, "temperature": 0, "user": user}


def run(
    mode: str,
    log: Callable[..., None],
    request: Callable[[str, str, str], AbstractContextManager[Any]] = lambda session, user, query: nullcontext(),
) -> None:
    """Answer the questions, one after the other, each within *request*."""
    answering = QuestionAnswering()
    if mode in ("async", "astream"):
        asyncio.run(_run_async(answering, mode, log, request))
        return
    for session, user, query in QUESTIONS:
        with request(session, user, query):
            if mode == "stream":
                answer = "".join(answering.ask_stream(query, session, user))
            else:
                answer = answering.ask(query, session, user)
        log(query=query, contexts=answering.source_texts, answer=answer, session=session, user=user)


async def _run_async(
    answering: QuestionAnswering,
    mode: str,
    log: Callable[..., None],
    request: Callable[[str, str, str], AbstractContextManager[Any]],
) -> None:
    for session, user, query in QUESTIONS:
        with request(session, user, query):
            if mode == "astream":
                answer = "".join([piece async for piece in answering.ask_astream(query, session, user)])
            else:
                answer = await answering.aask(query, session, user)
        log(query=query, contexts=answering.source_texts, answer=answer, session=session, user=user)
