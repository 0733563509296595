"""Good answers that a guard would block: counts, bounds and the choice of a threshold."""

from __future__ import annotations

import math

import pytest

from ragtrace.estimates.false_blocks import LabelledAnswer, binomial_tail, count_false_blocks, upper_bound


def good(badness: float, number: int = 1, weight: float = 1.0) -> list[LabelledAnswer]:
    return [LabelledAnswer(badness, is_bad=False, weight=weight)] * number


def bad(badness: float, number: int = 1) -> list[LabelledAnswer]:
    return [LabelledAnswer(badness, is_bad=True)] * number


@pytest.mark.parametrize(
    ("successes", "number", "bound"),
    [(0, 149, 0.0199), (0, 148, 0.0200), (5, 100, 0.1023), (0, 0, 1.0), (10, 10, 1.0)],
)
def test_the_bound_is_that_of_clopper_and_pearson(successes: int, number: int, bound: float) -> None:
    """Upper ends of one-sided 95 % intervals, from tables; without a success it is 1 - 0.05 ** (1 / number)."""
    assert upper_bound(successes, number) == pytest.approx(bound, abs=1e-4)


def test_the_tail_is_that_of_the_binomial_distribution() -> None:
    """Summed by hand for few trials, and still a probability for many."""
    assert binomial_tail(1, 3, 0.5) == pytest.approx(0.5)
    assert binomial_tail(0, 10, 0.1) == pytest.approx(0.9**10)
    assert binomial_tail(20_000, 1_000_000, 0.02) == pytest.approx(0.5, abs=0.01)


def test_the_threshold_is_the_lowest_that_the_labels_allow() -> None:
    """Of 1,000 good answers, 10 are above 0.6 and 200 above 0.3: at 2 % the guard may block above 0.60."""
    found = count_false_blocks([*good(0.1, 800), *good(0.6, 190), *good(0.9, 10), *bad(0.95, 30), *bad(0.2, 10)])
    assert found.threshold(0.02) == 0.6
    assert found.share(0.6) == 0.01
    assert 0.01 < found.bound(0.6) < 0.02
    recall = found.recall(0.6)
    assert recall is not None
    assert recall[0] == 0.75
    assert recall[1] < 0.75 < recall[2]


def test_a_score_at_the_threshold_is_not_above_it() -> None:
    """As a guard sees it, whatever binary arithmetic makes of 1 - 0.58."""
    found = count_false_blocks(good(1 - 0.58, 100))
    assert (found.good_blocked[42], found.good_blocked[41]) == (0, 100)


@pytest.mark.parametrize(("labels", "missing"), [(0, 149), (100, 49), (148, 1), (149, 0)])
def test_too_few_labels_are_counted(labels: int, missing: int) -> None:
    """149 good answers, none of them blocked, are the fewest for 2 %: 0.98 ** 149 is below 0.05."""
    assert 0.98**149 < 0.05 < 0.98**148
    found = count_false_blocks(good(0.1, labels))
    assert found.missing(0.02) == missing
    assert (found.threshold(0.02) is None) == (missing > 0)


def test_good_answers_at_the_top_need_more_labels() -> None:
    """A threshold exists for no number of labels so small; the number that is missing allows one."""
    found = count_false_blocks([*good(0.1, 200), *good(1.0, 3)])
    assert found.threshold(0.02) is None
    more = count_false_blocks([*good(0.1, 200 + found.missing(0.02)), *good(1.0, 3)])
    assert more.threshold(0.02) is not None


def test_recall_is_unknown_below_ten_bad_labels() -> None:
    """Nine say next to nothing."""
    assert count_false_blocks([*good(0.1, 200), *bad(0.9, 9)]).recall(0.5) is None
    assert count_false_blocks([*good(0.1, 200), *bad(0.9, 10)]).recall(0.5) is not None


def test_weights_count_as_the_calls_that_equal_chances_would_leave() -> None:
    """Ten calls of weight 10 and 100 of weight 1 are 20 calls; one blocked call of weight 1 counts as a whole one."""
    found = count_false_blocks([*good(0.1, 10, 10.0), *good(0.1, 99), *good(0.9, 1)])
    assert (found.good, found.good_blocked[50]) == (20, 1)
    assert math.isclose(found.bound(0.5), upper_bound(1, 20))
