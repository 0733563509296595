"""The exporter of spans over OTLP/HTTP: what it tries again, what it gives up, and when."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from time import monotonic

import pytest
import requests
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace_exporters.http_spans import HttpSpanExporter, new_session
from ragtrace_exporters.otlp import otlp
from tests.support.otlp import HttpReceiver

WAIT_S = 10.0
SUCCESS, FAILURE = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
Export = Callable[[SpanExporter], SpanExportResult]


@pytest.fixture
def export() -> Export:
    """Exports one span."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    provider.get_tracer("test").start_span("a span", attributes={"key": "value"}).end()
    return lambda exporter: exporter.export(kept.get_finished_spans())


def _exporter(endpoint: str, *, timeout: float = WAIT_S, compression: str = "none") -> HttpSpanExporter:
    return HttpSpanExporter(
        Endpoint("traces", f"{endpoint}/v1/traces", "http/protobuf", "", {"x-team": "7"}), timeout, compression
    )


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
def test_spans_arrive(http_receiver: HttpReceiver, export: Export, compression: str) -> None:
    """With the headers that were given, in every compression."""
    assert export(_exporter(http_receiver.endpoint, compression=compression)) is SUCCESS
    assert [span.attributes for span in http_receiver.spans] == [{"key": "value"}]
    assert http_receiver.requests[0].headers["x-team"] == "7"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again(http_receiver: HttpReceiver, export: Export, status: int) -> None:
    """After about a second."""
    http_receiver.answer_with(status)
    assert export(_exporter(http_receiver.endpoint)) is SUCCESS
    assert len(http_receiver.spans) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_what_will_not_pass_is_given_up_at_once(http_receiver: HttpReceiver, export: Export, status: int) -> None:
    """The next batch may go better."""
    http_receiver.answer_with(status)
    assert export(_exporter(http_receiver.endpoint)) is FAILURE
    assert len(http_receiver.requests) == 1
    assert export(_exporter(http_receiver.endpoint)) is SUCCESS


def test_a_backend_that_is_away_is_waited_for_as_long_as_there_is_time(export: Export) -> None:
    """Whoever called it can tell that from a refusal by the time it took."""
    with HttpReceiver() as receiver:
        endpoint = receiver.endpoint
    began = monotonic()
    assert export(_exporter(endpoint, timeout=1.5)) is FAILURE
    assert 0.5 < monotonic() - began < 10.0  # without a limit the tries would go on


def test_a_shutdown_ends_the_waiting(http_receiver: HttpReceiver, export: Export) -> None:
    """And nothing is tried again."""
    http_receiver.answer_with(503, times=10)
    exporter, results = _exporter(http_receiver.endpoint, timeout=60.0), list[SpanExportResult]()
    thread = threading.Thread(target=lambda: results.append(export(exporter)))
    thread.start()
    exporter.shutdown()
    thread.join(WAIT_S)
    assert results == [FAILURE]


def test_an_exporter_outlives_a_connection_that_went_stale(export: Export) -> None:
    """A backend that restarts closes what was kept open."""
    with HttpReceiver(keep_alive=True) as receiver:
        exporter = _exporter(receiver.endpoint)
        assert export(exporter) is SUCCESS
        with receiver.refusing():
            pass
        assert export(exporter) is SUCCESS
        assert len(receiver.spans) == 2


def test_the_errors_of_a_session_name_no_token_in_a_path() -> None:
    """OpenTelemetry's exporters of metrics and events log them, some with the traceback."""
    url = "http://127.0.0.1:9/hushed/v1/metrics"
    with pytest.raises(requests.ConnectionError) as raised:
        new_session().post(url, data=b"")
    shown = "".join(traceback.format_exception(raised.value))
    assert "Max retries exceeded with url: /..." in shown
    assert "hushed/" not in shown.replace(f'"{url}"', "the URL in the source of this test")


def test_the_name_otlp_stands_for_it() -> None:
    """Over HTTP, unless a session that signs requests is wanted: that is made by OpenTelemetry's exporter."""
    environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}
    assert isinstance(otlp(environ).spans, HttpSpanExporter)


def test_bad_settings_are_still_refused() -> None:
    """As for the other signals."""
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_TIMEOUT"):
        otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"})


@pytest.mark.parametrize(("endpoint", "headers"), [("http://", {}), ("http://127.0.0.1:1", {"key": "se\ncret"})])
def test_what_no_request_can_be_made_of_stops_at_start_up(endpoint: str, headers: dict[str, str]) -> None:
    """With a message that says what to correct, and does not show the key."""
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_ENDPOINT") as caught:
        HttpSpanExporter(Endpoint("traces", endpoint, "http/protobuf", "", headers), None, "none")
    assert "cret" not in str(caught.value)
