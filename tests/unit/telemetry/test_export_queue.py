"""The stretch before an exporter: bounded, patient, and every loss counted; a forked child has one of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.system.faults import faults
from ragtrace.system.forks import PerProcess
from ragtrace.telemetry.export.telemetry import BoundedProcessor, ExportQueueCounts, RetryingExporter
from ragtrace.testing import FakeClock, FakeJudge
from tests.support.otlp import HttpReceiver
from tests.support.watched import GOOD, WAIT_S, ask, eventually

ROOT: Final = Path(__file__).parents[3]
OK, FAILED = SpanExportResult.SUCCESS, SpanExportResult.FAILURE


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


class Backend:
    """An exporter that gives the results it was told, the last one for ever; a failure first lets time pass."""

    def __init__(self, *results: SpanExportResult, clock: FakeClock | None = None, seconds: float = 0.0) -> None:
        self._results, self._clock, self._seconds = list(results), clock, seconds
        self.batches: list[Sequence[Any]] = []
        self.asked = threading.Event()

    def export(self, batch: Sequence[Any]) -> SpanExportResult:
        self.batches.append(batch)
        self.asked.set()
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if result is FAILED and self._clock is not None:
            self._clock.advance(self._seconds)
        return result

    def shutdown(self) -> None:
        self._results = [FAILED]


def retrying(backend: Backend, queue: ExportQueueCounts, **times: Any) -> RetryingExporter:
    return RetryingExporter(lambda: backend, PerProcess(lambda: queue), **times)


def patient(backend: Backend, clock: FakeClock, *, queued: int = 0) -> RetryingExporter:
    queue = ExportQueueCounts("spans", 10, clock=clock)
    for _ in range(queued):
        queue.add()
    return retrying(backend, queue, pause=0.0, clock=clock)


# --- the queue -----------------------------------------------------------------------------------------------------


def test_a_full_backlog_refuses_and_counts() -> None:
    """The newest, where the SDK would drop the oldest and tell a log only."""
    queue = ExportQueueCounts("spans", 2)
    assert [queue.add() for _ in range(4)] == [True, True, False, False]
    assert faults.counts() == {"lost spans: queue full": 2}


def test_what_the_exporter_takes_makes_room() -> None:
    """As in the batch processor's own queue; it is not forgotten until it is delivered."""
    queue = ExportQueueCounts("spans", 2)
    queue.add()
    queue.add()
    queue.mark_in_flight(2)
    assert (queue.add(), queue.size) == (True, 3)
    queue.record_result(2, delivered=True)
    assert (queue.size, faults.counts()) == (1, {})


def test_who_can_wait_leaves_room_for_what_was_promised() -> None:
    """Spans that are held will come, and so will the events of calls that are being judged."""
    queue = ExportQueueCounts("spans", 10, reserve=5)
    assert (queue.remaining_capacity(4), queue.remaining_capacity(5)) == (1, 0)
    queue.add()
    assert not queue.remaining_capacity(4)


def test_nobody_waits_for_a_backend_that_stays_away() -> None:
    """After a minute scores matter more than spans: the calls go on, the spans are counted."""
    clock = FakeClock()
    queue = ExportQueueCounts("spans", 1, patience=60.0, clock=clock)
    queue.add()
    queue.start_waiting()
    clock.advance(59.0)
    assert not queue.remaining_capacity()
    clock.advance(2.0)
    assert queue.remaining_capacity()
    queue.record_result(0, delivered=True)
    assert not queue.remaining_capacity()


def test_giving_up_counts_everything_that_is_left_once() -> None:
    """Also what the exporter has in hand; what it says of that later is not counted again."""
    queue = ExportQueueCounts("spans", 10)
    for _ in range(5):
        queue.add()
    queue.mark_in_flight(2)
    queue.close()
    queue.record_result(2, delivered=False)
    queue.close()
    assert faults.counts() == {"lost spans: not exported before the end": 5}
    assert not queue.add()
    assert faults.counts()["lost spans: after shutdown"] == 1


# --- the patient exporter --------------------------------------------------------------------------------------------


def test_a_backend_that_did_not_answer_is_asked_again() -> None:
    """With the same batch, until it is there."""
    clock = FakeClock()
    backend = Backend(FAILED, FAILED, OK, clock=clock, seconds=10.0)
    assert patient(backend, clock, queued=3).export(["a", "b", "c"]) is OK
    assert backend.batches == [["a", "b", "c"]] * 3
    assert faults.counts() == {}


def test_a_backend_that_refused_is_not_asked_again() -> None:
    """It answered at once: it would refuse the same again, and keep everything behind it waiting."""
    clock = FakeClock()
    backend = Backend(FAILED)
    assert patient(backend, clock, queued=3).export(["a", "b", "c"]) is FAILED
    assert len(backend.batches) == 1
    assert faults.counts() == {"lost spans: export failed": 3}


def test_patience_ends() -> None:
    """After about a minute without an answer a batch is given up, and the next has one try each until one arrives."""
    clock = FakeClock()
    backend = Backend(FAILED, clock=clock, seconds=10.0)
    exporter = patient(backend, clock, queued=2)
    exporter.export(["a"])
    assert len(backend.batches) == 7
    exporter.export(["b"])
    assert len(backend.batches) == 8
    assert faults.counts() == {"lost spans: export failed": 2}


def test_an_exporter_that_raises_loses_its_batch() -> None:
    """The SDK logs the error, ragtrace counts the spans."""

    class Broken(Backend):
        def export(self, batch: Sequence[Any]) -> SpanExportResult:
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        patient(Broken(OK), FakeClock(), queued=1).export(["a"])
    assert faults.counts() == {"lost spans: export failed": 1}


def test_in_a_hurry_nothing_is_tried_again() -> None:
    """A shutdown has no time for a backend that is away."""
    clock = FakeClock()
    backend = Backend(FAILED, clock=clock, seconds=10.0)
    exporter = patient(backend, clock, queued=1)
    exporter.stop_retrying()
    assert exporter.export(["a"]) is FAILED
    assert len(backend.batches) == 1


# --- in a batch processor --------------------------------------------------------------------------------------------


def test_a_batch_processor_drops_nothing_by_itself() -> None:
    """What it had no place for was refused before, and counted."""

    class Hanging(Backend):
        gate = threading.Event()

        def export(self, batch: Sequence[Any]) -> SpanExportResult:
            self.asked.set()
            self.gate.wait(WAIT_S)
            return super().export(batch)

    backend, queue = Hanging(OK), ExportQueueCounts("spans", 4)
    exporter = retrying(backend, queue)
    inner = BatchSpanProcessor(
        cast("SpanExporter", exporter), max_queue_size=4, max_export_batch_size=2, schedule_delay_millis=3_600_000
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BoundedProcessor(inner, PerProcess(lambda: queue)))
    tracer = provider.get_tracer("test")
    tracer.start_span("0").end()
    tracer.start_span("1").end()
    assert backend.asked.wait(WAIT_S)
    for number in range(2, 9):
        tracer.start_span(str(number)).end()
    backend.gate.set()
    provider.force_flush()
    names = [span.name for batch in backend.batches for span in cast("Sequence[ReadableSpan]", batch)]
    assert names == ["0", "1", "2", "3", "4", "5"]
    assert faults.counts() == {"lost spans: queue full": 3}
    provider.shutdown()


def test_a_span_that_is_not_sampled_takes_no_place() -> None:
    """The batch processor ignores it as well."""
    queue = ExportQueueCounts("spans", 1)
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    exporter = retrying(Backend(OK), queue)
    batches = BatchSpanProcessor(cast("SpanExporter", exporter))
    provider.add_span_processor(BoundedProcessor(batches, PerProcess(lambda: queue)))
    provider.get_tracer("test").start_span("a").end()
    assert queue.size == 0
    provider.shutdown()


def test_a_wrong_queue_size_is_said_at_once(http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to write instead."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.endpoint)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    with pytest.raises(SettingsError, match="OTEL_BSP_MAX_QUEUE_SIZE must be a number of items, got 'many'"):
        ragtrace.configure()


def test_a_backend_that_refuses_is_counted_in_the_accounts(
    http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scored all the same; that their spans never arrived is in `ragtrace.stats().faults`."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.endpoint)
    ragtrace.configure(service="s", screen=FakeJudge(GOOD), metrics=["faithfulness", "answered"])
    http_receiver.answer_with(400, times=3)
    ask("where?")
    assert not ragtrace.flush(WAIT_S)
    stats = ragtrace.stats()
    assert stats.scored == 1
    assert stats.faults == {"lost spans: export failed": 3, "lost events: export failed": 2}


def test_faults_and_losses_are_metrics(http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """By kind, and by signal and reason: what goes wrong is seen where everything else is."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.endpoint)
    ragtrace.configure(service="s", screen=FakeJudge(GOOD))
    http_receiver.answer_with(400, times=3)
    ask("where?")
    assert not ragtrace.flush(WAIT_S)
    lost_signals = {"lost spans: export failed", "lost events: export failed"}
    assert eventually(lambda: lost_signals <= ragtrace.stats().faults.keys())
    ragtrace.flush(WAIT_S)
    http_receiver.wait_for(lambda got: "ragtrace.lost" in got.latest_metrics())
    metrics = http_receiver.latest_metrics()
    lost = {
        (point.attributes[semconv.SIGNAL], point.attributes[semconv.REASON]): point.value
        for point in metrics["ragtrace.lost"].points
    }
    faults = {point.attributes[semconv.FAULT_KIND]: point.value for point in metrics["ragtrace.faults"].points}
    assert faults == ragtrace.stats().faults
    assert lost == {
        ("spans", "export_failed"): faults["lost spans: export failed"],
        ("events", "export_failed"): faults["lost events: export failed"],
    }
    assert (metrics["ragtrace.lost"].monotonic, metrics["ragtrace.lost"].unit) == (True, "{item}")
