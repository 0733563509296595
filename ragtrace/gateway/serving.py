"""Operation of the gateway: starts the servers, and stops them without losing an acknowledged span."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.fleet.fleet_metrics import FleetMetrics
from ragtrace.fleet.publisher import FleetPublisher
from ragtrace.gateway.gateway import Gateway
from ragtrace.gateway.grpc_server import make_grpc_server
from ragtrace.gateway.http_server import HttpServer
from ragtrace.gateway.span_scoring import SpanScorer
from ragtrace.gateway.tls import ListenerTls
from ragtrace.gateway.upstream import Upstream, make_upstream
from ragtrace.runtime.current_runtime import current
from ragtrace.runtime.runtime import Runtime
from ragtrace.system.urls import displayed_url

TOKEN_VARIABLE: Final = "RAGTRACE_SERVE_TOKEN"
_TIMEOUT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
_COMPRESSION_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION")
_TIMEOUT_SECONDS: Final = 10.0
_BACKLOG: Final = 2_048
_LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of the gateway that are not arguments of `ragtrace.configure`."""

    host: str = "127.0.0.1"
    http_port: int = 4318
    """Port for OTLP/HTTP; 0: any free port."""
    grpc_port: int = 4317
    """Port for OTLP/gRPC; 0: any free port."""
    forward: bool = True
    """Whether received spans are forwarded to the OTLP endpoint of the environment."""
    token: str = field(default="", repr=False)
    tls: ListenerTls | None = None
    """Certificate and key of the listeners; None: the listeners use no TLS."""
    most_body_bytes: int = 16 << 20
    most_in_flight_bytes: int = 64 << 20
    queue_bytes: int = 64 << 20
    settle_seconds: float = 10.0
    parent_seconds: float = 60.0
    receive_seconds: float = 30.0
    """Seconds within which the headers of a request by HTTP must arrive, and then its body."""
    drain_seconds: float = 10.0
    """Seconds at shutdown for requests that are not answered yet and spans that are not read yet."""


@dataclass(frozen=True, slots=True)
class GatewayAddresses:
    """Addresses that the gateway listens on and forwards to."""

    http: str
    grpc: str
    upstream: str | None
    """Address of the upstream OTLP endpoint; None: spans are not forwarded."""


def upstream_endpoint(settings: GatewaySettings, environ: Mapping[str, str]) -> Endpoint | None:
    """Return the OTLP endpoint to which spans are forwarded, or None if they are not forwarded.

    Raises:
        SettingsError: a variable has a value that cannot be used, or the endpoint is the gateway itself.
    """
    from ragtrace_exporters.otlp import endpoints

    found = [each for each in endpoints(environ) if each.signal == "traces"] if settings.forward else []
    if not found:
        return None
    address = urlsplit(found[0].url if "://" in found[0].url else f"//{found[0].url}")
    if address.hostname in _LOCAL_HOSTS and address.port and address.port in (settings.http_port, settings.grpc_port):
        raise SettingsError(
            f"the OTLP endpoint {displayed_url(found[0].url)} (from {found[0].origin}) is the address of the gateway "
            "itself; set it to the backend's, choose another --http-port and --grpc-port, or write --no-forward"
        )
    return found[0]


def _timeout(environ: Mapping[str, str]) -> float:
    """Return the time limit in seconds for a request to the upstream."""
    given = next(filter(None, map(environ.get, _TIMEOUT_VARIABLES)), None)
    return _TIMEOUT_SECONDS if given is None else float(given)  # validated by the exporter of the scores


async def serve(
    settings: GatewaySettings,
    stop: asyncio.Event,
    *,
    started: Callable[[GatewayAddresses, Gateway], object] = lambda addresses, gateway: None,
    environ: Mapping[str, str] | None = None,
) -> bool:
    """Run the gateway until *stop* is set.

    Then new requests are refused, and requests in progress are finished.

    The calls in the spans go to the current runtime; `ragtrace.shutdown` afterwards delivers their scores.

    Args:
        settings: the settings.
        stop: set by a signal.
        started: called when the gateway listens.
        environ: the environment with the upstream; None: that of the process.

    Returns:
        Whether all spans were read that were to be scored.

    Raises:
        SettingsError: a value is wrong.
        OSError: a port cannot be listened on.
    """
    environ = os.environ if environ is None else environ
    endpoint = upstream_endpoint(settings, environ)
    upstream = None
    if endpoint is not None:
        compresses = any((environ.get(name) or "").strip().lower() == "gzip" for name in _COMPRESSION_VARIABLES)
        upstream = make_upstream(endpoint, _timeout(environ), compresses=compresses)
    tls = None if settings.tls is None else settings.tls.http_context()
    runtime = current()
    with _bind(settings.host, settings.http_port) as http_socket:
        scorer = None if runtime is None else _scorer(runtime, settings)
        gateway = Gateway(
            upstream,
            scorer,
            token=settings.token,
            most_body_bytes=settings.most_body_bytes,
            most_in_flight_bytes=settings.most_in_flight_bytes,
        )
        if runtime is not None:
            runtime.worker.start()  # now, as calls in the spool file must not wait for the first span
            gateway.add_metrics(runtime.telemetry.meter)
            if (publisher := runtime.parts.find(FleetPublisher)) is not None:
                FleetMetrics(lambda: publisher.watch.depths).add_to(runtime.telemetry.meter)
        switch_seconds = sys.getswitchinterval()
        # Switch interval of the interpreter in seconds, so that requests wait less for the scoring thread; default:
        # 0.005.
        sys.setswitchinterval(0.001)
        try:
            url = None if endpoint is None else displayed_url(endpoint.url)
            await _serve(settings, stop, gateway, http_socket, tls, started, url)
        finally:
            sys.setswitchinterval(switch_seconds)
            await _close(upstream)
            read = scorer is None or await asyncio.to_thread(scorer.stop, settings.drain_seconds)
    return read


async def _serve(
    settings: GatewaySettings,
    stop: asyncio.Event,
    gateway: Gateway,
    http_socket: socket.socket,
    tls: ssl.SSLContext | None,
    started: Callable[[GatewayAddresses, Gateway], object],
    upstream: str | None,
) -> None:
    grpc_server = make_grpc_server(gateway)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        grpc_address = f"{host}:{settings.grpc_port}"
        grpc_port = (
            grpc_server.add_insecure_port(grpc_address)
            if settings.tls is None
            else grpc_server.add_secure_port(grpc_address, settings.tls.grpc_credentials())
        )
    except RuntimeError as error:
        raise OSError(f"cannot listen on {host}:{settings.grpc_port} for OTLP/gRPC: {error}") from error
    http_server = HttpServer(gateway, settings.receive_seconds, settings.drain_seconds, tls)
    await grpc_server.start()
    http_task = asyncio.ensure_future(http_server.serve(sockets=[http_socket]))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        http_port = http_socket.getsockname()[1]
        scheme = "http" if tls is None else "https"
        started(GatewayAddresses(f"{scheme}://{host}:{http_port}/v1/traces", f"{host}:{grpc_port}", upstream), gateway)
        await asyncio.wait({http_task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        gateway.draining = True
        http_server.should_exit = True
        await grpc_server.stop(settings.drain_seconds)
        await http_task


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit the option, without which an answer with a body waits 40 ms for an acknowledgement.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            bound.bind((host, port))
            bound.listen(_BACKLOG)  # connections wait until the server accepts them, so that none is refused meanwhile
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port} for OTLP/HTTP: {error.strerror or error}") from error
    return bound


def _scorer(runtime: Runtime, settings: GatewaySettings) -> SpanScorer:
    return SpanScorer(
        runtime.call_ended,
        has_room=lambda: runtime.worker.has_room_for_judging,
        most_bytes=settings.queue_bytes,
        settle_seconds=settings.settle_seconds,
        parent_seconds=settings.parent_seconds,
    )


async def _close(upstream: Upstream | None) -> None:
    if upstream is not None:
        await upstream.aclose()
