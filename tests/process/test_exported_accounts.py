"""The accounts as a collector receives them: exact, whatever happened in the processes that they are of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.testing import Captured, FakeJudge
from tests.support.judge_server import (
    DROPPED,
    FAILED,
    GARBAGE,
    HANGS,
    HUGE,
    NONSENSE,
    JudgeServer,
    Reply,
    Request,
    labels,
    too_many,
)
from tests.support.otlp import HttpReceiver
from tests.support.watched import GOOD, WAIT_S, ask

ROOT: Final = Path(__file__).parents[2]
INSTANCE: Final = "service.instance.id"
REPLIES: Final[Mapping[str, Reply]] = {
    "good": labels(),
    "slow": labels(after=0.05),
    "busy": too_many(0.05),
    "broken": FAILED,
    "hangs": HANGS,
    "drops": DROPPED,
    "garbage": GARBAGE,
    "nonsense": NONSENSE,
    "huge": HUGE,
}
SEVERAL_MINUTES: Final = 240
SMALL_TREES: Final = (3, 9, 10)
"""Seeds of about a dozen processes each; others have up to fifty."""


def reply(request: Request) -> Reply:
    """What the question asks for."""
    return REPLIES[request.json()["query"].split()[0]]


def run_wild(seed: int, receiver: HttpReceiver, spool: Path, timeout: float) -> list[dict[str, Any]]:
    """What each process of the tree says of its own accounts."""
    with JudgeServer(reply) as judge:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.wild", str(seed), str(spool), str(timeout)],
            capture_output=True,
            text=True,
            timeout=SEVERAL_MINUTES,
            check=False,
            cwd=ROOT,
            # A busy machine may answer late: an exporter that gave up waiting would send again what has arrived.
            env={**os.environ, **receiver.environ, "JUDGE_URL": judge.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "120"},
        )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def exported(receiver: HttpReceiver) -> list[tuple[str, dict[str, int]]]:
    """The last `ragtrace.calls` of each process: for each evaluator, calls by outcome."""
    last: dict[tuple[str, ...], int] = {}
    for metric in receiver.metrics:
        for point in metric.points if metric.name == "ragtrace.calls" else ():
            at = point.attributes
            key = (at["ragtrace.evaluator.id"], at["ragtrace.outcome"], json.dumps(at, sort_keys=True))
            last[(metric.resource[INSTANCE], *key)] = int(point.value or 0)
    totals: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (instance, evaluator, outcome, _), calls in last.items():
        totals[instance, evaluator][outcome] += calls
    return [(evaluator, dict(+counts)) for (_, evaluator), counts in totals.items()]


def in_order(books: Iterable[tuple[str, Mapping[str, int]]]) -> list[str]:
    return sorted(json.dumps([evaluator, counts], sort_keys=True) for evaluator, counts in books)


def assert_balanced(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        for counts in report["evaluators"].values():
            assert "pending" not in counts
            assert 2 * counts["offered"] == sum(counts.values()), report


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("seed", SMALL_TREES)
def test_a_collector_can_balance_the_books_of_a_wild_application(
    http_receiver: HttpReceiver, tmp_path: Path, seed: int
) -> None:
    """All kinds of calls, judges and endings, threads, forks, tiny queues, a spool, head sampling: the same figures."""
    reports = run_wild(seed, http_receiver, tmp_path / "calls.db", timeout=30.0)
    assert_balanced(reports)
    said = [books for report in reports for books in report["evaluators"].items()]
    assert in_order(exported(http_receiver)) == in_order(said)
    ids = Counter(log.attributes["ragtrace.eval.score_id"] for log in http_receiver.logs)
    assert set(ids.values()) <= {1}, "scored twice"
    spans = Counter(span.span_id for span in http_receiver.spans)
    assert set(spans.values()) <= {1}, "exported twice"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_wild_application_without_patience_balances_its_own_books(
    http_receiver: HttpReceiver, tmp_path: Path
) -> None:
    """Processes that end before anything can be delivered: nothing is pending, and what was lost is counted."""
    assert_balanced(run_wild(3, http_receiver, tmp_path / "calls.db", timeout=0.0))


CHILD_WITHOUT_TRACES: Final = """
import os, sys
import ragtrace
from tests.support.watched import ask
ragtrace.configure(service="s")
if os.fork() == 0:
    for number in range(3):
        ask("where?")
    sys.exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_whose_calls_were_all_head_dropped_exports_its_books(http_receiver: HttpReceiver) -> None:
    """Nothing of them is kept, so nothing else makes the child open its connections."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD_WITHOUT_TRACES],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **http_receiver.environ, "OTEL_TRACES_SAMPLER": "always_off"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert exported(http_receiver) == [("embedded", {"offered": 3, "sampled_out": 3})]


FAMILY: Final = """
import os, signal, sys
import ragtrace
from tests.support.watched import ask

def end_on_signal(*_):
    sys.exit(0)

def generation(calls):
    for number in range(calls):
        ask(f"question {{number}}?")
    child = os.fork() if calls > 1 else -1
    if child == 0:
        generation(calls - 1)
    elif child > 0:
        os.waitpid(child, 0)
    {end}

signal.signal(signal.SIGTERM, end_on_signal)
ragtrace.configure(service="s", metrics=["consistency"])
generation(3)
"""
ORDERLY: Final = {
    "sys.exit": "sys.exit(0)",
    "SIGTERM, handled": "os.kill(os.getpid(), signal.SIGTERM)",
    "shutdown and os._exit": "ragtrace.shutdown(10.0); os._exit(0)",
    "flush and os._exit": "ragtrace.flush(10.0); os._exit(0)",
}
SUDDEN: Final = {
    "os._exit": "os._exit(0)",
    "SIGTERM, not handled": "signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
}


def run_family(receiver: HttpReceiver, end: str) -> list[dict[str, int]]:
    """The exported books of a process, its child and its grandchild, which made 3, 2 and 1 calls."""
    subprocess.run(
        [sys.executable, "-c", FAMILY.format(end=end)],
        capture_output=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **receiver.environ, "OTEL_METRIC_EXPORT_INTERVAL": "20"},
    )
    return sorted((counts for _, counts in exported(receiver)), key=lambda counts: counts["offered"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("end", ORDERLY.values(), ids=ORDERLY.keys())
def test_the_exported_books_balance_after_an_orderly_end(http_receiver: HttpReceiver, end: str) -> None:
    """Of each process of a family, under an identity of its own."""
    assert run_family(http_receiver, end) == [{"offered": calls, "scored": calls} for calls in (1, 2, 3)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("end", SUDDEN.values(), ids=SUDDEN.keys())
def test_after_a_sudden_end_the_exported_books_are_those_of_a_moment_before(
    http_receiver: HttpReceiver, end: str
) -> None:
    """What was pending then is lost, and so are later calls; nothing is counted twice, or for somebody else."""
    books = run_family(http_receiver, end)
    assert len(books) <= 3
    for counts, calls in zip(reversed(books), (3, 2, 1), strict=False):
        assert sum(counts.values()) - counts["offered"] <= counts["offered"] <= calls


SLOW_TO_FORK: Final = """
import os, sys, threading
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
import ragtrace
from ragtrace.core.types import Signals
from ragtrace.telemetry.export.own_meters import OwnMeters
from tests.support.watched import ask

parent = os.getpid()

class Told(MetricExporter):
    def export(self, metrics_data, timeout_millis=0, **_):
        names = [m.name for r in metrics_data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        if {name!r} in names:
            os.write(1, b"the parent\\n" if os.getpid() == parent else b"the child\\n")
        return MetricExportResult.SUCCESS
    def force_flush(self, timeout_millis=0):
        return True
    def shutdown(self, timeout_millis=0, **_):
        pass

reader = PeriodicExportingMetricReader(Told(), export_interval_millis=20)
# After the reader has restarted its thread, and before ours: as the hooks of the SDK, on a machine that is busy.
os.register_at_fork(after_in_child=lambda: threading.Event().wait(0.5))
{started}
told = threading.Event()
told.wait(0.2)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""
OURS: Final = """
meters = OwnMeters(lambda: reader, Resource({}), lambda: Resource({}))
meters.get_meter("ours", "1").create_observable_counter("figure", [lambda _: [Observation(1)]])
"""
THE_USERS: Final = """
ragtrace.configure(exporter=Signals(metrics=reader), metrics=["consistency"])
ask("where?")
ragtrace.flush(5.0)
"""
THE_PROCESSS: Final = """
from opentelemetry.sdk.metrics import MeterProvider
options = ragtrace.TelemetryOptions(meter_provider=MeterProvider([reader]))
ragtrace.configure(telemetry=options, metrics=["consistency"])
ask("where?")
ragtrace.flush(5.0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("started", "name"),
    [(OURS, "figure"), (THE_USERS, "ragtrace.calls"), (THE_PROCESSS, "ragtrace.calls")],
    ids=["our own exporter", "an exporter of the user's", "a provider of the user's"],
)
def test_a_child_that_is_slow_to_fork_exports_nothing_of_its_parent(started: str, name: str) -> None:
    """The SDK restarts the thread that exports metrics first, under the child's new identity."""
    done = subprocess.run(
        [sys.executable, "-c", SLOW_TO_FORK.format(started=started, name=name)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {"the parent"}


# --- in a hurry ------------------------------------------------------------------------------------------------------


def users_meters() -> tuple[MeterProvider, InMemoryMetricReader]:
    """A meter provider of the user's, with a counter, and after it a gauge that is slow to read."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)

    def read_slowly(_: object) -> list[Observation]:
        threading.Event().wait(0.1)
        return [Observation(1)]

    meter = provider.get_meter("user")
    meter.create_observable_counter("users.counter", [lambda _: [Observation(7)]])
    meter.create_observable_gauge("users.gauge", [read_slowly])
    return provider, reader


def values(reader: InMemoryMetricReader, name: str) -> list[float]:
    data: Any = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return [point.value for scope in scopes for m in scope.metrics if m.name == name for point in m.data.data_points]


def test_a_hasty_flush_does_not_spoil_the_counters_of_the_user() -> None:
    """The SDK adds what a collection that was broken off had read to the next one: twice the value."""
    provider, reader = users_meters()
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(meter_provider=provider),
        exporter=Captured().signals,
        screen=FakeJudge(GOOD),
    )
    ask("where?")
    for _ in range(3):
        ragtrace.flush(0.0)
    assert values(reader, "users.counter") == [7]
    provider.shutdown()


def test_the_durations_of_a_root_count_once_in_a_provider_of_the_user() -> None:
    """Its span is written at once there, and its scores later."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=tracers, meter_provider=meters), screen=FakeJudge(GOOD)
    )
    for _ in range(5):
        ask("where?")
    assert ragtrace.flush(WAIT_S)
    data: Any = reader.get_metrics_data()
    counts = {
        metric.name: point.count
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.endswith("workflow.duration")
        for point in metric.data.data_points
    }
    assert counts == {"gen_ai.invoke_workflow.duration": 5}
    meters.shutdown()
