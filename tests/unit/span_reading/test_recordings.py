"""No reader takes a text of a recorded application for an answer or a question that it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragtrace.span_reading.readers import read_span
from tests.support.finished_spans import recorded

_CONVENTIONS = {"otel_genai", "pydantic_ai", "haystack"}
_NAMES = sorted(
    path.name.removesuffix(".spans.jsonl.gz")
    for path in (Path(__file__).parents[2] / "files" / "recorded").glob("*.spans.jsonl.gz")
)


def _answers(calls: list[dict[str, Any]]) -> set[str]:
    """Return what the model server, or the application itself, has answered."""
    exchanged = [exchange.get("content") for call in calls for exchange in call.get("exchanges", ())]
    return {text for text in (*exchanged, *(call["answer"] for call in calls)) if text is not None}


@pytest.mark.parametrize("application", sorted({name.partition("-")[0] for name in _NAMES}))
def test_answers_and_questions_are_those_of_the_application(application: str) -> None:
    """Of whatever instrumentation; what is not on a span stays None."""
    for name in _NAMES:
        if name.startswith(f"{application}-"):
            _assert_texts_are_the_applications(name)


def _assert_texts_are_the_applications(name: str) -> None:
    spans, calls = recorded(name)
    answers, queries = _answers(calls), {call["query"] for call in calls}
    passages = [passage for call in calls for passage in call["contexts"] or ()]
    for span in spans:
        found = read_span(span)
        if found is None or found.convention not in _CONVENTIONS:
            continue
        step = found.step
        assert step.answer is None or step.answer in answers, name
        if step.kind == "trace":
            assert step.query is None or step.query in queries, name
        if step.kind == "tool":
            assert all(any(text in each.text for text in passages) for each in step.documents or ()), name
