"""OTLP/HTTP server of the gateway: `/v1/traces` in protobuf and JSON, `/healthz` and `/readyz`."""

from __future__ import annotations

import math
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import uvicorn
from google.rpc.status_pb2 import Status as RpcStatus
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ragtrace.gateway.otlp_requests import Content, ExportRequest, ExportResult, RefusedError, encode_message
from ragtrace.gateway.upstream import MEDIA_TYPES

if TYPE_CHECKING:
    from ragtrace.gateway.gateway import Gateway

_CONTENT_OF: Final[dict[str, Content]] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_STATUSES: Final = {
    "accepted": 200, "invalid": 400, "unauthenticated": 401, "too_large": 413, "unsupported": 415, "unavailable": 503
}  # fmt: skip
_CODES: Final = {"invalid": 3, "unauthenticated": 16, "too_large": 8, "unsupported": 3, "unavailable": 14}
"""gRPC status code for each kind of refusal, which the status message in the body carries."""


class HttpServer(uvicorn.Server):
    """HTTP server of the gateway, without signal handlers of its own.

    Args:
        gateway: takes the requests.
        receive_seconds: seconds within which the headers of a request must arrive, and then its body.
        drain_seconds: seconds for which a shutdown waits for requests that are not answered yet.
        tls: TLS context; None: plain HTTP.
    """

    def __init__(
        self, gateway: Gateway, receive_seconds: float, drain_seconds: float, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                _application(gateway),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=math.ceil(drain_seconds),
            )
        )
        # Replaces the context that uvicorn makes from files, which offers only the oldest ciphers to TLS 1.2 clients.
        self.config.load()
        self.config.ssl = tls
        self._receive_seconds = receive_seconds
        self._receiving: WeakKeyDictionary[Any, tuple[object, float]] = WeakKeyDictionary()
        """Connections that wait for headers or a body, with what they wait for and since when."""

    async def on_tick(self, counter: int) -> bool:
        """Close connections that take too long to send the headers or the body of a request.

        Uvicorn, which calls this ten times a second, waits for them for ever.
        """
        now = monotonic()
        connections: list[Any] = list(self.server_state.connections)
        for connection in connections:
            cycle = connection.cycle
            answering = cycle is not None and not cycle.response_complete
            if answering and cycle is not None and not cycle.more_body:
                self._receiving.pop(connection, None)
                continue
            state = (cycle, answering)
            before, since = self._receiving.get(connection, (None, now))
            if state != before:
                self._receiving[connection] = state, now
            elif now - since > self._receive_seconds:
                connection.transport.close()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers, unlike the base class."""
        yield


def _application(gateway: Gateway) -> Starlette:
    async def export(request: Request) -> Response:
        content = _CONTENT_OF.get(request.headers.get("content-type", "").partition(";")[0].strip().lower())
        result = gateway.authorize(request.headers.get("authorization", ""))
        if result is None and content is None:
            message = "the content type must be application/x-protobuf or application/json"
            result = gateway.refuse(ExportResult("unsupported", "content_type", message))
        if result is None and content is not None:
            result = await _export(gateway, request, content)
        return Response(status_code=400) if result is None else _response(result, content or "protobuf")

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readiness(_: Request) -> Response:
        return PlainTextResponse("shutting down\n", 503) if gateway.draining else PlainTextResponse("ready\n")

    return Starlette(
        routes=[
            Route("/v1/traces", export, methods=["POST"]),
            Route("/healthz", health),
            Route("/readyz", readiness),
        ]
    )


async def _export(gateway: Gateway, request: Request, content: Content) -> ExportResult | None:
    """Read the body of *request* and export it, or return None if the client has disconnected."""
    too_large = ExportResult("too_large", "too_large", f"the request is larger than {gateway.most_body_bytes:,} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > gateway.most_body_bytes:
        return gateway.refuse(too_large)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            gateway.reserve(len(chunk))
            size += len(chunk)
            if size > gateway.most_body_bytes:
                return gateway.refuse(too_large)
            chunks.append(chunk)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        return await gateway.export(ExportRequest(b"".join(chunks), content, encoding))
    except ClientDisconnect:
        return None
    except RefusedError as refused:
        return gateway.refuse(refused.result)
    finally:
        gateway.release(size)


def _response(result: ExportResult, content: Content) -> Response:
    headers: dict[str, str] = {}
    if result.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(result.retry_after)))
    if result.status == "unauthenticated":
        headers["www-authenticate"] = "Bearer"
    body = result.response
    if result.status != "accepted":
        status = RpcStatus(code=_CODES[result.status], message=result.message)
        body = encode_message(status, content)
    elif content == "json" and not body:
        body = b"{}"
    return Response(body, _STATUSES[result.status], headers, MEDIA_TYPES[content])
