"""What a scored call leaves on its root span and in its events: whole, to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

import ragtrace
from ragtrace.testing import Captured, FakeJudge
from tests.support.watched import HALF

_LEFT_OUT = ("ragtrace.eval.score_id", "ragtrace.eval.detail.")
EVERY = ragtrace.Sampling(rate=1.0)
SCREENED: dict[str, Any] = {
    "ragtrace.eval.status": "ok",
    "ragtrace.eval.probability": 1.0,
    "ragtrace.eval.evaluator": "screen@1",
    "ragtrace.eval.faithfulness.score": 0.5,
    "ragtrace.eval.faithfulness.label": "fail",
    "ragtrace.eval.hallucinated.score": 1.0,
    "ragtrace.eval.hallucinated.label": "fail",
    "ragtrace.eval.consistency.score": 0.25,
    "ragtrace.eval.suspicious.reason": "no_baseline",
    "ragtrace.eval.answered.score": 1.0,
    "ragtrace.eval.answered.label": "answered",
}
"""What a screen that says `HALF` leaves on the root."""


def screen() -> FakeJudge:
    return FakeJudge(HALF, name="screen")


def scores(span: ReadableSpan) -> dict[str, Any]:
    return {key: value for key, value in (span.attributes or {}).items() if key.startswith("ragtrace.eval.")}


def events(captured: Captured) -> list[dict[str, Any]]:
    """Attributes of every event, without the ids of the scores, which differ from call to call, and the details."""
    return [without_id(event.log_record.attributes or {}) for event in captured.events]


def without_id(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if not key.startswith(_LEFT_OUT)}


def details(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What a metric published beside its number."""
    start = "ragtrace.eval.detail."
    return {key.removeprefix(start): value for key, value in attributes.items() if key.startswith(start)}


def event(name: str, evaluator: str, **more: Any) -> dict[str, Any]:
    """A whole evaluation event."""
    return {
        "gen_ai.evaluation.name": name,
        "gen_ai.workflow.name": "guide",
        "ragtrace.context_source": "arguments",
        "ragtrace.evaluator.id": evaluator,
        "ragtrace.evaluator.version": "1",
        "ragtrace.evaluator.type": "llm_judge",
        "ragtrace.eval.probability": 1.0,
        "ragtrace.eval.adjusted_count": 1.0,
        "ragtrace.eval.higher_is_better": name not in ("hallucinated", "suspicious"),
        **more,
    }


def scored_event(name: str, evaluator: str, value: float, label: str | None) -> dict[str, Any]:
    more = {} if label is None else {"gen_ai.evaluation.score.label": label}
    return event(name, evaluator, **{"gen_ai.evaluation.score.value": value}, **more)
