"""A FastAPI application that streams its answers, of several tenants; a client that leaves early is seen as such.

Run it: `uvicorn examples.fastapi_app:app`, then `curl -N localhost:8000/ask?question=Who+built+the+Eiffel+Tower`
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.middleware.base import RequestResponseEndpoint

import ragtrace

PASSAGES = [
    "The Eiffel Tower is a wrought-iron tower in Paris, France. Gustave Eiffel's company built it from 1887 to 1889.",
    "The tower is 330 metres tall and has three levels for visitors, with restaurants on the first and second.",
]


@ragtrace.retrieve(source="landmarks")
async def search(query: str, k: int = 2) -> list[str]:
    """Stands for a vector database."""
    await asyncio.sleep(0)
    return PASSAGES[:k]


@ragtrace.generate(model="word-by-word")
async def generate(question: str, docs: list[str]) -> AsyncIterator[str]:
    """Stands for a streaming language model."""
    for word in " ".join(docs).split():
        await asyncio.sleep(0.001)
        yield word + " "


@ragtrace.trace(session="conversation")
async def ask(question: str, conversation: str | None = None) -> AsyncIterator[str]:
    """One call: the trace is open until the last word was sent, or the client has gone."""
    async for piece in generate(question, await search(question)):
        yield piece


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Configure in each worker process, and drain when it stops."""
    ragtrace.configure(service="landmarks-api")
    yield
    # Waiting for the drain must not block the loop that other shutdown work runs on.
    await asyncio.to_thread(ragtrace.shutdown)


app = FastAPI(lifespan=lifespan)


@app.middleware("http")
async def tag_tenant(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Say of every call of the request whose it is, also of one that goes on while its answer is sent."""
    with ragtrace.tags(tenant=request.headers.get("x-tenant")):
        return await call_next(request)


@app.get("/ask")
async def ask_endpoint(question: str, conversation: str | None = None) -> StreamingResponse:
    """The answer, streamed as it is generated."""
    return StreamingResponse(ask(question, conversation), media_type="text/plain")
