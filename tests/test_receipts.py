"""How far the scores of a call have come on their way out: each part on its own, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from ragtrace.core import semconv
from ragtrace.system.faults import faults
from ragtrace.telemetry.export.export_queue import Backlog, PatientExporter
from ragtrace.telemetry.export.receipts import CARRIER, Receipts

CALL = (1, 2)
OTHER = (3, 4)


def event(call: tuple[int, int], score_id: str) -> Any:
    """A log record as the SDK hands it to an exporter."""
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call,unused-ignore]
    provider = LoggerProvider(resource=Resource({}), shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    context = set_span_in_context(NonRecordingSpan(SpanContext(*call, False, TraceFlags(1))))
    provider.get_logger("test").emit(context=context, timestamp=1, attributes={semconv.EVAL_SCORE_ID: score_id})
    provider.shutdown()
    return exporter.get_finished_logs()[0]


def carrier(call: tuple[int, int]) -> Any:
    """A span that links to the scored one, as the SDK hands it to an exporter."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    link = Link(SpanContext(*call, False, TraceFlags(1)))
    provider.get_tracer("test").start_span("evaluate", links=[link]).end()
    provider.shutdown()
    return exporter.get_finished_spans()[0]


@pytest.fixture
def receipts() -> Receipts:
    faults.clear()
    receipts = Receipts()
    receipts.watch(CALL)
    return receipts


def test_each_part_is_followed_on_its_own(receipts: Receipts) -> None:
    """By score id, and the carrier span by what it links to; an event that never went out is told from one that did."""
    first, second, span = event(CALL, "a"), event(CALL, "b"), carrier(CALL)
    for item in (first, second, span):
        receipts.entered(item, room=True)
    assert receipts.parts(CALL) == {"a": "waiting", "b": "waiting", CARRIER: "waiting"}
    receipts.sending([first])
    receipts.sent(receipts.sending([span]), delivered=True)
    assert receipts.parts(CALL) == {"a": "sending", "b": "waiting", CARRIER: "delivered"}


def test_what_is_refused_or_finds_no_room_was_not_delivered(receipts: Receipts) -> None:
    """Another process may send it."""
    first, second = event(CALL, "a"), event(CALL, "b")
    receipts.entered(first, room=False)
    receipts.entered(second, room=True)
    receipts.sent(receipts.sending([second]), delivered=False)
    assert receipts.parts(CALL) == {"a": "refused", "b": "refused"}


def test_other_calls_are_not_followed(receipts: Receipts) -> None:
    """Nor is a call any more that nobody asks about."""
    receipts.entered(event(OTHER, "a"), room=True)
    receipts.entered(event(CALL, "a"), room=True)
    receipts.forget(CALL)
    assert (receipts.parts(CALL), receipts.parts(OTHER)) == ({}, {})


def test_once_closed_nothing_of_a_watched_call_is_sent(receipts: Receipts) -> None:
    """It has been left to another process by then; everything else still goes."""
    mine, theirs = event(CALL, "a"), event(OTHER, "b")
    receipts.entered(mine, room=True)
    receipts.close()
    assert receipts.sending([mine, theirs]) == [theirs]
    assert receipts.parts(CALL) == {"a": "waiting"}
    assert (receipts.waiting(carriers=False), receipts.waiting(carriers=True)) == (1, 0)


class Taking:
    """An exporter that takes everything."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Any]] = []

    def export(self, batch: Sequence[Any]) -> SpanExportResult:
        self.batches.append(batch)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...


def test_a_closed_exporter_is_not_called_with_nothing(receipts: Receipts) -> None:
    """A batch of which nothing may be sent has failed, and what is kept elsewhere is not counted as lost."""
    exporter, backlog = Taking(), Backlog("events", 10, receipts=receipts)
    patient = PatientExporter(exporter, backlog, lambda: None)
    item = event(CALL, "a")
    assert backlog.enter()
    receipts.entered(item, room=True)
    receipts.close()
    backlog.give_up(receipts.waiting(carriers=False))
    assert patient.export([item]) is SpanExportResult.FAILURE
    assert (exporter.batches, backlog.lost, faults.counts()) == ([], 0, {})
