"""The command `ragtrace serve` in a process of its own: it starts, scores, and ends by a signal without a loss."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from tests.support.gateway import json_request, json_span, raw_http_upstream, serving, trace_calls
from tests.support.otlp import HttpReceiver

END_S = 40.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_when_all_calls_are_scored(number: int, http_receiver: HttpReceiver, tmp_path: Path) -> None:
    """Calls that are still waited for are scored at once; the configuration comes from a file."""
    config = tmp_path / "ragtrace.toml"
    config.write_text('service = "gateway"\nmetrics = ["consistency"]\n', encoding="utf-8")
    with serving("--config", str(config), **http_receiver.environ) as (process, url, _):
        trace_calls(OTLPSpanExporter(endpoint=url), 20)
        process.send_signal(number)
        _, errors = process.communicate(timeout=END_S)
        assert process.returncode == 0, errors
    names = [span.name for span in http_receiver.spans]
    assert (names.count("ask"), names.count("evaluate ask")) == (20, 20)
    services = {span.resource["service.name"] for span in http_receiver.spans if span.name == "evaluate ask"}
    assert services == {"gateway"}
    points = http_receiver.latest_metrics()["ragtrace.gateway.spans"].points
    assert {point.attributes["ragtrace.outcome"]: point.value for point in points} == {"received": 60, "forwarded": 60}


def test_a_request_that_is_being_forwarded_is_answered_before_the_end() -> None:
    """The upstream is slow when the signal comes; new requests do not get in."""
    answers: list[int] = []
    with raw_http_upstream() as upstream, serving(**upstream.environ) as (process, url, _):
        upstream.gate.clear()

        def post() -> None:
            headers = {"content-type": "application/json"}
            body = json_request(json_span())
            answers.append(httpx.post(url, content=body, headers=headers, timeout=END_S).status_code)

        thread = threading.Thread(target=post)
        thread.start()
        assert upstream.arrived.wait(END_S)
        process.send_signal(signal.SIGTERM)
        while _is_ready(url):  # until the signal has been seen
            assert process.poll() is None
        upstream.gate.set()
        thread.join(END_S)
        _, errors = process.communicate(timeout=END_S)
        assert (answers, process.returncode) == ([200], 0), errors


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url.replace("/v1/traces", "/readyz")).status_code == 200
    except httpx.TransportError:
        return False


def test_secrets_are_in_nothing_that_leaves_the_process() -> None:
    """Neither the senders' token nor the backend's key is in output, logs, spans or metrics, whatever goes wrong."""
    token, key, wrong = "sendertoken-51c7", "backendkey-9e02", "wrongtoken-77aa"
    secrets = {"RAGTRACE_SERVE_TOKEN": token, "OTEL_EXPORTER_OTLP_HEADERS": f"x-api-key={key}"}
    with raw_http_upstream() as upstream, serving(**upstream.environ, **secrets) as (process, url, _):
        trace_calls(OTLPSpanExporter(endpoint=url, headers={"authorization": f"Bearer {token}"}))
        json = {"content-type": "application/json"}
        for given, body, status in ((wrong, b"{}", 401), (token, b"{", 400), (token, b"[]", 400)):
            headers = json | {"authorization": f"Bearer {given}"}
            assert httpx.post(url, content=body, headers=headers).status_code == status
        for answer, status in ((401, 503), (413, 413), (500, 503)):
            upstream.status = answer
            headers = json | {"authorization": f"Bearer {token}"}
            assert httpx.post(url, content=json_request(json_span()), headers=headers).status_code == status
        upstream.status = 200
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=END_S)
        assert process.returncode == 0, errors
    assert all(sent["x-api-key"] == key for sent in upstream.headers)
    assert not [sent for sent in upstream.headers if token in str(sent)]
    assert any(b"ragtrace.gateway.requests" in body for body in upstream.bodies)  # metrics were exported
    assert any(b"evaluate ask" in body for body in upstream.bodies)  # scores were exported
    emitted = [output.encode(), errors.encode(), *upstream.bodies]
    assert not [text for text in emitted for secret in (token, key, wrong) if secret.encode() in text]


def test_a_certificate_without_its_key_is_a_wrong_usage() -> None:
    """Nothing listens without TLS where TLS was asked for."""
    argv = [sys.executable, "-m", "ragtrace", "serve", "--tls-cert", "tls.crt"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=END_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--tls-cert and --tls-key belong together" in done.stderr


def test_wrong_settings_start_nothing(tmp_path: Path) -> None:
    """The exit status says that the usage was wrong."""
    config = tmp_path / "ragtrace.toml"
    config.write_text("servce = 'x'\n", encoding="utf-8")
    argv = [sys.executable, "-m", "ragtrace", "serve", "--config", str(config)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=END_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'service'" in done.stderr
