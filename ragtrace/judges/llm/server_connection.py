"""Posts JSON to an OpenAI-compatible server, and turns every failure into a `JudgeError`.

Requests are made by the `AsyncOpenAI` client of the openai package, or one that the user's function makes: it knows the
server's address, headers, authentication and proxies. Its `post` is used, not its resources, which take twice the CPU
time for a reply that is read more strictly here. A client belongs to the event loop and the process that it is first
used in, and is closed with that loop or by `aclose`. After a fork, the child leaves its parent's clients alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.judges.llm.server_errors import ServerError
from ragtrace.system.forks import PerProcess
from ragtrace.system.urls import displayed_url, without_user

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ClientMaker: TypeAlias = "Callable[[], AsyncOpenAI]"
"""Function that makes a client, for instance `lambda: AsyncAzureOpenAI(...)`."""
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
_REQUEST_HEADERS: Final = {
    "Accept-Encoding": "identity",
    "X-Stainless-Raw-Response": "stream",  # the client returns before it has read the body
}
_LOGGERS: Final = ("httpx", "httpx2", "openai._base_client")
"""Loggers of libraries that tell of requests: their addresses, and what is sent."""

_in_request: ContextVar[bool] = ContextVar("ragtrace_judge_request", default=False)
_turn: ContextVar[_Turn | None] = ContextVar("ragtrace_judge_turn", default=None)


class _Turn:
    """Turn to prepare a request, which one request of a client has at a time and which ends when it is sent.

    The HTTP libraries let other tasks run many times while they prepare a request. Without turns, requests that begin
    together are all prepared in step and all sent at the end of that time, again and again: their replies come
    together, too. With turns the first one is on its way while the next one is prepared.

    Args:
        lock: lock of the client.
    """

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self.lasts = False
        """Whether the turn has begun and not ended."""

    async def begin(self) -> None:
        """Wait for the turn."""
        await self._lock.acquire()
        self.lasts = True

    def end(self) -> None:
        """End the turn, if it lasts."""
        if self.lasts:
            self.lasts = False
            self._lock.release()


@dataclass(slots=True)
class _LoopClient:
    """Client by which one asyncio event loop sends requests to an LLM server."""

    loop: asyncio.AbstractEventLoop
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock that is held while the client is made."""
    client: AsyncOpenAI | None = None
    """The client; None until it is made."""
    closer: AsyncGenerator[None, None] | None = None
    """Generator that closes the client when it is closed, as an event loop does with open generators when it ends."""
    preparing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock that is held by the `_Turn` of a request."""


class ServerConnection:
    """HTTP connection to an OpenAI-compatible server: posts JSON and returns the response.

    Args:
        base_url: up to and including "/v1"; default: the environment variable OPENAI_BASE_URL, or OpenAI.
        api_key: default: the environment variable OPENAI_API_KEY; servers other than OpenAI's may need none.
        timeout: seconds for one request, from its start to the last byte of the reply.
        transport: HTTP library: "aiohttp", "httpx", or "auto": aiohttp where it is installed.
        client: makes a client in place of the other arguments about the server. It is called once for each event loop
            and process, because an HTTP client can be used in one only.

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
        client: ClientMaker | None = None,
    ) -> None:
        if transport not in get_args(Transport):
            raise SettingsError(f"transport must be auto, aiohttp or httpx, got {transport!r}")
        if not timeout > 0:
            raise SettingsError(f"timeout must be more than 0 seconds, got {timeout!r}")
        if client is not None and (base_url or api_key):
            raise SettingsError("client= and base_url= or api_key= are both given; give the client its address and key")
        self._base_url, self._key, self.timeout = base_url, api_key, timeout
        self._transport: Transport = transport
        self._make, self._spare = client, None if client is None else _checked_client(client)
        self._client_url = "" if self._spare is None else str(self._spare.base_url).rstrip("/")
        # Deleting a client of the parent process could touch the sockets that both processes have.
        self._clients: PerProcess[dict[int, _LoopClient]] = PerProcess(dict, keeps_parents=True)

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy begins with: no client, which belongs to one event loop and process."""
        return {**vars(self), "_spare": None}

    @property
    def server(self) -> str:
        """Base URL of the server for messages, without what may be secret in it, and without a slash at the end."""
        return displayed_url(self.url)

    @property
    def url(self) -> str:
        """Base URL of the server, without a slash at the end. It may hold secrets: messages show `server`."""
        return self._client_url or (self._base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI).rstrip("/")

    async def post(self, path: str, body: Mapping[str, object]) -> bytes:
        """Send *body* as JSON to *path* of the server, and return the body of the response.

        Raises:
            ServerError: it answered with an error.
            JudgeError: "unavailable": it could not be reached, or a key is missing; "timeout"; "unparsable": the reply
                was longer than any reply can be.
        """
        key = self._key or os.environ.get("OPENAI_API_KEY") or ""
        outcome: bytes | Exception = b""
        failure: JudgeError | None = None
        try:
            if not key and self.url == OPENAI and self._make is None:
                todo = "set OPENAI_API_KEY, or pass api_key="
                raise JudgeError("unavailable", f"no API key for {self.server}: {todo}", retryable=False)
            client = (
                await self._loop_client()
            )  # before the timeout starts: the first call may import the openai package
            if self._make is None:
                client.api_key = key or _NO_KEY  # as the environment has it by now
            outcome = await asyncio.wait_for(self._post_outcome(client, path, body), self.timeout)
            if isinstance(outcome, bytes):
                return outcome
            raise outcome
        except asyncio.TimeoutError:
            raise JudgeError("timeout", f"no full answer from {self.server} within {self.timeout:g} s") from None
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:_SHOWN_CHARS]
            failure = error if isinstance(error, JudgeError) else JudgeError("unavailable", why, retryable=False)
            # Servers quote the request, and HTTP clients the address; the text ends up in telemetry.
            shown = {secret: "***" for secret in {key, *self._keys_of_clients()} if len(secret) >= 8}
            for secret, instead in {self.url: self.server, **shown, **_secrets_of(self.url)}.items():
                if secret in failure.detail:
                    failure.detail = failure.detail.replace(secret, instead)
                    failure.args = (f"{failure.reason}: {failure.detail}",)
            raise failure from (error.__cause__ if failure is error else error)
        finally:
            del outcome, failure  # the error's traceback has this frame

    def _keys_of_clients(self) -> list[str]:
        return [
            key
            for found in self._clients.get().values()
            if isinstance(key := getattr(found.client, "api_key", ""), str)
        ]

    async def _post_outcome(self, client: AsyncOpenAI, path: str, body: Mapping[str, object]) -> bytes | Exception:
        """Post as `_post` does, and return what that raises.

        Through `asyncio.wait_for` no error is raised: up to Python 3.11, its frame would keep the error, which has the
        frame in its traceback, so that the texts of the request would wait for the garbage collector.
        """
        try:
            return await self._post(client, path, body)
        except Exception as error:
            return error

    async def _post(self, client: AsyncOpenAI, path: str, body: Mapping[str, object]) -> bytes:
        import openai

        # A whole address is not merged with that of the client.
        address, authorization = (path, {}) if self._make is not None else without_user(self.url + path)
        headers = _REQUEST_HEADERS | authorization
        token = _in_request.set(True)
        try:
            async with self.turn():
                response: Any = await client.post(
                    address, cast_to=object, body=body, options={"headers": headers, "max_retries": 0, "timeout": None}
                )
            return await _read_body(response)
        except JudgeError:
            raise
        except openai.APIStatusError as error:
            raise ServerError(error.status_code, error.response.headers, error.response.content) from None
        except openai.OpenAIError as error:
            if isinstance(cause := error.__cause__, JudgeError):
                # Of which *error* is the context now: were it also the cause of *error*, neither would ever be freed.
                error.__cause__ = error.__context__ = None
                try:
                    raise cause from None
                finally:
                    del cause  # its traceback has this frame
            raise JudgeError("unavailable", f"{self.server}: {_reason_of(error)}") from error
        except Exception as error:
            raise JudgeError("unavailable", f"{self.server}: {str(error)[:_SHOWN_CHARS]}") from error
        finally:
            _in_request.reset(token)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Hold the turn to prepare a request, which ends when one is sent, or else with the block.

        A `post` within the block is part of the turn; one outside has a turn of its own. Without a client of this
        event loop yet, and with one that the user's function made, nothing is held.
        """
        loop, current = asyncio.get_running_loop(), _turn.get()
        found = self._clients.get().get(id(loop))
        is_made = found is not None and found.loop is loop and found.client is not None
        # A client of the user's would not tell when it sends a request.
        if found is None or not is_made or self._make is not None or (current is not None and current.lasts):
            yield
            return
        turn = _Turn(found.preparing)
        token = _turn.set(turn)
        try:
            await turn.begin()
            yield
        finally:
            turn.end()
            _turn.reset(token)

    async def _loop_client(self) -> AsyncOpenAI:
        """Return the client of the running event loop; it is created on first use."""
        loop = asyncio.get_running_loop()
        clients = self._clients.get()
        found = clients.get(id(loop))
        if found is None or found.loop is not loop:
            for key, old in list(clients.items()):
                if old.loop.is_closed():
                    clients.pop(key, None)
            found = clients[id(loop)] = _LoopClient(loop)
        if found.client is not None:
            return found.client
        async with found.opening:  # requests that begin together make one client
            if found.client is None:
                client = await self._new_client()
                found.closer = _close_at_end(client)
                await found.closer.__anext__()
                found.client = client
            return found.client

    async def _new_client(self) -> AsyncOpenAI:
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_keeps_log_record)  # adding the filter again changes nothing
        if self._make is not None:
            client, self._spare = self._spare or _checked_client(self._make), None
            return client
        # Importing the openai package can take a second, and reading the certificates takes 20 ms: other tasks of the
        # event loop run meanwhile. No module is imported here that another thread may be importing.
        with suppress(RuntimeError):  # no thread can be started any more: the process is ending
            return await asyncio.to_thread(self._own_client)
        return self._own_client()

    def _own_client(self) -> AsyncOpenAI:
        aiohttp = self._transport == "aiohttp" or (self._transport == "auto" and has_aiohttp())
        return _own_client(without_user(self.url)[0], self._key or _NO_KEY, aiohttp=aiohttp)

    async def aclose(self) -> None:
        """Close the connections to the server that the running event loop has opened."""
        found = self._clients.get().pop(id(asyncio.get_running_loop()), None)
        if found is not None and found.closer is not None:
            await found.closer.aclose()


async def _read_body(response: Any) -> bytes:
    """Return the body of a response that was not read yet.

    Raises:
        JudgeError: "unparsable": it is longer than any reply can be.
    """
    raw, http = bytearray(), response.http_response
    try:
        packed = http.headers.get("content-encoding", "identity") != "identity"
        async for piece in http.aiter_raw():
            raw += piece
            if len(raw) > (_MOST_PACKED_BYTES if packed else MOST_REPLY_BYTES):
                raise JudgeError("unparsable", f"a reply of more than {MOST_REPLY_BYTES} bytes", retryable=False)
    finally:
        await http.aclose()
    if not packed:
        return bytes(raw)
    unpacked: bytes = type(http)(http.status_code, headers=http.headers, content=bytes(raw)).content
    return unpacked


def _reason_of(error: BaseException) -> str:
    """Return the text of the first cause of *error*, as the client's own says "Connection error." of everything."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)[:_SHOWN_CHARS] or type(error).__name__


async def _close_at_end(client: AsyncOpenAI) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.close()


def _checked_client(make: object) -> AsyncOpenAI:
    """Call *make* and return the client.

    Raises:
        SettingsError: *make* is no function, failed, or returned no asynchronous client.
    """
    import openai

    if not callable(make) or isinstance(make, (openai.AsyncOpenAI, openai.OpenAI)):
        kind = type(make).__name__
        raise SettingsError(
            f"client= must be a function that makes a client, got {kind}: a client can be used in one event loop and "
            f"one process only; write client=lambda: {kind if 'OpenAI' in kind else 'openai.AsyncOpenAI'}(...)"
        )
    try:
        client = make()
    except Exception as error:
        raise SettingsError(f"client= could not make a client: {type(error).__name__}: {error}") from error
    if not isinstance(client, openai.AsyncOpenAI):
        raise SettingsError(
            f"client= must make an openai.AsyncOpenAI (AsyncAzureOpenAI is one), got {type(client).__name__}"
        )
    return client


def _own_client(server: str, key: str, *, aiohttp: bool) -> AsyncOpenAI:
    """Create a client without a timeout: `ServerConnection` limits the time of the whole request."""
    import openai

    hooks = {"request": [_end_turn], "response": [_bound_error]}
    # Questions and answers are for the configured server alone, so that a redirect is not followed.
    options: dict[str, Any] = {"timeout": None, "follow_redirects": False, "event_hooks": hooks}
    library = openai.DefaultAioHttpClient if aiohttp else openai.DefaultAsyncHttpxClient
    return _plain_client_class()(base_url=server, api_key=key, max_retries=0, http_client=library(**options))


@cache
def _plain_client_class() -> type[AsyncOpenAI]:
    """Return the class of ragtrace's own clients, which do not tell the server about the machine that they run on.

    Those headers would be half of a request's, and a tenth of its CPU time.
    """
    import openai

    class PlainClient(openai.AsyncOpenAI):
        """Client of the openai package with the headers that a request needs."""

        @property
        def default_headers(self) -> dict[str, Any]:
            headers: dict[str, Any] = {
                "Accept": "application/json",
                "Content-Type": "application/json",
                "User-Agent": "ragtrace",
                "Authorization": f"Bearer {self.api_key}",
            }
            named = {"OpenAI-Organization": self.organization, "OpenAI-Project": self.project}
            return headers | {name: value for name, value in named.items() if value is not None}

    return PlainClient


async def _end_turn(request: object) -> None:
    """End the turn of *request*, which is about to be sent."""
    if (turn := _turn.get()) is not None:
        turn.end()


async def _bound_error(response: Any) -> None:
    """Raise the error that *response* is before the client reads its body, which may have no end."""
    if response.is_success:
        return
    raw = bytearray()
    async for piece in response.aiter_raw():
        raw += piece
        if len(raw) > _MOST_PACKED_BYTES:
            break
    await response.aclose()
    raise ServerError(response.status_code, response.headers, bytes(raw))


def _keeps_log_record(record: logging.LogRecord) -> bool:
    """Return False for debug and info log records about ragtrace's own LLM requests, and True for all others.

    The requests are not the application's own; warnings and errors are kept.
    """
    return record.levelno > logging.INFO or not _in_request.get()


@cache
def has_aiohttp() -> bool:
    """Return whether the installed openai package can use aiohttp as its HTTP library."""
    try:
        import openai

        # Raises where aiohttp is missing. It opens nothing yet, and needs no certificates, whose reading takes 20 ms.
        openai.DefaultAioHttpClient(verify=False)
    except Exception:  # older versions have none
        return False
    return True


@cache
def import_http_library() -> None:
    """Import the HTTP library, including modules that it would otherwise import at the first request.

    A fork copies the lock of a module that another thread is importing at that moment, held for ever: the child would
    hang at its first request. The same goes for the lock under which Python asks what machine this is, which a client
    wants to know at its first request.
    """
    platform.processor()
    with suppress(Exception):  # the first request reports what is wrong
        _own_client("http://localhost", _NO_KEY, aiohttp=has_aiohttp())
    for name in ("httpcore._backends.anyio", "httpcore2._backends.anyio", "anyio._backends._asyncio"):
        with suppress(ImportError):
            import_module(name)


def _secrets_of(url: str) -> dict[str, str]:
    """Return the user and the password in *url*, as they stand in it, with what is shown instead."""
    user, found, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    return {part: "***" for part in (user, *user.split(":", 1)) if len(part) >= 4} if found else {}
