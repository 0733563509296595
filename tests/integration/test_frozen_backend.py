"""A collector that stops answering for a while: what the bounds allow to keep arrives, the rest is counted.

Between the application and the backend runs Rotel, stopped with SIGSTOP: connections to it are accepted, nothing is
answered. `RAGTRACE_FROZEN_SECONDS=30` freezes it for longer than the default.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter
from typing import Final

import pytest

import ragtrace
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.otlp import HttpReceiver
from tests.support.services import Server, rotel
from tests.support.watched import GOOD, ask

pytestmark = pytest.mark.integration

FROZEN_S: Final = float(os.environ.get("RAGTRACE_FROZEN_SECONDS") or 5)
EXPORT_TIMEOUT_S: Final = 1
"""An export is given up, and tried again, several times while the collector is frozen."""
EVENTS: Final = 5
"""Of a call that `FakeJudge` has scored: one a metric."""
RATE: Final = 50
"""Calls a second."""
ARRIVAL_S: Final = 30.0
STATUS: Final = "ragtrace.eval.status"


@pytest.fixture
def collector(http_receiver: HttpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A Rotel that passes on to `http_receiver`, and an environment that sends telemetry to it."""
    faults.clear()
    with rotel(http_receiver.endpoint, tmp_path) as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(EXPORT_TIMEOUT_S))
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        monkeypatch.setenv("OTEL_BLRP_SCHEDULE_DELAY", "200")
        yield running
        running.process.send_signal(signal.SIGCONT)
        ragtrace.shutdown(10.0)


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """SIGSTOP until the block ends."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def traffic(seconds: float) -> list[float]:
    """Calls for so many seconds; how long each took."""
    never, took = threading.Event(), list[float]()
    end = monotonic() + seconds
    while monotonic() < end:
        began = perf_counter()
        ask(f"question {len(took)}")
        took.append(perf_counter() - began)
        never.wait(1 / RATE)
    return took


def lost(what: str) -> int:
    return sum(count for place, count in ragtrace.stats().faults.items() if place.startswith(f"lost {what}"))


def evaluations(receiver: HttpReceiver) -> set[tuple[object, object]]:
    """Span and metric of every evaluation that arrived."""
    return {(event.span_id, event.attributes["gen_ai.evaluation.name"]) for event in receiver.logs}


def arrived(receiver: HttpReceiver) -> int:
    """Spans, each once: one whose answer did not come in time is sent again."""
    return len({span.span_id for span in receiver.spans})


def test_what_was_measured_while_the_collector_was_frozen_arrives(
    collector: Server, http_receiver: HttpReceiver
) -> None:
    """Every span and event, scored as always, and the application noticed nothing."""
    ragtrace.configure(service="frozen", screen=FakeJudge(GOOD))
    before = traffic(1.0)
    assert ragtrace.flush(10.0)
    with frozen(collector):
        during = traffic(FROZEN_S)
    after = traffic(0.5)
    calls = len(before) + len(during) + len(after)
    assert ragtrace.flush(ARRIVAL_S)
    http_receiver.wait_for(lambda got: arrived(got) >= 3 * calls, ARRIVAL_S)
    http_receiver.wait_for(
        lambda got: len({(e.span_id, e.attributes["gen_ai.evaluation.name"]) for e in got.logs}) == EVENTS * calls
    )
    assert arrived(http_receiver) == 3 * calls
    roots = {span.span_id: span for span in http_receiver.spans if STATUS in span.attributes}
    assert Counter(span.attributes[STATUS] for span in roots.values()) == {"ok": calls}
    stats = ragtrace.stats()
    assert (stats.offered, stats.scored, stats.pending, stats.faults) == (calls, calls, 0, {})
    assert sorted(during)[len(during) // 2] < 2 * sorted(before)[len(before) // 2] + 0.001


def test_what_the_bounds_do_not_allow_to_keep_is_counted(
    collector: Server, http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With queues far too small for so long a silence: what arrived and what was counted is everything."""
    for variable in ("OTEL_BSP", "OTEL_BLRP"):
        monkeypatch.setenv(f"{variable}_MAX_QUEUE_SIZE", "40")
        monkeypatch.setenv(f"{variable}_MAX_EXPORT_BATCH_SIZE", "20")
    ragtrace.configure(service="frozen", screen=FakeJudge(GOOD), limits=ragtrace.Limits(capacity=10))
    with frozen(collector):
        calls = len(traffic(FROZEN_S))
    assert ragtrace.flush(ARRIVAL_S)
    stats = ragtrace.stats()
    http_receiver.wait_for(lambda got: arrived(got) >= 3 * calls - lost("spans"), ARRIVAL_S)
    assert lost("spans") > 0
    assert arrived(http_receiver) == 3 * calls - lost("spans")
    assert (stats.offered, stats.pending) == (calls, 0)
    assert stats.scored + stats.dropped.get("queue_full", 0) == calls
    expected = EVENTS * stats.scored - lost("events")
    http_receiver.wait_for(
        lambda got: len(evaluations(got)) >= expected, ARRIVAL_S
    )  # the collector passes on as it likes
    assert len(evaluations(http_receiver)) == expected


def test_a_shutdown_before_the_collector_is_back_says_what_is_lost(collector: Server) -> None:
    """Within its time, and exactly."""
    ragtrace.configure(service="frozen", screen=FakeJudge(GOOD))
    with frozen(collector):
        calls = len(traffic(0.5))
        began = perf_counter()
        assert not ragtrace.shutdown(1.0)
        assert perf_counter() - began < ARRIVAL_S / 2  # the collector is frozen for as long as the block lasts
    assert lost("spans") == 3 * calls
    assert lost("events") == EVENTS * calls
    assert ragtrace.stats().pending == 0
