"""Agreement of a judge with labels and of reviewers with each other: published examples, known packages, limits."""

from __future__ import annotations

import math
import random

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import Interval, agreement, krippendorff_alpha

# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", sections A, B and C.
TWO_BINARY = ("0100000010", "1110010000")
TWO_NOMINAL = ("aabbdcccedda", "babbbccceddd")
FOUR_WITH_GAPS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")


def units(reviewers: tuple[str, ...]) -> list[list[str | None]]:
    return [[None if label == "." else label for label in unit] for unit in zip(*reviewers, strict=True)]


@pytest.mark.parametrize(("reviewers", "alpha"), [(TWO_BINARY, 0.095), (TWO_NOMINAL, 0.692), (FOUR_WITH_GAPS, 0.743)])
def test_alpha_of_the_published_examples(reviewers: tuple[str, ...], alpha: float) -> None:
    """Two reviewers, binary and nominal; four reviewers with missing labels."""
    assert krippendorff_alpha(units(reviewers)) == pytest.approx(alpha, abs=0.0005)


def test_alpha_of_nothing_to_compare_is_none() -> None:
    """One label a call, or the same label everywhere."""
    assert krippendorff_alpha([["a"], ["b", None]]) is None
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None
    assert krippendorff_alpha([]) is None


def drawn(number: int, seed: int) -> tuple[list[bool], list[bool], list[float]]:
    """Labels, verdicts that mostly agree with them, and weights."""
    chance = random.Random(seed)
    labels = [chance.random() < 0.3 for _ in range(number)]
    verdicts = [label if chance.random() < 0.85 else not label for label in labels]
    return labels, verdicts, [1 / chance.uniform(0.05, 1) for _ in range(number)]


@pytest.mark.parametrize("seed", range(5))
def test_kappa_and_shares_equal_scikit_learns(seed: int) -> None:
    """Cohen's kappa, accuracy, sensitivity (recall of bad) and specificity (recall of good), with weights."""
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    labels, verdicts, weights = drawn(200, seed)
    found = agreement(labels, verdicts, weights)
    assert found.kappa is not None
    assert found.sensitivity is not None
    assert found.specificity is not None
    assert found.kappa.value == pytest.approx(metrics.cohen_kappa_score(labels, verdicts, sample_weight=weights))
    assert found.agree.value == pytest.approx(metrics.accuracy_score(labels, verdicts, sample_weight=weights))
    recalls = [metrics.recall_score(labels, verdicts, pos_label=kind, sample_weight=weights) for kind in (True, False)]
    assert [found.sensitivity.value, found.specificity.value] == pytest.approx(recalls)


@pytest.mark.parametrize("seed", range(5))
def test_alpha_equals_that_of_the_package_krippendorff(seed: int) -> None:
    """Three reviewers, four labels, a fifth of them missing."""
    package = pytest.importorskip("krippendorff", reason="krippendorff is not installed")
    chance = random.Random(seed)
    table = [[chance.choice([1, 1, 2, 3, None]) for _ in range(3)] for _ in range(60)]
    reliability = [[math.nan if label is None else label for label in column] for column in zip(*table, strict=True)]
    expected = package.alpha(reliability_data=reliability, level_of_measurement="nominal")
    assert krippendorff_alpha(table) == pytest.approx(expected)


def test_kappa_of_a_table_by_hand() -> None:
    """Of 50 proposals, two readers agree on 20 and on 15: kappa is (0.7 - 0.5) / (1 - 0.5)."""
    labels = [True] * 25 + [False] * 25
    verdicts = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    found = agreement(labels, verdicts)
    assert found.kappa is not None
    assert found.kappa.value == pytest.approx(0.4)
    assert found.kappa.low < 0.4 < found.kappa.high
    assert (found.n, found.constant) == (50, 0.5)
    assert found.sensitivity is not None
    assert found.sensitivity.value == pytest.approx(0.8)
    # Wilson 1927: 20 of 25.
    assert found.sensitivity.low == pytest.approx(0.6087, abs=5e-4)
    assert found.sensitivity.high == pytest.approx(0.9114, abs=5e-4)


def test_perfect_agreement_in_a_few_calls_is_uncertain() -> None:
    """No interval collapses to a point."""
    found = agreement([True] * 5 + [False] * 5, [True] * 5 + [False] * 5)
    assert found.kappa is not None
    assert found.kappa.value == 1.0
    assert found.kappa.low < 0.6
    assert found.agree.low < 0.75


def test_what_no_label_tells_is_none() -> None:
    """Without a bad label there is no sensitivity, and the best constant verdict is always right."""
    found = agreement([False] * 10, [False] * 10)
    assert found.sensitivity is None
    assert found.kappa is None
    assert found.specificity is not None
    assert found.specificity.low < 1.0
    assert found.constant == 1.0


def test_the_interval_of_kappa_covers() -> None:
    """In 95 % of samples of 60 calls, give or take what chance does in 400 samples."""
    chance = 0.3 * 0.36 + 0.7 * 0.64
    truth = (0.85 - chance) / (1 - chance)
    covered = 0
    for seed in range(400):
        labels, verdicts, _ = drawn(60, seed)
        kappa = agreement(labels, verdicts).kappa
        assert kappa is not None
        covered += kappa.low <= truth <= kappa.high
    assert covered >= 0.93 * 400


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, math.inf]])
def test_wrong_weights_are_an_error(weights: list[float]) -> None:
    """Too few, zero or infinite."""
    with pytest.raises(SettingsError, match="weights"):
        agreement([True, False], [True, True], weights)


@pytest.mark.parametrize(("weight", "times"), [(0.1, 3), (0.3, 5), (1 / 3, 4), (0.7, 3)])
def test_agreement_by_chance_is_a_kappa_of_zero(weight: float, times: int) -> None:
    """Not a rounding error such as 2.22e-16, which nobody can read."""
    labels, verdicts = [True, True] + [False] * 2 * times, [True, False] + [True, False] * times
    found = agreement(labels, verdicts, [weight] * len(labels)).kappa
    assert found is not None
    assert found.value == 0.0
    assert str(found).startswith("0.000 [-0.")


def test_figures_of_agreement_are_never_in_scientific_notation() -> None:
    """Three decimals, also of the smallest."""
    assert str(Interval(-2.82e-15, -0.0002, 0.000061)) == "0.000 [0.000, 0.000]"
    assert str(Interval(1.0, 0.9996, 1.0)) == "1.000 [1.000, 1.000]"
