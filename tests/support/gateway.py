"""Gateways in a thread or a process, upstreams that keep the bytes they get, and an application that is traced."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.trace import SpanContext, set_span_in_context

from ragtrace.gateway.gateway import Gateway
from ragtrace.gateway.serving import GatewayAddresses, GatewaySettings, serve
from ragtrace.gateway.upstream import METHOD, SERVICE

START_S = 20.0
END_S = 40.0
QUESTION = "How tall is the Eiffel Tower?"
PASSAGE = "The Eiffel Tower in Paris is 330 metres tall."
ANSWER = "The Eiffel Tower is 330 metres tall."


@dataclass(frozen=True)
class RunningGateway:
    """A gateway that listens on free ports."""

    gateway: Gateway
    addresses: GatewayAddresses

    @property
    def url(self) -> str:
        """Address of OTLP/HTTP."""
        return self.addresses.http

    @property
    def root(self) -> str:
        """Address without a path."""
        return self.addresses.http.removesuffix("/v1/traces")


@contextmanager
def running_gateway(environ: Mapping[str, str], **settings: Any) -> Iterator[RunningGateway]:
    """Run a gateway that forwards to the OTLP endpoint in *environ*; it settles calls quickly."""
    chosen = GatewaySettings(
        http_port=0, grpc_port=0, **{"settle_seconds": 0.2, "parent_seconds": 2.0, "drain_seconds": 5.0, **settings}
    )
    ready: Future[RunningGateway] = Future()
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))

        def started(addresses: GatewayAddresses, gateway: Gateway) -> None:
            ready.set_result(RunningGateway(gateway, addresses))

        await serve(chosen, stop, started=started, environ=environ)

    def in_thread() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=in_thread, name="gateway of a test")
    thread.start()
    try:
        yield ready.result(START_S)
    finally:
        for loop, stop in stops:
            if thread.is_alive():
                loop.call_soon_threadsafe(stop.set)
        thread.join(START_S)
        assert not thread.is_alive()


@contextmanager
def serving(*options: str, **environ: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run `ragtrace serve` on free ports; yield its process, and its addresses of OTLP/HTTP and of OTLP/gRPC."""
    argv = [sys.executable, "-m", "ragtrace", "serve", "--http-port", "0", "--grpc-port", "0", *options]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGTRACE_"))}
    process = subprocess.Popen(argv, env=inherited | environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"ragtrace: OTLP/HTTP on (\S+), OTLP/gRPC on ([^;\s]+)", line)
        assert found, (line, process.communicate(timeout=END_S))
        yield process, found[1], found[2]
    finally:
        process.kill()
        process.communicate()


@dataclass
class RawUpstream:
    """Upstream of OTLP that keeps each body as it came, and gives the answers that a test sets."""

    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    status: int = 200
    """HTTP status, or number of a gRPC one."""
    answer: bytes = b""
    answer_headers: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)
    """Set as long as requests are answered."""
    arrived: threading.Event = field(default_factory=threading.Event)
    """Set when the first request has come."""


@contextmanager
def raw_http_upstream() -> Iterator[RawUpstream]:
    """An OTLP/HTTP upstream on a free port."""
    upstream = RawUpstream()
    upstream.gate.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            upstream.headers.append({name.lower(): value for name, value in self.headers.items()})
            upstream.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            upstream.arrived.set()
            upstream.gate.wait(START_S)
            self.send_response(upstream.status)
            for name, value in upstream.answer_headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(upstream.answer)))
            self.end_headers()
            self.wfile.write(upstream.answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    upstream.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield upstream
    finally:
        upstream.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def raw_grpc_upstream() -> Iterator[RawUpstream]:
    """An OTLP/gRPC upstream on a free port."""
    upstream = RawUpstream(status=0)
    codes = {code.value[0]: code for code in grpc.StatusCode}

    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        upstream.bodies.append(body)
        upstream.headers.append({str(key): str(value) for key, value in context.invocation_metadata()})
        if upstream.status:
            context.abort(codes[upstream.status], "refused by the test")
        return upstream.answer

    pool = ThreadPoolExecutor(4)
    server = grpc.server(pool)
    handlers = {METHOD.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    upstream.environ.update(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    try:
        yield upstream
    finally:
        server.stop(grace=0).wait(START_S)
        pool.shutdown(wait=True)


def trace_calls(exporter: SpanExporter, calls: int = 1, *, answer: str = ANSWER) -> list[SpanContext]:
    """Export RAG calls, each of three spans of OpenInference; return the contexts of their roots."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("openinference.instrumentation.langchain")
    roots: list[SpanContext] = []
    for number in range(calls):
        kind = "openinference.span.kind"
        values = {kind: "CHAIN", "input.value": f"{QUESTION} ({number})", "output.value": answer}
        root = tracer.start_span("ask", attributes=values)
        inside = set_span_in_context(root)
        found = {"retrieval.documents.0.document.content": PASSAGE}
        tracer.start_span("search", inside, attributes={kind: "RETRIEVER", "input.value": QUESTION, **found}).end()
        messages = {
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": QUESTION,
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": answer,
        }
        tracer.start_span("chat", inside, attributes={kind: "LLM", **messages}).end()
        root.end()
        roots.append(root.get_span_context())
    provider.shutdown()
    return roots


def json_request(*spans: dict[str, Any]) -> bytes:
    """An export request of OTLP JSON, as a script would post it."""
    scope = {"scope": {"name": "script"}, "spans": list(spans)}
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [scope]}]}).encode()


def json_span(**fields: Any) -> dict[str, Any]:
    """A span of OTLP JSON."""
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "ask",
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661000000000",
        **fields,
    }
