"""What is known of the spans of one trace: a step is in one place at a time."""

from __future__ import annotations

import random
from typing import Final

import pytest

from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.trace_spans import OpenSpan, TraceSpans
from tests.unit.span_reading.made import llm

STARTED: Final = OpenSpan(is_genai=True, since=0.0)
ONE, TWO, THREE = 10**9 + 1, 10**9 + 2, 10**9 + 3
"""Span ids that no span of the tests has."""


def _read() -> SpanReading:
    reading = read_span(llm((0, 1)))
    assert reading is not None
    return reading


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_in_one_place_at_a_time(seed: int) -> None:
    """Also if two span processors hand over its start and its end, one after the other."""
    chance, trace = random.Random(seed), TraceSpans()
    readings = [_read() for _ in range(6)]
    for now in range(200):
        reading = chance.choice(readings)
        span_id = reading.span_id
        match chance.choice(["begin", "end", "lose", "hand over"]):
            case "begin":
                trace.begin(span_id, 0, STARTED)
            case "end":
                trace.end(span_id, 0)
                if not trace.is_read(span_id):
                    trace.keep(reading, now)
            case "lose":
                trace.end(span_id, 0)
                trace.lose(span_id, now)
            case _:
                if span_id in trace.readings:
                    assert trace.hand_over(span_id) is reading
        places = (trace.unended, trace.lost, trace.readings, trace.handled)
        assert max(sum(each.span_id in place for place in places) for each in readings) <= 1
        assert trace.seen.keys() == trace.readings.keys()


def test_what_is_below_a_handled_step_is_known() -> None:
    """Through spans that are no steps, and not beyond the top."""
    trace, reading = TraceSpans(), _read()
    trace.end(reading.span_id, 0)
    trace.end(ONE, reading.span_id)
    trace.end(TWO, ONE)
    trace.keep(reading, 0.0)
    assert not trace.is_below_handled(TWO)
    trace.hand_over(reading.span_id)
    assert trace.is_below_handled(TWO)
    assert not trace.is_below_handled(reading.span_id)
    assert list(trace.ancestor_ids(TWO)) == [ONE, reading.span_id]


def test_forgetting_keeps_what_waits() -> None:
    """Readings, open spans and lost steps, each with its parent."""
    trace, waiting, gone = TraceSpans(), _read(), _read()
    for reading in (waiting, gone):
        trace.end(reading.span_id, 0)
        trace.keep(reading, 0.0)
    trace.hand_over(gone.span_id)
    trace.begin(ONE, 0, STARTED)
    trace.end(TWO, ONE)
    trace.lose(TWO, 0.0)
    trace.end(THREE, ONE)
    trace.remote |= {TWO, THREE}
    trace.forget_handled()
    assert (trace.parents, trace.handled, trace.remote) == ({waiting.span_id: 0, ONE: 0, TWO: ONE}, {}, {TWO})
    assert (list(trace.readings), list(trace.unended), list(trace.lost)) == ([waiting.span_id], [ONE], [TWO])


def test_a_circle_of_parents_has_an_end() -> None:
    """Hostile ids must not hang the background."""
    trace = TraceSpans(parents={ONE: TWO, TWO: THREE, THREE: TWO})
    assert list(trace.ancestor_ids(ONE)) == [TWO, THREE]
