"""A real local HTTP server that stands in for any judge behind a network: slow, failing, refusing or lying."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from time import monotonic, time
from types import TracebackType
from typing import Any, Final

_REASONS: Final = {200: "OK", 429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}
_START_S: Final = 10.0
_MOST_REQUEST_BYTES: Final = 64 * 2**20


@dataclass(frozen=True)
class Reply:
    """What the server answers to one request, and when."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    after: float = 0.0
    """Seconds until it answers."""
    hangs: bool = False
    """Never answers; the connection stays open."""
    drops: bool = False
    """Closes the connection instead of answering."""
    retry_date_in: float | None = None
    """Seconds between the moment of the answer and the date in its Retry-After; None: no such header."""


def labels(support: str = "supported", *, after: float = 0.0) -> Reply:
    """A judgement: one claim with that label."""
    return Reply(body=json.dumps({"support": support, "tokens": 10}).encode(), after=after)


def too_many(seconds: float | None = None, *, date: bool = False, after: float = 0.0) -> Reply:
    """429, with a Retry-After in seconds or, as the standard allows, as a date; None: without one."""
    if seconds is None:
        return Reply(429, after=after)
    if date:
        return Reply(429, after=after, retry_date_in=seconds)
    return Reply(429, headers={"Retry-After": f"{seconds:g}"}, after=after)


FAILED: Final = Reply(500, b"something broke")
HANGS: Final = Reply(hangs=True)
DROPPED: Final = Reply(drops=True)
GARBAGE: Final = Reply(body=b'\x00{"support": [[[ \xff\xfe never mind')
NONSENSE: Final = Reply(body=b'{"support": "certainly", "tokens": -7}')
HUGE: Final = Reply(body=b'{"support": "' + b"x" * 20_000_000 + b'"}')


@dataclass(frozen=True)
class Request:
    """What was asked, and when."""

    number: int
    """From 0, in the order of arrival."""
    at: float
    """Seconds on the monotonic clock."""
    body: bytes

    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


Rule = Callable[[Request], Reply]


def script(*replies: Reply) -> Rule:
    """One reply after the other; the last one for ever."""
    return lambda request: replies[min(request.number, len(replies) - 1)]


class JudgeServer:
    """Serves on a free port of this machine while it is entered, on an event loop in a thread of its own.

    Args:
        *rule: the replies in order, the last one for ever; or one function that gives the reply to a request.
    """

    def __init__(self, *rule: Reply | Rule) -> None:
        first = rule[0] if rule else labels()
        replies = [reply for reply in rule if isinstance(reply, Reply)]
        self.rule: Rule = script(*(replies or [labels()])) if isinstance(first, Reply) else first
        self.requests: list[Request] = []
        """Every request, in the order of arrival."""
        self.in_flight = 0
        self.most_in_flight = 0
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.port = 0

    @property
    def url(self) -> str:
        """Where to ask."""
        return f"http://127.0.0.1:{self.port}/judge"

    def __enter__(self) -> JudgeServer:
        # Opened here and not in the constructor: a server that is never entered would leave the loop's sockets open.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="judge server", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)

    async def _close(self) -> None:
        """End every connection, also one that was accepted a moment ago and whose task has not begun."""
        self._server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task, writer in self._connections.items():
                writer.transport.abort()
                task.cancel()
            await asyncio.wait(others, timeout=0.01)
        await asyncio.sleep(0)  # the loop closes the sockets of aborted connections in its next turn

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()
            del self._connections[task]

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; False if the connection is to be closed."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = _content_length(head)
        body = await reader.readexactly(length)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            request = Request(len(self.requests), monotonic(), body)
            self.requests.append(request)
            reply = self.rule(request)
            if reply.hangs:
                await reader.read()  # until the client gives up
                return False
            if reply.after:
                await asyncio.sleep(reply.after)
        finally:
            self.in_flight -= 1
        if reply.drops:
            return False
        writer.write(_encoded(reply))
        await writer.drain()
        return True


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return min(int(value), _MOST_REQUEST_BYTES)
    return 0


def _encoded(reply: Reply) -> bytes:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.body)), **reply.headers}
    if reply.retry_date_in is not None:
        headers["Retry-After"] = formatdate(time() + reply.retry_date_in, usegmt=True)
    lines = [
        f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Unknown')}",
        *(f"{k}: {v}" for k, v in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body


def refused_url() -> str:
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return f"http://127.0.0.1:{port}/judge"


class Limiter:
    """A rule as of a provider with a quota: *rate* requests a second, *burst* at once; more get 429 and Retry-After.

    Args:
        latency: seconds that a judgement takes; a refusal comes at once.
    """

    def __init__(self, rate: float, *, burst: float, retry_after: float, latency: float) -> None:
        self._rate, self._burst, self._retry_after, self._latency = rate, burst, retry_after, latency
        self._tokens, self._at = burst, monotonic()
        self.refused = 0

    def __call__(self, request: Request) -> Reply:
        self._tokens = min(self._burst, self._tokens + (request.at - self._at) * self._rate)
        self._at = request.at
        if self._tokens < 1:
            self.refused += 1
            return too_many(self._retry_after)
        self._tokens -= 1
        return labels(after=self._latency)
