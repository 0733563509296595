"""What a group of steps waits for: each wait with its limit, and which of them count when less is waited for."""

from __future__ import annotations

from typing import Final

import pytest

from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.group_waits import Extent, Wait, WaitLimits
from ragtrace.span_reading.intervals import Intervals, time_span
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.step_groups import StepGroup, group_steps, missing_parent
from ragtrace.span_reading.trace_spans import OpenSpan, TraceSpans
from tests.unit.span_reading.made import chain, llm, retriever, span_context

LIMITS: Final = WaitLimits(settle_seconds=2.0, parent_seconds=5.0, open_seconds=600.0)
ROOT: Final = chain((0, 100))
FOUND: Final = retriever((10, 20), ROOT)
EXTENTS: Final[tuple[Extent, ...]] = ("settled", "what_has_ended", "all")


def traced(*spans: FinishedSpan, started: OpenSpan | None = None, parent_id: int = 0) -> tuple[TraceSpans, StepGroup]:
    """A trace whose steps came in at 0, and the group of its steps; *started* is a span that is open in it.

    The open span is the root if the root has not ended, and else a span below *parent_id*.
    """
    trace = TraceSpans()
    for each in spans:
        reading = read_span(each)
        assert reading is not None
        trace.parents[each.context.span_id] = 0 if each.parent is None else each.parent.span_id
        trace.readings[reading.span_id], trace.seen[reading.span_id] = reading, 0.0
    if started is not None:
        open_id = span_context(1, 10**9).span_id if ROOT in spans else ROOT.context.span_id
        trace.parents[open_id], trace.unended[open_id] = parent_id, started
    [group] = group_steps(trace)
    return trace, group


def waits(trace: TraceSpans, group: StepGroup, now: float, *, needs_parents: bool = False) -> list[Wait | None]:
    """What the group waits for at a time, by each extent."""
    lacking = Intervals([time_span(group.readings)] if needs_parents and missing_parent(trace, group) else [])
    return [LIMITS.wait_of(trace, group, lacking, now, extent) for extent in EXTENTS]


@pytest.mark.parametrize("now", [1.0, 100.0])
def test_steps_below_an_open_span_of_generative_ai_wait_whatever_the_extent(now: float) -> None:
    """Until `forget_overdue` forgets that span, ten minutes after its start."""
    trace, group = traced(FOUND, llm((30, 90), ROOT), started=OpenSpan(is_genai=True, since=0.0))
    LIMITS.forget_overdue(trace, 600.0)
    assert waits(trace, group, now) == ["open_above"] * 3
    LIMITS.forget_overdue(trace, 600.1)
    assert not trace.unended


def test_steps_above_an_open_span_wait_for_half_a_minute() -> None:
    """Not when the process ends; a call that then waits for nothing else is made without the open part."""
    trace, group = traced(ROOT, FOUND, started=OpenSpan(is_genai=True, since=0.0), parent_id=ROOT.context.span_id)
    assert waits(trace, group, 29.9) == ["open_below", "open_below", None]
    assert waits(trace, group, 30.0) == [None] * 3


def test_contexts_below_an_open_span_of_another_kind_wait_for_their_generation() -> None:
    """A flush does not divide a request that goes on; a group with both halves does not wait for more than a moment."""
    started = OpenSpan(is_genai=False, since=0.0)
    assert waits(*traced(FOUND, started=started), 4.9) == ["other_half", "other_half", None]
    assert waits(*traced(FOUND, started=started), 5.0) == [None] * 3
    assert waits(*traced(FOUND, llm((30, 90), ROOT), started=started), 1.9) == ["more_steps", None, None]


def test_lost_steps_alone_wait_for_the_end_of_the_span_above_them() -> None:
    """Of whatever kind it is: what comes in by then has lost a step. Not when the process ends."""
    trace = TraceSpans()
    trace.begin(1, 0, OpenSpan(is_genai=False, since=0.0))
    trace.end(2, 1)
    trace.lose(2, 0.0)
    [group] = group_steps(trace)
    assert waits(trace, group, 599.0) == ["open_above", "open_above", None]
    trace.end(1, 0)
    assert waits(trace, group, 599.0) == [None] * 3


def test_complete_steps_wait_for_a_moment() -> None:
    """For what has ended, and comes in late; not where the caller asks for what there is."""
    assert waits(*traced(ROOT, FOUND), 1.9) == ["more_steps", None, None]
    assert waits(*traced(ROOT, FOUND), 2.0) == [None] * 3


def test_steps_without_their_parent_wait_for_it_where_parents_are_needed() -> None:
    """Longer than for more steps. Elsewhere nobody knows of the parent, and nothing waits for it."""
    assert waits(*traced(FOUND), 1.9, needs_parents=True) == ["more_steps", None, None]
    assert waits(*traced(FOUND), 4.9, needs_parents=True) == ["missing_parent", None, None]
    assert waits(*traced(FOUND), 5.0, needs_parents=True) == [None] * 3
    assert waits(*traced(FOUND), 2.0) == [None] * 3
