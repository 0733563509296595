"""The HTTP client under the openai package: fast at many requests at a time, and safe from endless replies."""

from __future__ import annotations

import logging
import platform
import ssl
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

MOST_REPLY_BYTES: Final = 2 * 2**20
"""Longest reply that is read to its end."""
_MOST_PACKED_BYTES: Final = MOST_REPLY_BYTES // 32
"""Longest compressed reply: none was asked for, and it may be a bomb."""


Transport = Literal["auto", "aiohttp", "httpx"]
"""HTTP library: aiohttp takes half the CPU time, and comes with `pip install openai[aiohttp]`."""


class TooLongError(Exception):
    """The server sent more bytes than any reply has."""


def new_http_client(base_url: str, transport: Transport = "auto") -> Any:
    """Return a client of the HTTP library that the openai package is built on, over aiohttp where that is installed.

    The client has no time limits: `ServerConnection` sets one for the whole request.
    """
    import openai

    # Questions and answers are for the configured server alone: the openai package would follow redirects.
    options: dict[str, Any] = {"timeout": None, "follow_redirects": False, "event_hooks": {"response": [_cap]}}
    if transport == "aiohttp" or (transport == "auto" and has_aiohttp()):
        return openai.DefaultAioHttpClient(**options)
    if not _behind_proxy(base_url):  # the library's own client is the one that knows how to use a proxy
        options["transport"] = _ConnectionPools(base_url)
    return openai.DefaultAsyncHttpxClient(**options)


_ours: ContextVar[bool] = ContextVar("ragtrace_judge_request", default=False)


@contextmanager
def unlogged() -> Generator[None, None, None]:
    """Keep the HTTP library from logging the requests of this block, one INFO line each, in the application's log.

    Its warnings, and the requests of the application's own clients, are logged as ever.
    """
    logging.getLogger(_library().__name__).addFilter(_passes)  # adding it again changes nothing
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


def _passes(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not _ours.get()


@cache
def has_aiohttp() -> bool:
    """Return whether the openai package can use aiohttp here."""
    import openai

    bases = getattr(getattr(openai, "DefaultAioHttpClient", object), "__mro__", ())  # older versions have none
    return any("httpx_aiohttp" in base.__module__ for base in bases)  # it is a stand-in where that is missing


@cache
def load() -> None:
    """Import the modules that the first request would import: the HTTP library's transport and event loop backend.

    A fork copies the lock of a module that another thread is importing at that moment, held for ever: the child would
    hang at its first request.
    """
    with suppress(Exception):  # the first request reports what is wrong
        new_http_client("http://localhost")
    for name in ("httpcore._backends.anyio", "httpcore2._backends.anyio", "anyio._backends._asyncio"):
        with suppress(ImportError):
            import_module(name)
    # The openai package sends the machine and the system to its server. Python caches both, and holds a lock while it
    # determines them for the first time.
    with suppress(Exception):
        platform.platform()
        platform.processor()
        import_module("distro").id()


def new_request(like: Any, content: bytes) -> Any:
    """Return a request with *content* and, but for its length and cookies, the address and headers of *like*."""
    headers = [pair for pair in like.headers.raw if pair[0].lower() not in (b"content-length", b"cookie")]
    return type(like)(like.method, like.url, headers=headers, content=content, extensions=dict(like.extensions))


def response_type() -> Any:
    """Return the class of a raw response, for `client.post(cast_to=...)`."""
    return _library().Response


@cache
def _library() -> Any:
    """Return the module httpx, or httpx2 from version 3 of the openai package on."""
    import openai

    bases = openai.DefaultAsyncHttpxClient.__mro__
    client = next(base for base in bases if base.__name__ == "AsyncClient")
    return import_module(client.__module__.partition(".")[0])


def _behind_proxy(base_url: str) -> bool:
    address = urlsplit(base_url)
    proxies = getproxies()
    named = address.scheme in proxies or "all" in proxies
    return named and not proxy_bypass(address.hostname or "")


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context of all connections; reading the certificates takes 20 ms."""
    context: ssl.SSLContext = _library().create_ssl_context()
    return context


class _ConnectionPools:
    """Transport with one connection pool for each request in flight; the pool used last is used first.

    A pool of httpx looks through all its connections for each other one at every request: the CPU time of a request
    grows with the number in flight. A pool of one connection has nothing to look through.
    """

    def __init__(self, base_url: str) -> None:
        self._verify: ssl.SSLContext | bool = _tls() if base_url.startswith("https:") else False
        self._idle: list[Any] = []
        self._open: list[Any] = []

    async def handle_async_request(self, request: Any) -> Any:
        line = self._idle.pop() if self._idle else self._new()
        try:
            response = await line.handle_async_request(request)
        except BaseException:
            self._idle.append(line)
            raise
        response.stream = _stream_type()(response.stream, None, lambda: self._idle.append(line))
        return response

    def _new(self) -> Any:
        library = _library()
        limits = library.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=60.0)
        line = library.AsyncHTTPTransport(verify=self._verify, limits=limits)
        self._open.append(line)
        return line

    async def aclose(self) -> None:
        for line in self._open:
            await line.aclose()

    async def __aenter__(self) -> _ConnectionPools:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _cap(response: Any) -> None:
    packed = response.headers.get("content-encoding", "identity") != "identity"
    response.stream = _stream_type()(response.stream, _MOST_PACKED_BYTES if packed else MOST_REPLY_BYTES, None)


@cache
def _stream_type() -> Any:
    """Return the class of guarded streams; it is made on first use, because its base class belongs to the library."""
    library = _library()

    class Guarded(library.AsyncByteStream):  # type: ignore[misc,name-defined,unused-ignore]
        """Stream of a response that ends with an error beyond *most* bytes, and calls *closed* when it is closed."""

        def __init__(self, stream: Any, most: int | None, closed: Callable[[], None] | None) -> None:
            self._stream, self._left, self._closed = stream, most, closed

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self._stream:
                if self._left is not None:
                    self._left -= len(piece)
                    if self._left < 0:
                        raise TooLongError
                yield piece

        async def aclose(self) -> None:
            try:
                await self._stream.aclose()
            finally:
                closed, self._closed = self._closed, None
                if closed is not None:  # a stream may be closed twice, and the line is given back once
                    closed()

    return Guarded
