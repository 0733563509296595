"""Providers of the process: an application's own, set before or after `configure`, keep every span, metric and log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.otlp import HttpReceiver

ROOT: Final = Path(__file__).parents[2]

APPLICATION: Final = """
import json, os, sys
from opentelemetry import _logs, metrics, trace
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import ragtrace
from tests.support.watched import search

# As OpenInference's instrumentations do, this library takes its tracer before anybody has configured anything.
tracer = trace.get_tracer("openinference.instrumentation.openai")
meter = metrics.get_meter("openinference.instrumentation.openai")
requests = meter.create_counter("requests")
spans, reader, logs = InMemorySpanExporter(), InMemoryMetricReader(), InMemoryLogRecordExporter()

@ragtrace.generate
def generate(question, docs):
    with tracer.start_as_current_span("ChatCompletion") as span:
        span.set_attribute("openinference.span.kind", "LLM")
        requests.add(1)
        _logs.get_logger("theirs").emit(LogRecord(body="asked"))
    return "Paris is a big city."

@ragtrace.trace(name="guide")
def ask(question):
    with tracer.start_as_current_span("step"):
        return generate(question, search(question))

def set_providers():
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    loggers = LoggerProvider(shutdown_on_exit=False)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    _logs.set_logger_provider(loggers)

def names_of_metrics():
    data = reader.get_metrics_data()
    return sorted({metric.name for resource in data.resource_metrics for scope in resource.scope_metrics
                   for metric in scope.metrics}) if data else []

def call():
    with trace.get_tracer("web").start_as_current_span("POST /ask"):
        ask("Where is Paris?")

def told():
    finished = {span.name: span for span in spans.get_finished_spans()}
    print(json.dumps({
        "spans": sorted(finished),
        "traces": len({span.context.trace_id for span in finished.values() if not span.name.startswith("evaluate ")}),
        "parents": {name: span.parent and f"{span.parent.span_id:016x}" for name, span in finished.items()},
        "metrics": names_of_metrics(),
        "logs": [record.log_record.body for record in logs.get_finished_logs() if record.log_record.body],
        "events": sum(bool(record.log_record.event_name) for record in logs.get_finished_logs()),
    }))
"""


def run(program: str, environ: dict[str, str] | None = None, *, stderr: str | None = "") -> Any:
    """What *program*, after APPLICATION, prints as its last line; *stderr*: all that it may say, None: anything."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", APPLICATION + program],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **(environ or {})},
    )
    assert done.returncode == 0, done.stderr
    if stderr is not None:
        assert done.stderr == stderr
    return json.loads(done.stdout.splitlines()[-1])


THEIRS: Final = ["ChatCompletion", "POST /ask", "step"]


def test_providers_set_after_configure_get_all_that_is_theirs(http_receiver: HttpReceiver) -> None:
    """Spans, metrics and logs of the application arrive at its own exporters, ours at ours, in one trace."""
    seen = run(
        "ragtrace.configure(service='s'); set_providers(); call(); assert ragtrace.shutdown(); told()",
        http_receiver.environ,
    )
    assert (seen["spans"], seen["metrics"], seen["logs"]) == (THEIRS, ["requests"], ["asked"])
    ours = {span.name: span for span in http_receiver.spans}
    assert sorted(ours) == ["chat", "invoke_workflow guide", "retrieval places"]
    assert seen["traces"] == len({span.trace_id for span in ours.values()}) == 1
    assert seen["parents"]["step"] == ours["invoke_workflow guide"].span_id
    assert seen["parents"]["ChatCompletion"] == ours["chat"].span_id
    assert seen["events"] == 0 < len(http_receiver.logs)


def test_without_any_provider_other_libraries_send_nothing_to_our_backend(http_receiver: HttpReceiver) -> None:
    """Nobody asked us to export what is not ours."""
    run("ragtrace.configure(service='s'); call(); assert ragtrace.shutdown(); print(0)", http_receiver.environ)
    assert sorted(span.name for span in http_receiver.spans) == ["chat", "invoke_workflow guide", "retrieval places"]


HINT: Final = (
    "the scores of calls go onto spans of their own ('evaluate ...', linked to the call's root span), as nothing holds "
    "the root spans back in your tracer provider; to have them on the call itself, wrap the processor that exports: "
    "provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))\n"
)


def test_providers_set_before_configure_are_used_and_keep_all_that_is_theirs() -> None:
    """Our spans, metrics and events go there too; that scores need a span of their own is said once, with the cure."""
    seen = run(
        "set_providers(); ragtrace.configure(service='s'); call(); call(); assert ragtrace.shutdown(); told()",
        stderr=HINT,
    )
    assert seen["spans"] == [
        "ChatCompletion", "POST /ask", "chat", "evaluate guide", "invoke_workflow guide", "retrieval places", "step",
    ]  # fmt: skip
    assert "requests" in seen["metrics"]
    assert "ragtrace.eval.score" in seen["metrics"]
    assert seen["logs"] == ["asked", "asked"]
    assert seen["events"] > 0


@pytest.mark.parametrize("how", ["configure(exporter='otlp')", "configure()"])
def test_an_exporter_that_is_named_gets_providers_of_its_own(how: str, http_receiver: HttpReceiver) -> None:
    """In code or by RAGTRACE_EXPORTER, also where the process has providers, which keep what is theirs."""
    environ = {**http_receiver.environ, "RAGTRACE_EXPORTER": "otlp" if how == "configure()" else ""}
    seen = run(f"set_providers(); ragtrace.{how}; call(); assert ragtrace.shutdown(); told()", environ)
    assert (seen["spans"], seen["metrics"], seen["logs"], seen["events"]) == (THEIRS, ["requests"], ["asked"], 0)
    assert sorted(span.name for span in http_receiver.spans) == ["chat", "invoke_workflow guide", "retrieval places"]


GLOBAL: Final = "telemetry=ragtrace.TelemetryOptions(set_global=True)"


@pytest.mark.parametrize("setting", [GLOBAL, ""])
def test_told_so_our_providers_become_those_of_the_process(setting: str, http_receiver: HttpReceiver) -> None:
    """By the keyword or by RAGTRACE_SET_GLOBAL: what other libraries record goes to the same backend."""
    environ = http_receiver.environ if setting else {**http_receiver.environ, "RAGTRACE_SET_GLOBAL": "1"}
    run(f"ragtrace.configure({setting}); call(); assert ragtrace.shutdown(); print(0)", environ)
    assert set(THEIRS) < {span.name for span in http_receiver.spans}
    assert len({span.trace_id for span in http_receiver.spans}) == 1
    assert "requests" in {metric.name for metric in http_receiver.metrics}
    assert "asked" in [record.body for record in http_receiver.logs]


def test_a_provider_that_is_there_already_is_not_replaced(http_receiver: HttpReceiver) -> None:
    """It is said that set_global=True has no effect, and what is theirs stays theirs."""
    seen = run(
        f"set_providers(); ragtrace.configure(exporter='otlp', {GLOBAL}); call(); assert ragtrace.shutdown(); told()",
        http_receiver.environ,
        stderr="set_global=True: the process has a tracer and a meter and a logger provider already, which "
        "OpenTelemetry does not let us replace; what other libraries record still goes there. Call "
        "ragtrace.configure(telemetry=TelemetryOptions(set_global=True)) once, before any set_tracer_provider\n",
    )
    assert (seen["spans"], seen["metrics"], seen["logs"]) == (THEIRS, ["requests"], ["asked"])


FORK: Final = """
gauge = meter.create_observable_gauge("depth", [lambda _: [metrics.Observation(os.getpid())]])
child = os.fork()
if child == 0:
    for _ in range(3):
        call()
else:
    os.waitpid(child, 0)
    call()
assert ragtrace.shutdown(20)
os.write(1, (json.dumps([child == 0, os.getpid()]) + chr(10)).encode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_worker_exports_what_other_libraries_record(http_receiver: HttpReceiver) -> None:
    """Counters begin at 0 in the child, under an identity of its own; instruments made before the fork go on."""
    run(f"ragtrace.configure({GLOBAL})" + FORK, http_receiver.environ, stderr=None)
    assert sum(span.name == "ChatCompletion" for span in http_receiver.spans) == 4
    latest: dict[str, float] = {}
    depths: set[float] = set()
    for metric in http_receiver.metrics:
        value = metric.points[0].value or 0
        if metric.name == "requests":
            latest[str(metric.resource["service.instance.id"])] = value
        elif metric.name == "depth":
            depths.add(value)
    assert sorted(latest.values()) == [1, 3]
    assert len(depths) == 2
    assert [record.body for record in http_receiver.logs].count("asked") == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("order", ["set_providers(); ragtrace.configure()", "ragtrace.configure(); set_providers()"])
def test_a_forked_worker_leaves_the_applications_providers_alone(order: str, http_receiver: HttpReceiver) -> None:
    """Its spans still go to its own exporter, in parent and child."""
    program = f"{order}{FORK}assert [s.name for s in spans.get_finished_spans()].count('ChatCompletion') in (1, 3)\n"
    run(f"{program}print(1)", http_receiver.environ, stderr=None)
