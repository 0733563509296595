"""Gateway, queue and two workers on this machine: spans of an application go in, scores of its calls come out.

    python examples/fleet_demo.py [--calls 60] [--seconds 120]

Starts Redis (or takes the broker of RAGTRACE_FLEET), `ragtrace serve`, two `ragtrace worker` with the embedded judge,
and an OTLP backend that prints the scores that arrive. The application has no ragtrace: it asks questions about
Python's standard library, and is traced by plain OpenTelemetry with attributes of OpenInference. Everything is stopped
at the end, by Ctrl-C, or after `--seconds`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ragtrace.demo.generator import ExtractiveModel
from ragtrace.demo.library import standard_library
from ragtrace.demo.library_questions import library_questions
from ragtrace.demo.search import Index

KIND = "openinference.span.kind"
SETTINGS = 'metrics = ["consistency"]\nscreen = "none"\njudge = "embedded"\n\n[sampling]\nrate = 1.0\n'
START_SECONDS = 30.0
STOP_SECONDS = 15.0


class Scores:
    """Scored calls that have arrived at the backend, by the process that sent them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._changed = threading.Condition()

    def add(self, body: bytes) -> None:
        """Print and count the spans with scores in an export request; each is linked to the call that it is about."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            process = {each.key: each.value.string_value for each in resource.resource.attributes}.get(
                "service.name", ""
            )
            for span in (each for scope in resource.scope_spans for each in scope.spans):
                found = {each.key: each.value for each in span.attributes}
                if not span.name.startswith("evaluate ") or "ragtrace.eval.status" not in found:
                    continue
                score = found.get("ragtrace.eval.consistency.score")  # an answer that states nothing has none
                shown = "none" if score is None else f"{score.double_value:.2f}"
                print(f"{process}: consistency {shown}  {span.links[0].trace_id.hex()}", flush=True)
                with self._changed:
                    self.counts[process] += 1
                    self._changed.notify_all()

    def wait_for(self, count: int, seconds: float) -> None:
        """Wait until *count* calls have arrived, for at most *seconds*."""
        with self._changed:
            self._changed.wait_for(lambda: sum(self.counts.values()) >= count, seconds)


@contextmanager
def backend(scores: Scores) -> Iterator[str]:
    """Run an OTLP/HTTP backend that reads scores and discards everything else; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                scores.add(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the standard library's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def process(command: Sequence[str], environ: Mapping[str, str], ready: Callable[[str], bool]) -> Iterator[str]:
    """Run *command* until the block ends; yield the line of its output for which *ready* is true."""
    running = subprocess.Popen(
        command,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others in order
    )
    assert running.stdout is not None
    try:
        line = next((line for line in running.stdout if ready(line)), "")
        if not line:
            raise SystemExit(f"{command[0]} ended with status {running.wait()}; see its message above")
        threading.Thread(target=running.stdout.read, daemon=True).start()  # a full pipe would stop the process
        yield line
    finally:
        running.terminate()
        try:
            running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def broker(stack: ExitStack, folder: str) -> str:
    """Return the URL of the broker: that of the environment, or of a Redis that is started."""
    if given := os.environ.get("RAGTRACE_FLEET"):
        return given
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is not installed; install it, or set RAGTRACE_FLEET to the URL of a broker")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    arguments = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    arguments += ["--appendonly", "yes", "--appendfsync", "always"]  # else a restart loses the calls that wait
    stack.enter_context(process([program, *arguments], {}, lambda line: "Ready to accept connections" in line))
    return f"redis://127.0.0.1:{port}/0"


def ask_questions(gateway: str, calls: int, until: float) -> int:
    """Ask *calls* questions, and export their spans to *gateway*; return how many were asked until *until*."""
    documents = standard_library()
    index = Index(documents.passages)
    model = ExtractiveModel(index)
    provider = TracerProvider(resource=Resource({"service.name": "library"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=gateway), schedule_delay_millis=200))
    tracer = provider.get_tracer("openinference.instrumentation.langchain")
    asked = 0
    for question in library_questions(documents, calls, 7):
        if time.monotonic() > until:
            break
        with tracer.start_as_current_span("ask", attributes={KIND: "CHAIN", "input.value": question}) as root:
            found = [passage for passage, _ in index.search(question, 4)]
            texts = {f"retrieval.documents.{rank}.document.content": each.text for rank, each in enumerate(found)}
            with tracer.start_as_current_span(
                "search", attributes={KIND: "RETRIEVER", "input.value": question, **texts}
            ):
                pass
            answer = model.answer(question, found)
            message = {
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": answer,
            }
            with tracer.start_as_current_span("chat", attributes={KIND: "LLM", **message}):
                pass
            root.set_attribute("output.value", answer)
        asked += 1
    provider.shutdown()
    return asked


def main() -> None:
    """Start everything, ask the questions, and print what arrived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=60, help="questions to ask (default 60)")
    parser.add_argument("--seconds", type=float, default=120.0, help="longest time that it runs (default 120)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    until, scores, asked = time.monotonic() + options.seconds, Scores(), 0
    ragtrace = [sys.executable, "-m", "ragtrace"]
    with tempfile.TemporaryDirectory(prefix="ragtrace-fleet-") as folder, ExitStack() as stack:
        settings = Path(folder) / "ragtrace.toml"
        settings.write_text(SETTINGS, encoding="utf-8")
        try:
            endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": stack.enter_context(backend(scores))}
            shared = ["--broker", broker(stack, folder), "--config", str(settings)]
            for name in ("worker-1", "worker-2"):
                environ = {**endpoint, "OTEL_SERVICE_NAME": name}
                command = [*ragtrace, "worker", *shared, "--concurrency", "8"]
                print(stack.enter_context(process(command, environ, lambda line: "takes calls" in line)), end="")
            ports = ["--http-port", "0", "--grpc-port", "0", "--settle-seconds", "1"]
            environ = {**endpoint, "OTEL_SERVICE_NAME": "gateway"}
            line = stack.enter_context(
                process([*ragtrace, "serve", *shared, *ports], environ, lambda line: "OTLP/HTTP on " in line)
            )
            print(line, end="", flush=True)
            asked = ask_questions(line.partition("OTLP/HTTP on ")[2].partition(",")[0], options.calls, until)
            scores.wait_for(asked, until - time.monotonic())
        except KeyboardInterrupt:
            print("stopping", flush=True)
    by_process = ", ".join(f"{name} {count}" for name, count in sorted(scores.counts.items()))
    print(f"{asked} calls asked, {sum(scores.counts.values())} judged ({by_process or 'none'})")


if __name__ == "__main__":
    main()
