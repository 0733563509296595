"""The models that answer a judge: noted, and reported when another one answers than before."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.types import Evaluation
from ragtrace.labels.served_models import ServedModels
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, WAIT_S, ask, watch

JUDGED = Evaluation("judge", "1", "llm_judge", {}, served_model="big-1 fp_1")


def test_a_new_model_is_an_event_and_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    """With the model before it, in a configured process."""
    answers = [replace(GOOD, attributes={"judge_model": model, "judge_fingerprint": "fp"}) for model in ("old", "new")]
    captured = watch(
        judge=FakeJudge(*answers, answers[0]), metrics=["faithfulness"], sampling=ragtrace.Sampling(rate=1)
    )
    with caplog.at_level(logging.WARNING, "ragtrace"):
        for number in range(3):
            ask(f"where? {number}")
            assert ragtrace.flush(WAIT_S)
    [event] = [each.log_record for each in captured.events if each.log_record.event_name == semconv.EVENT_MODEL_CHANGE]
    attributes = event.attributes or {}
    assert (attributes[semconv.RESPONSE_MODEL], attributes[semconv.PREVIOUS_MODEL]) == ("new fp", "old fp")
    assert "is new fp now, and was old fp before" in caplog.text
    [point] = captured.metrics()[semconv.METRIC_MODEL_CHANGES].data_points
    assert point.value == 1
    [judge] = [each for each in ragtrace.doctor(probe=False).evaluators if each.role == "judge"]
    assert judge.served == ("old fp", "new fp")
    assert "answered by old fp, then new fp" in str(ragtrace.doctor(probe=False))


def test_only_new_models_of_the_same_judge_are_changes() -> None:
    """Not the first one, not one that is known, not one from the cache, not none."""
    served = ServedModels(None)
    for evaluation in (
        JUDGED,
        replace(JUDGED, evaluator="other", served_model="tiny"),
        JUDGED,
        replace(JUDGED, version="2", served_model="big-2"),
        replace(JUDGED, served_model=""),
        replace(JUDGED, served_model="big-0", cached=True),
    ):
        served.note(evaluation)
    assert served.changes() == {}
    served.note(replace(JUDGED, served_model="big-1 fp_2"))
    served.note(JUDGED)
    assert served.changes() == {"judge": 1}
    assert served.of("judge@1") == ("big-1 fp_1", "big-1 fp_2")


def test_the_number_of_known_models_is_bounded() -> None:
    """A server that names every answer's model differently is counted, and not remembered."""
    served = ServedModels(None)
    for number in range(200):
        served.note(replace(JUDGED, served_model=f"model {number}"))
    assert len(served.of("judge@1")) == 50
    assert served.changes() == {"judge": 199}
