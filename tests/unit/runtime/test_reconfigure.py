"""`configure` again: what is in force stays, and what is replaced ends in the background, with nothing lost."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.alerts import Slack
from ragtrace.estimates import Baseline
from ragtrace.judges import Price, RequestOptions
from ragtrace.runtime import current_runtime
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, WAIT_S, ask

SAID = "a card number"
AT_ONCE_S = 3.0
"""More than a `configure` takes on a busy machine, and less than it gives a shutdown."""


class Stuck(SpanExporter):
    """Exporter whose backend answers when it is let."""

    def __init__(self) -> None:
        self.answers, self.is_closed = threading.Event(), threading.Event()
        self.exported: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.answers.wait(WAIT_S)
        self.exported += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.is_closed.set()


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    """An exporter that is let go at the end."""
    exporter = Stuck()
    yield exporter
    exporter.answers.set()


def own_filter(text: str) -> str:
    """The redaction of a user."""
    return text


EXPORTER = InMemorySpanExporter()
JUDGE = FakeJudge(GOOD)
SETTINGS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "none": lambda _: {},
    "a name": lambda _: {"service": "shop", "exporter": "none"},
    "an exporter": lambda _: {"exporter": EXPORTER},
    "a judge of one's own": lambda _: {"judge": JUDGE},
    "a judge": lambda _: {
        "judge": ragtrace.OpenAIJudge(
            "m",
            base_url="http://127.0.0.1:9/v1",
            api_key="k",
            price=Price(1, 2),
            requests=RequestOptions(extra_body={"seed": [1, 2]}),
            limits=ragtrace.JudgeLimits(timeout=1),
        )
    },
    "a decision judge": lambda _: {"judge": ragtrace.DecisionJudge("m", base_url="http://127.0.0.1:9/v1")},
    "a screen": lambda _: {"screen": ragtrace.EmbeddedJudge()},
    "redaction": lambda _: {"redact": ragtrace.Redact([r"\d+", re.compile("a", re.I)], function=own_filter)},
    "alerts": lambda _: {
        "alerts": [ragtrace.Alert("consistency", below=0.5, notify=Slack("https://hooks.slack.com/services/1"))]
    },
    "sampling": lambda _: {"sampling": ragtrace.Sampling(0.5, always=["error"])},
    "limits and telemetry": lambda folder: {
        "limits": ragtrace.Limits(capacity=7, spool=folder / "spool.db"),
        "telemetry": ragtrace.TelemetryOptions(dialects=["otel"]),
    },
    "files": lambda folder: {"store": folder / "history.db", "metrics": ["consistency"]},
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_same_settings_change_nothing(kind: str, tmp_path: Path) -> None:
    """A notebook's cell makes its judge and options anew each time; the calls so far stay in the account."""
    ragtrace.configure(**SETTINGS[kind](tmp_path))
    runtime = current_runtime.installed
    ask("Where is Paris?")
    for _ in range(3):
        ragtrace.configure(**SETTINGS[kind](tmp_path))
    assert current_runtime.installed is runtime
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().evaluators["embedded"].scored == 1


@contextmanager
def variable(_: Path) -> Iterator[None]:
    os.environ["OF_AN_EXPORTER"] = "another"
    yield
    del os.environ["OF_AN_EXPORTER"]


@contextmanager
def output(_: Path) -> Iterator[None]:
    with redirect_stdout(io.StringIO()):
        yield


@contextmanager
def without(name: str, folder: Path) -> Iterator[None]:
    for file in folder.glob(name):
        file.unlink()
    yield


CHANGES: dict[str, Callable[[Path], Any]] = {
    "the environment": variable,
    "standard output": output,
    "the history was removed": lambda folder: without("history.db", folder),
    "the spool was removed": lambda folder: without("spool.db", folder),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_settings_rest_on_may_change(change: str, tmp_path: Path) -> None:
    """Exporters read the environment, some write to standard output, and who removes a file wants a new one."""

    def configure() -> None:
        ragtrace.configure(
            exporter="none", store=tmp_path / "history.db", limits=ragtrace.Limits(spool=tmp_path / "spool.db")
        )

    configure()
    runtime = current_runtime.installed
    with CHANGES[change](tmp_path):
        configure()
    assert current_runtime.installed is not runtime
    assert (tmp_path / "history.db").exists()


def test_a_baseline_that_is_removed_is_learned_anew(tmp_path: Path) -> None:
    """While it is there, another version of it is none of the settings: the runtime writes it itself."""
    file = tmp_path / "baseline.json"

    def runtime() -> object:
        ragtrace.configure(exporter="none", baseline=file)
        return current_runtime.installed

    first = runtime()
    for metric in ("consistency", "answered"):
        Baseline.of([0.5] * 100, evaluator="embedded@1", metric=metric).save(file)
        assert runtime() is first
    file.unlink()
    assert runtime() is not first


@pytest.mark.parametrize(
    "given",
    [
        {"redact": ragtrace.Redact(function=lambda text: text)},
        {"redact": ragtrace.Redact(["b"])},
        {"judge": FakeJudge(GOOD)},
        {"judge": ragtrace.OpenAIJudge("m", base_url="http://127.0.0.1:9/v1", api_key="other")},
        {"exporter": InMemorySpanExporter()},
        {"metrics": ["consistency"]},
        {"sampling": ragtrace.Sampling(0.5)},
        {},
    ],
    ids=["function", "patterns", "own judge", "judge", "exporter", "metrics", "sampling", "fewer"],
)
def test_other_settings_take_effect(given: dict[str, Any]) -> None:
    """A function or a judge of one's own is the same only if it is the same object."""
    ragtrace.configure(
        exporter=EXPORTER,
        redact=ragtrace.Redact(["a"], function=own_filter),
        judge=ragtrace.OpenAIJudge("m", base_url="http://127.0.0.1:9/v1", api_key="k"),
        sampling=ragtrace.Sampling(1.0),
    )
    runtime = current_runtime.installed
    ragtrace.configure(**{"exporter": EXPORTER, **given})
    assert current_runtime.installed is not runtime


def test_after_a_shutdown_the_same_settings_begin_anew() -> None:
    """Nothing is in force any more."""
    ragtrace.configure(exporter="none")
    ragtrace.shutdown()
    ragtrace.configure(exporter="none")
    ask("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().scored == 1


def test_a_backend_that_does_not_answer_holds_up_no_configure(stuck: Stuck) -> None:
    """The former calls are exported in the background, for which `flush` waits."""
    ragtrace.configure(exporter=stuck, service="former")
    ask("Where is Paris?")
    began = monotonic()
    ragtrace.configure(exporter=InMemorySpanExporter(), service="new")
    assert monotonic() - began < AT_ONCE_S
    assert not ragtrace.flush(0.01)
    stuck.answers.set()
    assert ragtrace.flush(WAIT_S)
    assert stuck.is_closed.is_set()
    assert sorted(span.name.split()[0] for span in stuck.exported) == ["chat", "invoke_workflow", "retrieval"]


def test_a_shutdown_waits_for_the_former_runtime_too(stuck: Stuck) -> None:
    """And for one that is switched off."""
    ragtrace.configure(exporter=stuck)
    ask("Where is Paris?")
    ragtrace.configure(enabled=False)
    assert not ragtrace.shutdown(0.01)
    stuck.answers.set()
    assert ragtrace.shutdown(WAIT_S)
    assert len(stuck.exported) == 3


def test_an_exporter_that_both_have_stays_open() -> None:
    """It is the user's; with other settings it goes on exporting."""
    exporter = InMemorySpanExporter()
    ragtrace.configure(exporter=exporter, service="former")
    ask("Where is Paris?")
    ragtrace.configure(exporter=exporter, service="new")
    ask("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    assert [span.resource.attributes["service.name"] for span in exporter.get_finished_spans()] == [
        *["former"] * 3,
        *["new"] * 3,
    ]
    ragtrace.shutdown()
    assert exporter.export([]) is SpanExportResult.FAILURE  # as it is closed now


def test_messages_are_redacted_as_the_former_configuration_says_until_it_has_ended(stuck: Stuck) -> None:
    """Errors of what still scores its calls may hold their texts."""
    ragtrace.configure(exporter=stuck, redact=ragtrace.Redact([SAID]), capture_content="NO_CONTENT")
    ask("Where is Paris?")
    ragtrace.configure(exporter="none")
    assert SAID not in faults.message(ValueError(SAID))
    stuck.answers.set()
    assert ragtrace.flush(WAIT_S)
    assert faults.message(ValueError(SAID)) == SAID
