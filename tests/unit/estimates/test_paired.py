"""The interval of a mean paired difference."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.paired import least_pairs, paired_difference


def test_the_interval_excludes_zero_where_random_signs_reject() -> None:
    """As a test over all signs of twelve differences says, on either side of the level."""
    for shift in (0.0, 0.02, 0.05, 0.08, 0.15):
        differences = np.random.default_rng(7).normal(-shift, 0.1, 12)
        signs = np.array(list(product((-1.0, 1.0), repeat=12)))
        share = np.mean((signs * differences).sum(axis=1) <= differences.sum() + 1e-12)
        found = paired_difference([0.0] * 12, differences.tolist())
        assert found.high is not None
        if not 0.02 < share < 0.03:  # where chance in the subsets cannot decide
            assert (found.high < 0.0) == (share < 0.025)


@pytest.mark.parametrize(("flips", "worse"), [(0, False), (5, False), (7, True)])
def test_verdicts_that_flip_to_one_side(flips: int, worse: bool) -> None:
    """Five of forty may be chance, seven are not: as in an exact test of McNemar."""
    found = paired_difference([1.0] * 40, [0.0] * flips + [1.0] * (40 - flips))
    assert found.high is not None
    assert (found.high < 0.0) is worse
    assert found.value == -flips / 40


def test_equal_runs_have_no_difference() -> None:
    """A deterministic judge of the same answers."""
    scores = [0.1, 0.5, 0.9, 1.0, 0.3, 0.2]
    assert paired_difference(scores, scores)[1:] == (0.0, 0.0, 0.0)


def test_too_few_pairs_have_no_interval() -> None:
    """With five pairs, signs alone have a probability of 1/32 to agree."""
    assert least_pairs(0.95) == 6
    found = paired_difference([1.0] * 5, [0.0] * 5)
    assert (found.value, found.low, found.high) == (-1.0, None, None)
    assert paired_difference([1.0] * 8, [0.0] * 8, confidence=0.99).high == -1.0
    assert paired_difference([1.0] * 7, [0.0] * 7, confidence=0.99).high is None


def test_the_order_of_the_runs_turns_the_interval() -> None:
    """About as far as random subsets allow."""
    before, after = np.random.default_rng(3).random((2, 50)).tolist()
    there, back = paired_difference(before, after), paired_difference(after, before)
    assert there.low is not None
    assert back.high is not None
    assert there.value == pytest.approx(-back.value)
    assert there.low == pytest.approx(-back.high, abs=0.01)


@pytest.mark.parametrize("pair", [([], []), ([1.0], []), ([1.0], [float("nan")])])
def test_scores_that_are_no_pairs_are_wrong(pair: tuple[list[float], list[float]]) -> None:
    """None, unequally many, or not finite."""
    with pytest.raises(SettingsError):
        paired_difference(*pair)
