"""The doctor: where settings come from, what answers and what not, and why a call was (not) scored."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.alerts import Alertmanager, Webhook
from ragtrace.cli import main
from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import JudgeError
from ragtrace.core.score_sink import Refusal, ScoreRecord, ScoreSink
from ragtrace.diagnosis import diagnose_environment
from ragtrace.diagnosis.probes import ProbeResult
from ragtrace.diagnosis.telemetry_probes import probe_endpoint, safe_address
from ragtrace.pipeline.health import RecentOutcome
from ragtrace.system.faults import faults
from ragtrace.system.terminal import FAILURE, OK, USAGE
from ragtrace.testing import FakeJudge
from ragtrace_exporters.datadog import DatadogScores
from ragtrace_exporters.langfuse import LangfuseScores
from ragtrace_exporters.mlflow import MlflowScores
from ragtrace_exporters.opik import OpikScores
from ragtrace_exporters.phoenix import PhoenixScores
from ragtrace_exporters.score_api import JsonClient
from tests.support import watched
from tests.support.monitoring import application, wait_until
from tests.support.otlp import GrpcReceiver, HttpReceiver
from tests.support.scored import EVERY
from tests.support.services import answers, free_ports
from tests.support.watched import GOOD, HALF, WAIT_S, WaitingJudge, eventually, watch

SECRET = "sk-very-secret"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def why(evaluator: str) -> list[str]:
    return [fate.why for fate in fates(evaluator)]


def fates(evaluator: str) -> list[RecentOutcome]:
    return [fate for fate in ragtrace.doctor(probe=False).fates if fate.evaluator == evaluator]


# --- settings --------------------------------------------------------------------------------------------------------


def test_every_setting_says_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyword, a variable, or the default."""
    monkeypatch.setenv("RAGTRACE_CAPACITY", "77")
    watch(service="shop", sampling=ragtrace.Sampling(rate=0.2, never=["error"]))
    found = {setting.name: (setting.value, setting.origin) for setting in ragtrace.doctor(probe=False).settings}
    assert found["service"] == ("shop", "service=")
    assert found["capacity"] == ("77", "RAGTRACE_CAPACITY")
    assert found["hold_seconds"] == ("10.0", "default")
    assert found["sampling"] == ("rate=0.2, never=[error]", "sampling=")


def test_without_configure_it_says_so() -> None:
    """The most common reason why nothing is scored."""
    program = "import ragtrace; found = ragtrace.doctor(); print(found.state, found.ok, found)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.startswith("not configured False ")
    assert "call ragtrace.configure()" in done.stdout


def test_switched_off_is_no_fault() -> None:
    """The user has switched ragtrace off, so nothing is wrong."""
    ragtrace.configure(enabled=False)
    assert (ragtrace.doctor().state, ragtrace.doctor().ok) == ("switched off", True)


def test_after_shutdown_it_tells_what_was_lost() -> None:
    """The counts are those of the final statistics."""
    judge = WaitingJudge(name="judge")
    watch(screen=None, judge=judge, sampling=EVERY)
    watched.ask("where?")
    assert judge.begun.wait(WAIT_S)
    ragtrace.shutdown(timeout=0.1)
    diagnosis = ragtrace.doctor()
    assert diagnosis.state == "shut down"
    assert diagnosis.problems[1:] == ("1 evaluations were dropped: shutdown",)


# --- what became of the last calls -----------------------------------------------------------------------------------


def test_a_call_that_was_sampled_out_says_at_what_probability() -> None:
    """The outcome also names the trace."""
    captured = watch(screen=None, judge=FakeJudge(GOOD, name="judge"), sampling=ragtrace.Sampling(rate=0.0))
    watched.ask("where?")
    assert ragtrace.flush()
    [fate] = fates("judge")
    assert (fate.outcome, fate.why) == ("sampled_out", "sampled out at p=0")
    context = captured.root().get_span_context()
    assert context is not None
    assert (fate.trace_id, fate.span_id) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")


def test_a_judge_that_never_sees_a_call_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is configured, and the sampling sends it nothing, whichever way the rate was set."""
    judge = FakeJudge(GOOD, name="judge")
    monkeypatch.setenv("RAGTRACE_SAMPLE_RATE", "0")
    for sampling in (None, ragtrace.Sampling(rate=0.0), ragtrace.Sampling(rate=0.0, suspicious_rate=0.0)):
        watch(judge=judge, sampling=sampling)
        watched.ask("where?")
        assert ragtrace.flush()
        *_, note = ragtrace.doctor(probe=False).notes
        assert note.startswith(
            "the judge 'judge' never sees a call of the application: the sampling has the rate 0 and"
        )
    assert judge.calls == []


@pytest.mark.parametrize(
    "sampling",
    [
        ragtrace.Sampling(rate=0.001),
        ragtrace.Sampling(rate=0.0, suspicious_rate=0.5),
        ragtrace.Sampling(rate=0.0, always=["abstained"]),
    ],
    ids=["rate", "suspicious", "always"],
)
def test_a_judge_that_may_see_a_call_is_not_noted(sampling: ragtrace.Sampling) -> None:
    """A low rate, or one for some calls alone, is a wish."""
    watch(judge=FakeJudge(GOOD, name="judge"), sampling=sampling)
    assert not any("never sees" in note for note in ragtrace.doctor(probe=False).notes)


def test_a_judge_that_is_rate_limited_says_for_how_long() -> None:
    """The server's error first, then how long its Retry-After lasts."""
    watch(
        screen=None,
        judge=FakeJudge(
            JudgeError("unavailable", "HTTP 429", retry_after=12),
            name="judge",
            limits=ragtrace.JudgeLimits(timeout=1.0),
        ),
        sampling=EVERY,
    )
    for question in ("where?", "and where else?"):
        watched.ask(question)
        assert ragtrace.flush()
    first, second = why("judge")
    assert first == "unavailable: HTTP 429"
    assert second.startswith("unavailable: the judge's Retry-After lasts another 1")
    assert 10 < ragtrace.doctor(probe=False).evaluators[-1].waits_s <= 12


def test_a_full_queue_says_so() -> None:
    """The problem says what to do."""
    judge = WaitingJudge(name="judge")
    watch(screen=None, judge=judge, sampling=EVERY, limits=ragtrace.Limits(capacity=1))
    watched.ask("where?")
    assert judge.begun.wait(WAIT_S)
    watched.ask("and where else?")
    assert not ragtrace.flush(0.5)
    assert why("judge") == ["queue full: raise Limits(capacity=), or make the evaluators faster"]
    assert any("queue_full" in problem for problem in ragtrace.doctor(probe=False).problems)
    judge.open()


def test_a_call_to_which_nothing_applies_says_why() -> None:
    """It is scored, in the sense that it is decided."""
    judgement = ragtrace.Judgement(claims=(), answer_label="answered", reasons={"claims": "no_claims"})
    watch(screen=FakeJudge(judgement, name="screen"), metrics=["faithfulness"])
    watched.ask("where?")
    assert ragtrace.flush()
    assert why("screen") == ["no metric applies: no_claims"]


def test_a_scored_call_needs_no_reason() -> None:
    """There is nothing to explain."""
    watch(screen=FakeJudge(HALF, name="screen"))
    watched.ask("where?")
    assert ragtrace.flush()
    assert [(fate.outcome, fate.workflow, fate.why) for fate in fates("screen")] == [("scored", "guide", "")]


def test_only_the_last_calls_are_kept() -> None:
    """Bounded, whatever the traffic; the newest is the last."""
    watch(screen=FakeJudge(HALF, name="screen"))
    for _ in range(350):
        watched.ask("where?")
    assert ragtrace.flush(timeout=WAIT_S)
    assert len(fates("screen")) == 300


# --- endpoints -------------------------------------------------------------------------------------------------------


def endpoint(url: str, protocol: Any = "http/protobuf", **more: Any) -> Endpoint:
    return Endpoint("traces", url, protocol, "OTEL_EXPORTER_OTLP_ENDPOINT", **more)


@pytest.fixture
def closed() -> Iterator[int]:
    """A port without a listener."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # not listening, and no other process can take it
        yield held.getsockname()[1]


def test_a_backend_that_takes_everything_is_well(http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three signals, each asked at its own path, with the time it took; nothing is stored there."""
    for name, value in http_receiver.environ.items():
        monkeypatch.setenv(name, value)
    ragtrace.configure()
    diagnosis = ragtrace.doctor()
    assert diagnosis.ok, diagnosis.problems
    assert [(check.what, check.seen) for check in diagnosis.checks] == [
        ("traces", "200 OK"),
        ("metrics", "200 OK"),
        ("logs", "200 OK"),
    ]
    assert all(0 < check.seconds < 5 for check in diagnosis.checks)
    assert http_receiver.spans == http_receiver.logs == ()


def test_the_same_over_grpc(grpc_receiver: GrpcReceiver) -> None:
    """With the services that the exporters call."""
    diagnosis = diagnose_environment(grpc_receiver.environ)
    assert [(check.what, check.ok, check.seen) for check in diagnosis.checks] == [
        (signal, True, "OK") for signal in ("traces", "metrics", "logs")
    ]


def test_a_closed_port_is_named(closed: int) -> None:
    """The words are those that a user would search for."""
    answer = probe_endpoint(endpoint(f"http://127.0.0.1:{closed}/v1/traces"), 5.0)
    assert (answer.ok, answer.seen) == (False, "connection refused")
    answer = probe_endpoint(endpoint(f"http://127.0.0.1:{closed}", "grpc", insecure=True), 5.0)
    assert not answer.ok
    assert answer.seen.startswith("UNAVAILABLE: ")


def test_an_unknown_host_name_is_reported() -> None:
    """`.invalid` never resolves."""
    answer = probe_endpoint(endpoint("http://collector.invalid/v1/traces"), 5.0)
    assert not answer.ok
    assert answer.seen.startswith("the name is not known")


@pytest.mark.parametrize(
    ("status", "ok", "seen", "advice"),
    [
        (401, False, "the credentials are refused", "OTEL_EXPORTER_OTLP_HEADERS"),
        (403, False, "the credentials are refused", "OTEL_EXPORTER_OTLP_HEADERS"),
        (404, False, "nothing takes traces at this path", "/v1/traces is added to OTEL_EXPORTER_OTLP_ENDPOINT"),
        (415, False, "it takes no protobuf", "protobuf"),
        (400, True, "takes no export of nothing", ""),
        (503, False, "503 Service Unavailable", "log"),
    ],
)
def test_a_refusal_is_explained(http_receiver: HttpReceiver, status: int, ok: bool, seen: str, advice: str) -> None:
    """The check holds what was seen and what to do."""
    http_receiver.answer_with(status)
    answer = probe_endpoint(endpoint(f"{http_receiver.endpoint}/v1/traces"), 5.0)
    assert answer.ok is ok
    assert str(status) in answer.seen
    assert seen in answer.seen
    assert advice in answer.advice


@pytest.mark.parametrize(("code", "advice"), [(16, "OTEL_EXPORTER_OTLP_HEADERS"), (12, "the OTLP port"), (14, "up")])
def test_a_refusal_over_grpc_is_explained(grpc_receiver: GrpcReceiver, code: int, advice: str) -> None:
    """The explanation depends on the gRPC status code."""
    grpc_receiver.answer_with(code)
    answer = probe_endpoint(endpoint(grpc_receiver.endpoint, "grpc", insecure=True), 5.0)
    assert not answer.ok
    assert "refused by the test" in answer.seen
    assert advice in answer.advice


def test_tls_where_there_is_none_is_explained(http_receiver: HttpReceiver) -> None:
    """https:// to a server that speaks plain HTTP."""
    answer = probe_endpoint(endpoint(f"https://127.0.0.1:{http_receiver.port}/v1/traces"), 5.0)
    assert not answer.ok
    assert answer.seen.startswith("TLS error")
    assert "http://" in answer.advice


def test_a_backend_that_does_not_answer_is_given_up(http_receiver: HttpReceiver) -> None:
    """All signals together take no longer than the time limit."""
    with http_receiver.hanging():
        began = perf_counter()
        diagnosis = diagnose_environment(http_receiver.environ, timeout=0.3)
        assert perf_counter() - began < 10  # the backend hangs for as long as the block lasts
    assert [(check.ok, check.seen) for check in diagnosis.checks] == [(False, "no answer in time")] * 3


class _Elsewhere(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(308)
        self.send_header("location", "https://otlp.example.com/v1/traces?key=secret")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


def test_a_redirect_says_where_to() -> None:
    """A client would follow it with something else than an export."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        answer = probe_endpoint(endpoint(f"http://127.0.0.1:{server.server_port}/v1/traces"), 5.0)
        server.shutdown()
    assert answer == ProbeResult(
        False,
        "308 Permanent Redirect to https://otlp.example.com/v1/traces",
        "write that address into OTEL_EXPORTER_OTLP_ENDPOINT",
    )


def test_the_usual_ports_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP to the port of gRPC is the most common mistake of all."""
    answer = probe_endpoint(endpoint("http://127.0.0.1:4317/v1/traces"), 1.0)
    assert answer.ok or "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in answer.advice


def test_headers_are_sent_and_not_shown(http_receiver: HttpReceiver) -> None:
    """Of headers the names, of a URL neither user nor query."""
    environ = {
        **http_receiver.environ,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={SECRET}",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"http://me:{SECRET}@127.0.0.1:{http_receiver.port}/v1/logs?key={SECRET}",
    }
    diagnosis = diagnose_environment(environ)
    assert {request.headers["authorization"] for request in http_receiver.requests[:2]} == {SECRET}
    assert SECRET not in str(diagnosis)
    assert SECRET not in json.dumps(diagnosis.as_dict())
    assert "headers: authorization" in str(diagnosis)


def test_a_target_that_is_no_url_is_shown_as_it_is() -> None:
    """gRPC takes host and port."""
    assert safe_address(endpoint("collector:4317", "grpc")) == "collector:4317 (grpc, from OTEL_EXPORTER_OTLP_ENDPOINT)"


def test_no_endpoint_is_a_problem_unless_none_is_wanted() -> None:
    """Spans and scores that go nowhere are rarely meant."""
    assert any("OTEL_EXPORTER_OTLP_ENDPOINT" in problem for problem in diagnose_environment({}).problems)
    assert diagnose_environment({"RAGTRACE_EXPORTER": "none"}).ok
    assert diagnose_environment({"OTEL_SDK_DISABLED": "true"}).ok


def test_a_wrong_variable_is_a_problem() -> None:
    """The message that configure would raise."""
    [problem] = diagnose_environment({"RAGTRACE_CAPACITY": "many"}).problems
    assert "RAGTRACE_CAPACITY" in problem
    [problem] = diagnose_environment(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "soap"}
    ).problems
    assert "soap" in problem


# --- judges ----------------------------------------------------------------------------------------------------------


class Probeable(FakeJudge):
    """A judge that can be asked how it is."""

    def __init__(self, probe: Callable[[], Any]) -> None:
        super().__init__(GOOD, name="judge")
        self._probe = probe
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def judge(self, call: ragtrace.RagCall) -> ragtrace.Judgement:
        self.loops.append(asyncio.get_running_loop())
        return await super().judge(call)

    async def probe(self) -> str:
        self.loops.append(asyncio.get_running_loop())
        assert asyncio.current_task() is not None
        result = self._probe()
        return str(await result if asyncio.iscoroutine(result) else result)


def fails() -> str:
    raise JudgeError("refused", "the key is not known")


@pytest.mark.parametrize(
    ("probe", "ok", "seen"),
    [
        (lambda: "tiny at http://localhost", True, "tiny at http://localhost"),
        (fails, False, "refused: the key is not known"),
        (lambda: asyncio.sleep(60), False, "no answer within 0.2 s"),
    ],
    ids=["answers", "fails", "hangs"],
)
def test_a_judge_is_asked_how_it_is(probe: Callable[[], Any], ok: bool, seen: str) -> None:
    """On the loop that it judges on, where its connections are."""
    judge = Probeable(probe)
    watch(screen=None, judge=judge, sampling=EVERY)
    watched.ask("where?")
    assert ragtrace.flush()
    diagnosis = ragtrace.doctor(timeout=0.2 if "no answer" in seen else WAIT_S)
    assert [(check.what, check.ok, check.seen) for check in diagnosis.checks] == [("judge", ok, seen)]
    assert diagnosis.ok is ok
    assert len(set(judge.loops)) == 1


def test_a_judge_that_blocks_the_background_is_found() -> None:
    """A blocked event loop is why nothing else is scored."""
    blocking = WaitingJudge(name="screen", blocking=True)
    watch(screen=blocking, judge=Probeable(lambda: "well"), sampling=EVERY)
    watched.ask("where?")
    assert blocking.begun.wait(WAIT_S)
    [check] = ragtrace.doctor(timeout=0.2).checks
    assert (check.ok, "blocking its thread" in check.seen) == (False, True)
    blocking.open()


def test_a_judge_that_keeps_failing_is_a_problem() -> None:
    """Its circuit is open, and for how long."""
    watch(
        screen=None,
        judge=FakeJudge(JudgeError("unavailable", "HTTP 500", retryable=False), name="judge"),
        sampling=EVERY,
    )
    for number in range(12):
        watched.ask(f"question {number}")
    assert ragtrace.flush()
    diagnosis = ragtrace.doctor()
    assert diagnosis.evaluators[-1].state == "open"
    assert any(problem.startswith("judge keeps failing and is left alone") for problem in diagnosis.problems)


def roots(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    return [span for span in spans if "ragtrace.eval.status" in (span.attributes or {})]


def late_problems() -> list[str]:
    return [each for each in ragtrace.doctor(probe=False).problems if "too late for the spans" in each]


def test_a_judge_slower_than_the_hold_is_told_what_to_set() -> None:
    """While most of its scores come when the spans of their calls have left, and no longer than that."""
    judge = WaitingJudge(name="judge")
    captured = watch(screen=None, judge=judge, sampling=EVERY, limits=ragtrace.Limits(hold_seconds=1))
    watched.ask("where?")
    assert eventually(lambda: bool(captured.roots()))
    assert late_problems() == []  # it may never be scored
    judge.open()
    assert ragtrace.flush()
    [problem] = late_problems()
    assert "in 1 of the last 1 calls that it scored" in problem
    assert "while a span waits 1 s" in problem
    seconds = re.search(r"Set Limits\(hold_seconds=(\d+)\)", problem)
    assert seconds is not None
    assert int(seconds[1]) >= 2
    watched.ask("and now?")
    assert ragtrace.flush()
    assert late_problems() == []  # one of two


def test_an_application_s_own_hold_is_named_where_it_is_too_short() -> None:
    """`Limits(hold_seconds=)` is of ragtrace's own provider alone."""
    exporter, judge = InMemorySpanExporter(), WaitingJudge(name="judge")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(exporter), seconds=0.1))
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=None, judge=judge, sampling=EVERY
    )
    watched.ask("where?")
    assert eventually(
        lambda: any("ragtrace.eval.status" in (each.attributes or {}) for each in exporter.get_finished_spans())
    )
    judge.open()
    assert ragtrace.flush()
    assert [re.findall(r"Set (\w+\(\w+=)\d+\)", each) for each in late_problems()] == [["HoldProcessor(seconds="]]
    provider.shutdown()


def test_scores_that_a_flush_did_not_await_do_not_blame_the_hold() -> None:
    """The span has left because the application wanted it."""
    judge = WaitingJudge(name="judge")
    captured = watch(screen=None, judge=judge, sampling=EVERY)
    watched.ask("where?")
    assert judge.begun.wait(WAIT_S)
    ragtrace.flush(0.05)
    assert eventually(lambda: bool(captured.roots()))
    judge.open()
    assert ragtrace.flush()
    assert late_problems() == []


def test_without_probing_nothing_is_asked() -> None:
    """For signal handlers and health checks."""
    judge = Probeable(lambda: "well")
    watch(screen=None, judge=judge)
    assert ragtrace.doctor(probe=False).checks == ()
    assert judge.loops == []


# --- files -----------------------------------------------------------------------------------------------------------


def checks(diagnosis: ragtrace.types.Diagnosis) -> dict[str, tuple[bool, str]]:
    """Whether each thing is well, and what was seen."""
    return {check.what: (check.ok, check.seen) for check in diagnosis.checks}


def test_the_files_of_calls_say_what_is_in_them(tmp_path: Path) -> None:
    """That they can be written to, where they are and from where, and how much room is left."""
    watch(
        screen=FakeJudge(HALF, name="screen"),
        store=tmp_path / "history.db",
        limits=ragtrace.Limits(spool=tmp_path / "spool.db"),
    )
    watched.ask("where?")
    assert ragtrace.flush()
    diagnosis = ragtrace.doctor()
    assert diagnosis.ok, diagnosis.problems
    found = checks(diagnosis)
    assert re.match(r"can be written to; 1 calls, newest \d+ s ago; ", found["store"][1])
    assert found["spool"][1].startswith("can be written to; 0 calls wait, 0 of them taken up; ")
    assert all(seen.endswith(" free") for _, seen in found.values())
    assert f"{tmp_path / 'history.db'} (from store=)" in [check.where for check in diagnosis.checks]


def test_files_that_are_not_there_yet_are_not_made(tmp_path: Path) -> None:
    """The environment alone is looked at: that is no time to leave something behind."""
    environ = {"RAGTRACE_EXPORTER": "none", "RAGTRACE_STORE": str(tmp_path / "history.db")}
    assert checks(diagnose_environment(environ))["store"][1].startswith("not made yet, but it can be; ")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_no_directory_is_a_problem(tmp_path: Path) -> None:
    """The problem names the variable to change."""
    diagnosis = diagnose_environment(
        {"RAGTRACE_EXPORTER": "none", "RAGTRACE_SPOOL": str(tmp_path / "gone" / "spool.db")}
    )
    [problem] = diagnosis.problems
    assert problem.startswith("spool: there is no such directory at ")
    assert problem.endswith("write another into RAGTRACE_SPOOL")


def test_another_programs_file_is_a_problem(tmp_path: Path) -> None:
    """The file is left as it is."""
    path = tmp_path / "history.db"
    path.write_text("dear diary, " * 100)
    [problem] = diagnose_environment({"RAGTRACE_EXPORTER": "none", "RAGTRACE_STORE": str(path)}).problems
    assert "another program's file" in problem
    assert path.read_text() == "dear diary, " * 100


def test_a_file_that_another_process_keeps_locked_is_a_problem(tmp_path: Path) -> None:
    """As a process that hangs in the middle of a write does."""
    path = tmp_path / "history.db"
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("CREATE TABLE calls (at REAL)")
        other.execute("BEGIN IMMEDIATE")
        [problem] = diagnose_environment(
            {"RAGTRACE_EXPORTER": "none", "RAGTRACE_STORE": str(path)}, timeout=0.2
        ).problems
        other.execute("ROLLBACK")
    other.close()
    assert "locked" in problem
    assert "look for one that hangs" in problem


# --- whom it tells ---------------------------------------------------------------------------------------------------


@contextmanager
def api(status: int) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server that answers everything with *status*, and writes down what it was asked."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.command, self.path))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815 - the name is the base class's

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def scored_by(sink: ScoreSink) -> ragtrace.types.Diagnosis:
    """Configured with a backend that gets scores by its own API."""
    ragtrace.configure(exporter=ragtrace.types.Signals(scores=sink), service="shop")
    return ragtrace.doctor(timeout=2.0)


@pytest.mark.parametrize("make", [PhoenixScores, MlflowScores, LangfuseScores, OpikScores, DatadogScores])
def test_a_backends_own_api_is_asked_and_given_nothing(make: Callable[[JsonClient], ScoreSink]) -> None:
    """One request that reads, with the keys; the report says who and where."""
    with api(200) as (url, asked):
        sink = make(JsonClient(url, {"authorization": SECRET}))
        diagnosis = scored_by(sink)
    assert diagnosis.ok, diagnosis.problems
    assert checks(diagnosis)[f"scores for {sink.name}"] == (True, "its API answers; nothing was posted")
    assert [method for method, _ in asked] == ["GET"]
    assert ("score_sink", f"{sink.name} at {url}", "exporter=") in [
        (setting.name, setting.value, setting.origin) for setting in diagnosis.settings
    ]
    assert SECRET not in str(diagnosis)


@pytest.mark.parametrize(
    ("status", "seen", "advice"),
    [
        (401, "unauthorized: status 401", "keys"),
        (404, "refused: status 404", "API"),
        (503, "unavailable: status 503", "up"),
    ],
)
def test_a_backends_own_api_that_refuses_is_a_problem(status: int, seen: str, advice: str) -> None:
    """The problem says what to do."""
    with api(status) as (url, _):
        [problem] = scored_by(PhoenixScores(JsonClient(url, {}))).problems
    assert seen in problem
    assert advice in problem.partition(";")[2]


def test_a_backends_own_api_that_is_away_is_a_problem(closed: int) -> None:
    """In the words that one searches for, and what becomes of the scores."""
    [problem] = scored_by(PhoenixScores(JsonClient(f"http://127.0.0.1:{closed}", {}))).problems
    assert problem.startswith(f"scores for phoenix: connection refused at http://127.0.0.1:{closed}; ")
    assert "wait for ten minutes" in problem


class Mute:
    """A sink that cannot be asked, and takes nothing."""

    name, most_at_once = "mute", 10

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        return {score.id: Refusal("too_large") for score in scores}


def test_scores_that_were_not_taken_are_a_problem() -> None:
    """By reason; that the sink could not be asked is only noted."""
    ragtrace.configure(exporter=ragtrace.types.Signals(scores=Mute()), screen=FakeJudge(HALF, name="screen"))
    watched.ask("where?")
    ragtrace.flush()
    diagnosis = ragtrace.doctor()
    assert [problem for problem in diagnosis.problems if problem.startswith("scores for mute: 4 were not delivered")]
    assert any("'mute' cannot be asked" in note for note in diagnosis.notes)
    assert "  scores for mute: 0 posted, 0 waiting, failed too_large 4\n" in str(diagnosis)


def test_alerts_say_how_they_stand_and_whom_they_tell() -> None:
    """With the rule behind a name, and nothing secret."""
    alert = ragtrace.Alert("hallucination", above=0.05, name="made up", notify=Webhook(f"http://localhost/{SECRET}"))
    watch(screen=FakeJudge(HALF, name="screen"), alerts=[alert])
    watched.ask("where?")
    assert ragtrace.flush()
    diagnosis = ragtrace.doctor(probe=False)
    assert [(each.name, each.rule, each.states) for each in diagnosis.alerts] == [
        ("made up", "hallucination above 0.05", ("ok",))
    ]
    assert diagnosis.alerts[0].tells == ("the log", "webhook to localhost")
    assert SECRET not in json.dumps(diagnosis.as_dict())
    assert ("alerts", "made up", "alerts=") in [(each.name, each.value, each.origin) for each in diagnosis.settings]


def test_a_notifier_is_connected_to_and_sent_nothing() -> None:
    """A doctor raises no alarm: not a byte is sent, no function called."""
    sent: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        hook = Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/hook")
        watch(alerts=[ragtrace.Alert("consistency", below=0.5, notify=[hook, sent.append])])
        diagnosis = ragtrace.doctor()
        assert diagnosis.ok, diagnosis.problems
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1) == b""
    assert checks(diagnosis)["notifier"] == (True, "takes connections; nothing was sent")
    assert sent == []
    assert any("'list.append' cannot be tried without an alarm" in note for note in diagnosis.notes)


def test_a_notifier_that_is_not_there_is_a_problem(closed: int) -> None:
    """Found before the night in which it is needed."""
    alert = ragtrace.Alert("consistency", below=0.5, notify=Alertmanager(f"http://127.0.0.1:{closed}"))
    watch(alerts=[alert])
    [problem] = ragtrace.doctor().problems
    assert problem.startswith(f"notifier: connection refused at Alertmanager at 127.0.0.1:{closed}; ")


# --- the page of metrics ---------------------------------------------------------------------------------------------


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, closed: int) -> int:
    """A port for it."""
    with free_ports(1) as (port,):
        monkeypatch.setenv("RAGTRACE_PROMETHEUS_PORT", str(port))
    return port


def test_the_page_of_metrics_is_fetched(page: int) -> None:
    """As soon as it is served; that there is no endpoint for spans is no problem then."""
    ragtrace.configure(service="shop", exporter="prometheus")
    diagnosis = ragtrace.doctor()
    assert diagnosis.ok, diagnosis.problems
    ok, seen = checks(diagnosis)["page of metrics"]
    assert (ok, seen.endswith(" series of 'shop'")) == (True, True)
    found = {setting.name: (setting.value, setting.origin) for setting in diagnosis.settings}
    assert found["prometheus_page"] == (f"http://127.0.0.1:{page}/metrics", "RAGTRACE_PROMETHEUS_PORT")


def test_another_program_at_the_port_of_the_page_is_a_problem(page: int) -> None:
    """Prometheus would fetch that."""
    with api(200) as (url, _):
        port = url.rpartition(":")[2]
        environ = {**os.environ, "RAGTRACE_EXPORTER": "prometheus", "RAGTRACE_PROMETHEUS_PORT": port}
        [problem] = diagnose_environment(environ).problems
    assert "page of metrics: another program answers there" in problem
    assert "RAGTRACE_PROMETHEUS_PORT" in problem


def test_a_page_that_this_process_does_not_get_to_serve_is_a_problem(page: int) -> None:
    """Another program has the port and does not answer."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", page))  # and does not listen
        ragtrace.configure(service="shop", exporter="prometheus")
        diagnosis = ragtrace.doctor(timeout=0.5)
    assert checks(diagnosis)["page of metrics"] == (False, "connection refused: it is not served")
    assert any("Prometheus gets nothing" in problem for problem in diagnosis.problems)


def test_a_page_of_another_process_is_a_problem(page: int, tmp_path: Path) -> None:
    """As in a server with several workers: the metrics of this one are on no page."""
    with application(tmp_path, page, CALLS="0", STAY="1"):
        wait_until(lambda: answers(f"http://127.0.0.1:{page}/metrics"), 120, "the other process serves its page")
        ragtrace.configure(service="guide-service", exporter="prometheus")
        diagnosis = ragtrace.doctor()
    seen = "another process of 'guide-service' is on it; this one is on no page"
    assert checks(diagnosis)["page of metrics"] == (False, seen)
    assert any("exporter='otlp'" in problem for problem in diagnosis.problems)


def test_before_the_application_runs_its_page_is_not_served(page: int) -> None:
    """Which is as it should be, where the environment alone is looked at."""
    diagnosis = diagnose_environment({**os.environ, "RAGTRACE_EXPORTER": "prometheus"})
    assert diagnosis.ok, diagnosis.problems
    assert checks(diagnosis)["page of metrics"][1].startswith("not served now")


# --- the report ------------------------------------------------------------------------------------------------------


def test_the_report_is_json() -> None:
    """The JSON holds the whole diagnosis, with the reasons in words."""
    watch(
        screen=FakeJudge(HALF, name="screen"), judge=FakeJudge(GOOD, name="judge"), sampling=ragtrace.Sampling(rate=0)
    )
    watched.ask("where?")
    assert ragtrace.flush()
    printed = json.loads(json.dumps(ragtrace.doctor().as_dict()))
    assert printed["ok"] is True
    assert printed["state"] == "running"
    assert [(fate["evaluator"], fate["why"]) for fate in printed["fates"]] == [
        ("screen", ""),
        ("judge", "sampled out at p=0"),
    ]
    assert printed["stats"]["evaluators"]["judge"]["sampled_out"] == {"not_sampled": 1}


def test_the_columns_are_aligned() -> None:
    """The report is plain text without trailing blanks."""
    watch(service="shop")
    lines = str(ragtrace.doctor(probe=False)).splitlines()
    settings = lines[lines.index("Settings") + 1 : lines.index("Evaluators") - 1]
    assert len({line.index(line.split()[-1], 20) for line in settings if "default" in line}) == 1
    assert all(line == line.rstrip() for line in lines)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes the module of an application into the working directory; returns its name."""
    monkeypatch.chdir(tmp_path)
    paths = list(sys.path)

    def write(text: str) -> str:
        (tmp_path / "shop_app.py").write_text(text)
        return "shop_app"

    yield write
    sys.modules.pop("shop_app", None)
    sys.path[:] = paths


def test_the_command_looks_at_the_environment(
    http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 0 when all is well."""
    for name, value in http_receiver.environ.items():
        monkeypatch.setenv(name, value)
    assert main(["doctor"]) == OK
    output = capsys.readouterr().out
    assert "200 OK" in output
    assert output.endswith("Nothing is wrong as far as can be seen from here.\n")


def test_the_command_fails_if_something_is_wrong(
    closed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1, and the JSON has the same problems."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{closed}")
    assert main(["doctor"]) == FAILURE
    assert "connection refused" in capsys.readouterr().out
    assert main(["doctor", "--json", "--timeout", "2"]) == FAILURE
    printed = json.loads(capsys.readouterr().out)
    assert [check["seen"] for check in printed["checks"]] == ["connection refused"] * 3


@pytest.mark.parametrize("target", ["shop_app", "shop_app:create"])
def test_the_command_looks_at_an_application(
    app: Callable[[str], str], capsys: pytest.CaptureFixture[str], target: str
) -> None:
    """Imported as a server would, or its factory called; what it prints is not in the way."""
    configure = "ragtrace.configure(service='shop', exporter='none')\nprint('hello')"
    body = configure if ":" not in target else "def create():\n    " + configure.replace("\n", "\n    ")
    app(f"import ragtrace\n{body}\n")
    assert main(["doctor", "--app", target, "--json"]) == OK
    printed = json.loads(capsys.readouterr().out)
    assert printed["state"] == "running"
    assert {"name": "service", "value": "shop", "origin": "service="} in printed["settings"]


def test_an_application_that_does_not_configure_is_a_problem(
    app: Callable[[str], str],
) -> None:
    """An application that never calls configure is not watched."""
    command = [sys.executable, "-m", "ragtrace", "doctor", "--app", app("x = 1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == FAILURE
    assert "not configured in this process" in done.stdout


@pytest.mark.parametrize(
    ("text", "target", "status", "said"),
    [
        ("", "no_such_module", USAGE, "there is no module 'no_such_module'"),
        ("", "shop_app:missing", USAGE, "has no 'missing'"),
        ("import nothing_of_the_kind", "shop_app", FAILURE, "nothing_of_the_kind"),
        ("raise SystemExit(5)", "shop_app", FAILURE, "SystemExit: 5"),
        (
            "import ragtrace\nragtrace.configure(limits=ragtrace.Limits(capacity=0))",
            "shop_app",
            FAILURE,
            "SettingsError",
        ),
    ],
)
def test_an_application_that_cannot_be_loaded_says_why(
    app: Callable[[str], str], capsys: pytest.CaptureFixture[str], text: str, target: str, status: int, said: str
) -> None:
    """Wrong usage is 2, a failing application 1."""
    app(text)
    assert main(["doctor", "--app", target]) == status
    assert said in capsys.readouterr().err


def test_the_page_of_the_command_line_names_the_exit_statuses() -> None:
    """And every key of the JSON object."""
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = page.partition("\n## ragtrace doctor\n")[2].partition("\n## ")[0]
    assert "0 all well, 1 something is wrong, 2 wrong usage" in section
    for key in ragtrace.doctor().as_dict():
        assert key in section


# --- faults of an earlier configuration ------------------------------------------------------------------------------


def _of_faults() -> list[str]:
    diagnosis = ragtrace.doctor(probe=False)
    accounts = [line for line in str(diagnosis).splitlines() if "failures of ragtrace itself" in line]
    return [text for text in (*diagnosis.problems, *accounts) if "somewhere" in text]


def test_the_doctor_does_not_blame_a_configuration_for_the_faults_of_the_one_before() -> None:
    """`stats().faults` goes on counting for the whole process."""
    watch()
    faults.record("somewhere", ValueError("broken"))
    assert len(_of_faults()) == 2
    watch()
    assert _of_faults() == []
    assert ragtrace.stats().faults["somewhere"] == 1
    faults.record("somewhere", ValueError("broken again"))
    [problem, account] = _of_faults()
    assert "1 times: somewhere" in problem
    assert "somewhere: 1" in account
    assert ragtrace.stats().faults["somewhere"] == 2


def test_the_doctor_tells_the_faults_of_a_configuration_that_was_shut_down_until_the_next() -> None:
    """And those from before there was any."""
    faults.record("somewhere", ValueError("while a function was decorated"))
    watch()
    assert len(_of_faults()) == 2
    ragtrace.shutdown()
    assert len(_of_faults()) == 2
    watch()
    assert _of_faults() == []


def test_what_the_shutdown_of_one_configuration_loses_is_no_fault_of_the_next() -> None:
    """Its calls are drained when the next is configured."""
    watch(screen=_Failing())
    watched.ask("where?")
    watch()
    assert faults.counts()["judge own"] == 1
    assert [text for text in ragtrace.doctor(probe=False).problems if "ragtrace itself failed" in text] == []


class _Failing(FakeJudge):
    """A judge that raises what it should not."""

    def __init__(self) -> None:
        super().__init__(RuntimeError("broken"), name="own")


# --- what was not read -----------------------------------------------------------------------------------------------


class _Lazy:
    """An answer whose text is the result of code."""

    @property
    def text(self) -> str:
        return "".join(["Pa", "ris"])


def test_unread_values_are_reported_with_what_to_do() -> None:
    """The line says where to name the text; it counts no failure of ragtrace."""
    watch()

    @ragtrace.generate
    def answer(question: str, docs: list[str]) -> _Lazy:
        return _Lazy()

    for _ in range(2):
        answer("where?", ["Paris is big."])
    assert ragtrace.flush()
    unread = faults.counts()["capture.unread"]
    assert unread >= 2
    problems = ragtrace.doctor(probe=False).problems
    assert (
        f"{unread} values of the application's own classes were not read; say where the text is with answer= or"
        " documents="
    ) in problems
    assert not [text for text in problems if "capture.unread" in text]


def test_a_broker_and_a_store_that_are_away_are_problems() -> None:
    """The checks of the fleet say what to do, and show no password."""
    environ = {
        "RAGTRACE_FLEET": "redis://:secret@127.0.0.1:1/0",
        "RAGTRACE_FLEET_STORE": "redis://:secret@127.0.0.1:1/1",
        "OTEL_SDK_DISABLED": "false",
    }
    found = diagnose_environment(environ, timeout=WAIT_S)
    checks = {check.what: check for check in found.checks if check.what.startswith("fleet")}
    assert {what: (check.where, check.ok) for what, check in checks.items()} == {
        "fleet": ("redis://127.0.0.1:1/0", False),
        "fleet queue": ("redis://127.0.0.1:1/0", True),
        "fleet store": ("redis://127.0.0.1:1/1", False),
    }
    assert "start the broker" in checks["fleet"].advice
    assert "unknown" in checks["fleet queue"].seen
    assert "secret" not in str(found)


def test_it_tells_what_guards_have_seen() -> None:
    """Verdicts and actions by workflow, among the accounts."""
    watched.watch()

    @ragtrace.trace(name="guarded", guard=ragtrace.Guard("consistency", below=0.5, action="annotate"))
    def ask(question: str) -> str:
        return "It is in Paris."

    ask("Where is the tower?")
    assert "guarded  1 answers  unscored 1 (100.0%)  released 1 (100.0%)  added " in str(ragtrace.doctor(probe=False))
