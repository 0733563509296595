"""A `configure` that is refused, at whichever step, leaves everything as it was."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.metrics import NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.runtime import current_runtime
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.hold import BeforeFlush, hold_processors
from ragtrace.testing import Captured, FakeJudge
from tests.support.watched import GOOD, WAIT_S, ask

KIND = "openinference.span.kind"
SAID = "a card number"


class FailingHold(ragtrace.HoldProcessor):
    """Hold processor of a user, which fails when a runtime registers with it, once after `armed` is set.

    With `interrupts`, somebody presses Ctrl-C while the thread of a shutdown asks it what is registered.
    """

    armed = interrupts = False
    given: BeforeFlush | None = None

    @property
    def before_flush(self) -> BeforeFlush | None:
        if self.interrupts and threading.current_thread() is not threading.main_thread():
            self.interrupts = False
            _thread.interrupt_main()
        return self.given

    @before_flush.setter
    def before_flush(self, before_flush: BeforeFlush | None) -> None:
        if self.armed:
            self.armed = False
            raise RuntimeError("not now")
        self.given = before_flush


class FailingMeter(NoOpMeter):
    """Meter of a user that makes no counter."""

    def create_counter(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no counter")


class FailingMeters(NoOpMeterProvider):
    """Meter provider of a user whose meters fail."""

    def get_meter(self, name: str, *args: Any, **kwargs: Any) -> FailingMeter:
        return FailingMeter(name)


class WithoutProcessors(trace.NoOpTracerProvider):
    """Tracer provider that takes no span processors."""


class Former:
    """Configuration that is in force: with a user's provider, whose other spans are evaluated, too."""

    def __init__(self) -> None:
        self.exporter, self.judge = InMemorySpanExporter(), FakeJudge(GOOD)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.hold = FailingHold(SimpleSpanProcessor(self.exporter), evaluate=True)
        self.provider.add_span_processor(self.hold)
        self.captured = Captured()
        self.guard = ragtrace.Guard("faithfulness", below=0.5, action="shadow")

        @ragtrace.trace(name="guarded", guard=self.guard)
        def guarded(question: str) -> str:
            return ask(question)

        self.guarded = guarded
        self.configure()

    def configure(self, **settings: Any) -> None:
        given: dict[str, Any] = {
            "telemetry": ragtrace.TelemetryOptions(tracer_provider=self.provider),
            "screen": self.judge,
            "metrics": ["faithfulness"],
            "redact": ragtrace.Redact([SAID]),
            "capture_content": "SPAN_ONLY",
        }
        ragtrace.configure(**{**given, **settings})

    def state(self) -> dict[str, object]:
        """Everything of the process that a `configure` changes."""
        return {
            "runtime": current_runtime.installed,
            "switched off": current_runtime.switched_off(),
            "holds": hold_processors(),
            "before flushes": [hold.before_flush for hold in hold_processors()],
            "guard": (self.guard.below, self.guard.above),
            "messages": (faults.message_filter, faults.hides_messages),
            "providers": (trace.get_tracer_provider(), metrics.get_meter_provider()),
            "threads": {thread for thread in threading.enumerate() if "Export" in thread.name or "Otel" in thread.name},
        }

    def ask_elsewhere(self) -> None:
        """One request of an application that another library instruments."""
        tracer = self.provider.get_tracer("openinference.instrumentation.langchain")
        with tracer.start_as_current_span("chain") as root:
            root.set_attributes({KIND: "CHAIN", "input.value": "Where?", "output.value": "In Paris."})
            with tracer.start_as_current_span("retriever") as span:
                span.set_attributes({KIND: "RETRIEVER", "retrieval.documents.0.document.content": "It is in Paris."})
            with tracer.start_as_current_span("llm") as span:
                span.set_attributes({KIND: "LLM", "llm.output_messages.0.message.content": "In Paris."})


@pytest.fixture
def former() -> Iterator[Former]:
    made = Former()
    yield made
    ragtrace.shutdown()
    made.provider.shutdown()


REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "check: a type": ({"judge": "gpt"}, ragtrace.SettingsError),
    "check: a metric": ({"metrics": ["no such metric"]}, ragtrace.SettingsError),
    "check: a guard": ({"metrics": ["consistency"], "screen": ragtrace.EmbeddedJudge()}, ragtrace.SettingsError),
    "check: a file": ({"calibration": "no such file"}, ragtrace.SettingsError),
    "build: a file": ({"store": "no such folder/history.db"}, ragtrace.SettingsError),
    "build: an exporter": ({"exporter": "no such exporter", "telemetry": None}, ragtrace.SettingsError),
    "build: a size": ({"exporter": "otlp", "telemetry": None}, ragtrace.SettingsError),
    "build: a provider without span processors": (
        {"telemetry": ragtrace.TelemetryOptions(tracer_provider=WithoutProcessors()), "evaluate_spans": True},
        ragtrace.SettingsError,
    ),
    "build: a meter": (
        {"exporter": "otlp", "telemetry": ragtrace.TelemetryOptions(meter_provider=FailingMeters())},
        RuntimeError,
    ),
    "commit: a span processor": ({}, RuntimeError),
    "commit: a span processor, before its own are global": (
        {"exporter": "otlp", "telemetry": ragtrace.TelemetryOptions(set_global=True), "evaluate_spans": True},
        RuntimeError,
    ),
}


@pytest.mark.parametrize("step", REFUSED)
def test_a_refused_configure_changes_nothing(step: str, former: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former runtime, its guards, its hooks and what is global; and it goes on scoring."""
    given, error = REFUSED[step]
    if step == "build: a size":
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    former.hold.armed = step.startswith("commit")
    if "provider" in step:
        former.hold.retire()  # else its spans are those that are evaluated
    before = former.state()
    with pytest.raises(error):
        former.configure(**{"redact": ragtrace.Redact(["else"]), "capture_content": "NO_CONTENT", **given})
    assert former.state() == before
    assert faults.message(ValueError(SAID)) == "[redacted]"
    if "provider" in step:
        return
    former.guarded("Where is Paris?")
    former.ask_elsewhere()
    assert former.provider.force_flush(int(WAIT_S * 1_000))  # which waits until the former runtime has scored
    assert ragtrace.stats().evaluators["fake"].scored == 2
    assert [status for status in _statuses(former.exporter) if status == "ok"] == ["ok", "ok"]


def _statuses(exporter: InMemorySpanExporter) -> list[object]:
    return [(span.attributes or {}).get("ragtrace.eval.status") for span in exporter.get_finished_spans()]


def test_a_metric_reader_that_is_in_use_stays_as_it_is() -> None:
    """The SDK gives a reader to one provider; the second `configure` with it is refused."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=FakeJudge(GOOD), metrics=["faithfulness"])
    before = hold_processors()
    with pytest.raises(Exception, match="registered"):
        ragtrace.configure(exporter=captured.signals)
    assert hold_processors() == before
    ask("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().scored == 1
    assert captured.metrics()["ragtrace.calls"].data_points


def test_an_exporter_of_the_user_stays_open_when_its_configuration_is_refused() -> None:
    """It may be that of the configuration in force; the threads that were begun for it end."""
    exporter = InMemorySpanExporter()
    ragtrace.configure(exporter=exporter, screen=FakeJudge(GOOD), metrics=["faithfulness"])
    threads = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no counter"):
        ragtrace.configure(exporter=exporter, telemetry=ragtrace.TelemetryOptions(meter_provider=FailingMeters()))
    assert [each.name for each in set(threading.enumerate()) - threads if "bounded" not in each.name] == []
    ask("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    assert "ok" in _statuses(exporter)


def test_a_history_that_cannot_be_made_begins_nothing(tmp_path: Path) -> None:
    """Where nothing was in force, nothing is: no thread, no processor of spans, and no runtime."""
    before = hold_processors(), threading.active_count()
    with pytest.raises(ragtrace.SettingsError):
        ragtrace.configure(exporter=InMemorySpanExporter(), store=tmp_path / "none" / "history.db")
    assert (hold_processors(), threading.active_count()) == before
    assert current_runtime.current() is None


def test_a_guarded_application_can_be_switched_off_without_its_judge(former: Former) -> None:
    """The guard's metric is checked only where there is anything to check."""
    ragtrace.configure(enabled=False)
    assert current_runtime.installed is None
    assert former.guarded("Where is Paris?")


class FailingAtTheEnd(FakeJudge):
    """Judge whose connection cannot be closed; the error has a text of a call."""

    async def aclose(self) -> None:
        raise RuntimeError(f"cannot close after {SAID}")


@pytest.mark.parametrize("capture", ["SPAN_ONLY", "NO_CONTENT"])
def test_the_end_of_the_former_runtime_is_logged_as_its_configuration_says(
    former: Former, capture: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The new one redacts nothing; its own errors are logged as they are afterwards."""
    judge = FailingAtTheEnd(GOOD, name=f"failing with {capture}")  # the first failure of each is logged
    former.configure(screen=judge, capture_content=capture)
    former.guarded("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    former.configure(redact=None)
    assert f"closing judge {judge.id}" in caplog.text
    assert SAID not in caplog.text
    assert faults.message(RuntimeError(SAID)) == SAID


def test_an_interrupt_leaves_the_new_configuration_in_force(former: Former) -> None:
    """It comes while the former one is shut down: the new runtime and its redaction are there already."""
    before, judge = current_runtime.installed, FakeJudge(GOOD)
    former.hold.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        former.configure(screen=judge, redact=ragtrace.Redact(["else"]), capture_content="NO_CONTENT")
    assert current_runtime.installed is not before
    assert faults.hides_messages
    former.guarded("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().evaluators["fake"].scored == 1
    assert len(judge.calls) == 1
