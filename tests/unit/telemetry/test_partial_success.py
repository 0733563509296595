"""A backend that takes a batch and stores a part of it: what it rejects is counted, and its message logged once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

import ragtrace
from ragtrace.system.faults import faults
from tests.support.backends import Answer, Backend
from tests.support.otlp import GrpcReceiver, HttpReceiver, Receiver
from tests.support.watched import WAIT_S, ask

MESSAGE = "too old: sk-QUITESECRET\nERROR forged"
KINDS = {"spans": "spans", "events": "events", "metric points": "metrics"}


@pytest.fixture(params=["http", "http with json", "grpc"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A backend of each protocol, to which everything goes."""
    faults.clear()
    with GrpcReceiver() if request.param == "grpc" else HttpReceiver() as receiver:
        receiver.answers_json = request.param == "http with json"
        for name, value in receiver.environ.items():
            monkeypatch.setenv(name, value)
        yield receiver


def test_what_a_backend_rejects_is_counted_by_signal_and_said_once(
    backend: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """With its message, on one line and without keys; flush and shutdown say that something was lost."""
    backend.rejects = (1, MESSAGE)
    with caplog.at_level(logging.WARNING):
        ragtrace.configure(service="s", exporter="otlp")
        for _ in range(3):
            ask("where?")
            assert not ragtrace.flush(WAIT_S)
        problems = " ".join(ragtrace.doctor(timeout=2.0).problems)
        assert not ragtrace.shutdown(WAIT_S)
    counted = ragtrace.stats().faults
    requests = [request.signal for request in backend.requests]
    rejected = {kind: counted[f"lost {kind}: rejected by the backend"] for kind in KINDS}
    # The doctor sends empty exports of its own.
    assert all(rejected[kind] >= 3 for kind in KINDS)
    assert rejected["spans"] <= requests.count("traces")
    assert rejected["metric points"] <= requests.count("metrics")
    said = [record.getMessage() for record in caplog.records if "too old: ***" in record.getMessage()]
    assert len(said) == 3
    assert all(any(word in line for line in said) for word in KINDS.values())
    assert "QUITESECRET" not in caplog.text
    assert "\nERROR forged" not in caplog.text
    assert "spans were lost on their way to the backend: rejected by the backend" in problems


def test_a_warning_of_a_backend_that_stores_everything_is_no_loss(
    backend: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once a signal."""
    backend.rejects = (0, "please send less")
    ragtrace.configure(service="s", exporter="otlp")
    for _ in range(3):
        ask("where?")
        assert ragtrace.flush(WAIT_S)
    assert ragtrace.shutdown(WAIT_S)
    assert not ragtrace.stats().faults
    assert len([record for record in caplog.records if "please send less" in record.getMessage()]) == 3


def test_no_more_than_was_sent_is_counted(backend: Receiver) -> None:
    """Whatever a backend says."""
    backend.rejects = (10**9, "")
    ragtrace.configure(service="s", exporter="otlp")
    ask("where?")
    ragtrace.flush(WAIT_S)
    ragtrace.shutdown(WAIT_S)
    counted = ragtrace.stats().faults
    assert counted["lost spans: rejected by the backend"] == len(backend.spans)
    assert counted["lost events: rejected by the backend"] == len(backend.logs)
    points = sum(len(metric.points) for metric in backend.metrics)
    assert counted["lost metric points: rejected by the backend"] == points


@pytest.mark.parametrize("body", [b"", b"ok", b"{}", b"\xff" * 40, b"<html>", b"[1]", b'{"partialSuccess": 3}'])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_body_that_is_no_response_says_nothing(
    body: bytes, as_json: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The status has said that all was accepted."""
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    faults.clear()
    with HttpReceiver() as receiver:
        receiver.answers_json, receiver.body = as_json, body
        for name, value in receiver.environ.items():
            monkeypatch.setenv(name, value)
        ragtrace.configure(service="s", exporter="otlp")
        ask("where?")
        assert ragtrace.flush(WAIT_S)
        assert ragtrace.shutdown(WAIT_S)
    assert not ragtrace.stats().faults
    # Exporters of a test before may still be trying to reach a server that is not there.
    ours = [record for record in caplog.records if record.thread not in others]
    assert not [record for record in ours if record.levelno >= logging.WARNING]


def test_a_web_page_is_no_receiver(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Of a login, or of a backend's pages on another port: everything is lost, and that is said."""
    page = Answer(200, b"<html>Log in</html>", {"Content-Type": "text/html; charset=utf-8"})
    with Backend(lambda _: page) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        ragtrace.configure(service="s", exporter="otlp")
        ask("where?")
        assert not ragtrace.flush(2.0)
        problems = ragtrace.doctor(timeout=2.0).problems
        assert not ragtrace.shutdown(1.0)
    assert any("200 with a web page" in each for each in problems)
    assert "a web page and no answer of a receiver of OTLP" in caplog.text
    assert any(kind.startswith("lost spans") for kind in ragtrace.stats().faults)
