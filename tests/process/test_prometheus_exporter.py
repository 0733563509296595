"""`exporter="prometheus"`: the page of a process, and what several processes do."""

from __future__ import annotations

import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace_exporters.prometheus import page as page_of
from ragtrace_exporters.prometheus import prometheus
from tests.support.application import QUESTION, ask
from tests.support.monitoring import application, wait_until
from tests.support.otlp import HttpReceiver
from tests.support.services import free_ports

CALLS, OFFERED = semconv.METRIC_CALLS, "ragtrace_calls_total"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where the page will be."""
    with free_ports(1) as (free,):
        monkeypatch.setenv("RAGTRACE_PROMETHEUS_PORT", str(free))
        yield free


def fetch(port: int, accept: str = "text/plain") -> str:
    """The page, or "" while nobody serves it."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return str(response.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def samples(text: str) -> list[Sample]:
    """Of a page; a page that is none raises."""
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def offered(text: str, evaluator: str = "embedded") -> float:
    """Calls offered to the evaluator, by the page."""
    of = {"ragtrace_evaluator_id": evaluator, "ragtrace_outcome": "offered"}
    return sum(each.value for each in samples(text) if each.name == OFFERED and of.items() <= each.labels.items())


def test_the_page_shows_scores_and_the_service(port: int) -> None:
    """As soon as `configure` has returned, in both formats of Prometheus."""
    ragtrace.configure(service="guide", exporter="prometheus")
    ask(QUESTION)
    assert ragtrace.flush(10)
    text = fetch(port)
    found = samples(text)
    assert offered(text) == 1
    assert any(each.name == "ragtrace_eval_score_bucket" for each in found)
    assert [each.labels["service_name"] for each in found if each.name == "target_info"] == ["guide"]
    openmetrics = parse_openmetrics(fetch(port, "application/openmetrics-text; version=1.0.0"))
    assert any(sample.name == OFFERED for family in openmetrics for sample in family.samples)


def test_a_new_series_begins_at_zero_for_prometheus(port: int) -> None:
    """Prometheus counts from the first value that it sees; a browser sees the count at once."""
    scraper = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    ragtrace.configure(service="guide", exporter="prometheus")
    ask(QUESTION)
    assert ragtrace.flush(10)
    assert offered(fetch(port)) == 1
    first, second = (parse_openmetrics(fetch(port, scraper)) for _ in range(2))
    counters = {"counter", "histogram"}
    began = {
        (each.name, *each.labels.items()): each.value
        for family in first
        for each in family.samples
        if family.type in counters
    }
    went_on = {
        (each.name, *each.labels.items()): each.value
        for family in second
        for each in family.samples
        if family.type in counters
    }
    assert began
    assert began.keys() == went_on.keys()
    assert not any(began.values())
    assert sum(value for key, value in went_on.items() if key[0] == OFFERED and ("ragtrace_outcome", "offered") in key)


def test_spans_go_where_otlp_says(port: int, http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are only on the page."""
    for name, value in http_receiver.environ.items():
        monkeypatch.setenv(name, value)
    ragtrace.configure(service="guide", exporter="prometheus")
    ask(QUESTION)
    assert ragtrace.flush(10)
    http_receiver.wait_for(lambda seen: seen.spans)
    assert not http_receiver.metrics


def test_requests_at_the_same_time_have_the_same_page(port: int) -> None:
    """Two Prometheus servers fetch the same process; each gets all series once."""
    ragtrace.configure(service="guide", exporter="prometheus")
    ask(QUESTION)
    assert ragtrace.flush(10)
    with ThreadPoolExecutor(8) as pool:
        assert set(map(offered, pool.map(fetch, [port] * 40))) == {1}


def test_the_port_is_free_after_the_shutdown(port: int) -> None:
    """The next `configure` serves its own page, whose counts begin at 0."""
    for _ in range(2):
        ragtrace.configure(service="guide", exporter="prometheus")
        ask(QUESTION)
        assert ragtrace.flush(10)
        assert offered(fetch(port)) == 1
        ragtrace.shutdown(10)
        assert fetch(port) == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork with threads, which is what is tested
def test_a_forked_child_does_not_keep_the_port(port: int) -> None:
    """When the parent is gone the port is free, though its child still runs."""
    ragtrace.configure(service="guide", exporter="prometheus")
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        ragtrace.shutdown(10)
        with socket.create_server(("127.0.0.1", port)):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_second_process_with_the_same_port_is_told_to_use_otlp(tmp_path: Path, port: int) -> None:
    """As of a server with several workers: the page shows the first, and the log of the others says so."""
    with application(tmp_path, port, CALLS="4", STAY="1"):
        wait_until(lambda: offered(fetch(port)) == 4, 120, "the first process counts")
        with application(tmp_path, port, CALLS="2", STAY="1"):
            logs = wait_until(lambda: [log for log in _logs(tmp_path) if "cannot be served" in log], 120, "a warning")
            assert "a page shows one process" in logs[0]
            assert "exporter='otlp'" in logs[0]
            assert offered(fetch(port)) == 4


def test_several_processes_send_by_otlp_and_each_has_series_of_its_own(tmp_path: Path) -> None:
    """What a receiver of Prometheus, or a collector, adds up: no call is missing, and exemplars lead to traces."""
    with HttpReceiver() as receiver, ExitStack() as stack:
        environ = {**receiver.environ, "EXPORTER": "otlp", "CALLS": "20", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
        apps = [stack.enter_context(application(tmp_path, 0, **environ)) for _ in range(3)]
        for app in apps:
            app.process.wait(timeout=240)
        sent = receiver.metrics
    latest = {str(metric.resource[semconv.SERVICE_INSTANCE]): metric for metric in sent if metric.name == CALLS}
    of = {semconv.EVALUATOR_ID: "embedded", semconv.OUTCOME: "offered"}
    points = [point for metric in latest.values() for point in metric.points]
    assert [point.value for point in points if of.items() <= point.attributes.items()] == [20, 20, 20]
    assert {metric.temporality for metric in latest.values()} == {"CUMULATIVE"}
    exemplars = {
        metric.resource[semconv.SERVICE_INSTANCE]
        for metric in sent
        if metric.name == semconv.METRIC_SCORE and any(point.exemplars for point in metric.points)
    }
    assert exemplars == latest.keys()


def _logs(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.glob("application-*.log")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_calls_of_a_forked_worker_are_not_on_its_parents_page(port: int) -> None:
    """A page shows one process: what the child counts is not invented into the parent, and the child is warned."""
    ragtrace.configure(service="guide", exporter="prometheus")
    child = os.fork()
    if child == 0:
        ask(QUESTION)
        ragtrace.shutdown(10)
        os._exit(0 if ragtrace.stats().faults.get("prometheus port") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert offered(fetch(port)) == 0


def test_a_port_that_is_taken_is_told_of_and_harms_nobody(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The application goes on; the warning says what to do, and is counted."""
    with socket.create_server(("127.0.0.1", port)):
        ragtrace.configure(service="guide", exporter="prometheus")
        assert "RAGTRACE_PROMETHEUS_PORT" in caplog.text
        ask(QUESTION)
        assert ragtrace.flush(10)
        assert ragtrace.stats().faults["prometheus port"] == 1


@pytest.mark.parametrize("value", ["http", "0", "70000", "-1"])
def test_a_wrong_port_is_refused(value: str) -> None:
    """When it starts, with the variable's name."""
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_PROMETHEUS_PORT"):
        prometheus({"OTEL_EXPORTER_PROMETHEUS_PORT": value})


def test_the_address_of_the_page_is_known() -> None:
    """Of OpenTelemetry's variables and of ragtrace's, which go first."""
    environ = {"OTEL_EXPORTER_PROMETHEUS_PORT": "9000", "OTEL_EXPORTER_PROMETHEUS_HOST": "::1"}
    assert page_of(environ) == ("http://[::1]:9000/metrics", "OTEL_EXPORTER_PROMETHEUS_PORT")
    assert page_of({**environ, "RAGTRACE_PROMETHEUS_PORT": "9001"}).origin == "RAGTRACE_PROMETHEUS_PORT"
