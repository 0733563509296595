"""What docs/for-agents.md says of decorators, streams and contexts is so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from httpx import ASGITransport, AsyncClient
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace

QUESTION: Final = "When may I return worn shoes?"
PASSAGE: Final = "Worn shoes may be returned within 14 days of delivery."
WORDS: Final = ("Within", " 14", " days", " of", " delivery.")
ANSWER: Final = "".join(WORDS)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """The spans of a configured ragtrace."""
    exporter = InMemorySpanExporter()
    ragtrace.configure(service="shop", exporter=exporter)
    return exporter


def calls(spans: InMemorySpanExporter) -> list[tuple[str, str, float | None]]:
    """Name, reason or status, and consistency of each call, in the order in which they ended."""
    assert ragtrace.flush(timeout=20)
    found: list[tuple[str, str, float | None]] = []
    for root in spans.get_finished_spans():
        attributes: dict[str, Any] = dict(root.attributes or {})
        if root.parent is not None or "ragtrace.eval.status" not in attributes:
            continue  # a step, or one that has lost its call
        reason = attributes.get("ragtrace.eval.consistency.reason", attributes["ragtrace.eval.status"])
        found.append((root.name.rpartition(" ")[2], reason, attributes.get("ragtrace.eval.consistency.score")))
    return found


@ragtrace.retrieve
def search(question: str) -> tuple[str, ...]:
    return (PASSAGE,)


@ragtrace.generate
def write(prompt: str) -> Iterator[str]:
    yield from WORDS


@ragtrace.trace(name="ask")
def ask(question: str, find: Callable[[str], object] = search) -> Iterator[str]:
    found = find(question)
    yield from write(f"Passages: {found}. Question: {question}")


def test_the_decorator_goes_above_a_cache(spans: InMemorySpanExporter) -> None:
    """Below it, the second call would have no contexts, as a hit of the cache runs nothing."""
    above, below = ragtrace.retrieve(lru_cache(search.__wrapped__)), lru_cache(search)
    for find in (above, above, below, below):
        assert "".join(ask(QUESTION, find)) == ANSWER
    assert [reason for _, reason, _ in calls(spans)] == ["ok", "ok", "ok", "contexts_missing"]


def test_a_method_of_a_library_is_decorated_where_it_is_called(spans: InMemorySpanExporter) -> None:
    """The client's class stays as it is."""

    class Client:
        def query(self, text: str) -> list[dict[str, str]]:
            return [{"id": "returns", "text": PASSAGE}]

    assert "".join(ask(QUESTION, ragtrace.retrieve(Client().query))) == ANSWER
    assert calls(spans) == [("ask", "ok", 1.0)]


def test_a_pool_loses_the_call_and_carry_keeps_it(spans: InMemorySpanExporter) -> None:
    """`asyncio.to_thread` carries it by itself."""
    with ThreadPoolExecutor(1) as pool:
        assert "".join(ask(QUESTION, lambda question: pool.submit(search, question).result())) == ANSWER
        assert "".join(ask(QUESTION, lambda question: pool.submit(ragtrace.carry(search), question).result())) == ANSWER

    @ragtrace.trace(name="threaded")
    async def threaded(question: str) -> str:
        await asyncio.to_thread(search, question)
        return ANSWER

    asyncio.run(threaded(QUESTION))
    assert [(name, reason) for name, reason, _ in calls(spans)] == [
        ("ask", "contexts_missing"), ("ask", "ok"), ("threaded", "ok"),
    ]  # fmt: skip


def test_events_on_the_wire_are_not_read_but_the_generator_below_is(spans: InMemorySpanExporter) -> None:
    """Nor is JSON by the line; `answer=` says where the text of a piece is."""

    @ragtrace.trace(name="unread")
    def unread(question: str) -> Iterator[str]:
        search(question)
        yield from (f"data: {json.dumps({'text': word})}\n\n" for word in WORDS)

    @ragtrace.trace(name="below")
    def below(question: str) -> Iterator[str]:
        search(question)
        yield from (f"data: {json.dumps({'text': word})}\n\n" for word in write(question))
        yield "data: [DONE]\n\n"

    @ragtrace.trace(
        name="told", answer=lambda piece: json.loads(piece[6:])["text"] if piece.startswith("data: {") else None
    )
    def told(question: str) -> Iterator[str]:
        yield from unread.__wrapped__(question)
        yield "data: [DONE]\n\n"

    for each in (unread, below, told):
        assert len(list(each(QUESTION))) >= len(WORDS)
    assert calls(spans) == [("unread", "answer_not_captured", None), ("below", "ok", 1.0), ("told", "ok", 1.0)]


def test_a_web_handler_stays_undecorated(spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
    """The generator that it hands to the response is the call; a decorated handler has no answer, and is told why."""
    app = FastAPI()

    @ragtrace.trace(name="stream")
    async def stream(question: str) -> AsyncIterator[str]:
        search(question)
        for word in write(question):
            yield word

    @app.get("/right")
    async def right(question: str) -> StreamingResponse:
        return StreamingResponse(stream(question), media_type="text/plain")

    @app.get("/wrong")
    @ragtrace.trace(name="wrong")
    async def wrong(question: str) -> StreamingResponse:
        return StreamingResponse(stream(question), media_type="text/plain")

    async def visit() -> list[str]:
        async with AsyncClient(transport=ASGITransport(app), base_url="http://shop.test") as client:
            return [(await client.get(path, params={"question": QUESTION})).text for path in ("/right", "/wrong")]

    assert asyncio.run(visit()) == [ANSWER, ANSWER]
    assert calls(spans) == [
        ("stream", "ok", 1.0), ("wrong", "answer_not_captured", None), ("stream", "ok", 1.0),
    ]  # fmt: skip
    assert "Decorate the generator whose pieces it sends" in caplog.text


def test_a_call_that_searches_nothing_has_no_contexts_and_one_that_finds_nothing_says_so(
    spans: InMemorySpanExporter,
) -> None:
    """Two reasons, of which the first may be a decorator that is missing."""

    @ragtrace.retrieve
    def find_nothing(question: str) -> list[str]:
        return []

    for find in (lambda question: None, find_nothing):
        list(ask(QUESTION, find))
    assert [reason for _, reason, _ in calls(spans)] == ["contexts_missing", "no_contexts"]


def test_an_inner_trace_is_part_of_the_outer_call(spans: InMemorySpanExporter) -> None:
    """The outermost one is the call."""

    @ragtrace.trace(name="outer")
    def outer(question: str) -> str:
        return "".join(ask(question))

    assert outer(QUESTION) == ANSWER
    assert calls(spans) == [("outer", "ok", 1.0)]


def test_rows_of_a_database_have_their_text(spans: InMemorySpanExporter) -> None:
    """Among ids, addresses and distances, in `@retrieve` and in a block."""
    rows = [(101, PASSAGE, "https://shop.example/returns", 0.12)]
    assert "".join(ask(QUESTION, ragtrace.retrieve(lambda question: rows))) == ANSWER
    with ragtrace.call(QUESTION, name="block") as call:
        call.retrieved(rows)
        call.answered(ANSWER)
    assert calls(spans) == [("ask", "ok", 1.0), ("block", "ok", 1.0)]
    spans_with_documents = [span.attributes or {} for span in spans.get_finished_spans()]
    (documents, *_) = [
        found["gen_ai.retrieval.documents"] for found in spans_with_documents if "gen_ai.retrieval.documents" in found
    ]
    assert [each["content"] for each in json.loads(str(documents))] == [PASSAGE]
