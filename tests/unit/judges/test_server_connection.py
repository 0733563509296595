"""`ServerConnection`: in which order requests that begin together are sent, and who sees what is secret in them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import openai
import pytest

from ragtrace.core.errors import JudgeError
from ragtrace.judges.llm.server_connection import ServerConnection
from tests.support.backends import Answer, Backend

REQUESTS = 64
"""Requests that begin together: by far more than one is on its way while another one is prepared."""
WAIT_S = 60.0


class SeenBody(dict[str, Any]):
    """Body that notes when a client turns it into JSON."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(model="m")
        self._events = events

    def items(self) -> Any:
        self._events.append("prepared")
        return super().items()


class BrokenBody(dict[str, Any]):
    """Body that cannot be turned into JSON."""

    def items(self) -> Any:
        raise ValueError("no JSON")


class NotingServer:
    """Server in the event loop of the requests, which notes each one and answers when as many as wanted have come."""

    def __init__(self, events: list[str], wanted: int) -> None:
        self._events, self._wanted = events, wanted
        self._all_here = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                await reader.readexactly(int(length[1]) if length else 0)
                self._events.append("arrived")
                if self._events.count("arrived") >= self._wanted:
                    self._all_here.set()
                await self._all_here.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def ended(self) -> None:
        """Wait until the clients have closed their connections."""
        self._all_here.set()
        await asyncio.gather(*self._open)


@asynccontextmanager
async def connected(events: list[str], wanted: int, **options: Any) -> AsyncGenerator[ServerConnection]:
    """A connection to a server that answers when *wanted* requests have come."""
    noting = NotingServer(events, wanted)
    server = await asyncio.start_server(noting.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connection = ServerConnection(base_url=url, timeout=WAIT_S, **options)
    try:
        yield connection
    finally:
        await connection.aclose()
        await noting.ended()
        server.close()


async def posted(connection: ServerConnection, *bodies: dict[str, Any]) -> list[bytes | BaseException]:
    """Post all *bodies* at once; the replies or errors."""
    return await asyncio.gather(*(connection.post("/x", body) for body in bodies), return_exceptions=True)


def test_the_first_request_is_sent_before_the_last_one_is_prepared() -> None:
    """So that requests that begin together do not stay together. All of them are under way at the same time."""

    async def run() -> list[str]:
        events: list[str] = []
        async with connected(events, REQUESTS) as connection:
            assert await posted(connection, *(SeenBody(events) for _ in range(REQUESTS))) == [b"{}"] * REQUESTS
        return events

    events = asyncio.run(run())
    last_prepared = len(events) - 1 - events[::-1].index("prepared")
    assert events.index("arrived") < last_prepared


def test_a_request_that_cannot_be_prepared_holds_up_no_other() -> None:
    """It fails, and the requests after it are sent."""

    async def run() -> None:
        async with connected([], 2) as connection:
            broken, *others = await posted(connection, BrokenBody(model="m"), {"model": "m"}, {"model": "m"})
        assert isinstance(broken, JudgeError)
        assert others == [b"{}"] * 2

    asyncio.run(run())


def test_a_request_that_is_cancelled_holds_up_no_other() -> None:
    """Whether it waits for its turn, is being prepared, or is under way."""

    async def run() -> None:
        async with connected([], 2) as connection:
            for steps in range(12):
                cancelled = [asyncio.ensure_future(connection.post("/x", {"model": "m"})) for _ in range(3)]
                for _ in range(steps):
                    await asyncio.sleep(0)
                for task in cancelled:
                    task.cancel()
                await asyncio.gather(*cancelled, return_exceptions=True)
            assert await posted(connection, {"model": "m"}, {"model": "m"}) == [b"{}"] * 2

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["httpx", "auto"])
def test_the_client_tells_when_a_request_is_sent(transport: str) -> None:
    """With each HTTP library: else the second request would wait for the reply to the first, which waits for both."""

    async def run() -> None:
        async with connected([], 2, transport=transport) as connection:
            assert await posted(connection, {"model": "m"}, {"model": "m"}) == [b"{}"] * 2

    asyncio.run(run())


def test_a_turn_around_a_request_ends_when_the_request_is_sent() -> None:
    """So that two blocks, each with a request, are under way at the same time; a block without one ends with itself."""

    async def asked(connection: ServerConnection) -> bytes:
        async with connection.turn():
            return await connection.post("/x", {"model": "m"})

    async def run() -> None:
        async with connected([], 1) as first:
            await posted(first, {"model": "m"})  # opens the client
            async with first.turn():
                pass
            assert await posted(first, {"model": "m"}) == [b"{}"]
        async with connected([], 3) as connection:
            # The first request of all makes the client; the server answers when the other two have come, too.
            assert await asyncio.gather(*(asked(connection) for _ in range(3))) == [b"{}"] * 3

    asyncio.run(run())


# --- what is secret ---------------------------------------------------------------------------------------------------


async def post_once(connection: ServerConnection) -> str:
    """Post a question; the error, as text."""
    try:
        await connection.post("/x", {"text": "the question"})
    except JudgeError as error:
        return str(error)
    finally:
        await connection.aclose()
    return ""


@pytest.mark.parametrize("url", ["http://ann:qu%40ite@", "http://ann@", "http://:quite@"])
@pytest.mark.parametrize("transport", ["httpx", "auto"])
def test_user_and_password_of_a_url_are_sent_as_http_clients_send_them(url: str, transport: str) -> None:
    """The server sees the same as with them in the URL."""
    with Backend() as server:
        address = server.url.replace("http://", url)
        httpx.post(f"{address}/v1/x", json={}, trust_env=False)
        asyncio.run(post_once(ServerConnection(base_url=f"{address}/v1", api_key="sk-other", transport=transport)))  # type: ignore[arg-type]
        first, second = server.requests
    names = ("authorization", "host")
    assert [second.headers[name] for name in names] == [first.headers[name] for name in names]
    assert (first.path, second.path) == ("/v1/x", "/v1/x")


@pytest.mark.parametrize("status", [200, 400, None])
@pytest.mark.parametrize("own", [True, False])
def test_no_library_logs_a_request_to_a_judge(own: bool, status: int | None, caplog: pytest.LogCaptureFixture) -> None:
    """Nor the password of its URL, at any level: by a client of ragtrace's or the user's, answered or not."""
    with Backend(lambda _: Answer(status or 200, {"error": {"message": "no"}})) as server:
        url = server.url if status else "http://127.0.0.1:9"
        address = url.replace("http://", "http://ann:hushpassword@")
        made = lambda: openai.AsyncOpenAI(base_url=address, api_key="sk-hushkey", max_retries=0)  # noqa: E731
        connection = ServerConnection(base_url=address) if own else ServerConnection(client=made)
        with caplog.at_level(logging.DEBUG):
            said = asyncio.run(post_once(connection))
    logged = "".join(logging.Formatter("%(message)s").format(record) for record in caplog.records)
    assert not [word for word in ("the question", "hush") if word in logged + said]
    assert len(server.requests) == (status is not None)
