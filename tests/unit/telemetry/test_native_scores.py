"""From a decorated call to a backend's own API: what is posted, by whom, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import ragtrace
from ragtrace.core.types import Signals
from tests.support.application import INVENTED, QUESTION, ask
from tests.support.backends import Answer, Backend
from tests.support.posting import ScriptedSink

METRICS = set(ragtrace.score(query="Where?", contexts=["In Paris."], answer="In Paris."))
"""All metrics that the default screen gives."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A server at the address of Phoenix."""
    with Backend() as running:
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", running.url)
        yield running
        ragtrace.shutdown(timeout=2.0)


def _annotations(server: Backend) -> list[dict[str, Any]]:
    bodies = [request.body for request in server.requests if request.path == "/v1/trace_annotations"]
    return [annotation for body in bodies for annotation in body["data"]]


def test_every_score_of_a_call_is_posted(server: Backend) -> None:
    """Once, on the same trace."""
    ragtrace.configure(service="guide-service", exporter="phoenix")
    ask(QUESTION)
    assert ragtrace.flush(timeout=20.0)
    annotations = _annotations(server)
    assert sorted(annotation["name"] for annotation in annotations) == sorted(METRICS)
    assert len({annotation["trace_id"] for annotation in annotations}) == 1


def test_content_is_posted_only_when_asked_for(server: Backend) -> None:
    """The numbers always, the unsupported claims with `TelemetryOptions(evidence=True)`."""
    for evidence in (False, True):
        ragtrace.configure(
            service="guide-service", exporter="phoenix", telemetry=ragtrace.TelemetryOptions(evidence=evidence)
        )
        ask(QUESTION, INVENTED)
        assert ragtrace.flush(timeout=20.0)
    plain, quoted = (
        annotation["result"]["explanation"]
        for annotation in _annotations(server)
        if annotation["name"] == "consistency"
    )
    assert plain == "of 3 claims: 2 not found, 1 supported"
    assert quoted.startswith(f"{plain}. Not supported: Leonardo da Vinci designed it")


@pytest.mark.timing
def test_the_application_does_not_wait(server: Backend) -> None:
    """A backend that hangs costs a call nothing, and shutdown keeps to its time."""
    server.gate.clear()
    ragtrace.configure(service="guide-service", exporter="phoenix")
    began = time.monotonic()
    for _ in range(20):
        ask(QUESTION)
    ragtrace.shutdown(timeout=1.0)
    assert time.monotonic() - began < 10.0  # the backend hangs until the end of the test
    posted = ragtrace.stats().sinks["phoenix"]
    assert posted.pending == 0
    assert posted.offered == posted.posted + sum(posted.dropped.values())


def test_a_flush_says_that_a_score_was_refused(server: Backend) -> None:
    """The spans are there, the annotations are not."""
    server.answer_first(*[Answer(400)] * 20)
    ragtrace.configure(service="guide-service", exporter="phoenix")
    ask(QUESTION)
    assert not ragtrace.flush(timeout=20.0)


def test_no_carrier_goes_where_scores_are_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be one more trace to look at, with nothing new."""
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    sink, spans = ScriptedSink(), InMemorySpanExporter()
    ragtrace.configure(
        exporter=Signals(spans=spans, scores=sink, immediate=True),
        limits=ragtrace.Limits(hold_seconds=0.001),
        metrics=[*METRICS],
    )
    ask(QUESTION)
    assert ragtrace.flush(timeout=20.0)
    assert {score.name for score in sink.taken} == METRICS
    assert not [span for span in spans.get_finished_spans() if span.links]


def test_scores_are_posted_beside_the_users_own_provider(server: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spans go where it sends them; the scores go to the backend that is named."""
    monkeypatch.setenv("RAGTRACE_EXPORTER", "phoenix")
    provider = TracerProvider()
    ragtrace.configure(service="guide-service", telemetry=ragtrace.TelemetryOptions(tracer_provider=provider))
    ask(QUESTION)
    assert ragtrace.flush(timeout=20.0)
    assert {annotation["name"] for annotation in _annotations(server)} == METRICS
    provider.shutdown()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_posts_its_own(server: Backend) -> None:
    """Parent and child each post their own scores, each once."""
    ragtrace.configure(service="guide-service", exporter="phoenix")
    ask(QUESTION)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ask(QUESTION)
            code = 0 if ragtrace.flush(timeout=20.0) and ragtrace.stats().sinks["phoenix"].posted == len(METRICS) else 1
        finally:
            os._exit(code)
    assert ragtrace.flush(timeout=20.0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    ids = [annotation["identifier"] for annotation in _annotations(server)]
    assert len(ids) == len(set(ids)) == 2 * len(METRICS)


def test_a_program_that_just_ends_posts_its_scores(server: Backend) -> None:
    """At exit no thread can be started any more (from Python 3.12 on): one is there that does it."""
    environ = {**os.environ, "PHOENIX_COLLECTOR_ENDPOINT": server.url, "RAGTRACE_EXPORTER": "phoenix"}
    program = [sys.executable, "-m", "tests.support.application"]
    done = subprocess.run(program, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert {annotation["name"] for annotation in _annotations(server)} == METRICS
    assert not done.stderr
