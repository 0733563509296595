"""The agent of pydantic_ai.py behind a web server that is instrumented: several runs in a request, and a batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from applications.pydantic_ai import Retrieved, make_agent
from corpus import QUESTIONS, Question
from httpx import ASGITransport, AsyncClient
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from vector_index import VectorIndex

PATHS = {"sync": "/each", "async": "/batch", "astream": "/stream"}
"""Path for each mode: the runs of one request one after the other, all at once, or one run a request, streamed."""


class Server:
    """Web application around one agent."""

    def __init__(self, log: Callable[..., None]) -> None:
        self._agent: Agent[Retrieved, str] = make_agent()
        self._index, self._log = VectorIndex(), log
        handlers = {"/each": self._each, "/batch": self._batch, "/stream": self._stream}
        routes = [Route(path, handler, methods=["POST"]) for path, handler in handlers.items()]
        self.application = OpenTelemetryMiddleware(Starlette(routes=routes))

    async def _answer(self, question: Question) -> str:
        retrieved = Retrieved(self._index)
        result = await self._agent.run(question.text, deps=retrieved, conversation_id=question.session)
        self._log_result(question, retrieved, result.output, result.all_messages())
        return result.output

    async def _each(self, request: Request) -> Response:
        return JSONResponse([await self._answer(question) for question in await _questions(request)])

    async def _batch(self, request: Request) -> Response:
        return JSONResponse(await asyncio.gather(*map(self._answer, await _questions(request))))

    async def _stream(self, request: Request) -> Response:
        question = (await _questions(request))[0]
        return StreamingResponse(self._pieces(question), media_type="text/plain")

    async def _pieces(self, question: Question) -> AsyncIterator[str]:
        retrieved, pieces = Retrieved(self._index), []
        async with self._agent.run_stream(question.text, deps=retrieved, conversation_id=question.session) as run:
            async for piece in run.stream_text(delta=True):
                pieces.append(piece)
                yield piece
        self._log_result(question, retrieved, "".join(pieces), run.all_messages())

    def _log_result(self, question: Question, retrieved: Retrieved, answer: str, messages: Sequence[Any]) -> None:
        self._log(
            query=question.text,
            contexts=retrieved.texts,
            answer=answer,
            session=question.session,
            user=question.user,
            response_ids=[message.provider_response_id for message in messages if message.kind == "response"],
        )


async def _questions(request: Request) -> list[Question]:
    return [Question(*fields) for fields in await request.json()]


def run(mode: str, log: Callable[..., None]) -> None:
    """Send the questions to the server in this process."""
    asyncio.run(_send(Server(log), PATHS[mode], [QUESTIONS] if mode != "astream" else [[each] for each in QUESTIONS]))


async def _send(server: Server, path: str, requests: Sequence[Sequence[Question]]) -> None:
    async with AsyncClient(transport=ASGITransport(server.application), base_url="http://guide.test") as client:
        for questions in requests:
            (await client.post(path, json=[list(question) for question in questions])).raise_for_status()
