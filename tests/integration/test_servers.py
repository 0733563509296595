"""Pre-forking and multi-process web servers: every request's call is scored once, exported once and counted once."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

import ragtrace
from ragtrace.estimates.baseline import CALLS as BASELINE_CALLS
from tests.support.otlp import GrpcReceiver, HttpReceiver, Receiver
from tests.support.services import START_S, Server, web_server
from tests.support.telemetry import Span

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[2]
REQUESTS: Final = 40
CLIENTS: Final = 4
WORKERS: Final = 2
DRAIN_S: Final = 10.0
"""From SIGTERM to the end of the last process; ragtrace itself may take five seconds of it."""
METRICS: Final = (*ragtrace.score(query="Where?", contexts=["In Paris."], answer="In Paris."), "suspicious")
"""All metrics that the default screen gives; the last one only live, where there is a baseline to compare with."""
SIGNALS: Final = 3
STATUS: Final = "ragtrace.eval.status"
INSTANCE: Final = "service.instance.id"

APPLICATION: Final = """
import os
import ragtrace

@ragtrace.retrieve(source="monuments")
def search(question):
    return ["The Eiffel Tower stands in Paris. It is 330 metres high."]

@ragtrace.generate(model="tiny-1")
def generate(question, passages):
    return "The Eiffel Tower is 330 metres high."

@ragtrace.trace(name="guide")
def ask(question):
    generate(question, search(question))
    return str(os.getpid())
"""

WSGI: Final = """
def app(environ, start_response):
    path = environ["PATH_INFO"].strip("/")
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [("" if path == "ready" else ask(path)).encode()]
"""

ASGI: Final = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

@asynccontextmanager
async def lifespan(app):
    ragtrace.configure(service="served")
    yield
    ragtrace.shutdown(5.0)

app = FastAPI(lifespan=lifespan)

@app.get("/ready", response_class=PlainTextResponse)
async def ready():
    return ""

@app.get("/{question}", response_class=PlainTextResponse)
async def asked(question: str):
    return ask(question)
"""

AT_IMPORT: Final = 'ragtrace.configure(service="served")\n'
WARMED_UP: Final = 'ragtrace.configure(service="served")\nask("warm-up")\nragtrace.flush()\n'
"""As a server that checks itself before it takes traffic: there are connections and figures when it forks."""
IN_THE_WORKER: Final = 'import ragtrace\n\ndef post_fork(server, worker):\n    ragtrace.configure(service="served")\n'


@pytest.fixture(params=["http", "grpc"])
def backend(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    """Where the telemetry goes."""
    with HttpReceiver(keep_alive=True) if request.param == "http" else GrpcReceiver() as receiver:
        yield receiver


@dataclass(frozen=True)
class Traffic:
    """Which process answered which question."""

    pids: Mapping[str, int]

    @property
    def processes(self) -> set[int]:
        return set(self.pids.values())


def drive(server: Server) -> Traffic:
    """Ask at least `REQUESTS` questions, a few at a time, until every worker has answered some."""

    def get(question: str) -> int:
        with urllib.request.urlopen(f"{server.url}/{question}", timeout=20) as response:
            return int(response.read())

    pids: dict[str, int] = {}
    deadline = monotonic() + START_S
    with ThreadPoolExecutor(CLIENTS) as pool:
        while len(pids) < REQUESTS or len(set(pids.values())) < WORKERS:
            assert monotonic() < deadline, f"only {len(set(pids.values()))} workers answer; {server.log.read_text()}"
            questions = [f"question-{len(pids) + number}" for number in range(CLIENTS)]
            pids.update(zip(questions, pool.map(get, questions), strict=True))
    return Traffic(pids)


def question_of(span: Span) -> str:
    return str(json.loads(span.attributes["gen_ai.input.messages"])[0]["parts"][0]["content"])


def check(receiver: Receiver, traffic: Traffic, *, also: tuple[str, ...] = ()) -> None:
    """Every question of *traffic* and *also* was scored, exported and counted exactly once."""
    asked = [*traffic.pids, *also]
    roots = [span for span in receiver.spans if STATUS in span.attributes]
    assert Counter(question_of(span) for span in roots) == Counter(asked)
    assert Counter(span.attributes[STATUS] for span in roots) == {"ok": len(asked)}
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans)
    # A web framework may trace itself and write its spans to the same provider.
    assert len([span for span in receiver.spans if span.scope.name == "ragtrace"]) == 3 * len(asked)
    events = Counter((log.span_id, log.attributes["gen_ai.evaluation.name"]) for log in receiver.logs)
    assert events == Counter((span.span_id, metric) for span in roots for metric in METRICS)
    assert books(receiver) == {"offered": len(asked), "scored": len(asked)}
    # While one worker is slow to start, another may have answered so many questions that it has a baseline.
    compared = sum(max(0, calls - BASELINE_CALLS) for calls in Counter(traffic.pids.values()).values())
    assert observations(receiver) == dict.fromkeys(METRICS[:-1], len(asked)) | (
        {METRICS[-1]: compared} if compared else {}
    )
    assert_instances(receiver, roots, traffic)


def books(receiver: Receiver) -> dict[str, int]:
    """The last value of `ragtrace.calls` of each process, summed by outcome."""
    latest: dict[tuple[str, str], float] = {}
    for metric in receiver.metrics:
        if metric.name == "ragtrace.calls":
            for point in metric.points:
                latest[metric.resource[INSTANCE], point.attributes["ragtrace.outcome"]] = point.value or 0
    total: Counter[str] = Counter()
    for (_, outcome), value in latest.items():
        total[outcome] += int(value)
    return dict(total)


def observations(receiver: Receiver) -> dict[str, int]:
    """The last count of the score histogram of each process, summed by metric."""
    latest: dict[tuple[str, str], int] = {}
    for metric in receiver.metrics:
        if metric.name == "ragtrace.eval.score":
            for point in metric.points:
                latest[metric.resource[INSTANCE], point.attributes["gen_ai.evaluation.name"]] = point.count or 0
    total: Counter[str] = Counter()
    for (_, name), count in latest.items():
        total[name] += count
    return dict(total)


def assert_instances(receiver: Receiver, roots: list[Span], traffic: Traffic) -> None:
    """Spans, events and metrics of a process carry one identity, which no other process has."""
    by_process: defaultdict[int, set[str]] = defaultdict(set)
    for span in roots:
        if question_of(span) in traffic.pids:
            by_process[traffic.pids[question_of(span)]].add(span.resource[INSTANCE])
    assert [len(instances) for instances in by_process.values()] == [1] * len(traffic.processes)
    instances = set[str]().union(*by_process.values())
    assert len(instances) == len(traffic.processes)
    span_instances = {span.resource[INSTANCE] for span in roots}
    assert {log.resource[INSTANCE] for log in receiver.logs} == span_instances
    scores = [metric for metric in receiver.metrics if metric.name == "ragtrace.eval.score"]
    assert {metric.resource[INSTANCE] for metric in scores} == span_instances


GUNICORN: Final = {
    "sync": ["--worker-class", "sync"],
    "gthread": ["--worker-class", "gthread", "--threads", "4"],
    "sync, preloaded": ["--worker-class", "sync", "--preload"],
    "gthread, preloaded": ["--worker-class", "gthread", "--threads", "4", "--preload"],
}


def gunicorn(
    work: Path, receiver: Receiver, *arguments: str, configured: str, hooks: str = ""
) -> AbstractContextManager[Server]:
    """A gunicorn with `WORKERS` workers."""
    (work / "program.py").write_text(APPLICATION + configured + WSGI)
    (work / "hooks.py").write_text(hooks)
    options = ["--workers", str(WORKERS), "--config", "hooks.py", *arguments]
    return web_server(
        lambda port: ["gunicorn", "--bind", f"127.0.0.1:{port}", *options, "program:app"],
        environ=receiver.environ,
        work=work,
    )


def drain(server: Server) -> None:
    code, seconds = server.terminate(DRAIN_S)
    assert code == 0, server.log.read_text()
    assert seconds < DRAIN_S


@pytest.mark.parametrize("arguments", GUNICORN.values(), ids=GUNICORN.keys())
def test_gunicorn(tmp_path: Path, backend: Receiver, arguments: list[str]) -> None:
    """Configured where the application is imported: by each worker, or with --preload once before they are forked."""
    with gunicorn(tmp_path, backend, *arguments, configured=AT_IMPORT) as server:
        traffic = drive(server)
        drain(server)
    check(backend, traffic)


def test_a_preloaded_gunicorn_that_has_worked_before_it_forks(tmp_path: Path, backend: Receiver) -> None:
    """The workers use none of the connections of the parent, and repeat none of its figures."""
    with gunicorn(tmp_path, backend, "--preload", configured=WARMED_UP) as server:
        traffic = drive(server)
        drain(server)
    check(backend, traffic, also=("warm-up",))
    if isinstance(backend, HttpReceiver):
        assert backend.connections >= SIGNALS * (1 + WORKERS)


def test_gunicorn_configured_in_its_hook(tmp_path: Path, backend: Receiver) -> None:
    """As the OpenTelemetry documentation advises for pre-forking servers."""
    with gunicorn(tmp_path, backend, "--preload", configured="", hooks=IN_THE_WORKER) as server:
        traffic = drive(server)
        drain(server)
    check(backend, traffic)


def test_uvicorn(tmp_path: Path, backend: Receiver) -> None:
    """Several processes, each configured and drained by the application's lifespan."""
    (tmp_path / "program.py").write_text(APPLICATION + ASGI)
    with web_server(
        lambda port: ["uvicorn", "--port", str(port), "--workers", str(WORKERS), "program:app"],
        environ=backend.environ,
        work=tmp_path,
    ) as server:
        traffic = drive(server)
        code, seconds = server.terminate(DRAIN_S)
    assert seconds < DRAIN_S
    assert code == 0, server.log.read_text()
    check(backend, traffic)
