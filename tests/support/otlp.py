"""Real OTLP receivers in this process, over HTTP and over gRPC, that keep what they get and fail on request.

    with HttpReceiver() as receiver:
        ...                                            # send to receiver.endpoint
        receiver.wait_for(lambda got: len(got.spans) == 3)

A receiver listens on a free port of 127.0.0.1. Faults: `answer_with(status, times)`, `hanging()`, `refusing()`.
"""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import grpc
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from typing_extensions import Self

from tests.support import telemetry
from tests.support.telemetry import LogRecord, Metric, Span

WAIT_S: Final = 30.0
"""How long a test waits for telemetry before it fails; usually it is there in milliseconds."""


@dataclass(frozen=True)
class Request:
    """One export: signal (traces, metrics, logs), lower-case headers or metadata, size on the wire in bytes."""

    signal: str
    headers: dict[str, str]
    size: int


@dataclass(frozen=True)
class Signal:
    """How one signal is named, parsed and answered."""

    name: str
    request: Any
    response: Any
    decode: Callable[[Any], Iterator[Any]]


TRACES: Final = Signal(
    "traces",
    trace_service_pb2.ExportTraceServiceRequest,
    trace_service_pb2.ExportTraceServiceResponse,
    telemetry.spans,
)
METRICS: Final = Signal(
    "metrics",
    metrics_service_pb2.ExportMetricsServiceRequest,
    metrics_service_pb2.ExportMetricsServiceResponse,
    telemetry.metrics,
)
LOGS: Final = Signal(
    "logs", logs_service_pb2.ExportLogsServiceRequest, logs_service_pb2.ExportLogsServiceResponse, telemetry.logs
)


class Receiver(ABC):
    """What both protocols share: the store, the waiting and the faults."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: dict[str, list[Any]] = {"traces": [], "metrics": [], "logs": []}
        self._requests: list[Request] = []
        self._faults: deque[int] = deque()
        self._gate = threading.Event()
        self._gate.set()
        self.port = 0
        self.rejects: tuple[int, str] = (0, "")
        """Number of items of each export that are said to be rejected, and the message."""
        self.answers_json = False
        """Whether responses over HTTP are JSON, as some proxies answer to any request."""
        self.body: bytes | None = None
        """Body of all responses over HTTP, in place of a right one."""

    @property
    @abstractmethod
    def protocol(self) -> str:
        """Value of OTEL_EXPORTER_OTLP_PROTOCOL."""

    @property
    def endpoint(self) -> str:
        """Value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """The two variables that send everything here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": self.protocol}

    @property
    def spans(self) -> tuple[Span, ...]:
        return self._snapshot("traces")

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Every metric of every export, in order: a cumulative one comes again with each export."""
        return self._snapshot("metrics")

    @property
    def logs(self) -> tuple[LogRecord, ...]:
        return self._snapshot("logs")

    @property
    def requests(self) -> tuple[Request, ...]:
        with self._changed:
            return tuple(self._requests)

    def latest_metrics(self) -> dict[str, Metric]:
        """The last export of each metric, by name."""
        return {metric.name: metric for metric in self.metrics}

    def clear(self) -> None:
        """Forget what was received."""
        with self._changed:
            self._requests.clear()
            for items in self._items.values():
                items.clear()

    def wait_for(self, condition: Callable[[Self], object], timeout: float = WAIT_S) -> None:
        """Return when *condition* of this receiver is true; it is looked at after each export.

        Raises:
            AssertionError: after *timeout* seconds, with what had been received.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition(self):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"not received within {timeout:g} s; {self._summary()}")

    def answer_with(self, status: int, times: int = 1) -> None:
        """Refuse the next *times* exports with *status*: an HTTP status, or the number of a gRPC one."""
        with self._changed:
            self._faults.extend([status] * times)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Take exports but answer none until the block ends; then they are stored and answered."""
        self._gate.clear()
        try:
            yield
        finally:
            self._gate.set()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Be down: connections are refused until the block ends; then the same port answers again."""
        self._close()
        try:
            yield
        finally:
            self._listen(self.port)

    def __enter__(self) -> Self:
        self.port = self._listen(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.set()
        self._close()

    def receive(self, signal: Signal, headers: dict[str, str], size: int, message: Any) -> int:
        """Store one parsed export. Returns the status to refuse it with, 0 to accept."""
        self._gate.wait(WAIT_S)
        with self._changed:
            self._requests.append(Request(signal.name, headers, size))
            status = self._faults.popleft() if self._faults else 0
            if not status:
                self._items[signal.name].extend(signal.decode(message))
            self._changed.notify_all()
        return status

    def response(self, signal: Signal) -> Any:
        """The response to an accepted export."""
        name = {"traces": "rejected_spans", "metrics": "rejected_data_points", "logs": "rejected_log_records"}
        count, message = self.rejects
        partial = {name[signal.name]: count, "error_message": message}
        return signal.response(partial_success=partial) if count or message else signal.response()

    @abstractmethod
    def _listen(self, port: int) -> int:
        """Start on *port*, 0 for any; return the port."""

    @abstractmethod
    def _close(self) -> None: ...

    def _snapshot(self, signal: str) -> tuple[Any, ...]:
        with self._changed:
            return tuple(self._items[signal])

    def _summary(self) -> str:
        names = {
            signal: dict(Counter(getattr(item, "name", "") or item.event_name for item in items))
            for signal, items in self._items.items()
        }
        return f"{len(self._requests)} exports: {names}"


class HttpReceiver(Receiver):
    """OTLP/HTTP with binary protobuf bodies, plain, gzip or deflate.

    Args:
        keep_alive: keep connections open, as most backends do. `refusing()` then refuses new ones only.
    """

    def __init__(self, *, keep_alive: bool = False) -> None:
        super().__init__()
        self.keep_alive = keep_alive
        self.connections = 0
        """How many were opened so far."""

    @property
    def protocol(self) -> str:
        return "http/protobuf"

    def _listen(self, port: int) -> int:
        self._server = _HttpServer(port, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return int(self._server.server_address[1])

    def _close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    # Many processes may come at a time; a connection beyond this number stalls for seconds, or a minute.
    request_queue_size = 256

    def __init__(self, port: int, receiver: HttpReceiver) -> None:
        super().__init__(("127.0.0.1", port), _HttpHandler)
        self.receiver = receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the tests, not worth a traceback."""


class _HttpHandler(BaseHTTPRequestHandler):
    _SIGNALS: Final = {"/v1/traces": TRACES, "/v1/metrics": METRICS, "/v1/logs": LOGS}

    def setup(self) -> None:
        server = self.server
        assert isinstance(server, _HttpServer)
        server.receiver.connections += 1
        self.protocol_version = "HTTP/1.1" if server.receiver.keep_alive else "HTTP/1.0"
        super().setup()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        signal = self._SIGNALS.get(self.path)
        if signal is None:
            self._reply(404, b"")
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        message = signal.request.FromString(_unpacked(body, headers.get("content-encoding", "")))
        server = self.server
        assert isinstance(server, _HttpServer)
        receiver = server.receiver
        status = receiver.receive(signal, headers, len(body), message)
        response = receiver.response(signal)
        if status:
            self._reply(status, b"")
        elif receiver.answers_json:
            body = MessageToJson(response).encode() if receiver.body is None else receiver.body
            self._reply(200, body, "application/json; charset=utf-8")
        else:
            self._reply(200, response.SerializeToString() if receiver.body is None else receiver.body)

    def _reply(self, status: int, body: bytes, content_type: str = "application/x-protobuf") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
        pass


def _unpacked(body: bytes, encoding: str) -> bytes:
    match encoding:
        case "gzip":
            return gzip.decompress(body)
        case "deflate":
            return zlib.decompress(body)
        case _:
            return body


class GrpcReceiver(Receiver):
    """The three collector services of OTLP/gRPC."""

    _STATUSES: Final = {status.value[0]: status for status in grpc.StatusCode}

    @property
    def protocol(self) -> str:
        return "grpc"

    def _listen(self, port: int) -> int:
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="otlp-grpc-receiver")
        # Without so_reuseport=0 a second server on the port would silently share it.
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Servicer(self, TRACES), self._server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Servicer(self, METRICS), self._server)
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(_Servicer(self, LOGS), self._server)
        bound = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()
        return bound

    def _close(self) -> None:
        self._server.stop(grace=0).wait(WAIT_S)
        self._pool.shutdown(wait=True)

    def status(self, number: int) -> grpc.StatusCode:
        return self._STATUSES[number]


class _Servicer:
    """One signal; the three generated servicers have this same one method."""

    def __init__(self, receiver: GrpcReceiver, signal: Signal) -> None:
        self._receiver, self._signal = receiver, signal

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the protocol's name
        headers = {str(key): str(value) for key, value in context.invocation_metadata()}
        status = self._receiver.receive(self._signal, headers, request.ByteSize(), request)
        if status:
            context.abort(self._receiver.status(status), "refused by the test")
        return self._receiver.response(self._signal)
