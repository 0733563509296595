"""How many spans a second `ragtrace serve` takes in, forwards and scores, beside other OTLP endpoints.

    python tests/benchmarks/gateway.py [--seconds 10] [--rounds 3] [--calls 170] [--subjects forward,phoenix,rotel]
    python tests/benchmarks/gateway.py --minutes 10 --subjects forward
    python tests/benchmarks/gateway.py --fuzz 100000

Every subject gets the same requests of OTLP/HTTP, one after the other on a few connections: RAG calls in protobuf,
`--calls` a request, three spans a call, each call in a trace of its own. `forward` is `ragtrace serve` without
evaluators, `grpc` the same by OTLP/gRPC, `score` with the embedded judge; `forward-json` and `score-json` get JSON.
These and Rotel forward to a receiver that discards everything; Phoenix and MLflow store spans in SQLite. Rotel
acknowledges a request before it has forwarded it. `read` is the reading of spans and the assembling of calls in `score`
alone, in this process, `read-json` that of JSON. Missing servers are skipped. As other work on the machine changes the
rate, the spans are also given for a second of the subject's own processor time. With `--rounds` the subjects take
turns, each in a new process, and the table has medians and extremes.

With `--minutes` each subject gets requests for so long, and its memory is printed every half minute.

With `--fuzz` malformed requests are sent to the gateway instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlsplit

import grpc.aio
from google.protobuf.json_format import MessageToDict, MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.core.step import CallBuilder
from ragtrace.gateway.gateway import Gateway
from ragtrace.gateway.http_server import MEDIA_TYPES
from ragtrace.gateway.otlp_requests import Content, ExportRequest, Payload
from ragtrace.gateway.span_scoring import SpanScorer
from ragtrace.gateway.upstream import METHOD
from tests.support.malformed_otlp import malformed_bodies, valid_requests
from tests.support.services import free_ports, mlflow, phoenix, require, rotel

CALLS: Final = 170
SPANS_PER_CALL: Final = 3
MEMORY_SECONDS: Final = 30.0
CONNECTIONS: Final = 4
_PREFIX: Final = b"\xf1PREFIX\xf1"
"""Stands for the first half of each trace id, so that every request has traces of its own."""
_JSON: Final = "-json"
"""End of the name of a subject that gets JSON."""
_PASSAGE: Final = "The Eiffel Tower in Paris is 330 metres tall. It was finished in 1889 for the World's Fair. " * 4
_KIND: Final = "openinference.span.kind"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SESSION, _USER, _SYSTEM, _RESIDENT = 3, 11, 12, 21
"""Positions in /proc/PID/stat behind the name of the process."""


@dataclass(frozen=True)
class Subject:
    """A server that takes spans, its session, and a header that it needs."""

    url: str
    session: int
    header: str = ""
    content: Content = "protobuf"


@dataclass(frozen=True)
class Row:
    """What one run of one subject gave."""

    spans: float
    """Accepted spans a second."""
    spans_by_cpu: float
    """Accepted spans for a second of the subject's processor time."""
    refused: int
    mebibytes: float


def request_body(calls: int = CALLS) -> bytes:
    """Return an export request with *calls* RAG calls, about 800 bytes a span."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource.scope_spans.add()
    scope.scope.name = "openinference.instrumentation.langchain"
    now = time.time_ns()
    for call in range(calls):
        question = f"How tall is the Eiffel Tower? ({call})"
        answer = "The Eiffel Tower is 330 metres tall."
        found = {f"retrieval.documents.{rank}.document.content": _PASSAGE for rank in range(3)}
        chat = {
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": f"Context:\n{_PASSAGE}\n\nQuestion: {question}",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": answer,
            "llm.model_name": "gpt-4o-mini",
        }
        steps = (
            ("RETRIEVER", {"input.value": question, **found}),
            ("LLM", chat),
            ("CHAIN", {"input.value": question, "output.value": answer}),
        )
        for number, (kind, texts) in enumerate(steps):
            span = scope.spans.add(
                trace_id=_PREFIX + call.to_bytes(8, "big"),
                span_id=(3 * call + number + 1).to_bytes(8, "big"),
                parent_span_id=b"" if kind == "CHAIN" else (3 * call + 3).to_bytes(8, "big"),
                name=kind.lower(),
                kind=1,
                flags=0x101,
                start_time_unix_nano=now + number,
                end_time_unix_nano=now + 10**9 - number,
            )
            for key, value in {_KIND: kind, **texts}.items():
                span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


def json_body(calls: int = CALLS) -> bytes:
    """Return the request of `request_body` in OTLP's JSON, whose ids are hexadecimal."""
    document = MessageToDict(ExportTraceServiceRequest.FromString(request_body(calls)), use_integers_for_enums=True)
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span |= {name: b64decode(span[name]).hex() for name in ("traceId", "spanId", "parentSpanId") if name in span}
    return json.dumps(document, separators=(",", ":")).encode()


class Requests:
    """Source of requests with traces of their own."""

    def __init__(self, content: Content, calls: int) -> None:
        self._body = json_body(calls) if content == "json" else request_body(calls)
        self._hexadecimal = content == "json"
        self.size = len(self._body)

    def fresh(self) -> bytes:
        """Return a request whose traces no other has."""
        if self._hexadecimal:
            return self._body.replace(_PREFIX.hex().encode(), os.urandom(8).hex().encode())
        return self._body.replace(_PREFIX, os.urandom(8))


# --- processes of the benchmark ---------------------------------------------------------------------------------------


async def discard(port: int) -> None:
    """Answer every HTTP request on *port* with an empty 200."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(_content_length(head))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 20)
    print("ready", flush=True)
    await server.serve_forever()


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


async def load(url: str, header: str, content: Content, seconds: float, calls: int) -> None:
    """Send requests for *seconds*, and print how many had each status."""
    requests, statuses = Requests(content, calls), Counter[int]()
    until = time.monotonic() + seconds
    address = urlsplit(url)

    async def http() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 20)
        lines = [f"POST {address.path} HTTP/1.1", f"host: {address.netloc}", f"content-type: {MEDIA_TYPES[content]}"]
        lines += [f"content-length: {requests.size}", *([header] if header else []), "", ""]
        head = "\r\n".join(lines).encode()
        while time.monotonic() < until:
            writer.write(head + requests.fresh())
            answer = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_content_length(answer))
            statuses[int(answer.split(b" ", 2)[1])] += 1
        writer.close()

    async def by_grpc() -> None:
        async with grpc.aio.insecure_channel(address.netloc) as channel:
            export = channel.unary_unary(METHOD)
            while time.monotonic() < until:
                await export(requests.fresh())
                statuses[200] += 1

    await asyncio.gather(*((by_grpc if address.scheme == "grpc" else http)() for _ in range(CONNECTIONS)))
    print(statuses[200], sum(statuses.values()) - statuses[200])


@contextmanager
def _receiver() -> Iterator[str]:
    with free_ports(1) as (port,):
        argv = [sys.executable, __file__, "--discard", str(port)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


@contextmanager
def _gateway(target: str, name: str) -> Iterator[Subject]:
    plain = name.removesuffix(_JSON)
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": target, "RAGTRACE_ENABLED": str(plain == "score")}
    argv = [sys.executable, "-m", "ragtrace", "serve", "--http-port", "0", "--grpc-port", "0", "--settle-seconds", "2"]
    with subprocess.Popen(
        argv, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        http, by = process.stdout.readline().removeprefix("ragtrace: OTLP/HTTP on ").split(", OTLP/gRPC on ")
        try:
            url = f"grpc://{by.partition(';')[0]}" if plain == "grpc" else http
            yield Subject(url, process.pid, content="protobuf" if plain == name else "json")
        finally:
            process.terminate()


def _subject(name: str, target: str, work: Path, stack: ExitStack) -> Subject:
    if name in ("forward", "score", "grpc", f"forward{_JSON}", f"score{_JSON}"):
        return stack.enter_context(_gateway(target, name))
    if name == "phoenix":
        url = stack.enter_context(phoenix(work)).http
    elif name == "mlflow":
        url = stack.enter_context(mlflow(work))
    else:
        url = stack.enter_context(rotel(target, work)).url
    return Subject(f"{url}/v1/traces", _session_of(urlsplit(url).port or 0), "x-mlflow-experiment-id: 0")


def _session_of(port: int) -> int:
    """Return the session of the process that a child of this process has started with *port* in its arguments."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            session = int(_stat(entry)[_SESSION])
        except OSError:
            continue
        if str(port).encode() in words and session != os.getsid(0):
            return session
    raise AssertionError(f"no process has port {port}")


def _stat(entry: Path) -> list[str]:
    return (entry / "stat").read_text().rpartition(")")[2].split()


def _usage(session: int) -> tuple[float, float]:
    """Return the processor time in seconds and the memory in MiB of all processes of *session*."""
    seconds = mebibytes = 0.0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = _stat(entry)
        except OSError:
            continue
        if int(fields[_SESSION]) == session:
            seconds += (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
            mebibytes += int(fields[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return seconds, mebibytes


@contextmanager
def _loaded(name: str, calls: int) -> Iterator[tuple[Subject, Callable[[float], tuple[int, int]]]]:
    """Start a subject, and yield it with a function that sends requests for some seconds and counts the answers."""
    with tempfile.TemporaryDirectory() as work, ExitStack() as stack:
        subject = _subject(name, stack.enter_context(_receiver()), Path(work), stack)

        def send(duration: float) -> tuple[int, int]:
            argv = [sys.executable, __file__, "--load", subject.url, "--header", subject.header, "--calls", str(calls)]
            argv += ["--content", subject.content, "--seconds", str(duration)]
            done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
            accepted, refused = map(int, done.stdout.split())
            return accepted, refused

        send(1.0)
        yield subject, send


def measure(name: str, seconds: float, calls: int) -> Row:
    """Run one subject once."""
    with _loaded(name, calls) as (subject, send):
        before, _ = _usage(subject.session)
        accepted, refused = send(seconds)
        used, mebibytes = _usage(subject.session)
        spans = accepted * calls * SPANS_PER_CALL
        return Row(spans / seconds, spans / max(0.01, used - before), refused, mebibytes)


def measure_rounds(names: list[str], rounds: int, seconds: float, calls: int) -> None:
    """Run the subjects in turns, and print a row with the medians of each."""
    rows: dict[str, list[Row]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            rows[name].append(measure(name, seconds, calls))
            _print_row(f"  {name}", rows[name][-1:])
    for name, measured in rows.items():
        _print_row(name, measured)


def _print_row(name: str, rows: list[Row]) -> None:
    spans, by_cpu = sorted(row.spans for row in rows), sorted(row.spans_by_cpu for row in rows)
    row = (f"{median(spans):>12,.0f}", f"{median(by_cpu):>16,.0f}", f"{sum(each.refused for each in rows):>9,}")
    extremes = f"{by_cpu[0]:,.0f} to {by_cpu[-1]:,.0f}" if len(rows) > 1 else ""
    print(f"{name:<12}", *row, f"{max(each.mebibytes for each in rows):>9,.0f}  {extremes}", flush=True)


def measure_memory(name: str, minutes: float, calls: int) -> None:
    """Print the memory of a subject that gets requests for *minutes*, every half minute."""
    with _loaded(name, calls) as (subject, send):
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            accepted, refused = send(MEMORY_SECONDS)
            used, mebibytes = _usage(subject.session)
            spans = accepted * calls * SPANS_PER_CALL / MEMORY_SECONDS
            print(f"{name:<12} {spans:>12,.0f} {used:>16,.1f} {refused:>9,} {mebibytes:>9,.1f}", flush=True)


def measure_reading(name: str, seconds: float) -> None:
    """Print how many spans the scoring thread reads and assembles to calls, which are not scored."""
    submitted = 0

    def count(builder: CallBuilder) -> None:
        nonlocal submitted
        submitted += 1
        builder.close()

    scorer = SpanScorer(count, most_bytes=64 << 20, settle_seconds=0.5, parent_seconds=1.0)
    content: Content = "json" if name.endswith(_JSON) else "protobuf"
    requests, until, used = Requests(content, CALLS), time.monotonic() + seconds, time.process_time()
    began = time.monotonic()
    while time.monotonic() < until:
        fresh = requests.fresh()
        while scorer.queued_bytes > len(fresh):
            time.sleep(0.001)
        scorer.offer(Payload(fresh, content, CALLS * SPANS_PER_CALL, 0))
    scorer.stop(60.0)
    spans = scorer.span_counts()["read", ""]
    used, wall = time.process_time() - used, time.monotonic() - began
    assert submitted == spans / SPANS_PER_CALL, (submitted, scorer.span_counts())
    print(f"{name:<12} {spans / wall:>12,.0f} {spans / used:>16,.0f}", flush=True)


async def fuzz(count: int) -> None:
    """Send *count* malformed requests to a gateway, and print their statuses; an exception ends it."""
    scorer = SpanScorer(lambda builder: builder.close(), most_bytes=1 << 30, settle_seconds=0.1, parent_seconds=0.1)
    gateway = Gateway(None, scorer, most_body_bytes=1 << 20, most_in_flight_bytes=1 << 30)
    chance, began = random.Random(1), time.monotonic()
    for content in ("protobuf", "json"):
        whole = [
            each.SerializeToString() if content == "protobuf" else MessageToJson(each).encode()
            for each in valid_requests()
        ]
        statuses = Counter[str]()
        for body in malformed_bodies(chance, whole, count // 2):
            statuses[(await gateway.export(ExportRequest(body, content))).status] += 1
        print(f"{content:<9}", dict(statuses), flush=True)
    print("all read:", scorer.stop(600.0), scorer.span_counts(), f"{time.monotonic() - began:.0f} s")


def main() -> None:
    """Run the benchmark, or the part of it that runs in another process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--calls", type=int, default=CALLS, help="calls in a request")
    parser.add_argument("--minutes", type=float, default=0.0, help="watch the memory for so long")
    parser.add_argument(
        "--subjects", default="forward,forward-json,grpc,score,score-json,read,read-json,phoenix,mlflow,rotel"
    )
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--discard", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--header", default="", help=argparse.SUPPRESS)
    parser.add_argument("--content", default="protobuf", choices=("protobuf", "json"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fuzz:
        asyncio.run(fuzz(options.fuzz))
    elif options.load:
        asyncio.run(load(options.load, options.header, options.content, options.seconds, options.calls))
    elif options.discard:
        asyncio.run(discard(options.discard))
    else:
        print(f"{'':<12} {'spans/s':>12} {'spans/CPU second':>16} {'refused':>9} {'MiB':>9}", flush=True)
        names = list(filter(_is_present, options.subjects.split(",")))
        for name in [name for name in names if name.removesuffix(_JSON) == "read"]:
            measure_reading(name, options.seconds)
            names.remove(name)
        if options.minutes:
            for name in names:
                measure_memory(name, options.minutes, options.calls)
        else:
            measure_rounds(names, options.rounds, options.seconds, options.calls)


def _is_present(name: str) -> bool:
    """Return whether the program of a subject is installed; print it if not."""
    programs = {
        "phoenix": ("phoenix", "arize-phoenix"),
        "mlflow": ("mlflow", "mlflow"),
        "rotel": ("rotel-agent", "rotel"),
    }
    try:
        if name in programs:
            require(*programs[name])
    except BaseException as missing:  # pytest's way to skip
        print(f"{name:<12} {missing}")
        return False
    return True


if __name__ == "__main__":
    main()
