"""The id of a score: a repeat is recognised, anything else is another score."""

from __future__ import annotations

import re
from typing import Any

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

import ragtrace
from ragtrace.core.score_id import score_id
from ragtrace.testing import FakeJudge
from tests.support.scored import EVERY
from tests.support.watched import GOOD, HALF, ask, watch

SPAN = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))
SCORE: dict[str, Any] = {
    "target": SPAN,
    "metric": "faithfulness",
    "evaluator": "judge",
    "metric_version": "1",
    "evaluator_version": "gpt-4o@3",
}


def test_the_same_score_has_the_same_id_in_every_process() -> None:
    """It depends on nothing but what it is the id of; a change of this value would make all repeats look new."""
    assert score_id(**SCORE) == "15543adb30ca3c99d2b1134fcd63ca60"


OTHERS: dict[str, Any] = {
    "target": SpanContext(1, 3, is_remote=False),
    "metric": "hallucination",
    "evaluator": "screen",
    "metric_version": "2",
    "evaluator_version": "gpt-4o@4",
}


@pytest.mark.parametrize("part", OTHERS)
def test_another_score_has_another_id(part: str) -> None:
    """Another span, metric, evaluator, or version of either."""
    assert score_id(**{**SCORE, part: OTHERS[part]}) != score_id(**SCORE)


def test_another_trace_has_another_id() -> None:
    """Span ids alone repeat."""
    assert score_id(**{**SCORE, "target": SpanContext(9, 2, is_remote=False)}) != score_id(**SCORE)


def test_names_do_not_run_together() -> None:
    """A metric `ab` of evaluator `c` is not a metric `a` of evaluator `bc`."""
    assert score_id(SPAN, "ab", "c") != score_id(SPAN, "a", "bc")


def test_it_does_not_depend_on_whether_the_span_was_sampled_or_came_from_elsewhere() -> None:
    """Trace flags and remoteness say nothing about which call it was."""
    elsewhere = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(0))
    assert score_id(**{**SCORE, "target": elsewhere}) == score_id(**SCORE)


def test_every_event_has_an_id_of_its_own() -> None:
    """Of screen and judge alike; each is that of its metric, evaluator and versions."""
    captured = watch(screen=FakeJudge(HALF, name="screen"), judge=FakeJudge(GOOD, name="judge"), sampling=EVERY)
    ask("where?")
    assert ragtrace.flush()
    span = captured.root().get_span_context()
    assert span is not None
    events = [dict(event.log_record.attributes or {}) for event in captured.events]
    ids = [event["ragtrace.eval.score_id"] for event in events]
    assert len(set(ids)) == len(ids) == 9
    assert all(re.fullmatch("[0-9a-f]{32}", str(one)) for one in ids)
    assert ids == [
        score_id(
            span,
            str(event["gen_ai.evaluation.name"]),
            str(event["ragtrace.evaluator.id"]),
            metric_version="1",
            evaluator_version="1",
        )
        for event in events
    ]
