"""The same model call in the spans of two instrumentations: when it is the same, and how long it is known."""

from __future__ import annotations

from typing import Any, Final

import pytest

from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.model_calls import ModelCall, ModelCalls
from ragtrace.span_reading.readers import read_span
from tests.unit.span_reading.made import ANSWER, llm

OTHER: Final = "openinference.instrumentation.openai"


def _model_call(span: FinishedSpan, at: float = 0.0) -> ModelCall:
    reading = read_span(span)
    assert reading is not None
    return ModelCall.of(reading, at)


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        ({}, True),
        ({"scope": "openinference.instrumentation.langchain"}, False),
        ({"at": (90, 120)}, False),
        ({"answer": "Another."}, False),
        ({"prompt": "Who built it?"}, False),
        ({"prompt": "How tall  is\nthe Eiffel Tower?"}, True),
        ({"prompt": ""}, True),
    ],
    ids=["same", "same instrumentation", "later", "other answer", "other question", "other white space", "no question"],
)
def test_a_model_call_is_known_by_answer_and_question_at_the_same_time(changed: dict[str, Any], is_same: bool) -> None:
    """By another instrumentation; a question counts only where both show one."""
    one, other = llm((30, 90)), llm(**{"at": (31, 89), "scope": OTHER, **changed})
    assert _model_call(one).is_same_call(_model_call(other)) is is_same
    assert _model_call(other).is_same_call(_model_call(one)) is is_same


def test_the_records_of_a_step_and_of_its_other_recordings_are_found() -> None:
    """By the span, and by what it shows."""
    calls, one, other, third = (
        ModelCalls(),
        llm((30, 90)),
        llm((31, 89), scope=OTHER),
        llm((31, 89), answer="No.", scope=OTHER),
    )
    for each in (one, other, third):
        calls.remember(_model_call(each))
    reading = read_span(one)
    assert reading is not None
    [own] = calls.of([reading])
    assert own.span == one.context
    assert [each.span for each in calls.same_as(own)] == [other.context]


def test_model_calls_are_forgotten_a_minute_after_they_came_unless_their_trace_waits() -> None:
    """One trace that goes on for long keeps its own, and none that came after it."""
    calls = ModelCalls()
    for trace in range(1, 6):
        calls.remember(_model_call(llm((30, 90), trace=trace, answer=f"Answer {trace}."), at=float(trace)))
    calls.forget_old(60.9, {1})
    assert len(calls) == 5
    calls.forget_old(63.5, {1})
    assert len(calls) == 3
    calls.forget_old(90.0, {1})
    assert len(calls) == 1
    calls.forget_old(90.0, {})
    assert len(calls) == 0


def test_what_is_remembered_of_equal_answers_is_bounded() -> None:
    """Many requests are answered with the same sentence; the last ones are kept."""
    calls = ModelCalls()
    for number in range(200):
        calls.remember(_model_call(llm((number, number + 1), answer=ANSWER)))
    assert len(calls) == 65
    last = _model_call(llm((199, 200), answer=ANSWER, scope=OTHER))
    assert len(list(calls.same_as(last))) == 1
