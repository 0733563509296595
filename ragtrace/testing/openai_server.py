"""Local model server for tests, which speaks OpenAI's protocol and answers by rules or from a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from time import monotonic
from types import TracebackType
from typing import Any, Final, cast

from ragtrace.system.event_loops import apart, new_event_loop
from ragtrace.system.threads import background_thread
from ragtrace.testing.replies import Reply, Request, completion, embeddings, events
from ragtrace.testing.rule_based_model import answer_by_rule

Rule = Callable[[Request], "Reply | str | Mapping[str, object] | None"]
"""Function that returns the reply to a request: a `Reply`, the content as text or mapping, or None for the rules."""

_START_S: Final = 10.0
_MODEL_PATHS: Final = ("/chat/completions", "/decisions", "/systemone")
"""Ends of the paths whose replies take the latency of the server."""
_MOST_REQUEST_BYTES: Final = 64 * 2**20


class OpenAIServer:
    """Local server with OpenAI's API for tests, which runs on a free port inside a `with` block.

    It serves chat completions, embeddings and the list of models.

    Without a script it answers ragtrace's prompts by rule: a statement is supported if a chunk has its words, with
    a quote from that chunk. Requests with any other JSON schema get a valid instance of it.

    Examples:
        >>> busy = ragtrace.testing.Reply.too_many(0.0)
        >>> with ragtrace.testing.OpenAIServer(busy, ragtrace.testing.Reply()) as server:  # turned away once
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(contexts=["The tower is in Paris."], answer="In Paris.", judge=judge)
        >>> scores["faithfulness"].value, server.n_chats
        (1.0, 2)

    Args:
        *script: replies to the chat requests in order, the last one repeated; or one function that returns the reply.
        latency: seconds that a chat completion takes.
        rejects: "json_schema", "json_object", "non_streaming", or names of parameters: a request that has one is
            answered with status 400, in OpenAI's words.
        wrap: function applied to every text that the model writes.
        embed: the reply to requests for embeddings; None: vectors by the words of the texts.
    """

    def __init__(
        self,
        *script: Reply | str | Mapping[str, object] | Rule,
        latency: float = 0.0,
        rejects: Collection[str] = (),
        wrap: Callable[[str], str] | None = None,
        embed: Reply | None = None,
    ) -> None:
        self._rule = _rule(script)
        self._latency, self._rejects, self._wrap, self._embed = latency, tuple(rejects), wrap, embed
        self.requests: list[Request] = []
        """All requests so far, in the order of arrival."""
        self.n_connections = 0
        """Number of connections that clients have made so far."""
        self._chats = 0
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """Base URL of the server, to be passed as `base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def chats(self) -> list[Request]:
        """Requests for chat completions that the server has received, in the order of arrival."""
        return [request for request in self.requests if request.path.endswith("/chat/completions")]

    @property
    def n_chats(self) -> int:
        """Number of requests for chat completions that the server has received."""
        return len(self.chats)

    def __enter__(self) -> OpenAIServer:
        # Opened here and not in the constructor: a server that is never entered would leave the loop's sockets open.
        self._loop = new_event_loop()
        self._thread = background_thread(self._serve, "model server")
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

    def _serve(self) -> None:
        with apart():
            self._loop.run_forever()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)

    async def _close(self) -> None:
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    # --- HTTP --------------------------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.n_connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read and answer one HTTP request, and return whether the connection stays open."""
        request = await self._received(reader)
        reply = self._reply(request)
        if reply.hangs:
            await reader.read()  # until the client gives up
            return False
        asks_model = request.path.endswith(_MODEL_PATHS)
        pause = reply.after or (self._latency if asks_model and reply.status == HTTPStatus.OK else 0.0)
        if pause:
            await asyncio.sleep(pause)
        if reply.drops:
            return False
        writer.write(_encoded(reply, *self._content(request, reply)))
        await writer.drain()
        return True

    async def _received(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = min(int(headers.get("content-length", "0")), _MOST_REQUEST_BYTES)
        body = await reader.readexactly(length)
        path, _, query = head[0].split(" ")[1].partition("?")
        request = Request(len(self.requests), monotonic(), path, headers, json.loads(body) if body else {}, query)
        self.requests.append(request)
        return request

    def _content(self, request: Request, reply: Reply) -> tuple[bytes, str]:
        """Return the body and the content type of the response to *request*."""
        if reply.body is not None:
            said = reply.body if isinstance(reply.body, (bytes, str)) else json.dumps(reply.body)
            return said if isinstance(said, bytes) else said.encode(), "application/json"
        if request.path.endswith("/embeddings"):
            return json.dumps(embeddings(request.body)).encode(), "application/json"
        if not request.path.endswith("/chat/completions"):
            model = {"id": "local", "object": "model", "created": 0, "owned_by": "ragtrace"}
            return json.dumps({"object": "list", "data": [model]}).encode(), "application/json"
        content = answer_by_rule(request) if reply.content is None else reply.content
        text = content if isinstance(content, str) else json.dumps(content)
        if self._wrap is not None and reply.refusal is None:
            text = self._wrap(text)
        body = completion(request.body, text, reply)
        if not (reply.streams or request.body.get("stream")):
            return json.dumps(body).encode(), "application/json"
        options: Any = request.body.get("stream_options")
        usage = bool(options and options.get("include_usage"))
        return events(body, usage=usage), "text/event-stream"

    # --- replies ----------------------------------------------------------------------------------------------

    def _reply(self, request: Request) -> Reply:
        if request.path.endswith("/embeddings"):
            return self._embed or Reply()
        if not request.path.endswith("/chat/completions"):
            known = request.path.endswith("/models")
            return Reply() if known else Reply.failing(404, f"no such path: {request.path}")
        rejected = next((name for name in self._rejects if _has(request.body, name)), None)
        if rejected is not None:
            return _rejection(rejected)
        number, self._chats = self._chats, self._chats + 1
        given = self._rule(replace(request, number=number))
        return given if isinstance(given, Reply) else Reply(content=given)


def _rule(script: tuple[Any, ...]) -> Rule:
    if not script:
        return lambda request: None
    first: Any = script[0]
    if callable(first):
        return cast(Rule, first)
    return lambda request: script[min(request.number, len(script) - 1)]


def _has(body: dict[str, Any], name: str) -> bool:
    if name in ("json_schema", "json_object"):
        wanted: Any = body.get("response_format")
        return bool(wanted) and wanted.get("type") == name
    return not body.get("stream") if name == "non_streaming" else name in body


def _rejection(name: str) -> Reply:
    if name in ("json_schema", "json_object"):
        message = f"Invalid parameter: 'response_format' of type '{name}' is not supported with this model."
        return Reply.failing(400, message)
    if name == "non_streaming":
        message = "This model only support stream mode, please enable the stream parameter to access the model."
        return Reply.failing(400, message, code="invalid_parameter_error")
    message = f"Unsupported parameter: '{name}' is not supported with this model."
    return Reply.failing(400, message, param=name, code="unsupported_parameter")


def _encoded(reply: Reply, body: bytes, kind: str) -> bytes:
    headers = {"Content-Type": kind, "Content-Length": str(len(body)), **reply.headers}
    phrase = HTTPStatus(reply.status).phrase if reply.status in set(HTTPStatus) else "Unknown"
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
