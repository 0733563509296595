"""Calls that two instrumentations have recorded: which recording is the call."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ragtrace.span_reading.call_draft import AssembledCall, CallDraft
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.pass_order import build_call, divide
from ragtrace.span_reading.recorded_twice import Detail, RecordedTwice, detail_of
from tests.unit.span_reading.made import QUERY, chain, llm, retriever, span
from tests.unit.span_reading.recorded import groups

OTHER: Final = "opentelemetry.instrumentation.langchain"


def _fuller() -> list[FinishedSpan]:
    root = chain((0, 100))
    return [retriever((10, 20), root), llm((30, 90), root), root]


def _lesser() -> list[FinishedSpan]:
    root = chain((1, 99), trace=2, scope=OTHER)
    return [llm((31, 89), root, scope=OTHER), root]


def _draft(*spans: FinishedSpan) -> CallDraft:
    [group] = groups(spans)
    [draft] = divide(group)
    return draft


def _steps(*drafts: CallDraft) -> list[SpanReading]:
    return [reading for draft in drafts for reading in draft.readings.values()]


def _recorded_twice(*drafts: CallDraft) -> RecordedTwice:
    """Calls whose steps have come in."""
    found = RecordedTwice()
    for step in _steps(*drafts):
        found.note_step(step, 0.0)
    return found


def _others(found: RecordedTwice, draft: CallDraft) -> list[int]:
    """Trace ids of the other recordings of a call."""
    return [span.trace_id for span in found.other_recordings(draft, apart_from=_steps(draft))]


def test_two_recordings_are_found_from_either_and_one_shows_more() -> None:
    """Documents decide first, then workflows, then steps."""
    fuller, lesser = _draft(*_fuller()), _draft(*_lesser())
    found = _recorded_twice(fuller, lesser)
    assert found.may_be_recorded_otherwise(_steps(fuller))
    assert found.may_be_recorded_otherwise(_steps(lesser))
    assert (_others(found, lesser), _others(found, fuller)) == ([1], [2])
    assert (detail_of(fuller), detail_of(lesser)) == (Detail(1, 1, 3), Detail(0, 1, 2))
    assert Detail(1, 0, 1) > Detail(0, 9, 9)
    assert Detail(1, 1, 1) > Detail(1, 0, 9)


def test_a_recording_of_a_call_that_was_returned_is_a_duplicate_whatever_it_shows() -> None:
    """The call is scored already."""
    fuller, lesser = _draft(*_fuller()), _draft(*_lesser())
    call = build_call(lesser)
    assert call is not None
    found = _recorded_twice(fuller, lesser)
    assert not found.is_returned(_steps(fuller))
    found.note_returned(call, _steps(lesser), 0.0)
    assert found.is_returned(_steps(fuller))
    assert not found.may_be_recorded_otherwise(_steps(fuller))
    root = chain((1, 99), trace=3, scope="openinference.instrumentation.llama_index")
    third = _draft(llm((31, 89), root, scope=root.scope), root)
    assert _others(_recorded_twice(fuller, third), third) == [1]
    for step in _steps(third):
        found.note_step(step, 0.0)
    assert _others(found, third) == []


def test_the_same_question_that_failed_at_the_same_time_is_one_call() -> None:
    """There is no answer to know it by."""

    def failed(scope: str, at: tuple[int, int]) -> AssembledCall:
        root = span("CHAIN", at, trace=len(scope), scope=scope, input__value=QUERY)
        parts = [span("RETRIEVER", (at[0] + 1, at[1] - 1), root, scope=scope, input__value=QUERY), root]
        call = build_call(_draft(*(replace(each, error_type="LookupError") for each in parts)))
        assert call is not None
        return call

    found, call = _recorded_twice(), failed(OTHER, (0, 30))
    assert not found.is_returned_failure(call, 0.0)
    found.note_returned(call, (), 0.0)
    assert found.is_returned_failure(failed("openinference.instrumentation.langchain", (1, 29)), 0.0)
    assert not found.is_returned_failure(failed("openinference.instrumentation.langchain", (31, 60)), 0.0)
