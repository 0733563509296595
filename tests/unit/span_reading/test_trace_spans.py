"""What is known of the spans of one trace: a step is in one place at a time."""

from __future__ import annotations

import random
from typing import Final

import pytest

from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.trace_spans import OpenSpan, TraceSpans
from tests.unit.span_reading.made import QUERY, chain, llm

STARTED: Final = OpenSpan(is_genai=True, since=0.0)
ONE, TWO, THREE = 10**9 + 1, 10**9 + 2, 10**9 + 3
"""Span ids that no span of the tests has."""


def _read(span: FinishedSpan | None = None) -> SpanReading:
    reading = read_span(llm((0, 1)) if span is None else span)
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


def test_what_is_below_a_handled_step_is_late() -> None:
    """Through spans that are no steps, and not beyond the top."""
    trace, reading = TraceSpans(), _read()
    trace.end(reading.span_id, 0)
    trace.end(ONE, reading.span_id)
    trace.end(TWO, ONE)
    trace.keep(reading, 0.0)
    assert not trace.is_late(TWO, None)
    trace.hand_over(reading.span_id)
    assert trace.is_late(TWO, None)
    assert not trace.is_late(reading.span_id, reading)
    assert list(trace.ancestor_ids(TWO)) == [ONE, reading.span_id]


@pytest.mark.parametrize(("start", "query", "is_late"), [(101, QUERY, False), (100, QUERY, True), (101, None, True)])
def test_a_request_after_the_end_of_a_handled_workflow_is_not_late(
    start: int, query: str | None, is_late: bool
) -> None:
    """Nor are the steps inside it; a workflow without a question is no request."""
    first = chain((0, 100))
    second = chain((start, 200), first, input__value=query)
    trace, gone, request, inside = TraceSpans(), _read(first), _read(second), _read(llm((150, 160), second))
    for reading in (gone, request, inside):
        trace.end(reading.span_id, 0 if reading.span.parent is None else reading.span.parent.span_id)
    trace.keep(gone, 0.0)
    trace.hand_over(gone.span_id)
    assert trace.is_late(request.span_id, request) is is_late
    trace.keep(request, 0.0)
    assert trace.is_late(inside.span_id, inside) is is_late


def test_what_is_below_an_open_span_that_may_be_a_request_waits_for_it() -> None:
    """If it turns out to be none, the waiting steps are found once."""
    first = chain((0, 100))
    trace, gone, inside, other = TraceSpans(), _read(first), _read(llm((150, 160))), _read(llm((150, 160)))
    trace.end(gone.span_id, 0)
    trace.keep(gone, 0.0)
    trace.hand_over(gone.span_id)
    trace.begin(ONE, gone.span_id, OpenSpan(is_genai=True, since=0.0, start_ns=gone.span.end_ns + 1))
    trace.begin(TWO, gone.span_id, OpenSpan(is_genai=True, since=0.0, start_ns=gone.span.end_ns - 1))
    trace.end(inside.span_id, ONE)
    trace.end(other.span_id, TWO)
    assert not trace.is_late(inside.span_id, inside)
    assert trace.is_late(other.span_id, other)
    trace.keep(inside, 0.0)
    assert (trace.take_below(TWO), trace.take_below(ONE), trace.take_below(ONE)) == ([], [inside], [])


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
