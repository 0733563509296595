"""Scores of a decision judge in a process: no rate without labels, a curve that holds for one model, refused bounds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.alerts import Alerting
from ragtrace.core.types import CALIBRATION, JUDGE_MODEL, UNCALIBRATED, Judgement, RagCall, Result, Score
from ragtrace.estimates import CalibrationKey, JudgeCalibration, write_calibration
from ragtrace.estimates.calibration import label_sums
from ragtrace.estimates.curve_fitting import fit_scores
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support.watched import WAIT_S, ask, watch

MODEL = "decider-1"


class Doubt:
    """Metric whose scores are a decision model's raw probabilities: here, what the judge gives as consistency."""

    name, version, higher_is_better, range = "doubt", "1", False, (0.0, 1.0)
    needs = frozenset({"consistency"})

    def __call__(self, call: RagCall, judgement: Judgement) -> Result:
        assert judgement.consistency is not None
        raw = {CALIBRATION: UNCALIBRATED}
        return Score(judgement.consistency, self.name, self.version, higher_is_better=False, attributes=raw)


def calibration(labels: int) -> JudgeCalibration:
    """Curve of scores of which the bad calls' are about 0.9 and the good ones' about 0.4."""
    rng, calls = random.Random(1), list[tuple[float, float, float]]()
    for _ in range(labels):
        bad = rng.random() < 0.3
        calls.append((float(bad), min(1.0, max(0.0, rng.gauss(0.9 if bad else 0.4, 0.1))), 1.0))
    z, s, w = (list(column) for column in zip(*calls, strict=True))
    import numpy as np

    fitted = fit_scores(s, z, w, range(labels), np.array(s)).calibration
    key = CalibrationKey("doubt", "1", "judge", "1", "", MODEL)
    return JudgeCalibration(key, 1.0, labels, False, None, label_sums(calls), fitted)


def judged(*scores: float, served: str = MODEL) -> list[Judgement]:
    return [Judgement(consistency=score, attributes={JUDGE_MODEL: served}) for score in scores]


def run(*judgements: Judgement, labels: int = 0, path: Path | None = None, **settings: Any) -> Captured:
    if labels and path is not None:
        write_calibration(path, calibration(labels))
    judge = FakeJudge(*judgements, name="judge")
    sampling = ragtrace.Sampling(rate=1.0)
    captured = watch(screen=None, judge=judge, metrics=[Doubt()], sampling=sampling, calibration=path, **settings)
    for number in range(len(judgements)):
        ask(f"where? {number}")
    assert ragtrace.flush(WAIT_S)
    return captured


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calibration.json"


def test_without_labels_an_estimate_has_no_value(file: Path) -> None:
    """The reason is `uncalibrated`, and the gauge tells Prometheus that the mean is not a rate."""
    captured = run(*judged(0.2, 0.8, 0.5))
    found = ragtrace.estimate("doubt")
    assert (found.value, found.reason, found.n) == (None, "uncalibrated", 3)
    [point] = captured.metrics()["ragtrace.eval.raw_probability"].data_points
    assert (point.value, point.attributes["gen_ai.evaluation.name"]) == (1, "doubt")


def test_labels_make_a_rate(file: Path) -> None:
    """By the mean raw scores of bad and of good calls; below fifty labels there is none."""
    run(*judged(*([0.9] * 10 + [0.4] * 90)), labels=300, path=file)
    found = ragtrace.estimate("doubt", corrected=True)
    assert found.value == pytest.approx(0.1, abs=0.03)
    assert ragtrace.estimate("doubt").value is None
    run(*judged(0.4), labels=40, path=file.with_name("few.json"))
    assert ragtrace.estimate("doubt", corrected=True).reason == "too_few_labels"


def test_a_curve_calibrates_a_score_until_another_model_answers(file: Path) -> None:
    """The score stays raw and gets a probability and a label; the first reply of another model says STALE."""
    write_calibration(file, calibration(300))
    run(*judged(0.95, 0.3), *judged(0.95, served="decider-2"), labels=300, path=file)
    runtime = current()
    assert runtime is not None
    found = ragtrace.estimate("doubt", corrected=True)
    assert (found.value, found.reason) == (None, "stale_calibration")
    assert "served model decider-2 instead of decider-1" in found.stale
    assert runtime.calibrations.current("doubt") is None


def test_what_a_score_says_of_its_calibration(file: Path) -> None:
    """calibrated with a probability of being bad; stale with the difference, without a probability."""
    captured = run(*judged(0.95, 0.3), *judged(0.95, served="decider-2"), labels=300, path=file)
    name = "gen_ai.evaluation.result"
    records = [each.log_record for each in captured.events if each.log_record.event_name == name]
    events = [dict(record.attributes or {}) for record in records]
    labels = [(each["gen_ai.evaluation.score.value"], each["gen_ai.evaluation.score.label"]) for each in events[:2]]
    assert labels == [(0.95, "fail"), (0.3, "pass")]
    explained = [str(each.get("gen_ai.evaluation.explanation")) for each in events]
    assert explained[0].startswith("calibrated by 300 labels: bad with probability ")
    assert explained[2].startswith("STALE: served model decider-2 instead of decider-1; uncalibrated: not a rate")


def states(name: str) -> list[str]:
    runtime = current()
    assert runtime is not None
    return [row.state for row in runtime.parts.get(Alerting).states() if row.on and row.alert == name]


@pytest.mark.parametrize(("labels", "state"), [(0, "no_calibration"), (300, "no_calibration"), (600, "ok")])
def test_a_fixed_bound_needs_five_hundred_labels(
    file: Path, labels: int, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Below, the alert is refused, and the log says what is missing and what needs no labels."""
    alert = ragtrace.Alert("doubt", above=0.3, name="rate")
    run(*judged(*[0.4] * 30), labels=labels, path=file if labels else None, alerts=[alert])
    assert states("rate") == [state]
    if labels == 300:
        assert "300 of 500 labels: 200 are missing" in caplog.text
    if labels < 500:
        assert "above='baseline'" in caplog.text


def test_a_calibrated_alert_fires_on_a_rate_above_its_bound(file: Path) -> None:
    """Its notice shows the mean calibrated probability."""
    notices: list[ragtrace.Notice] = []
    alert = ragtrace.Alert("doubt", above=0.3, name="rate", notify=notices.append, batch=1)
    run(*judged(*[0.9] * 60), labels=600, path=file, alerts=[alert])
    assert states("rate") == ["spiking"]
    assert "mean calibrated probability by the judge" in notices[0].text
    assert notices[0].bound == 0.3


def test_what_lacks_labels_is_no_failure_of_ragtrace(file: Path) -> None:
    """The doctor names the alert and the calibration that do not work, and what to do; nothing counts as a fault."""
    faults.clear()
    alert = ragtrace.Alert("doubt", above=0.3, name="rate")
    run(*judged(*[0.4] * 20), *judged(0.4, served="decider-2"), labels=300, path=file, alerts=[alert])
    assert ragtrace.stats().faults == {}
    problems = " ".join(ragtrace.doctor().problems)
    assert "the alert 'rate' compares nothing" in problems
    assert "the calibration of doubt is stale (served model decider-2 instead of decider-1)" in problems
    assert "ragtrace calibrate bridge" in problems
    assert "ragtrace itself failed" not in problems
