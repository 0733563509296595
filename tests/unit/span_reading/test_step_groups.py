"""Groups of the steps of a trace: what lies below the same span, and the answers of streams that lie elsewhere."""

from __future__ import annotations

from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.step_groups import StepGroup, group_steps, missing_parent
from ragtrace.span_reading.trace_spans import TraceSpans
from tests.unit.span_reading.made import ANSWER, QUERY, chain, llm, retriever, span

GONE = 10**9
"""Id of a span that never comes in."""


def _trace(*spans: FinishedSpan) -> TraceSpans:
    trace = TraceSpans()
    for each in spans:
        trace.end(each.context.span_id, 0 if each.parent is None else each.parent.span_id)
        reading = read_span(each)
        if reading is not None:
            trace.keep(reading, 0.0)
    return trace


def _ids(group: StepGroup) -> list[int]:
    return [each.span_id for each in group.readings]


def _unanswered(at: tuple[int, int]) -> tuple[FinishedSpan, FinishedSpan]:
    """A workflow without an answer, and its retrieval."""
    root = span("CHAIN", at, input__value=QUERY)
    return root, retriever((at[0] + 1, at[0] + 2), root)


def test_steps_below_one_span_are_a_group_in_order_of_time() -> None:
    """With what is inside of them; the span itself may be no step."""
    server = span("", (0, 300), scope="opentelemetry.instrumentation.asgi")
    root = chain((20, 100), server)
    inside, beside = llm((30, 90), root), retriever((5, 10), server)
    [group] = group_steps(_trace(inside, root, beside, server))
    assert _ids(group) == [each.context.span_id for each in (beside, root, inside)]
    assert [top.span_id for top in group.tops] == [beside.context.span_id, root.context.span_id]
    assert group.outer_ids == {inside.context.span_id: root.context.span_id}


def test_a_streamed_answer_goes_to_the_last_workflow_before_it_that_has_none() -> None:
    """Each of several to its own."""
    first, second, answered = _unanswered((0, 20)), _unanswered((100, 120)), chain((200, 220))
    one, other = llm((30, 50), answer="One.", parent_id=GONE), llm((130, 150), answer="Other.", parent_id=GONE + 1)
    groups = group_steps(_trace(*first, *second, answered, other, one))
    assert len(groups) == 1  # all workflows are roots
    [group] = groups
    assert group.outer_ids[one.context.span_id] == first[0].context.span_id
    assert group.outer_ids[other.context.span_id] == second[0].context.span_id
    assert [top.span_id for top in group.tops] == [each.context.span_id for each in (first[0], second[0], answered)]


def test_a_streamed_answer_without_such_a_workflow_stays_a_group() -> None:
    """Also if all workflows begin after it, or have an answer."""
    late, answered = _unanswered((60, 80)), chain((0, 20))
    orphan = llm((30, 50), parent_id=GONE)
    assert sorted(map(len, map(_ids, group_steps(_trace(*late, answered, orphan))))) == [1, 3]


def test_a_model_call_that_another_group_shows_is_not_taken_for_the_answer_of_a_stream() -> None:
    """It is another instrumentation's recording of that call; an equal answer at another time is none."""
    root, found = _unanswered((0, 20))
    known = llm((30, 50), parent_id=GONE)
    for at, adopted in (((31, 49), False), ((60, 70), True)):
        orphan = llm(at, parent_id=GONE + 1, scope="openinference.instrumentation.openai")
        server = span("", (25, 55), scope="opentelemetry.instrumentation.asgi")
        beside = llm((30, 50), server, ANSWER)
        groups = group_steps(_trace(root, found, beside, server, orphan))
        assert (len(groups) == 2) is adopted
    assert [len(_ids(group)) for group in group_steps(_trace(root, found, known))] == [3]


def test_the_closest_missing_ancestor_is_found() -> None:
    """It is of another process if the span below it says so."""
    root = chain((0, 100), parent_id=GONE)
    trace = _trace(root, llm((30, 90), root))
    [group] = group_steps(trace)
    assert missing_parent(trace, group) == "local"
    trace.remote.add(root.context.span_id)
    assert missing_parent(trace, group) == "remote"
    trace.end(GONE, 0)
    assert missing_parent(trace, group) is None
