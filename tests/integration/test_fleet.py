"""A fleet on real brokers: calls are judged, retried, buried and recovered, and none is lost."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

import ragtrace
from ragtrace.cli import main
from ragtrace.diagnosis import diagnose_environment
from ragtrace.diagnosis.report import Check
from ragtrace.fleet import handover
from ragtrace.fleet.spool import Spool
from ragtrace.system.faults import faults
from tests.support.brokers import Broker, rabbitmq_broker, redis_broker
from tests.support.fleet import handed_over, running_worker
from tests.support.gateway import serving, trace_calls
from tests.support.judge_server import FAILED, JudgeServer, Reply, Request, labels
from tests.support.otlp import HttpReceiver
from tests.support.watched import ask

pytestmark = pytest.mark.integration

WAIT_S = 60.0
EXIT_S = 20.0
EVENT = "gen_ai.evaluation.result"
GATEWAY = 'screen = "none"\njudge = "judge_of_the_workers:judge"\n[sampling]\nrate = 1.0\n'


@pytest.fixture(scope="module", params=["rabbitmq", "redis"])
def shared_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that runs, of each kind."""
    make = {"rabbitmq": rabbitmq_broker, "redis": redis_broker}[request.param]
    with make(tmp_path_factory.mktemp(request.param)) as described, described.started():
        yield described


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """A broker that holds nothing, of each kind."""
    yield shared_broker
    shared_broker.empty()


def publish(broker: Broker, count: int) -> None:
    """Put calls with the numbers from 1 into the queue."""
    assert not any(broker.publish(handed_over(number) for number in range(1, count + 1)))


def scored(otlp: HttpReceiver) -> set[int]:
    """Numbers of the calls that have a score."""
    return {int(log.trace_id, 16) for log in otlp.logs if "gen_ai.evaluation.score.value" in log.attributes}


def waiting(broker: Broker) -> int:
    """Number of calls that no worker has."""
    return broker.depths().calls


def test_workers_score_every_call_once(broker: Broker, tmp_path: Path) -> None:
    """Two workers share the queue; after SIGTERM nothing is left in it, and no call was judged twice."""
    with JudgeServer(labels(after=0.05)) as judge, HttpReceiver() as otlp:
        publish(broker, 120)
        with ExitStack() as stack:
            workers = [
                stack.enter_context(running_worker(tmp_path, broker.url, judge.url, otlp.environ, name=name))
                for name in ("first", "second")
            ]
            otlp.wait_for(lambda _: len(scored(otlp)) == 120, WAIT_S)
            for worker in workers:
                worker.terminate()
            assert [worker.wait(EXIT_S) for worker in workers] == [0, 0]
        assert Counter(Counter(request.body for request in judge.requests).values()) == {1: 120}
        assert waiting(broker) == 0


def test_a_terminated_worker_finishes_its_calls(broker: Broker, tmp_path: Path) -> None:
    """SIGTERM while calls are being judged: their scores arrive, the others wait for the next worker."""
    with JudgeServer(labels(after=0.5)) as judge, HttpReceiver() as otlp:
        publish(broker, 60)
        with running_worker(tmp_path, broker.url, judge.url, otlp.environ, concurrency=4) as worker:
            otlp.wait_for(lambda _: len(scored(otlp)) >= 1, WAIT_S)
            worker.terminate()
            assert worker.wait(EXIT_S) == 0
        before = scored(otlp)
        assert len(before) == len(judge.requests) == 60 - waiting(broker)


def test_calls_of_a_killed_worker_are_judged_by_another(broker: Broker, tmp_path: Path) -> None:
    """SIGKILL while calls are being judged: another worker scores them, under the same score ids."""
    with JudgeServer(labels(after=0.3)) as judge, HttpReceiver() as otlp:
        publish(broker, 40)
        with running_worker(tmp_path, broker.url, judge.url, otlp.environ, judge_timeout=1) as first:
            otlp.wait_for(lambda _: len(judge.requests) >= 8, WAIT_S)
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
        with running_worker(tmp_path, broker.url, judge.url, otlp.environ, name="second", judge_timeout=1):
            otlp.wait_for(lambda _: len(scored(otlp)) == 40, WAIT_S)


def test_a_call_that_fails_three_times_is_a_dead_letter(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is kept with its reason, as a message that is no call is; `fleet retry` has it judged again."""
    healthy = threading.Event()

    def rule(request: Request) -> Reply:
        return FAILED if b"tower 7?" in request.body and not healthy.is_set() else labels()

    with JudgeServer(rule) as judge, HttpReceiver() as otlp:
        publish(broker, 20)
        broker.ask(lambda client: client.publish(["{}", "no JSON"]))
        with running_worker(tmp_path, broker.url, judge.url, otlp.environ):
            otlp.wait_for(lambda _: len(scored(otlp)) == 19 and broker.depths().dead_letters == 3, WAIT_S)
            state = fleet_status(broker, capsys)
            assert (state["calls"], state["dead_letters"], state["consumers"]) == (0, 3, 1)
            healthy.set()
            assert main(["fleet", "retry", "--broker", broker.url]) == 0
            assert "put back into the queue: 1 (judge: 1); left: 2" in capsys.readouterr().out
            otlp.wait_for(lambda _: len(scored(otlp)) == 20, WAIT_S)
        found = {letter.reason: letter.body for letter in broker.dead_letters()}
        assert found == {"version": b"{}", "malformed": b"no JSON"}


def test_doctor_and_fleet_status_count_the_workers(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both see the workers that take calls, and the doctor warns if there is none; one that was killed is none."""

    def diagnosed() -> Check:
        (check,) = [
            each for each in diagnose_environment({"RAGTRACE_FLEET": broker.url}).checks if each.what == "fleet"
        ]
        return check

    publish(broker, 1)
    assert (diagnosed().ok, diagnosed().seen) == (False, "1 calls wait for a judge, 0 workers, 0 dead letters")
    assert "start ragtrace worker" in diagnosed().advice
    with JudgeServer() as judge, ExitStack() as stack:
        first, _ = [
            stack.enter_context(running_worker(tmp_path, broker.url, judge.url, {}, name=name))
            for name in ("first", "second")
        ]
        wait_for_workers(2, broker, capsys)
        first.kill()
        wait_for_workers(1, broker, capsys)
        assert (diagnosed().ok, diagnosed().seen) == (True, "0 calls wait for a judge, 1 workers, 0 dead letters")


def wait_for_workers(number: int, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """Wait until `ragtrace fleet status` counts *number* workers: one that is held up is none meanwhile."""
    until = monotonic() + WAIT_S
    while fleet_status(broker, capsys)["consumers"] != number:
        assert monotonic() < until


def fleet_status(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Any:
    """What `ragtrace fleet status --json` prints."""
    assert main(["fleet", "status", "--json", "--broker", broker.url]) == 0
    return json.loads(capsys.readouterr().out)


def configured(broker: Broker, otlp: HttpReceiver, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """Configure ragtrace in this process to hand all calls over to the fleet."""
    for name, value in otlp.environ.items():
        monkeypatch.setenv(name, value)
    faults.clear()
    ragtrace.configure(fleet=broker.url, screen=None, sampling=ragtrace.Sampling(rate=1.0), **settings)


def test_an_application_hands_its_calls_over(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger counts them as handed over; workers score them on the spans of the application."""
    with JudgeServer(labels()) as judge, HttpReceiver() as otlp:
        configured(broker, otlp, monkeypatch)
        for number in range(30):
            ask(f"How tall is tower {number}?")
        assert ragtrace.flush(WAIT_S)
        tally = ragtrace.stats().evaluators["fleet"]
        assert (tally.offered, tally.handed_over, tally.pending) == (30, 30, 0)
        assert ragtrace.shutdown(WAIT_S)
        assert waiting(broker) == 30
        with running_worker(tmp_path, broker.url, judge.url, otlp.environ):
            otlp.wait_for(lambda _: len(scored(otlp)) == 30, WAIT_S)
        handed = {span.trace_id for span in otlp.spans if span.attributes.get("ragtrace.eval.status") == "handed_over"}
        assert {int(trace, 16) for trace in handed} == scored(otlp)


def test_calls_in_received_spans_are_scored_by_a_worker(broker: Broker, tmp_path: Path) -> None:
    """The gateway forwards the spans and queues the calls in them, at its end at once; their events arrive."""
    (tmp_path / "gateway.toml").write_text(GATEWAY)
    options = ("--broker", broker.url, "--config", str(tmp_path / "gateway.toml"))
    with JudgeServer() as judge, HttpReceiver() as otlp:
        with serving(*options, **otlp.environ) as (gateway, http, grpc):
            exporters: tuple[Any, ...] = (HttpExporter(endpoint=http), GrpcExporter(endpoint=grpc, insecure=True))
            asked = {format(root.trace_id, "032x") for each in exporters for root in trace_calls(each, 10)}
            gateway.terminate()  # within the time for which it waits for further spans of the calls
            _, errors = gateway.communicate(timeout=WAIT_S)
            assert gateway.returncode == 0, errors
        assert {span.trace_id for span in otlp.spans} == asked
        assert waiting(broker) == len(asked) == 20
        with running_worker(tmp_path, broker.url, judge.url, otlp.environ):
            otlp.wait_for(lambda got: {log.trace_id for log in got.logs} == asked, WAIT_S)
        assert {log.event_name for log in otlp.logs} == {EVENT}


def test_calls_are_spooled_while_the_broker_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are counted as spooled, and handed over when the broker is back: nothing is missing at the end."""
    with redis_broker(tmp_path) as broker, HttpReceiver() as otlp:
        configured(broker, otlp, monkeypatch, limits=ragtrace.Limits(spool=tmp_path / "spool.db"))
        for number in range(20):
            ask(f"How tall is tower {number}?")
        ragtrace.flush(WAIT_S)
        assert ragtrace.stats().evaluators["fleet"].dropped == {"spooled": 20}
        with broker.started():
            ask("How tall is the last tower?")
            otlp.wait_for(lambda _: ragtrace.stats().handed_over == 21, WAIT_S)
            assert ragtrace.shutdown(WAIT_S)
            assert "unscored" not in caplog.text
            assert waiting(broker) == 21


def test_a_spooled_call_that_the_process_has_forgotten_is_handed_over_once_and_named_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process takes 5 of 10 calls out of the spool, and this one remembers 3: its shutdown names 7."""
    monkeypatch.setattr(handover, "_MOST_REMEMBERED", 3)
    path = tmp_path / "spool.db"
    with redis_broker(tmp_path) as broker, HttpReceiver() as otlp:
        configured(broker, otlp, monkeypatch, limits=ragtrace.Limits(spool=path))
        for number in range(10):
            ask(f"How tall is tower {number}?")
        ragtrace.flush(WAIT_S)
        other = Spool(str(path))
        other.delete([call.number for call in other.claim(5)])
        with broker.started():
            ask("How tall is the last tower?")
            otlp.wait_for(lambda _: ragtrace.stats().handed_over == 6, WAIT_S)
            assert not ragtrace.shutdown(WAIT_S)
            assert "unscored since ragtrace was configured: 7 spooled" in caplog.text
            assert ragtrace.stats().evaluators["fleet"].dropped == {"spooled": 10}
            assert waiting(broker) == 6


def test_a_gateway_publishes_the_calls_that_an_earlier_one_could_not(tmp_path: Path) -> None:
    """A gateway that ends while the broker is away spools its calls; the next one publishes them without any span."""
    (tmp_path / "gateway.toml").write_text(f'{GATEWAY}\n[limits]\nspool = "{tmp_path / "spool.db"}"\n')
    with redis_broker(tmp_path) as broker, HttpReceiver() as otlp:
        options = ("--broker", broker.url, "--config", str(tmp_path / "gateway.toml"))
        with serving(*options, **otlp.environ) as (gateway, http, _):
            trace_calls(HttpExporter(endpoint=http), 5)
            gateway.terminate()
            _, errors = gateway.communicate(timeout=WAIT_S)
            assert "5 spooled" in errors
        with broker.started(), serving(*options, **otlp.environ):
            until = monotonic() + WAIT_S
            while waiting(broker) < 5:
                assert monotonic() < until


def test_calls_of_a_worker_wait_without_a_thread_for_each(tmp_path: Path) -> None:
    """With 64 calls at the judge, and more taken from the queue, the process has fewer threads than calls."""
    with (
        redis_broker(tmp_path) as broker,
        broker.started(),
        JudgeServer(labels(after=4.0)) as judge,  # longer than the worker takes to send 64 requests on a busy machine
        HttpReceiver() as otlp,
    ):
        publish(broker, 128)
        with running_worker(tmp_path, broker.url, judge.url, otlp.environ, concurrency=64, judge_timeout=20) as worker:
            otlp.wait_for(lambda _: judge.most_in_flight == 64, WAIT_S)
            status = Path(f"/proc/{worker.pid}/status").read_text()
            assert int(status.partition("Threads:")[2].split()[0]) < 64
