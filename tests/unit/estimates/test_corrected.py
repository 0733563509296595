"""Corrected rates: what they must equal where the answer is known, and what is refused."""

from __future__ import annotations

import math
import random
from functools import reduce
from operator import add

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import Moments, estimate_mean, judged_moments
from ragtrace.estimates.corrected import LabelledCall, corrected_rate, rogan_gladen

BAD, GOOD = 1.0, 0.0


def judged(marked: int, calls: int) -> Moments:
    """Moments of *calls* calls, all judged, *marked* of them marked as bad."""
    scores = [BAD] * marked + [GOOD] * (calls - marked)
    return reduce(add, (judged_moments(score, 1.0, seen=1.0) for score in scores))


def labelled(agree_bad: int, missed: int, invented: int, agree_good: int, p: float) -> list[LabelledCall]:
    """Labelled calls by what label and judge say."""
    kinds = ((BAD, BAD, agree_bad), (BAD, GOOD, missed), (GOOD, BAD, invented), (GOOD, GOOD, agree_good))
    return [LabelledCall(label, score, 1.0, p) for label, score, number in kinds for _ in range(number)]


def test_labels_without_a_judge_are_a_plain_estimate() -> None:
    """The same as the estimate of a judge who is right, from that sample."""
    calls = labelled(10, 0, 0, 40, 0.05)
    found = corrected_rate(calls)
    assert (found.value, found.method, found.weight) == (pytest.approx(0.2), "weighted", 0.0)
    moments = reduce(add, (judged_moments(each.label, 0.05) for each in calls))
    plain = estimate_mean(moments, method="weighted")
    assert found.low == pytest.approx(plain.low, abs=1e-3)
    assert found.high == pytest.approx(plain.high, abs=1e-3)


def test_a_good_judge_narrows_the_interval_and_moves_the_rate() -> None:
    """The judge marks more of the traffic than of the labelled calls: the rate behind the labels is higher."""
    calls = labelled(28, 2, 2, 68, 0.05)
    alone, found = corrected_rate(calls), corrected_rate(calls, judged(800, 2000))
    assert found.value is not None
    assert alone.value is not None
    assert found.value > alone.value
    assert found.low is not None
    assert found.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert found.high - found.low < 0.8 * (alone.high - alone.low)
    assert 0.5 < found.weight <= 1.0
    assert found.n == 2000


def test_a_judge_that_guesses_changes_next_to_nothing() -> None:
    """Its verdict has nothing to do with the label."""
    calls = labelled(10, 10, 40, 40, 0.05)
    alone, found = corrected_rate(calls), corrected_rate(calls, judged(1500, 2000))
    assert found.weight == pytest.approx(0.0, abs=0.02)
    assert found.value == pytest.approx(alone.value, abs=0.005)


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_is_never_wider_than_that_of_the_labels(seed: int) -> None:
    """Whatever the labels, the judge, the screen and the probabilities."""
    chance = random.Random(seed)
    calls: list[LabelledCall] = []
    for _ in range(chance.choice([1, 5, 30, 200])):
        bad = float(chance.random() < 0.2)
        score = chance.choice([bad, chance.random()])
        calls.append(LabelledCall(bad, score, chance.uniform(0.01, 1), chance.uniform(0.05, 1), chance.random()))
    alone, found = corrected_rate(calls), corrected_rate(calls, judged(chance.randint(0, 500), 500))
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    assert found.high - found.low <= (alone.high - alone.low) * (1 + 1e-9)


def test_no_bad_label_is_no_certainty() -> None:
    """The interval reaches as far as thirty good labels allow."""
    found = corrected_rate(labelled(0, 0, 0, 30, 0.1), judged(0, 300))
    assert found.value == 0.0
    assert found.low == 0.0
    assert found.high is not None
    assert 0.1 < found.high < 0.3


def test_no_labels_are_no_estimate() -> None:
    """With the reason."""
    found = corrected_rate([], judged(1, 10))
    assert (found.value, found.reason) == (None, "nothing_labelled")


@pytest.mark.parametrize(
    "wrong",
    [LabelledCall(2.0, 0.0), LabelledCall(0.0, -1.0), LabelledCall(1.0, 1.0, 0.0), LabelledCall(math.nan, 0.0)],
)
def test_numbers_outside_their_range_are_an_error(wrong: LabelledCall) -> None:
    """Of a label, of a score, of a probability."""
    with pytest.raises(SettingsError, match="must be in"):
        corrected_rate([wrong])


# --- labels of other traffic -----------------------------------------------------------------------------------------


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
