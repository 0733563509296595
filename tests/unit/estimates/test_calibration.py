"""Calibrations of a judge: recommended thresholds, corrected rates on other traffic, bounds for alerts, validity."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import (
    CalibrationKey,
    Estimate,
    JudgeCalibration,
    estimate_mean,
    find_calibration,
    judged_moments,
    recommend_threshold,
)
from ragtrace.estimates.arrays import Arrays
from ragtrace.estimates.calibration import LABEL_SUMS, label_sums, rogan_gladen, transported_bounds
from ragtrace.estimates.formulas import IntervalBounds, wilson_interval
from ragtrace.estimates.moments import Moments

KEY = CalibrationKey("hallucinated", "1", "judge", "2", "ab", "model-a")


def calibration(caught: int, bad: int, passed: int, good: int, *, weight: float = 1.0) -> JudgeCalibration:
    """A calibration by counts: the judge found *caught* of *bad* calls bad, and *passed* of *good* ones good."""
    kinds = ((1.0, 1.0, caught), (1.0, 0.0, bad - caught), (0.0, 0.0, passed), (0.0, 1.0, good - passed))
    calls = [(z, y, weight) for z, y, number in kinds for _ in range(number)]
    return JudgeCalibration(KEY, 0.0, bad + good, False, 0.5, label_sums(calls))


def judged(marked: int, calls: int) -> Estimate:
    moments = Moments()
    for number in range(calls):
        moments += judged_moments(float(number < marked), 1.0, seen=1.0)
    return estimate_mean(moments)


@pytest.mark.parametrize("weight", [1.0, 7.5])
def test_a_rate_is_corrected_as_by_rogan_gladen(weight: float) -> None:
    """Weights that are all alike change nothing."""
    found = calibration(45, 50, 140, 150, weight=weight).correct(judged(200, 1000))
    known = rogan_gladen(
        marked_calls=200, judged_calls=1000, marked_bad=45, labelled_bad=50, passed_good=140, labelled_good=150
    )
    assert found.value == pytest.approx(known.value)
    assert (found.low, found.high) == (pytest.approx(known.low, abs=2e-3), pytest.approx(known.high, abs=2e-3))
    assert (found.corrected, found.stale, found.n) == ("rogan_gladen", "", 1000)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ((0, 0, 90, 100), "one_kind_labelled"),
        ((9, 10, 0, 0), "one_kind_labelled"),
        ((5, 10, 50, 100), "judge_uninformative"),
    ],
)
def test_a_judge_that_tells_nothing_corrects_nothing(counts: tuple[int, int, int, int], reason: str) -> None:
    """There is a reason instead of a value."""
    found = calibration(*counts).correct(judged(10, 100))
    assert (found.value, found.reason, found.n) == (None, reason, 100)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3])
def test_the_corrected_interval_covers_the_rate_of_other_traffic(rate: float) -> None:
    """In 93 % of 2,000 pairs of labelled calls and of traffic with another rate; half of the good ones are drawn."""
    chance, size = np.random.default_rng(round(rate * 1000)), 2_000
    sensitivity, specificity = 0.8, 0.9
    shares = (0.2 * sensitivity, 0.2 * (1 - sensitivity), 0.8 * (1 - specificity), 0.8 * specificity)
    drawn: Any = chance.multinomial(300, shares, size=size).T
    caught, alarms = drawn[0], drawn[2]
    missed: Any = chance.binomial(drawn[1], 0.5)
    passed: Any = chance.binomial(drawn[3], 0.5)
    sums = {name: np.zeros(size) for name in LABEL_SUMS}
    kinds = ((caught, 1.0, 1.0, 1.0), (missed, 1.0, 0.0, 2.0), (alarms, 0.0, 1.0, 1.0), (passed, 0.0, 0.0, 2.0))
    for number, z, y, w in kinds:
        for name, value in label_sums([(z, y, w)]).items():
            sums[name] += number * value
    marked = chance.binomial(600, rate * sensitivity + (1 - rate) * (1 - specificity), size=size) / 600
    low, high = wilson_interval(marked, np.full(size, 600.0), Arrays())
    judge = IntervalBounds(marked, low, high, marked)
    found = transported_bounds(judge, sums, Arrays())
    assert np.mean((found.low <= rate) & (rate <= found.high)) >= 0.93


def test_the_bound_on_the_judges_rate_is_on_the_careful_side() -> None:
    """With ever more labels it comes down to specificity and sensitivity themselves."""
    few, many = calibration(40, 50, 135, 150), calibration(40_000, 50_000, 135_000, 150_000)
    plain = 0.1 + 0.05 * (0.8 - 0.1)
    assert few.judge_bound(0.05, above=True) > many.judge_bound(0.05, above=True) > plain
    assert many.judge_bound(0.05, above=True) == pytest.approx(plain, abs=0.002)
    assert few.judge_bound(0.05, above=False) < plain


@pytest.mark.parametrize("field", CalibrationKey._fields)
def test_a_calibration_of_something_else_is_stale(field: str) -> None:
    """Any part of its key; a calibration of another metric is none."""
    mine = calibration(9, 10, 90, 100)
    other = KEY._replace(**{field: "other"})
    found = find_calibration([mine], other)
    if field == "metric":
        assert found is None
        return
    assert found is not None
    assert "other instead of" in found[1]
    assert find_calibration([mine], KEY) == (mine, "")
    stale = mine.correct(judged(10, 100), found[1])
    assert "stale calibration" in str(stale)


def test_what_is_not_known_is_not_compared() -> None:
    """A prompt hash or a served model that one side lacks."""
    mine = calibration(9, 10, 90, 100)
    assert find_calibration([mine], KEY._replace(prompt_hash="", served_model="")) == (mine, "")


def test_the_newest_calibration_that_holds_is_used() -> None:
    """Rather than a newer one of another judge."""
    older = calibration(9, 10, 90, 100)
    newer = dataclasses.replace(older, made_at=2.0)
    stale = dataclasses.replace(older, made_at=3.0, key=KEY._replace(evaluator_version="3"))
    assert find_calibration([older, newer, stale], KEY) == (newer, "")


def graded(number: int, seed: int, *, gap: float) -> tuple[list[bool], list[float], list[float], list[int]]:
    """Labels, graded badness with *gap* between the kinds, weights, and questions asked twice each."""
    chance = random.Random(seed)
    labels = [chance.random() < 0.3 for _ in range(number)]
    scores = [min(1.0, max(0.0, chance.gauss(0.3 + gap * label, 0.1))) for label in labels]
    return labels, scores, [chance.uniform(1, 5) for _ in labels], [place // 2 for place in range(number)]


def test_a_recommended_threshold_parts_the_kinds() -> None:
    """Between the two means; its cross-fitted error is that of a good judge."""
    found = recommend_threshold(*graded(400, 1, gap=0.5))
    assert found is not None
    assert 0.45 < found.value < 0.65
    assert found.error.sensitivity is not None
    assert found.error.specificity is not None
    assert min(found.error.sensitivity.value, found.error.specificity.value) > 0.95


def test_a_threshold_of_noise_has_the_error_of_noise() -> None:
    """A threshold that is judged by the calls that chose it looks better than chance; cross-fitted, it does not."""
    balanced: list[float] = []
    for seed in range(60):
        labels, scores, weights, questions = graded(60, seed, gap=0.0)
        found = recommend_threshold(labels, scores, weights, questions)
        assert found is not None
        assert found.error.sensitivity is not None
        assert found.error.specificity is not None
        balanced.append((found.error.sensitivity.value + found.error.specificity.value) / 2)
    assert np.mean(balanced) == pytest.approx(0.5, abs=0.03)


def test_questions_that_repeat_do_not_decide_about_themselves() -> None:
    """Each question has its own score and is asked ten times: its copies are never in another part."""
    labels = [number % 2 == 0 for number in range(8) for _ in range(10)]
    scores = [number / 8 for number in range(8) for _ in range(10)]
    questions = [number for number in range(8) for _ in range(10)]
    grouped = recommend_threshold(labels, scores, [1.0] * 80, questions)
    alone = recommend_threshold(labels, scores, [1.0] * 80, list(range(80)))
    assert grouped is not None
    assert alone is not None
    assert grouped.error.agree.value < alone.error.agree.value


def test_a_wanted_false_alarm_rate_bounds_the_threshold() -> None:
    """At most that share of the good calls is beyond it."""
    labels, scores, weights, questions = graded(400, 2, gap=0.15)
    found = recommend_threshold(labels, scores, weights, questions, most_false_alarms=0.05)
    assert found is not None
    good = [(score, weight) for label, score, weight in zip(labels, scores, weights, strict=True) if not label]
    beyond = sum(weight for score, weight in good if score >= found.value) / sum(weight for _, weight in good)
    assert 0.02 < beyond <= 0.05


def test_too_few_labels_recommend_no_threshold() -> None:
    """One bad question is not enough."""
    assert recommend_threshold([True, False, False], [0.9, 0.1, 0.2], [1.0] * 3, [1, 2, 3]) is None


# --- the estimator of Rogan and Gladen by counts ---------------------------------------------------------------------


def test_rogan_gladen_takes_the_judges_errors_off() -> None:
    """(0.2 + 0.9 - 1) / (0.8 + 0.9 - 1) = 0.143."""
    found = rogan_gladen(
        marked_calls=200, judged_calls=1000, marked_bad=80, labelled_bad=100, passed_good=90, labelled_good=100
    )
    assert found.value == pytest.approx(0.1 / 0.7)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.1 / 0.7 < found.high


def test_rogan_gladen_of_a_perfect_judge_is_its_rate() -> None:
    """With an interval that knows that the labels are few."""
    few = rogan_gladen(
        marked_calls=50, judged_calls=1000, marked_bad=20, labelled_bad=20, passed_good=20, labelled_good=20
    )
    many = rogan_gladen(
        marked_calls=50, judged_calls=1000, marked_bad=2000, labelled_bad=2000, passed_good=2000, labelled_good=2000
    )
    assert few.value == many.value == pytest.approx(0.05)
    assert few.high is not None
    assert many.high is not None
    assert few.high > many.high


def test_rogan_gladen_refuses_a_judge_that_guesses() -> None:
    """Sensitivity and specificity of 1.1 or less in sum."""
    found = rogan_gladen(
        marked_calls=50, judged_calls=100, marked_bad=60, labelled_bad=100, passed_good=50, labelled_good=100
    )
    assert (found.value, found.reason) == (None, "judge_uninformative")


def test_rogan_gladen_covers() -> None:
    """In at least 93 % of 1,000 samples, give or take chance: rate 10 %, sensitivity 0.8, specificity 0.9."""
    chance = random.Random(3)

    def binomial(number: int, p: float) -> int:
        return sum(chance.random() < p for _ in range(number))

    covered = 0
    for _ in range(1000):
        found = rogan_gladen(
            marked_calls=binomial(400, 0.1 * 0.8 + 0.9 * 0.1), judged_calls=400,
            marked_bad=binomial(60, 0.8), labelled_bad=60, passed_good=binomial(60, 0.9), labelled_good=60,
        )  # fmt: skip
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.1 <= found.high
    assert covered >= 920


@pytest.mark.parametrize(
    "wrong",
    [{"marked_calls": 11}, {"labelled_bad": 0, "marked_bad": 0}, {"labelled_good": math.inf}, {"passed_good": -1}],
)
def test_impossible_counts_are_an_error(wrong: dict[str, float]) -> None:
    """A part that is larger than its total, nothing, or negative."""
    counts = {
        "marked_calls": 1,
        "judged_calls": 10,
        "marked_bad": 8,
        "labelled_bad": 10,
        "passed_good": 9,
        "labelled_good": 10,
    } | wrong
    with pytest.raises(SettingsError, match="a count must be"):
        rogan_gladen(**counts)
