"""Sends one request to a server through the openai package, and turns what goes wrong into a `JudgeError`.

The package is imported, and a client made, at the first request. A client belongs to the event loop it is first used
on, and is closed with that loop (or by `aclose`). After a fork, the child leaves its parent's clients alone.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, get_args

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.judges.llm.server_errors import server_error
from ragtrace.judges.llm.transport import (
    MOST_REPLY_BYTES,
    TooLongError,
    Transport,
    new_http_client,
    new_request,
    response_type,
    unlogged,
)

OPENAI: Final = "https://api.openai.com/v1"
_NO_KEY: Final = "none"
"""Local servers need no key, but the openai package does."""
_SHOWN_CHARS: Final = 200

_abandoned: list[object] = []
"""Clients of a parent process: even to collect them could touch the sockets both processes have."""


@dataclass(slots=True)
class _LoopClient:
    """A client of the openai package on its event loop."""

    loop: asyncio.AbstractEventLoop
    pid: int
    client: Any
    http: Any
    """HTTP client under a client of our own; None: the client was given."""
    keeper: AsyncGenerator[None, None]
    """Closes the client when it is closed; an event loop closes all generators left open when it ends."""
    requests: dict[str, Any] = field(default_factory=dict[str, Any])
    """By path, a request as the openai package made it, once one was answered."""


class ServerConnection:
    """A server that speaks OpenAI's HTTP protocol.

    Args:
        base_url: up to and including "/v1"; default: the environment variable OPENAI_BASE_URL, or OpenAI.
        api_key: default: the environment variable OPENAI_API_KEY; servers other than OpenAI's may need none.
        timeout: seconds for one request, from its start to the last byte of the reply.
        client: an `openai.AsyncOpenAI` or `AsyncAzureOpenAI` to use instead, as it is but without its retries. It must
            be used on one event loop only, and `ServerConnection` does not close it.
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
        client: object | None = None,
        transport: Transport = "auto",
    ) -> None:
        if transport not in get_args(Transport):
            raise SettingsError(f"transport must be auto, aiohttp or httpx, got {transport!r}")
        if not timeout > 0:
            raise SettingsError(f"timeout must be more than 0 seconds, got {timeout!r}")
        if client is not None and not inspect.iscoroutinefunction(getattr(client, "post", None)):
            kind = type(client).__name__
            raise SettingsError(f"client must be an openai.AsyncOpenAI or openai.AsyncAzureOpenAI, got {kind}")
        self._base_url, self._key, self.timeout, self._given = base_url, api_key, timeout, client
        self._transport: Transport = transport
        self._clients: dict[int, _LoopClient] = {}

    @property
    def server(self) -> str:
        """Base URL of the server, without a slash at the end."""
        given: Any = self._given
        url = self._base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        return str(url if given is None else given.base_url).rstrip("/")

    async def post(self, path: str, body: Mapping[str, object]) -> bytes:
        """Return the body that the server answers with.

        Raises:
            ServerError: it answered with an error.
            JudgeError: "unavailable": it could not be reached, or a package or key is missing; "timeout"; "unparsable":
                the reply was longer than any reply can be.
        """
        return await self._request("post", path, body=body)

    async def get(self, path: str) -> bytes:
        """Return the body that the server answers a request without a body with. Raises as `post`."""
        return await self._request("get", path)

    async def _request(self, method: str, path: str, **content: object) -> bytes:
        try:
            found = await self._client()
            like = found.requests.get(path) if method == "post" else None
            if like is None:
                request = getattr(found.client, method)(path, cast_to=response_type(), **content)
            else:
                request = self._send(found.http, like, content["body"])
            with unlogged():
                response = await asyncio.wait_for(request, self.timeout)
            body: bytes = response.content
        except (asyncio.CancelledError, GeneratorExit, JudgeError):
            raise
        except asyncio.TimeoutError:
            raise JudgeError("timeout", f"no full answer from {self.server} within {self.timeout:g} s") from None
        except Exception as error:
            raise self._judge_error(error) from error
        if len(body) > MOST_REPLY_BYTES:  # a client given to us has no cap of ours
            raise _too_long()
        if method == "post" and like is None and found.http is not None:
            found.requests[path] = new_request(response.request, b"")
        return body

    async def _send(self, http: Any, like: Any, body: object) -> Any:
        """Send *body* with the address and headers of *like*.

        The openai package builds each request anew, with copies of all options, in half of the CPU time of a request.
        """
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        request = new_request(like, content)
        try:
            response = await http.send(request)
        except TooLongError:
            raise
        except Exception as error:
            raise self._unreached(error) from error
        if not response.is_success:
            raise self._without_key(server_error(response.status_code, response.headers, response.content))
        return response

    def _judge_error(self, error: Exception) -> JudgeError:
        import openai

        if isinstance(error, TooLongError) or isinstance(error.__cause__, TooLongError):
            return _too_long()
        if isinstance(error, openai.APIStatusError):
            response = error.response
            return self._without_key(server_error(response.status_code, response.headers, response.content))
        if isinstance(error, openai.APITimeoutError) and self._given is not None:
            return JudgeError("timeout", f"{self.server}: {type(error.__cause__ or error).__name__}")
        if isinstance(error, openai.APIConnectionError):  # our own clients have no time limits to run into
            return self._unreached(error.__cause__ or error)
        why = f"{type(error).__name__}: {error}"[:_SHOWN_CHARS]
        return self._without_key(JudgeError("unavailable", why, retryable=False))

    def _unreached(self, error: BaseException) -> JudgeError:
        return self._without_key(JudgeError("unavailable", f"{self.server}: {str(error)[:_SHOWN_CHARS]}"))

    def _without_key(self, error: JudgeError) -> JudgeError:
        """Return *error*, whose text may quote the request, without the API key: the text ends up in telemetry."""
        given: Any = self._given
        key = self._key or getattr(given, "api_key", None) or os.environ.get("OPENAI_API_KEY")
        if isinstance(key, str) and len(key) >= 8 and key in error.detail:
            error.detail = error.detail.replace(key, "***")
            error.args = (f"{error.reason}: {error.detail}",)
        return error

    # --- clients -----------------------------------------------------------------------------------------------------

    async def _client(self) -> _LoopClient:
        """Return the client of the running event loop, made at the first request."""
        loop = asyncio.get_running_loop()
        found = self._opened(loop)
        if found is None and "openai" not in sys.modules:
            with suppress(RuntimeError):  # no thread can be started any more: the process is ending
                await asyncio.to_thread(import_module, "openai")  # it can take a second
            found = self._opened(loop)  # by another request meanwhile
        return found or await self._open(loop)

    def _opened(self, loop: asyncio.AbstractEventLoop) -> _LoopClient | None:
        found = self._clients.get(id(loop))
        return found if found is not None and found.loop is loop and found.pid == os.getpid() else None

    async def _open(self, loop: asyncio.AbstractEventLoop) -> _LoopClient:
        for key, old in list(self._clients.items()):
            if old.pid != os.getpid():
                _abandoned.append(self._clients.pop(key, None))
            elif old.loop.is_closed():
                self._clients.pop(key, None)
        client, http = self._new()
        keeper = _kept(None if http is None else client)
        made = self._clients[id(loop)] = _LoopClient(loop, os.getpid(), client, http, keeper)
        await keeper.__anext__()
        return made

    def _new(self) -> tuple[Any, Any]:
        """Return a client, and the HTTP client under it if that is our own."""
        import openai

        if self._given is not None:
            given: Any = self._given
            return given.with_options(max_retries=0), None
        key = self._key or os.environ.get("OPENAI_API_KEY")
        if not key and self.server == OPENAI:
            todo = "set OPENAI_API_KEY, or pass api_key="
            raise JudgeError("unavailable", f"no API key for {self.server}: {todo}", retryable=False)
        http = new_http_client(self.server, self._transport)
        client: Any = openai.AsyncOpenAI(
            api_key=key or _NO_KEY,
            base_url=self.server,
            max_retries=0,  # the judge's client has a deadline, and knows the Retry-After of other requests
            timeout=None,
            http_client=http,
            default_headers={"Accept-Encoding": "identity"},
        )
        return client, http

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        found = self._clients.pop(id(asyncio.get_running_loop()), None)
        if found is not None and found.pid == os.getpid():
            await found.keeper.aclose()


def _too_long() -> JudgeError:
    return JudgeError("unparsable", f"a reply of more than {MOST_REPLY_BYTES} bytes", retryable=False)


async def _kept(client: Any) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if client is not None:
            await client.close()
