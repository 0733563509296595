"""Calls that two instrumentations have recorded: which recording is the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from opentelemetry.trace import SpanContext

from ragtrace.span_reading.call_draft import AssembledCall
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.model_calls import ModelCall, ModelCalls
from ragtrace.span_reading.pass_order import build_call, divide
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.recorded_twice import RecordedTwice
from tests.unit.span_reading.made import PASSAGE, QUERY, chain, llm, retriever, span
from tests.unit.span_reading.recorded import groups

OTHER: Final = "opentelemetry.instrumentation.langchain"


def _read(*spans: FinishedSpan) -> list[SpanReading]:
    found = [read_span(each) for each in spans]
    assert None not in found
    return [each for each in found if each is not None]


def _call_of(*spans: FinishedSpan) -> AssembledCall:
    [group] = groups(spans)
    [draft] = divide(group)
    call = build_call(draft)
    assert call is not None
    return call


def _fuller() -> list[FinishedSpan]:
    root = chain((0, 100))
    return [retriever((10, 20), root), llm((30, 90), root), root]


def _lesser() -> list[FinishedSpan]:
    root = chain((1, 99), trace=2, scope=OTHER)
    return [llm((31, 89), root, scope=OTHER), root]


def _recorded_twice(*steps: SpanReading, waiting: Sequence[SpanReading] = ()) -> RecordedTwice:
    """Steps that have come in, of which those of one group are *waiting*."""
    ids = {each.span_id for each in waiting}

    def waiting_around(context: SpanContext) -> Sequence[SpanReading]:
        return waiting if context.span_id in ids else ()

    found = RecordedTwice(waiting_around)
    for step in steps:
        found.note_step(step, 0.0)
    return found


def test_a_recording_waits_for_one_that_shows_more_and_not_the_reverse() -> None:
    """Documents decide first."""
    fuller, lesser = _read(*_fuller()), _read(*_lesser())
    for waiting, own, expected in ((fuller, lesser, True), (lesser, fuller, False)):
        found = _recorded_twice(*fuller, *lesser, waiting=waiting)
        assert found.may_be_recorded_otherwise(own)
        assert found.has_fuller_recording(own, apart_from=own) is expected


def test_of_two_equal_recordings_neither_waits() -> None:
    """Else none would become the call."""
    other = chain((1, 99), trace=2, scope=OTHER)
    spans = [retriever((11, 21), other, scope=OTHER), llm((31, 89), other, scope=OTHER), other]
    one, same = _read(*_fuller()), _read(*spans)
    assert not _recorded_twice(*one, *same, waiting=same).has_fuller_recording(one, apart_from=one)
    assert not _recorded_twice(*one, *same, waiting=one).has_fuller_recording(same, apart_from=same)


def test_a_recording_of_a_call_that_was_returned_is_a_duplicate_whatever_it_shows() -> None:
    """The call is scored already."""
    fuller, lesser, call = _read(*_fuller()), _lesser(), _call_of(*_lesser())
    found = _recorded_twice(*fuller, *_read(*lesser), waiting=fuller)
    assert not found.is_returned(fuller)
    found.note_returned(call, _read(*lesser), 0.0)
    assert found.is_returned(fuller)
    assert not found.may_be_recorded_otherwise(fuller)
    assert not found.has_fuller_recording(fuller, apart_from=fuller)


def test_the_same_question_that_failed_at_the_same_time_is_one_call() -> None:
    """There is no answer to know it by."""

    def failed(scope: str, at: tuple[int, int]) -> AssembledCall:
        root = span("CHAIN", at, trace=len(scope), scope=scope, input__value=QUERY)
        parts = [span("RETRIEVER", (at[0] + 1, at[1] - 1), root, scope=scope, input__value=QUERY), root]
        return _call_of(*(replace(each, error_type="LookupError") for each in parts))

    found, call = _recorded_twice(), failed(OTHER, (0, 30))
    assert not found.is_returned_failure(call, 0.0)
    found.note_returned(call, (), 0.0)
    assert found.is_returned_failure(failed("openinference.instrumentation.langchain", (1, 29)), 0.0)
    assert not found.is_returned_failure(failed("openinference.instrumentation.langchain", (31, 60)), 0.0)


def test_model_calls_are_forgotten_a_minute_after_their_trace_has_ended() -> None:
    """As long as spans of the trace wait, its calls may still be found again."""
    fuller, lesser = _read(*_fuller()), _read(*_lesser())
    found = _recorded_twice(*fuller, *lesser)
    found.forget_old(61.0, live_traces=[1])
    assert found.may_be_recorded_otherwise(fuller)
    found.forget_old(61.0, live_traces=[])
    assert not found.may_be_recorded_otherwise(fuller)


def test_what_is_remembered_of_equal_answers_is_bounded() -> None:
    """Many requests are answered with the same sentence."""
    calls = ModelCalls()
    for number in range(2_000):
        prompt = f"Context:\n{PASSAGE}\n\nQuestion: {QUERY}"
        [reading] = _read(llm((number, number + 1), trace=number + 1, answer="I do not know.", prompt=prompt))
        calls.remember(ModelCall.of(reading, 0.0))
    assert 0 < len(calls) <= 100
