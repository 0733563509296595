"""Providers: the user's where there are some, ours where not; who flushes and who shuts down what."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import attach, detach, get_current
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.core.types import Signals
from ragtrace.system.faults import faults
from ragtrace.system.threads import run_bounded
from ragtrace.telemetry.export.telemetry import Telemetry
from ragtrace.testing import Captured, FakeJudge
from tests.support.scored import screen
from tests.support.watched import GOOD, WAIT_S, ask, generate, search, watch

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def run(program: str, **environ: str) -> list[str]:
    """The lines that *program* prints in a fresh interpreter."""
    import os

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environ},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


# --- time limits -----------------------------------------------------------------------------------------------------


def test_an_action_that_comes_back_in_time_is_done() -> None:
    """Whatever it returns but False."""
    assert [run_bounded(lambda value=value: value, monotonic() + WAIT_S) for value in (True, None, False)] == [  # type: ignore[misc]
        True,
        True,
        False,
    ]


def test_an_action_that_hangs_is_left_behind() -> None:
    """On a thread that keeps no process alive."""
    release = threading.Event()
    began = perf_counter()
    assert not run_bounded(lambda: release.wait(WAIT_S), monotonic() + 0.05)
    assert perf_counter() - began < WAIT_S / 2
    release.set()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "ragtrace-flush")


def test_an_action_that_raises_is_counted() -> None:
    """And is not done."""

    def fail() -> None:
        raise OSError("down")

    assert not run_bounded(fail, monotonic() + WAIT_S)
    assert faults.counts()["flush of a provider"] == 1


def test_all_providers_are_flushed_within_one_time_limit() -> None:
    """A first one that hangs does not keep the others from being asked, nor doubles the wait."""
    release, asked = threading.Event(), threading.Event()
    flushes: list[Any] = [lambda ms: release.wait(WAIT_S), lambda ms: asked.set()]
    from opentelemetry import metrics, trace

    telemetry = Telemetry(trace.NoOpTracer(), metrics.NoOpMeter("x"), None, flushes=flushes)
    began = perf_counter()
    assert not telemetry.flush(0.1)
    assert perf_counter() - began < WAIT_S / 2
    assert asked.wait(WAIT_S)
    release.set()


@pytest.mark.parametrize("end", ["flush", "close"])
def test_no_provider_waits_for_another(end: str) -> None:
    """One that goes on for as long as it may, as the flush of spans does while more come, costs the others nothing."""
    from opentelemetry import metrics, trace

    release, done = threading.Event(), threading.Event()

    def takes_a_while(*_: object) -> None:
        release.wait(0.05)
        done.set()

    actions: list[Any] = [lambda *_: release.wait(0.4), takes_a_while]
    telemetry = Telemetry(
        trace.NoOpTracer(), lambda: metrics.NoOpMeter("x"), None, flushes=list(actions), shutdowns=list(actions)
    )
    assert not getattr(telemetry, end)(0.3)
    assert done.is_set()
    release.set()


# --- whose providers -------------------------------------------------------------------------------------------------


def test_an_exporter_object_gets_the_spans() -> None:
    """Any OpenTelemetry span exporter will do, in batches."""
    exporter = InMemorySpanExporter()
    ragtrace.configure(exporter=exporter)
    ask("where?")
    assert ragtrace.flush()
    assert len(exporter.get_finished_spans()) == 3


def test_an_exporter_object_leaves_the_process_alone() -> None:
    """Our private provider does not become the global one."""
    from opentelemetry import trace

    before = trace.get_tracer_provider()
    watch()
    assert trace.get_tracer_provider() is before


def test_a_users_provider_is_flushed_but_never_shut_down() -> None:
    """It is theirs, and goes on after we have stopped."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider))
    ask("where?")
    assert ragtrace.shutdown()
    provider.get_tracer("theirs").start_span("after").end()
    assert exporter.get_finished_spans()[-1].name == "after"
    provider.shutdown()


def test_our_own_exporter_is_shut_down_with_us() -> None:
    """After everything was exported."""

    class Closing(SpanExporter):
        def __init__(self) -> None:
            self.log: list[str] = []

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            self.log += [span.name.split()[0] for span in spans]
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            self.log.append("shutdown")

    exporter = Closing()
    ragtrace.configure(exporter=exporter)
    ask("where?")
    assert ragtrace.shutdown()
    assert exporter.log.index("shutdown") == 3
    assert set(exporter.log[:3]) == {"invoke_workflow", "retrieval", "chat"}


OWN_GLOBAL = """
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
import ragtrace
from tests.support.watched import ask

class Seeing(SpanProcessor):
    def on_start(self, span, parent_context=None):
        print(f"starts {span.name}\\n", end="")  # in one piece: spans end on another thread
    def on_end(self, span):
        print(f"ends {span.name} {'ragtrace.eval.status' in span.attributes}\\n", end="")
    def force_flush(self, timeout_millis=30000):
        return True  # the default of older SDKs says False

ragtrace.configure(service="s", telemetry=ragtrace.TelemetryOptions(set_global=True))
"""


def test_other_instrumentations_write_to_our_provider_if_it_is_made_global() -> None:
    """Their spans pass at once, and ours are their children."""
    lines = run(
        OWN_GLOBAL
        + """
with trace.get_tracer("web").start_as_current_span("GET /ask"):
    ask("where?")
    ragtrace.flush()
""",
        RAGTRACE_EXPORTER="console-full",
    )
    headings = [line.split() for line in lines if line.startswith("span ")]
    assert {heading[1] for heading in headings} == {"GET", "invoke_workflow", "retrieval", "chat"}
    assert len({part for heading in headings for part in heading if part.startswith("trace=")}) == 1


def test_a_processor_that_somebody_adds_to_our_provider_sees_our_spans_start_and_end() -> None:
    """Whoever wants to look at spans gets the real ones."""
    lines = run(
        OWN_GLOBAL
        + """
trace.get_tracer_provider().add_span_processor(Seeing())
ask("where?")
ragtrace.flush()
""",
        RAGTRACE_EXPORTER="console",
    )
    seen = [line for line in lines if line.startswith(("starts", "ends"))]
    assert seen[0] == "starts invoke_workflow guide"
    assert len(seen) == 6


def test_without_anything_to_export_no_provider_becomes_global() -> None:
    """Another library may still set its own."""
    lines = run(
        """
from opentelemetry import trace
import ragtrace
ragtrace.configure(service="s", telemetry=ragtrace.TelemetryOptions(set_global=True))
print(type(trace.get_tracer_provider()).__name__)
"""
    )
    assert lines == ["ProxyTracerProvider"]


# --- what the standard variables say ---------------------------------------------------------------------------------


def resource_of_a_call(service: str | None = None) -> dict[str, Any]:
    captured = watch(service=service)
    ask("where?")
    assert ragtrace.flush()
    return dict(captured.root().resource.attributes)


def test_the_resource_has_the_service_and_what_the_environment_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument wins over the environment."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod,service.name=theirs")
    resource = resource_of_a_call("ours")
    assert (resource["service.name"], resource["deployment.environment"]) == ("ours", "prod")
    assert resource_of_a_call()["service.name"] == "theirs"


def test_each_process_is_an_instance_of_its_own() -> None:
    """Counters of two processes under one identity would overwrite each other."""
    program = """
import ragtrace
from tests.support.watched import ask, watch
captured = watch()
ask("where?")
assert ragtrace.flush()
print(captured.root().resource.attributes["service.instance.id"])
"""
    ((first,), (second,)) = run(program), run(program)
    assert first != second
    assert len(first) == len(second) == 36


def test_the_environment_may_name_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an orchestrator does."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-7")
    assert resource_of_a_call()["service.instance.id"] == "pod-7"


def test_the_head_sampler_of_the_environment_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that it drops is not scored, and is accounted for."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    judge = FakeJudge(GOOD)
    captured = watch(screen=judge)
    ask("where?")
    assert ragtrace.flush()
    assert (captured.spans, judge.calls, ragtrace.stats().sampled_out) == ((), [], {"head_dropped": 1})


def test_a_limit_on_attributes_never_costs_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's attributes are limited as configured, the scores come on top."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "3")
    captured = watch(screen=FakeJudge(GOOD), metrics=["faithfulness"])
    ask("where?")
    assert ragtrace.flush()
    root = captured.root()
    scores = [key for key in root.attributes or {} if key.startswith("ragtrace.eval.")]
    assert sorted(scores) == [
        "ragtrace.eval.evaluator",
        "ragtrace.eval.faithfulness.label",
        "ragtrace.eval.faithfulness.score",
        "ragtrace.eval.probability",
        "ragtrace.eval.status",
    ]
    assert root.dropped_attributes > 0


def test_an_installed_exporter_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third party plugs in by an entry point alone, and is handed the environment."""
    package = tmp_path / "acme-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[ragtrace.exporters]\nacme = acme_exporter:signals\n")
    (tmp_path / "acme_exporter.py").write_text(
        "from ragtrace.testing import Captured\n"
        "captured, seen = Captured(), []\n"
        "def signals(environ):\n"
        "    seen.append(environ.get('ACME_KEY'))\n"
        "    return captured.signals\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ACME_KEY", "k")
    ragtrace.configure(exporter="acme")
    ask("where?")
    assert ragtrace.flush()
    import acme_exporter  # type: ignore[import-not-found]

    assert acme_exporter.seen == ["k"]
    assert len(acme_exporter.captured.spans) == 3
    with pytest.raises(ragtrace.SettingsError, match=r"no exporter named 'acne'.*did you mean 'acme'"):
        ragtrace.configure(exporter="acne")


def test_signals_may_leave_some_out() -> None:
    """What is None is not sent, and nothing complains."""
    captured = Captured()
    ragtrace.configure(exporter=Signals(logs=captured.signals.logs, immediate=True), metrics=["consistency"])
    ask("where?")
    assert ragtrace.flush()
    assert (len(captured.spans), len(captured.events)) == (0, 1)
    assert ragtrace.stats().faults == {}


def test_a_users_processor_of_another_kind_is_no_hold() -> None:
    """With a provider that holds nothing, spans end where the function returns."""

    class Watching(SpanProcessor):
        def __init__(self) -> None:
            self.threads: list[threading.Thread] = []

        def on_end(self, span: ReadableSpan) -> None:
            self.threads.append(threading.current_thread())

    watching, provider = Watching(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(watching)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=None)
    gc.collect()  # the provider of the runtime before may have a hold, and a hold that exists could be any provider's
    ask("where?")
    assert watching.threads == [threading.current_thread()] * 3
    provider.shutdown()


# --- below a web framework's span -------------------------------------------------------------------------------------


def _below(around: Any, **options: Any) -> tuple[Captured, Any]:
    """What is exported of a call below the span *around*, and that span."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=screen(), **options)
    with trace.use_span(around, end_on_exit=True):
        ask("where?")
    assert ragtrace.flush()
    return captured, around


def test_below_a_span_that_goes_elsewhere_a_call_is_exported_as_a_root() -> None:
    """A list of traces shows roots only; trace id and, as a link, the way to the framework's span are kept."""
    captured, around = _below(TracerProvider().get_tracer("web").start_span("POST /ask"))
    root, context = captured.root(), around.get_span_context()
    assert root.parent is None
    assert [link.context for link in root.links] == [context]
    assert {span.get_span_context().trace_id for span in captured.spans} == {context.trace_id}
    others = [span for span in captured.spans if span is not root]
    assert [span.parent.span_id for span in others if span.parent] == [root.get_span_context().span_id] * 2


def test_a_generation_without_a_trace_is_a_root_too() -> None:
    """The retrieval of its call is none: a list of traces has one row a call."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=screen())
    with TracerProvider().get_tracer("web").start_as_current_span("POST /ask"):
        generate("where?", search("where?"))
    assert ragtrace.flush()
    assert [span.name for span in captured.spans if span.parent is None] == ["chat tiny"]


def test_a_remote_parent_stays() -> None:
    """It may be ours, in another process."""
    remote = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1))
    captured, _ = _below(trace.NonRecordingSpan(remote))
    assert captured.root().parent == remote
    assert not captured.root().links


def test_a_call_within_a_call_keeps_its_parent() -> None:
    """Of a task that outlives its call, too: the span around it is ours."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=screen())
    with ragtrace.call("outer", name="outer") as call:
        inside = get_current()
        call.answered("yes")
    token = attach(inside)
    try:
        ask("where?")
    finally:
        detach(token)
    assert ragtrace.flush()
    inner = next(span for span in captured.roots() if span.name.endswith("guide"))
    assert inner.parent is not None
    assert not inner.links


# --- variables of OpenTelemetry's SDK ---------------------------------------------------------------------------------

REFUSED = {
    "batch larger than the default queue": {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4096"},
    "two that do not fit": {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100", "OTEL_BSP_MAX_QUEUE_SIZE": "50"},
    "no delay": {"OTEL_BSP_SCHEDULE_DELAY": "-5"},
    "queue of events": {"OTEL_BLRP_MAX_QUEUE_SIZE": "-1"},
    "exemplars": {"OTEL_METRICS_EXEMPLAR_FILTER": "some"},
    "interval": {"OTEL_METRIC_EXPORT_INTERVAL": "-3"},
    "limit of lengths": {"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "long"},
    "limit of events": {"OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": "-1"},
    "tracer provider": {"OTEL_PYTHON_TRACER_PROVIDER": "none_such"},
    "meter provider": {"OTEL_PYTHON_METER_PROVIDER": "none_such"},
}


ACCEPTED_ONCE = {"limit of events"}
"""What the lowest supported version of the SDK does not refuse."""


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param(variables, id=name, marks=[pytest.mark.newest] if name in ACCEPTED_ONCE else [])
        for name, variables in REFUSED.items()
    ],
)
@pytest.mark.parametrize("exporter", ["otlp", "console-full"])
def test_what_the_sdk_refuses_is_said_with_the_variable(
    variables: dict[str, str], exporter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a wrong setting, with what was found, and nothing is started."""
    batches = ("OTEL_BSP_", "OTEL_BLRP_")  # a console is written to at once
    if exporter == "console-full" and any(name.startswith(batches) for name in variables):
        return
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "key=secret")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = _other_threads()
    with pytest.raises(ragtrace.SettingsError) as refused:
        ragtrace.configure(service="s", exporter=exporter)
    assert all(name in str(refused.value) and value in str(refused.value) for name, value in variables.items())
    assert "secret" not in str(refused.value)
    assert _other_threads() == before


def _other_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith("ragtrace-bounded")}


def test_what_the_sdk_refuses_when_imported_is_a_wrong_setting() -> None:
    """It reads some of its limits then."""
    program = """
import ragtrace
try:
    ragtrace.configure(service="s", exporter="none")
except ragtrace.SettingsError as error:
    print(error)
"""
    said = "OTEL_SPAN_EVENT_COUNT_LIMIT must be a non-negative integer but got -7"
    assert said in run(program, OTEL_SPAN_EVENT_COUNT_LIMIT="-7")[0]


def test_an_error_of_an_exporter_is_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the SDK is blamed for it."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    package = tmp_path / "broken_exporter-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-exporter\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[ragtrace.exporters]\nbroken = broken_exporter:signals\n")
    (tmp_path / "broken_exporter.py").write_text("def signals(environ):\n    raise ValueError('no key')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^no key$"):
        ragtrace.configure(exporter="broken")


def test_an_exporter_whose_metrics_nobody_reads_has_no_thread() -> None:
    """The application's own meter provider exports them; the SDK would complain at each interval."""
    program = """
import logging, sys, threading
logging.basicConfig(stream=sys.stdout)
from opentelemetry.sdk.metrics import MeterProvider
import ragtrace
ragtrace.configure(service="s", exporter="otlp", telemetry=ragtrace.TelemetryOptions(meter_provider=MeterProvider()))
print([thread.name for thread in threading.enumerate() if "MetricReader" in thread.name])
"""
    endpoint = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:9", "OTEL_METRIC_EXPORT_INTERVAL": "60000"}
    assert run(program, **endpoint) == ["[]"]
