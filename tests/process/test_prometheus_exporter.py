"""`exporter="prometheus"`: the page, and many processes on it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace_exporters.openmetrics.reader import PageReader
from ragtrace_exporters.openmetrics.snapshot import (
    Exemplar,
    Family,
    Folder,
    Kind,
    Series,
    Snapshot,
    from_json,
    metric_name,
    sample_names,
    to_json,
    total,
    with_zero_starts,
)
from ragtrace_exporters.prometheus import prometheus
from tests.support.application import QUESTION, ask
from tests.support.monitoring import application, wait_until
from tests.support.otlp import HttpReceiver
from tests.support.services import free_ports

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
OFFERED = "ragtrace_calls_total"


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where the page will be."""
    with free_ports(1) as (free,):
        monkeypatch.setenv("RAGTRACE_PROMETHEUS_PORT", str(free))
        monkeypatch.setenv("RAGTRACE_PROMETHEUS_DIR", str(tmp_path / "page"))
        yield free


def fetch(port: int, accept: str = "text/plain", **headers: str) -> str:
    """The page, or "" while nobody serves it."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept, **headers})
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return str(response.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def page(port: int, accept: str = "text/plain") -> str:
    """The page, when it is there."""
    return str(wait_until(lambda: fetch(port, accept), 20, "the page is served"))


def offered(text: str, evaluator: str = "embedded") -> float:
    """Calls offered to the evaluator, by the page."""
    wanted = f'ragtrace_evaluator_id="{evaluator}",ragtrace_outcome="offered"'
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(OFFERED) and wanted in line)


def samples(text: str) -> list[Sample]:
    """Of a page of OpenMetrics; a page that is none raises."""
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("ragtrace.eval.score", "1", "histogram", "ragtrace_eval_score"),
        ("ragtrace.judge.state", "1", "gauge", "ragtrace_judge_state_ratio"),
        ("ragtrace.calls", "{call}", "counter", "ragtrace_calls"),
        ("ragtrace.eval.duration", "s", "histogram", "ragtrace_eval_duration_seconds"),
        ("ragtrace.eval.cost", "USD", "counter", "ragtrace_eval_cost_USD"),
    ],
)
def test_metrics_are_named_as_behind_a_collector(name: str, unit: str, kind: Kind, expected: str) -> None:
    """The mapping of the specification: units as suffixes, annotations left out, ratios for gauges."""
    assert metric_name(name, unit, kind) == expected
    assert sample_names("a.b", "1", "counter") == ("a_b_total",)


def test_the_page_is_openmetrics_with_exemplars(
    port: int, http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histograms of scores have the scored call's trace id, which is that of a span at the backend."""
    for name, value in http_receiver.environ.items():
        monkeypatch.setenv(name, value)
    ragtrace.configure(service="guide", exporter="prometheus")
    ask(QUESTION)
    assert ragtrace.flush(10)
    wait_until(lambda: "# {" in page(port, OPENMETRICS), 5, "counters are shown as they are")
    found = samples(page(port, OPENMETRICS))
    http_receiver.wait_for(lambda seen: seen.spans)
    traces = {
        each.exemplar.labels["trace_id"]
        for each in found
        if each.name == "ragtrace_eval_score_bucket" and each.exemplar
    }
    assert traces == {span.trace_id for span in http_receiver.spans}
    assert [each.labels["service_name"] for each in found if each.name == "target_info"] == ["guide"]


def test_a_new_counter_begins_at_0_for_prometheus_alone(port: int) -> None:
    """Prometheus counts from the first value that it sees; a reader sees what is."""
    ragtrace.configure(service="guide", exporter="prometheus")
    for _ in range(3):
        ask(QUESTION)
    assert ragtrace.flush(10)
    assert offered(page(port)) == 3
    assert offered(page(port, OPENMETRICS)) == 0
    wait_until(lambda: offered(page(port, OPENMETRICS)) == 3, 5, "that it was shown is remembered")


def test_an_answer_that_prometheus_throws_away_tells_it_nothing(port: int) -> None:
    """It came after the time that the request says it has: the 0 is shown again."""
    ragtrace.configure(service="guide", exporter="prometheus")
    ask(QUESTION)
    assert ragtrace.flush(10)
    page(port)
    late = {"X-Prometheus-Scrape-Timeout-Seconds": "0"}
    assert [offered(fetch(port, OPENMETRICS, **late)) for _ in range(2)] == [0, 0]
    in_time = {"X-Prometheus-Scrape-Timeout-Seconds": "10"}
    assert offered(fetch(port, OPENMETRICS, **in_time)) == 0
    wait_until(lambda: offered(fetch(port, OPENMETRICS, **in_time)) == 1, 5, "that it was shown is remembered")


def test_a_process_that_has_ended_makes_no_page(tmp_path: Path) -> None:
    """From then on another one may add up, and two would be one too many."""
    with free_ports(1) as (free,):
        reader = PageReader("127.0.0.1", free, tmp_path)
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    provider.get_meter("test").create_counter("calls").add(1)
    page(free)
    assert reader.page("text/plain") is not None
    provider.shutdown()
    assert reader.page("text/plain") is None


def test_counts_go_on_after_a_restart(port: int) -> None:
    """No counter falls, and none of the calls before is counted twice."""
    for expected in (2, 4, 6):
        ragtrace.configure(service="guide", exporter="prometheus")
        ask(QUESTION)
        ask(QUESTION)
        assert ragtrace.flush(10)
        assert offered(page(port)) == expected
        ragtrace.shutdown(10)


def test_another_service_is_not_mixed_in(port: int) -> None:
    """What a service with another name left behind in the same folder is its own."""
    for service in ("guide", "shop"):
        ragtrace.configure(service=service, exporter="prometheus")
        ask(QUESTION)
        assert ragtrace.flush(10)
        assert offered(page(port)) == 1
        ragtrace.shutdown(10)


def test_processes_share_a_page_and_another_serves_it_when_one_is_killed(tmp_path: Path, port: int) -> None:
    """The sum does not fall when the process that serves the page dies; what it had counted stays."""
    with application(tmp_path, port, CALLS="40", STAY="1"):
        wait_until(lambda: offered(fetch(port)) == 40, 30, "the first process counts")
        with application(tmp_path, port, CALLS="20", STAY="1") as second:
            wait_until(lambda: offered(fetch(port)) == 60, 30, "both count")
            with application(tmp_path, port, CALLS="0", STAY="1") as third:
                del third
                second.kill()
                wait_until(lambda: offered(fetch(port)) == 60, 30, "the killed still counts")


def test_the_page_moves_to_another_process_when_its_own_is_killed(tmp_path: Path, port: int) -> None:
    """Within seconds, with the sum that it had."""
    with application(tmp_path, port, CALLS="40", STAY="1") as first:
        wait_until(lambda: offered(fetch(port)) == 40, 30, "the first process counts")
        threading.Event().wait(2.5)  # until it has written that down
        with application(tmp_path, port, CALLS="20", STAY="1"):
            wait_until(lambda: offered(fetch(port)) == 60, 30, "both count")
            first.kill()
            assert offered(page(port)) == 60


def test_what_was_on_the_page_is_on_the_next_when_its_process_is_killed_at_once(tmp_path: Path, port: int) -> None:
    """No counter falls: Prometheus would count all of it once more."""
    with application(tmp_path, port) as first:
        wait_until(lambda: offered(fetch(port)), 30, "the first process counts")
        threading.Event().wait(1.0)  # it counts on, and writes it down every two seconds only
        before = offered(fetch(port))
        first.kill()
        with application(tmp_path, port, CALLS="0", STAY="1"):
            assert offered(page(port)) >= before


def test_threads_that_write_figures_down_at_once_do_not_meet(port: int) -> None:
    """A flush, a fetch and the process's own rhythm: no half file, nothing older over something newer."""
    ragtrace.configure(service="guide", exporter="prometheus")
    ask(QUESTION)
    assert ragtrace.flush(10)
    page(port)

    def often(what: Callable[[], object]) -> None:
        for _ in range(40):
            what()

    threads = [threading.Thread(target=often, args=(what,)) for what in (lambda: fetch(port), ragtrace.flush) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [name for name in ragtrace.stats().faults if "prometheus" in name] == []
    assert offered(page(port)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork with threads, which is what is tested
def test_a_forked_child_keeps_neither_port_nor_lock(port: int) -> None:
    """When the parent is gone the page is free, though its child still runs."""
    ragtrace.configure(service="guide", exporter="prometheus")
    ask(QUESTION)
    assert ragtrace.flush(10)
    page(port)
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        ragtrace.shutdown(10)
        with socket.create_server(("127.0.0.1", port)):
            pass
        ragtrace.configure(service="guide", exporter="prometheus")
        ask(QUESTION)
        assert ragtrace.flush(10)
        assert offered(page(port)) == 2
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_calls_of_forked_workers_are_on_the_page(port: int) -> None:
    """As of a server that loads the application and forks: the parent serves what its children count."""
    ragtrace.configure(service="guide", exporter="prometheus")
    children = []
    for _ in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            ask(QUESTION)
            ragtrace.shutdown(10)
            os._exit(0)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert offered(page(port)) == 3


def test_a_port_that_is_taken_is_told_of_and_harms_nobody(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """The application goes on; the warning says what to do."""
    with socket.create_server(("127.0.0.1", port)):
        ragtrace.configure(service="guide", exporter="prometheus")
        ask(QUESTION)
        wait_until(lambda: "RAGTRACE_PROMETHEUS_PORT" in caplog.text, 10, "a warning")
        assert ragtrace.flush(10)


@pytest.mark.parametrize("value", ["http", "0", "70000", "-1"])
def test_a_wrong_port_is_refused(value: str) -> None:
    """When it starts, with the variable's name."""
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_PROMETHEUS_PORT"):
        prometheus({"OTEL_EXPORTER_PROMETHEUS_PORT": value})


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """They could put figures of their own on the page."""
    tmp_path.chmod(0o777)
    with pytest.raises(SettingsError, match="RAGTRACE_PROMETHEUS_DIR"):
        prometheus({"RAGTRACE_PROMETHEUS_DIR": str(tmp_path)})


def counter(value: float, exemplar: Exemplar | None = None) -> Snapshot:
    """One counter with one series."""
    series = Series((value,), {0: exemplar} if exemplar else {})
    return {"a": Family("a", "counter", "", (), {(("x", "y"),): series})}


def test_snapshots_add_up_and_survive_json() -> None:
    """The newer exemplar stays; what cannot be added up is not."""
    old, new = Exemplar(1.0, 10.0, "a" * 32, "b" * 16), Exemplar(1.0, 20.0, "c" * 32, "d" * 16)
    added = total([counter(1.0, new), counter(2.0, old)])
    assert added == counter(3.0, new)
    assert from_json(to_json(added)) == added
    other = {"h": Family("h", "histogram", "", (1.0,), {(): Series((1.0, 2.0, 3.0))})}
    newer = {"h": Family("h", "histogram", "", (2.0,), {(): Series((1.0, 2.0, 3.0))})}
    assert total([other, newer]) == other


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """Half a file, or one of another release, costs its own figures and no others."""
    ended, torn, live = (Folder(tmp_path, "guide") for _ in range(3))
    ended.publish(counter(2.0))
    torn.publish(counter(1.0))
    for file in tmp_path.glob("*.metrics"):
        if "1.0" in file.read_text():
            file.write_text('[["a"')
    ended.close()
    assert live.total_with(counter(4.0)) == counter(6.0)
    torn.close()
    assert live.total_with(counter(4.0)) == counter(6.0)
    live.close()


def test_one_killed_while_it_folded_the_ended_into_the_past_counts_nothing_twice(tmp_path: Path) -> None:
    """Files that it had no time to delete are of processes in the past already."""
    ended, live = Folder(tmp_path, "guide"), Folder(tmp_path, "guide")
    ended.publish(counter(2.0))
    kept = {file: file.read_bytes() for file in tmp_path.glob(f"*.{os.getpid()}-*")}
    ended.close()
    assert live.total_with(counter(4.0)) == counter(6.0)
    gone = [file for file in kept if not file.exists()]
    assert {file.suffix for file in gone} == {".alive", ".metrics"}
    for file in gone:
        file.write_bytes(kept[file])
    assert live.total_with(counter(4.0)) == counter(6.0)
    assert live.total_with(counter(4.0)) == counter(6.0)
    assert not any(file.exists() for file in gone)
    live.close()


def test_a_series_begins_at_0_until_somebody_got_that(tmp_path: Path) -> None:
    """A fetch that broke off has told Prometheus nothing."""
    folder = Folder(tmp_path, "guide")
    assert (
        with_zero_starts(counter(3.0), folder.read_shown())[0]
        == with_zero_starts(counter(3.0), folder.read_shown())[0]
        == counter(0.0)
    )
    folder.write_shown(with_zero_starts(counter(3.0), folder.read_shown())[1])
    assert with_zero_starts(counter(3.0), folder.read_shown()) == (counter(3.0), set())
    folder.close()
