"""A FastAPI application whose page takes an answer back when the guard finds, after the last word, that it was wrong.

Run it: `uvicorn examples.guarded_app:app`, then open http://localhost:8000 and ask for the tower's height or colour.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, StreamingResponse

import ragtrace
from ragtrace.types import GuardNotice

PASSAGES = [
    "The Eiffel Tower is a wrought-iron tower in Paris, France. Gustave Eiffel's company built it from 1887 to 1889.",
    "The tower is 330 metres tall and has three levels for visitors, with restaurants on the first and second.",
]
PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Ask about the tower</title>
<form><input name="question" value="What colour is the tower?" size="40"> <button>Ask</button></form>
<p id="answer"></p>
<p id="correction" role="alert"></p>
<script>
document.querySelector("form").onsubmit = event => {
  event.preventDefault();
  const [answer, correction] = ["answer", "correction"].map(id => document.getElementById(id));
  answer.textContent = correction.textContent = answer.style.textDecoration = "";
  const events = new EventSource("/ask?" + new URLSearchParams(new FormData(event.target)));
  events.onmessage = message => { answer.textContent += JSON.parse(message.data); };
  events.addEventListener("correction", message => {
    answer.style.textDecoration = "line-through";
    correction.textContent = JSON.parse(message.data);
  });
  events.addEventListener("done", () => { events.close(); document.title = "Answered"; });
};
const asked = new URLSearchParams(location.search).get("question");
if (asked) {
  document.querySelector("input").value = asked;
  document.querySelector("form").requestSubmit();
}
</script>
"""
failures: ContextVar[list[GuardNotice]] = ContextVar("failures")
"""Notices of the guard for the request in progress."""

# The words leave as they come, and the end of the stream waits for the verdict, 400 ms at most.
guard = ragtrace.Guard(
    "consistency", below=0.5, action="annotate", stream="after", on_fail=lambda notice: failures.get().append(notice)
)


@ragtrace.retrieve(source="landmarks")
async def search(query: str, k: int = 2) -> list[str]:
    """Stands for a vector database."""
    await asyncio.sleep(0)
    return PASSAGES[:k]


@ragtrace.generate(model="word-by-word")
async def generate(question: str, docs: list[str]) -> AsyncIterator[str]:
    """Stands for a streaming language model, which knows nothing of colours and makes one up."""
    text = "Visitors paint bananas green on Jupiter every winter." if "colour" in question else docs[1]
    for word in text.split():
        await asyncio.sleep(0.001)
        yield word + " "


@ragtrace.trace(guard=guard)
async def ask(question: str) -> AsyncIterator[str]:
    """One call, which the guard checks when the last word was sent."""
    async for piece in generate(question, await search(question)):
        yield piece


async def events(question: str) -> AsyncIterator[str]:
    """Yield the answer as server-sent events, and a correction if the guard has found it wrong."""
    failures.set(found := [])
    async for piece in ask(question):
        yield f"data: {json.dumps(piece)}\n\n"
    if found:
        yield f"event: correction\ndata: {json.dumps('I could not verify this answer. Please disregard it.')}\n\n"
    yield "event: done\ndata: null\n\n"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Configure in each worker process, and drain when it stops."""
    ragtrace.configure(service="guarded-landmarks")
    yield
    await asyncio.to_thread(ragtrace.shutdown)


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def page() -> HTMLResponse:
    """The page, which shows the answer word by word."""
    return HTMLResponse(PAGE)


@app.get("/ask")
async def ask_endpoint(question: str) -> StreamingResponse:
    """The answer as server-sent events."""
    return StreamingResponse(events(question), media_type="text/event-stream")
