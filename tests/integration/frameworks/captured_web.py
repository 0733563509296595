"""Small applications of what stands between a model and a browser, and of rows with vectors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from captured import form
from captured_server import ANSWER, DOCUMENTS

PIECES: Final = [ANSWER[:24], ANSWER[24:40], ANSWER[40:]]
WHOLE: Final = [ANSWER[:24], ANSWER[:40], ANSWER]
"""The text so far, with each piece."""


def _prompt(question: str, docs: list[str]) -> str:
    return f"{docs[0]}\n{docs[1]}\n\nQuestion: {question}"


# --- LangChain --------------------------------------------------------------------------------------------------------
import httpx  # noqa: E402
from langchain_core.output_parsers import StrOutputParser  # noqa: E402
from langchain_core.prompts import ChatPromptTemplate  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402


def _chat() -> Any:
    # The client that LangChain shares by default belongs to the event loop of the first form.
    return ChatOpenAI(model="m", http_async_client=httpx.AsyncClient())


@form("langchain-openai", "astream_events, returned")
def langchain_events(question: str, docs: list[str]) -> Any:
    return _chat().astream_events(_prompt(question, docs), version="v2")


@form("langchain-openai", "astream_events of a chain, passed on")
async def langchain_chain_events(question: str, docs: list[str]) -> AsyncIterator[Any]:
    chain = ChatPromptTemplate.from_template("{text}") | _chat() | StrOutputParser()
    async for event in chain.astream_events({"text": _prompt(question, docs)}, version="v2"):
        yield event


@form("langchain-openai", "astream_events of a chain, texts passed on")
async def langchain_chain_texts(question: str, docs: list[str]) -> AsyncIterator[Any]:
    chain = ChatPromptTemplate.from_template("{text}") | _chat() | StrOutputParser()
    async for event in chain.astream_events({"text": _prompt(question, docs)}, version="v2"):
        if event["event"] == "on_chat_model_stream":
            yield event["data"]["chunk"].content


# --- Server-sent events -----------------------------------------------------------------------------------------------
from sse_starlette import EventSourceResponse, JSONServerSentEvent, ServerSentEvent  # noqa: E402
from starlette.responses import StreamingResponse  # noqa: E402


@form("sse-starlette", "dicts with data")
def sse_dicts(question: str, docs: list[str]) -> Iterator[Any]:
    for at, piece in enumerate(PIECES):
        yield {"event": "message", "id": str(at), "data": piece}


@form("sse-starlette", "ServerSentEvent")
async def sse_events(question: str, docs: list[str]) -> AsyncIterator[Any]:
    for piece in PIECES:
        yield ServerSentEvent(data=piece, event="token")
    yield ServerSentEvent(data="[DONE]", event="end")


@form("sse-starlette", "JSONServerSentEvent")
async def sse_json(question: str, docs: list[str]) -> AsyncIterator[Any]:
    for piece in PIECES:
        yield JSONServerSentEvent(data={"delta": piece})


def _serve(response: Any) -> Any:
    """Send *response* as a server does."""

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None: ...

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "asgi": {"spec_version": "2.4"}}
    return response(scope, receive, send)


@form("sse-starlette", "EventSourceResponse returned", read=_serve)
def sse_response(question: str, docs: list[str]) -> Any:
    async def events() -> AsyncIterator[Any]:
        for piece in PIECES:
            yield {"data": piece}

    return EventSourceResponse(events())


@form("starlette", "StreamingResponse returned", read=_serve)
def streaming_response(question: str, docs: list[str]) -> Any:
    return StreamingResponse(iter(PIECES))


# --- AI SDK of Vercel, by pydantic-ai ---------------------------------------------------------------------------------
from pydantic_ai import Agent  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel  # noqa: E402
from pydantic_ai.ui.vercel_ai import VercelAIAdapter  # noqa: E402
from pydantic_ai.ui.vercel_ai.request_types import SubmitMessage, TextUIPart, UIMessage  # noqa: E402


def _adapter(question: str, docs: list[str]) -> Any:
    part = TextUIPart(text=_prompt(question, docs))
    asked = SubmitMessage(id="1", messages=[UIMessage(id="1", role="user", parts=[part])])
    return VercelAIAdapter(agent=Agent(OpenAIChatModel("m")), run_input=asked)


@form("pydantic-ai-slim", "VercelAIAdapter, lines for the AI SDK")
async def vercel_lines(question: str, docs: list[str]) -> AsyncIterator[Any]:
    adapter = _adapter(question, docs)
    async for line in adapter.encode_stream(adapter.run_stream()):
        yield line


@form("pydantic-ai-slim", "VercelAIAdapter, chunks for the AI SDK")
async def vercel_chunks(question: str, docs: list[str]) -> AsyncIterator[Any]:
    async for chunk in _adapter(question, docs).run_stream():
        yield chunk


# --- Gradio -----------------------------------------------------------------------------------------------------------
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
import gradio  # noqa: E402


@form("gradio", "ChatInterface, whole text so far")
def gradio_texts(question: str, docs: list[str]) -> Iterator[Any]:
    yield from WHOLE


@form("gradio", "ChatInterface, ChatMessage so far")
def gradio_messages(question: str, docs: list[str]) -> Iterator[Any]:
    for text in WHOLE:
        yield gradio.ChatMessage(role="assistant", content=text)


@form("gradio", "ChatInterface, thought before the answer")
def gradio_thoughts(question: str, docs: list[str]) -> Iterator[Any]:
    thought = gradio.ChatMessage(role="assistant", content="I look into the documents.", metadata={"title": "Thinking"})
    yield thought
    for text in WHOLE:
        yield [thought, gradio.ChatMessage(role="assistant", content=text)]


# --- Rows with vectors ------------------------------------------------------------------------------------------------
import sqlalchemy  # noqa: E402
from pgvector import Vector as PlainVector  # noqa: E402
from pgvector.sqlalchemy import Vector  # noqa: E402
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column  # noqa: E402

_engine: Final = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)


class _Base(DeclarativeBase):
    pass


class Chunk(_Base):
    """A passage with its vector, as applications map it."""

    __tablename__ = "chunk"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    content: Mapped[str]
    embedding: Mapped[Any] = mapped_column(Vector(2))


_Base.metadata.create_all(_engine)
with Session(_engine) as _session:
    for _at, _text in enumerate(DOCUMENTS):
        _session.add(Chunk(id=_at, title=f"t-{_at}", content=_text, embedding=[1.0 - _at, float(_at)]))
    _session.commit()


@form("pgvector", "mapped objects", retrieves=True)
def pgvector_objects(question: str) -> Any:
    with Session(_engine) as session:
        return session.scalars(sqlalchemy.select(Chunk)).all()


@form("pgvector", "rows of mapped objects", retrieves=True)
def pgvector_rows(question: str) -> Any:
    with Session(_engine) as session:
        return session.execute(sqlalchemy.select(Chunk, sqlalchemy.literal(0.5).label("distance"))).all()


@form("pgvector", "rows (id, content, embedding)", retrieves=True)
def pgvector_columns(question: str) -> Any:
    with Session(_engine) as session:
        return session.execute(sqlalchemy.select(Chunk.id, Chunk.content, Chunk.embedding)).all()


@form("pgvector", "tuples with Vector and distance", retrieves=True)
def pgvector_vectors(question: str) -> Any:
    return [(at, text, PlainVector([1.0, 0.0]), 0.1 + at) for at, text in enumerate(DOCUMENTS)]
