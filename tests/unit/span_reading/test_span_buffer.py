"""The buffer of traces whose spans wait: its numbers, its bounds, and what it remembers of the traces that are gone."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.span_buffer import SpanBuffer
from tests.unit.span_reading.made import llm

MS = 1_000_000


class Evicted(list[SpanReading]):
    """Readings of the traces that were evicted."""

    def __call__(self, readings: Collection[SpanReading]) -> None:
        self.extend(readings)


def _buffer(evicted: Evicted, *, readings: int = 1_000, size: int = 1 << 30, traces: int = 1_000) -> SpanBuffer:
    return SpanBuffer(most_readings=readings, most_bytes=size, most_traces=traces, on_evicted=evicted)


def _read(at: tuple[int, int] = (0, 1), *, trace: int = 1, answer: str = "Yes.") -> SpanReading:
    reading = read_span(llm(at, trace=trace, answer=answer))
    assert reading is not None
    return reading


def _keep(buffer: SpanBuffer, reading: SpanReading, now: float = 0.0) -> None:
    buffer.keep(buffer.touch(reading.span.context.trace_id, now), reading, now)


@pytest.mark.parametrize("seed", range(10))
def test_each_reading_leaves_once_and_the_numbers_are_those_of_the_live_traces(seed: int) -> None:
    """Whatever comes in, leaves, is evicted for lack of room of each kind, or is cleared at the end."""
    chance, evicted = random.Random(seed), Evicted()
    buffer = _buffer(evicted, readings=20, size=30_000, traces=6)
    kept: list[SpanReading] = []
    left: list[SpanReading] = []
    for number in range(500):
        if chance.random() < 0.8:
            kept.append(_read((number, number + 1), trace=chance.randint(1, 12), answer="x" * chance.randint(1, 5_000)))
            _keep(buffer, kept[-1])
        elif buffer.live_traces():
            _, trace = chance.choice(buffer.live_traces())
            gone = list(trace.readings.values())[: chance.randint(0, 2)]
            buffer.hand_over(trace, gone)
            left += gone
        live = [trace for _, trace in buffer.live_traces()]
        assert len(buffer) == sum(len(trace.readings) for trace in live) <= 20
        assert sum(trace.bytes for trace in live) <= 30_000
        assert len(live) <= 6
        assert all((trace.bytes > 0) == bool(trace.readings) for trace in live)
    waiting = buffer.clear()
    assert len(buffer) == 0
    assert sorted(id(each) for each in [*evicted, *left, *waiting]) == sorted(map(id, kept))
    assert min(map(len, (evicted, left, waiting))) > 0


def test_the_times_of_evicted_steps_are_those_of_all_of_their_trace() -> None:
    """Of a trace that was evicted twice, too."""
    buffer = _buffer(Evicted())
    assert buffer.evicted_times(1) is None
    for at in ((10, 20), (50, 60)):
        _keep(buffer, _read(at))
        buffer.evict(1)
    assert buffer.evicted_times(1) == (10 * MS, 60 * MS)


def test_when_a_lost_step_of_an_evicted_trace_ran_is_not_known() -> None:
    """So no call of the trace is whole for which it is not known that the step was none of its own."""
    buffer = _buffer(Evicted())
    buffer.touch(1, 0.0).lose(7, 0.0)
    buffer.evict(1)
    assert buffer.evicted_times(1) == (0, 2**63)


def test_a_retired_trace_is_remembered_for_a_minute() -> None:
    """A span that comes in by then finds the steps that were handled; the minute begins with its last span."""
    buffer = _buffer(Evicted())
    reading = _read()
    _keep(buffer, reading, 100.0)
    buffer.hand_over(buffer.touch(1, 100.0), [reading])
    buffer.retire(1)
    assert buffer.live_traces() == []
    buffer.forget_old(160.0)
    assert reading.span_id in buffer.touch(1, 160.0).handled
    buffer.retire(1)
    buffer.forget_old(220.1)
    assert not buffer.touch(1, 221.0).handled
