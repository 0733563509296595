"""Command `ragtrace serve`, an OTLP gateway that forwards spans and scores the RAG calls in them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragtrace.cli.command_options import add_command, positive_seconds, whole_number
from ragtrace.system.terminal import FAILURE, OK, USAGE, flush, print_error

if TYPE_CHECKING:
    from ragtrace.gateway.serving import GatewayAddresses, GatewaySettings

_SERVE = """\
Receives spans by OTLP from applications in any language, forwards them to the
OTLP endpoint of the environment, and scores the RAG calls in them.
"""
_MIB = 1 << 20


def register(commands: Any) -> None:
    """Add the command `ragtrace serve` to the parser of the command line."""
    summary = "receive spans by OTLP, forward them, score the calls"
    parser = add_command(commands, "serve", run, summary, "serve [options]", _SERVE)
    port, mib = whole_number(0, 65_535), whole_number(1, 1 << 20)
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="arguments of ragtrace.configure")
    parser.add_argument("--broker", metavar="URL", help="leave judging to a fleet: amqp:// or redis://")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--http-port", type=port, default=4318, metavar="N", help="default 4318; 0: any free port")
    parser.add_argument("--grpc-port", type=port, default=4317, metavar="N", help="default 4317; 0: any free port")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate (PEM), for both protocols")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of the certificate (PEM)")
    parser.add_argument("--tls-client-ca", type=Path, metavar="FILE", help="authorities of clients' certificates (PEM)")
    parser.add_argument("--no-forward", action="store_true", help="score the spans, and do not forward them")
    parser.add_argument("--max-body-mib", type=mib, default=16, metavar="N", help="size of a request (default 16)")
    parser.add_argument(
        "--max-in-flight-mib", type=mib, default=64, metavar="N", help="size of unanswered requests (default 64)"
    )
    parser.add_argument(
        "--queue-mib", type=mib, default=64, metavar="N", help="size of requests to be scored (default 64)"
    )
    parser.add_argument(
        "--settle-seconds",
        type=positive_seconds,
        default=10.0,
        metavar="S",
        help="wait for more spans of a call (default 10)",
    )
    parser.add_argument(
        "--parent-seconds",
        type=positive_seconds,
        default=60.0,
        metavar="S",
        help="wait for the spans above steps (default 60)",
    )
    parser.add_argument(
        "--drain-seconds",
        type=positive_seconds,
        default=10.0,
        metavar="S",
        help="time to finish at the end (default 10)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace serve` until a signal ends it, and return the exit status."""
    from ragtrace.core.errors import SettingsError

    missing = [name for name in ("starlette", "uvicorn", "aiohttp") if find_spec(name) is None]
    if missing:
        print_error(f"{' and '.join(missing)} is not installed; write: pip install 'ragtrace-otel[serve]'")
        return USAGE
    import ragtrace
    from ragtrace.gateway.config_file import read_config
    from ragtrace.gateway.serving import TOKEN_VARIABLE, GatewaySettings, upstream_endpoint
    from ragtrace.gateway.tls import ListenerTls

    tls = None
    if options.tls_cert is not None and options.tls_key is not None:
        tls = ListenerTls(options.tls_cert, options.tls_key, options.tls_client_ca)
    elif (options.tls_cert, options.tls_key, options.tls_client_ca) != (None, None, None):
        print_error("--tls-cert and --tls-key belong together, and --tls-client-ca needs both")
        return USAGE
    settings = GatewaySettings(
        host=options.host,
        http_port=options.http_port,
        grpc_port=options.grpc_port,
        forward=not options.no_forward,
        token=os.environ.get(TOKEN_VARIABLE, "").strip(),
        tls=tls,
        most_body_bytes=options.max_body_mib * _MIB,
        most_in_flight_bytes=options.max_in_flight_mib * _MIB,
        queue_bytes=options.queue_mib * _MIB,
        settle_seconds=options.settle_seconds,
        parent_seconds=options.parent_seconds,
        drain_seconds=options.drain_seconds,
    )
    try:
        broker = options.broker or os.environ.get("RAGTRACE_FLEET", "")
        arguments = {} if options.config is None else read_config(options.config, broker=broker)
        if options.broker:
            arguments["fleet"] = options.broker
        upstream_endpoint(settings, os.environ)
        ragtrace.configure(**arguments)
    except SettingsError as error:
        print_error(str(error))
        return USAGE
    try:
        read = asyncio.run(_serve(settings))
    except (SettingsError, OSError) as error:
        print_error(str(error))
        ragtrace.shutdown(timeout=settings.drain_seconds)
        return USAGE if isinstance(error, SettingsError) else FAILURE
    delivered = ragtrace.shutdown(timeout=settings.drain_seconds)
    return OK if read and delivered else FAILURE


async def _serve(settings: GatewaySettings) -> bool:
    from ragtrace.gateway.serving import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)  # the event loop's own signal handlers do not exist on Windows
    return await serve(settings, stop, started=lambda addresses, _: _announce(settings, addresses))


def _announce(settings: GatewaySettings, addresses: GatewayAddresses) -> None:
    sent = "not forwarded" if addresses.upstream is None else f"forwarded to {addresses.upstream}"
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"ragtrace: OTLP/HTTP on {addresses.http}, OTLP/gRPC on {addresses.grpc}; spans are {sent}\n")
        flush(sys.stdout)
    checks_clients = settings.token or (settings.tls is not None and settings.tls.client_ca is not None)
    if not checks_clients and settings.host not in ("127.0.0.1", "localhost", "::1"):
        print_error(f"listening on {settings.host} without a token; set RAGTRACE_SERVE_TOKEN to keep other senders out")
