"""Corrected rates: what they must equal where the answer is known, and what is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import reduce
from operator import add

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import Estimate, Moments, estimate_mean, judged_moments, unjudged_moments
from ragtrace.estimates.corrected import DISAGREEING, IMAGINED, PENALTY, SHRINK, UNSEEN, LabelledCall, corrected_rate
from ragtrace.estimates.formulas import Z

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


@pytest.mark.parametrize("labels", [[], [LabelledCall(None, BAD)]], ids=["none", "all unsure"])
def test_no_labels_are_no_estimate(labels: list[LabelledCall]) -> None:
    """With the reason, and all else that is known: whose scores, how many calls, and what was to correct them."""
    found = corrected_rate(labels, judged(1, 10), metric="hallucinated", workflow="faq", evaluator="judge")
    assert (found.value, found.reason) == (None, "nothing_labelled")
    assert (found.metric, found.workflow, found.evaluator) == ("hallucinated", "faq", "judge")
    assert (found.method, found.corrected, found.n, found.effective_n) == ("tuned", "labels", 10, 0.0)
    assert corrected_rate(labels).method == "weighted"


@pytest.mark.parametrize("moments", [Moments(), unjudged_moments(0.0)], ids=["of no call", "of calls without a judge"])
def test_a_judge_that_scored_no_call_is_no_judge(moments: Moments) -> None:
    """The estimate is that of the labels alone, also in the number of calls behind it."""
    calls = labelled(3, 0, 0, 7, 1.0)
    assert corrected_rate(calls, moments) == corrected_rate(calls)
    assert corrected_rate(calls).n == 10


@pytest.mark.parametrize("seed", range(20))
def test_unsure_calls_reach_from_all_of_them_0_to_all_1(seed: int) -> None:
    """The ends are those of these two and of the sure calls alone; the value of any mixture is between them."""
    chance = random.Random(seed)
    calls = [
        LabelledCall(chance.choice([BAD, GOOD, None]), float(chance.random() < 0.3), 1.0, 0.1)
        for _ in range(chance.choice([10, 40]))
    ]
    moments = judged(chance.randint(0, 100), 100)

    def rate(unsure: Callable[[LabelledCall], float]) -> Estimate:
        return corrected_rate([one._replace(label=unsure(one)) if one.label is None else one for one in calls], moments)

    found = corrected_rate(calls, moments)
    known = [corrected_rate([one for one in calls if one.label is not None], moments)]
    known += [rate(lambda _: GOOD), rate(lambda _: BAD)]
    assert (found.value, found.n) == (known[0].value, 100)
    assert found.low == min(each.low for each in known if each.low is not None)
    assert found.high == max(each.high for each in known if each.high is not None)
    assert found.low is not None
    assert found.high is not None
    for mixed in (rate(lambda one: one.score), rate(lambda one: 1.0 - one.score)):
        assert mixed.value is not None
        assert found.low <= mixed.value <= found.high


@pytest.mark.parametrize(
    "wrong",
    [
        LabelledCall(2.0, 0.0),
        LabelledCall(0.0, -1.0),
        LabelledCall(1.0, 1.0, 0.0),
        LabelledCall(math.nan, 0.0),
        LabelledCall(None, 7.0),
    ],
)
def test_numbers_outside_their_range_are_an_error(wrong: LabelledCall) -> None:
    """Of a label, of a score, of a probability; also where there is nothing to estimate from."""
    with pytest.raises(SettingsError, match="must be in"):
        corrected_rate([wrong])


@pytest.mark.parametrize("tiny", [1e-101, 1e-160, 5e-324])
def test_a_call_that_stands_for_too_many_is_an_error(tiny: float) -> None:
    """The square of its weight is no float; the result would have no interval. The least probability has one."""
    for wrong in (LabelledCall(BAD, BAD, 1.0, tiny), LabelledCall(None, BAD, tiny, 1.0)):
        with pytest.raises(SettingsError, match="1e-100"):
            corrected_rate([wrong, *labelled(3, 0, 0, 7, 1.0)])
    for calls in ([LabelledCall(BAD, BAD, 1e-50, 1e-49)], [LabelledCall(BAD, BAD, 1.0, 1e-100)] * 20):
        for found in (
            corrected_rate([*calls, *labelled(3, 0, 0, 7, 1.0)], moments) for moments in (None, judged(1, 5))
        ):
            assert found.low is not None
            assert found.value is not None
            assert found.high is not None
            assert 0.0 <= found.low <= found.value <= found.high <= 1.0


def test_a_worked_example_gives_these_numbers() -> None:
    """Ten of 1000 calls are labelled, two of them bad, one of which the judge has missed; it has marked 300 of all.

    By hand, with w = 100 and v = 1 for each labelled call: t = y' = 2 / 10, m = 3 / 12,
        S2 = (2 * 0.75^2 + 8 * 0.25^2 + 0.75^2 + 0.25^2) / 10^2 = 0.0225, e = 0.25 * 0.75 * 1.2 / S2 = 10, x = 1.875,
        c = 0.006 - 0.00006, d = 0.016 + var(Y) - 2 * 0.00016, var(Y) = 0.3 * 0.7 / 1000 about, so that
        L = 0.00594 / 0.01589 * x^2 / (x^2 + 6) = 0.1381 about, and the rate is 0.2 + L * (0.3 - 0.2).
    The judge is of so little use that V is S2: the interval has the arms of that by the labels alone.
    """
    calls = labelled(1, 1, 1, 7, 0.01)
    alone, found = corrected_rate(calls), corrected_rate(calls, judged(300, 1000))
    assert (alone.value, alone.effective_n) == (pytest.approx(0.2), pytest.approx(10.0))
    assert (alone.low, alone.high) == (pytest.approx(0.031295, abs=1e-6), pytest.approx(0.585828, abs=1e-6))
    assert found.weight == pytest.approx(0.138048, abs=1e-6)
    assert found.value == pytest.approx(0.213805, abs=1e-6)
    assert (found.low, found.high) == (pytest.approx(0.045100, abs=1e-6), pytest.approx(0.599632, abs=1e-6))


@pytest.mark.parametrize("seed", range(5))
def test_the_rate_follows_the_equations_summed_call_by_call(seed: int) -> None:
    """Those of the docstrings, with a screen, a judge that sees more of the suspicious calls, and labels of some."""
    rng, moments, calls = random.Random(seed), Moments(), list[LabelledCall]()
    for _ in range(600):
        bad = rng.random() < 0.2
        f, y = (float(rng.random() < (hit if bad else alarm)) for hit, alarm in ((0.6, 0.3), (0.9, 0.1)))
        p1, p2 = 0.9 if f else 0.3, 0.7 if y else 0.4
        moments += unjudged_moments(f)
        if rng.random() < p1:
            moments += judged_moments(y, p1, f)
            if rng.random() < p2:
                calls.append(LabelledCall(float(bad), y, p1, p2, f))
    judge = estimate_mean(moments)
    assert judge.value is not None
    assert judge.high is not None
    assert judge.low is not None
    weights = [1.0 / (call.judging_probability * call.labelling_probability) for call in calls]
    of_judge = [1.0 / call.judging_probability for call in calls]
    z = [float(call.label or 0.0) for call in calls]
    y, f = [call.score for call in calls], [call.screen for call in calls]
    total = math.fsum(weights)

    def mean(values: list[float]) -> float:
        return math.fsum(w * each for w, each in zip(weights, values, strict=True)) / total

    def product(by: list[float], a: list[float], b: list[float]) -> float:
        terms = zip(weights, by, a, b, strict=True)
        mean_a, mean_b = mean(a), mean(b)
        return math.fsum(w * v * (one - mean_a) * (other - mean_b) for w, v, one, other in terms) / total**2

    ones, t = [1.0] * len(calls), mean(z)
    one_call = math.fsum(w * w for w in weights) / total
    m = (t * total + IMAGINED * one_call) / (total + 2.0 * IMAGINED * one_call)
    around = math.fsum((w * (each - m)) ** 2 for w, each in zip(weights, z, strict=True))
    s2 = (around + IMAGINED * one_call**2 * ((1.0 - m) ** 2 + m * m)) / total**2
    effective = m * (1.0 - m) * (total + 2.0 * IMAGINED * one_call) / total / s2
    x = effective * m * (1.0 - m)
    by_judge = [each - judge.weight * of_screen for each, of_screen in zip(y, f, strict=True)]
    k_z, k_y = (product(of_judge, a, by_judge) + judge.weight * product(ones, a, f) for a in (z, y))
    c = product(weights, z, y) - k_z
    d = product(weights, y, y) + ((judge.high - judge.low) / (2.0 * Z)) ** 2 - 2.0 * k_y
    best = c / d * x * x / (x * x + SHRINK)
    left = s2 - best * (2.0 * c - best * d) + DISAGREEING * one_call**2 / total**2
    v = min(s2, left * (1.0 + PENALTY / (x * x)))

    found, alone = corrected_rate(calls, moments), corrected_rate(calls)
    assert alone.value == pytest.approx(t)
    assert found.effective_n == pytest.approx(effective)
    assert found.weight == pytest.approx(best)
    assert found.value == pytest.approx(t + best * (judge.value - mean(y)))
    assert None not in (found.low, found.high, alone.low, alone.high)
    arms = [each.high - each.value for each in (found, alone) if each.high is not None and each.value is not None]
    assert arms[0] / arms[1] == pytest.approx(math.sqrt(v / s2))
    assert found.low is not None
    assert alone.low is not None
    of_high = total * mean(y)
    high_score = total * mean([each * each for each in y]) / of_high
    high_weight = math.fsum(w * w * each for w, each in zip(weights, y, strict=True)) / of_high
    unseen = UNSEEN * best * high_score * high_weight / total
    assert found.value - found.low == pytest.approx(math.hypot(math.sqrt(v / s2) * (t - alone.low), unseen))


def test_good_calls_with_a_top_score_may_be_unseen() -> None:
    """A judge agrees with all of 100 labels, 3 of them bad, and marks 50 of 1,000 calls: 30 of these may be good.

    The rate is near the judge's 5 %. By the variance alone, the interval would begin at 2.7 %.
    """
    calls = labelled(3, 0, 0, 97, 0.1)
    found, alone = corrected_rate(calls, judged(50, 1000)), corrected_rate(calls)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert found.value > 0.04
    assert found.low < 0.02
    assert found.high - found.low <= alone.high - alone.low


def test_a_judge_of_good_calls_has_the_same_interval_the_other_way_round() -> None:
    """Which of the two labels is 1 makes no difference."""
    bad = corrected_rate(labelled(5, 1, 2, 92, 0.1), judged(70, 1000))
    good = corrected_rate(labelled(92, 2, 1, 5, 0.1), judged(930, 1000))
    assert bad.value is not None
    assert bad.low is not None
    assert bad.high is not None
    assert (good.low, good.value, good.high) == pytest.approx((1.0 - bad.high, 1.0 - bad.value, 1.0 - bad.low))
