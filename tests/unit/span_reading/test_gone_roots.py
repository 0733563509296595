"""Spans that come in after the steps below them have left the buffer."""

from __future__ import annotations

import pytest

from ragtrace.core.step import Step
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.gone_roots import GoneRoots
from ragtrace.span_reading.readers import read_span
from tests.unit.span_reading.made import chain, llm, retriever


def read(span: object) -> SpanReading:
    reading = read_span(span)  # type: ignore[arg-type]
    assert reading is not None
    assert isinstance(reading.step, Step)
    return reading


@pytest.mark.parametrize("why", ["late", "incomplete"])
def test_a_root_whose_steps_are_gone_is_no_call(why: str) -> None:
    """The reason is what has become of the steps."""
    roots, root = GoneRoots(), chain((0, 100))
    roots.note([root.context.span_id], [read(retriever((10, 20), root)), read(llm((30, 90), root))], why)  # type: ignore[arg-type]
    assert roots.why_too_late(read(root)) == why
    assert roots.why_too_late(read(chain((0, 100)))) is None


def test_a_retrieval_above_steps_that_are_gone_is_no_root() -> None:
    """It belongs to another call, or to none."""
    roots, above = GoneRoots(), retriever((0, 100))
    roots.note([above.context.span_id], [read(llm((30, 90), above))], "late")
    assert roots.why_too_late(read(above)) is None


@pytest.mark.parametrize(("end", "why"), [(100, None), (300, "late")])
def test_a_workflow_that_ended_before_those_below_it_is_a_call(end: int, why: str | None) -> None:
    """Where a context was left attached, the next requests of a task look like steps of the first."""
    roots, first = GoneRoots(), chain((0, end))
    below = [read(chain((150, 250), first)), read(chain((260, 280), first))]
    roots.note([first.context.span_id], below, "late")
    assert roots.why_too_late(read(first)) == why


def test_a_step_among_the_workflows_below_is_one_of_the_root() -> None:
    """Without it, the root would be scored as a call without contexts."""
    roots, first = GoneRoots(), chain((0, 100))
    below = [read(retriever((10, 20), first)), read(chain((150, 250), first))]
    roots.note([first.context.span_id], below, "late")
    assert roots.why_too_late(read(first)) == "late"


def test_the_oldest_are_forgotten() -> None:
    """So a gateway that never stops takes bounded memory."""
    roots, root = GoneRoots(), chain((0, 100))
    steps = [read(llm((30, 90), root))]
    roots.note([root.context.span_id], steps, "late")
    roots.note(range(1_000_000, 1_000_000 + 20_000), steps, "late")
    assert roots.why_too_late(read(root)) is None


@pytest.mark.parametrize("first", [True, False])
def test_a_span_above_requests_and_steps_of_its_own_is_late_in_either_order(first: bool) -> None:
    """What was noted first is not forgotten for what is noted later."""
    roots, root = GoneRoots(), chain((0, 100))
    noted = [[read(retriever((10, 20), root)), read(llm((30, 90), root))], [read(chain((150, 250), root))]]
    for steps in noted if first else reversed(noted):
        roots.note([root.context.span_id], steps, "late")
    assert roots.why_too_late(read(root)) == "late"
