"""Posts JSON to an OpenAI-compatible server, and turns every failure into a `JudgeError`.

Requests are made with the HTTP library under the openai package. (The package's own client builds each request anew,
with copies of all options, in half of the CPU time of a request.) HTTP clients belong to the event loop they are first
used on, and are closed with that loop or by `aclose`. After a fork, the child leaves its parent's clients alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.judges.llm.server_errors import ServerError

Transport = Literal["auto", "aiohttp", "httpx"]
"""HTTP library; aiohttp takes half the CPU time of httpx, and comes with `pip install openai[aiohttp]`."""
OPENAI: Final = "https://api.openai.com/v1"
_NO_KEY: Final = "none"
"""API key that is sent where none is set, as local servers need none."""
MOST_REPLY_BYTES: Final = 2 * 2**20
"""Most bytes of a reply; a longer one is an error."""
_MOST_PACKED_BYTES: Final = MOST_REPLY_BYTES // 32
"""Most bytes of a compressed reply, which was not asked for and may be a decompression bomb."""
_SHOWN_CHARS: Final = 200

_abandoned: list[object] = []
"""HTTP clients of the parent process, never deleted after a fork: that could touch the sockets both processes have."""
_in_request: ContextVar[bool] = ContextVar("ragtrace_judge_request", default=False)


@dataclass(slots=True)
class _LoopClients:
    """HTTP clients by which one asyncio event loop sends requests to an LLM server.

    A client is `idle` unless it has a request in flight.
    """

    loop: asyncio.AbstractEventLoop
    pid: int
    shared: Any
    """Client for all requests; None if each request in flight has a client of its own.

    At every request, the connection pool of httpx scans all its connections for each of them: the CPU time of a
    request grows with the number in flight. A pool of one connection has nothing to scan.
    """
    closer: AsyncGenerator[None, None]
    """Generator that closes all clients when it is closed, as an event loop does with open generators when it ends."""
    idle: list[Any] = field(default_factory=list[Any])


class ServerConnection:
    """HTTP connection to an OpenAI-compatible server: posts JSON and returns the response.

    Args:
        base_url: up to and including "/v1"; default: the environment variable OPENAI_BASE_URL, or OpenAI.
        api_key: default: the environment variable OPENAI_API_KEY; servers other than OpenAI's may need none.
        timeout: seconds for one request, from its start to the last byte of the reply.
        transport: HTTP library: "aiohttp", "httpx", or "auto": aiohttp where it is installed.

    Raises:
        SettingsError: an argument makes no sense.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        transport: Transport = "auto",
    ) -> None:
        if transport not in get_args(Transport):
            raise SettingsError(f"transport must be auto, aiohttp or httpx, got {transport!r}")
        if not timeout > 0:
            raise SettingsError(f"timeout must be more than 0 seconds, got {timeout!r}")
        self._base_url, self._key, self.timeout = base_url, api_key, timeout
        self._transport: Transport = transport
        self._clients: dict[int, _LoopClients] = {}

    @property
    def server(self) -> str:
        """Base URL of the server, without a slash at the end."""
        return (self._base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI).rstrip("/")

    async def post(self, path: str, body: Mapping[str, object]) -> bytes:
        """Send *body* as JSON to *path* of the server, and return the body of the response.

        Raises:
            ServerError: it answered with an error.
            JudgeError: "unavailable": it could not be reached, or a key is missing; "timeout"; "unparsable": the reply
                was longer than any reply can be.
        """
        key = self._key or os.environ.get("OPENAI_API_KEY") or ""
        try:
            if not key and self.server == OPENAI:
                todo = "set OPENAI_API_KEY, or pass api_key="
                raise JudgeError("unavailable", f"no API key for {self.server}: {todo}", retryable=False)
            found = await self._loop_clients()  # before the timeout starts: the first call may import the HTTP library
            return await asyncio.wait_for(self._post(found, path, body, key or _NO_KEY), self.timeout)
        except asyncio.TimeoutError:
            raise JudgeError("timeout", f"no full answer from {self.server} within {self.timeout:g} s") from None
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:_SHOWN_CHARS]
            failure = error if isinstance(error, JudgeError) else JudgeError("unavailable", why, retryable=False)
            if len(key) >= 8 and key in failure.detail:  # servers quote the request, and the text ends up in telemetry
                failure.detail = failure.detail.replace(key, "***")
                failure.args = (f"{failure.reason}: {failure.detail}",)
            raise failure from (error.__cause__ if failure is error else error)

    async def _post(self, found: _LoopClients, path: str, body: Mapping[str, object], key: str) -> bytes:
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        client = found.shared or (found.idle.pop() if found.idle else _new_client(self.server, None))
        token = _in_request.set(True)
        try:
            request = client.build_request("POST", self.server + path, headers=_headers(key), content=content)
            return await _send(client, request, self.server)
        finally:
            _in_request.reset(token)
            if found.shared is None:
                found.idle.append(client)

    async def _loop_clients(self) -> _LoopClients:
        """Return the HTTP clients of the running event loop; they are created on first use."""
        if "openai" not in sys.modules:
            with suppress(RuntimeError):  # no thread can be started any more: the process is ending
                await asyncio.to_thread(import_module, "openai")  # the import can take a second
        loop = asyncio.get_running_loop()
        found = self._clients.get(id(loop))
        if found is not None and found.loop is loop and found.pid == os.getpid():
            return found
        for key, old in list(self._clients.items()):
            if old.pid != os.getpid():
                _abandoned.append(self._clients.pop(key, None))
            elif old.loop.is_closed():
                self._clients.pop(key, None)
        aiohttp = self._transport == "aiohttp" or (self._transport == "auto" and has_aiohttp())
        # The library's own pool is the one that knows how to use a proxy.
        shared = _new_client(self.server, aiohttp) if aiohttp or _behind_proxy(self.server) else None
        idle: list[Any] = []
        made = self._clients[id(loop)] = _LoopClients(loop, os.getpid(), shared, _close_at_end(shared, idle), idle)
        await made.closer.__anext__()
        return made

    async def aclose(self) -> None:
        """Close the connections to the server that the running event loop has opened."""
        found = self._clients.pop(id(asyncio.get_running_loop()), None)
        if found is not None and found.pid == os.getpid():
            await found.closer.aclose()


async def _send(client: Any, request: Any, server: str) -> bytes:
    """Send *request* and return the body of the response.

    Raises a `JudgeError` for an error status or an endless body.
    """
    raw = bytearray()
    try:
        response = await client.send(request, stream=True)
        try:
            packed = response.headers.get("content-encoding", "identity") != "identity"
            async for piece in response.aiter_raw():
                raw += piece
                if len(raw) > (_MOST_PACKED_BYTES if packed else MOST_REPLY_BYTES):
                    detail = f"a reply of more than {MOST_REPLY_BYTES} bytes"
                    raise JudgeError("unparsable", detail, retryable=False)
        finally:
            await response.aclose()
        body = bytes(raw)
        if packed:
            body = type(response)(response.status_code, headers=response.headers, content=body).content
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError("unavailable", f"{server}: {str(error)[:_SHOWN_CHARS]}") from error
    if not response.is_success:
        raise ServerError(response.status_code, response.headers, body)
    return body


def _headers(key: str) -> dict[str, str]:
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "User-Agent": "ragtrace",
    }
    named = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
    return headers | {name: os.environ[variable] for name, variable in named.items() if variable in os.environ}


async def _close_at_end(shared: Any, idle: list[Any]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        for client in [*idle, *([shared] if shared is not None else [])]:
            await client.aclose()


def _new_client(server: str, aiohttp: bool | None) -> Any:
    """Create an HTTP client without a timeout: `ServerConnection` limits the time of the whole request.

    Args:
        aiohttp: whether it is built on aiohttp or on httpx; None: on httpx, and with a single connection.
    """
    import openai

    logging.getLogger(http_library().__name__).addFilter(_keeps_log_record)  # adding the filter again changes nothing
    # Questions and answers are for the configured server alone, so that a redirect is not followed.
    options: dict[str, Any] = {"timeout": None, "follow_redirects": False}
    if aiohttp:
        return openai.DefaultAioHttpClient(**options)
    if aiohttp is None:
        limits = http_library().Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=60.0)
        verify = _tls_context() if server.startswith("https:") else False
        options["transport"] = http_library().AsyncHTTPTransport(verify=verify, limits=limits)
    return openai.DefaultAsyncHttpxClient(**options)


def _keeps_log_record(record: logging.LogRecord) -> bool:
    """Return False for debug and info log records about ragtrace's own LLM requests, and True for all others.

    The requests are not the application's own; warnings and errors are kept.
    """
    return record.levelno > logging.INFO or not _in_request.get()


@cache
def has_aiohttp() -> bool:
    """Return whether the installed openai package can use aiohttp as its HTTP library."""
    import openai

    bases = getattr(getattr(openai, "DefaultAioHttpClient", object), "__mro__", ())  # older versions have none
    return any("httpx_aiohttp" in base.__module__ for base in bases)  # a stand-in where aiohttp is not installed


@cache
def import_http_library() -> None:
    """Import the HTTP library, including modules that it would otherwise import at the first request.

    A fork copies the lock of a module that another thread is importing at that moment, held for ever: the child would
    hang at its first request.
    """
    with suppress(Exception):  # the first request reports what is wrong
        _new_client("http://localhost", has_aiohttp() or None)
    for name in ("httpcore._backends.anyio", "httpcore2._backends.anyio", "anyio._backends._asyncio"):
        with suppress(ImportError):
            import_module(name)


@cache
def http_library() -> Any:
    """Return the HTTP library of the openai package: httpx, or httpx2 from version 3 of the package on."""
    import openai

    bases = openai.DefaultAsyncHttpxClient.__mro__
    client = next(base for base in bases if base.__name__ == "AsyncClient")
    return import_module(client.__module__.partition(".")[0])


def _behind_proxy(server: str) -> bool:
    address = urlsplit(server)
    proxies = getproxies()
    return (address.scheme in proxies or "all" in proxies) and not proxy_bypass(address.hostname or "")


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the TLS context that all connections share, because reading the certificates takes 20 ms."""
    context: ssl.SSLContext = http_library().create_ssl_context()
    return context
