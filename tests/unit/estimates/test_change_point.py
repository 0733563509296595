"""The onset of a change by hand-made scores; `tests/simulation/test_change_point.py` has the coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ragtrace.estimates.change_point import evidence_of_difference, find_change
from ragtrace.estimates.ordered_sums import OrderedSums


def sums(scores: list[float], weight: float = 1.0) -> OrderedSums:
    return OrderedSums.of(np.full(len(scores), weight), np.array(scores))


def test_the_evidence_is_the_log_likelihood_ratio() -> None:
    """40 good calls, then 20 of which half are bad: 40 ln 1 + 20 ln .5 against 60 calls with a rate of 1/6."""
    found = find_change(sums([0.0] * 40 + [1.0, 0.0] * 10))
    assert found is not None
    assert (found.first, found.before, found.after) == (40, 0.0, 0.5)
    expected = 20 * math.log(0.5) - (10 * math.log(1 / 6) + 50 * math.log(5 / 6))
    assert found.evidence == pytest.approx(expected)
    assert found.earliest <= 40 <= found.latest
    assert found.p_value < 0.01


def test_equal_weights_do_not_matter() -> None:
    """A judge that sees a tenth of the calls knows as much as its scores say, and no more."""
    scores = [0.0] * 40 + [1.0, 0.0] * 10
    one, ten = find_change(sums(scores)), find_change(sums(scores, 10.0))
    assert one is not None
    assert ten is not None
    assert (ten.first, ten.earliest, ten.latest) == (one.first, one.earliest, one.latest)
    assert ten.evidence == pytest.approx(one.evidence)


def test_blocks_have_the_sums_of_their_scores() -> None:
    """The onset is then known to a block."""
    scores = sums([0.0] * 40 + [1.0, 0.0] * 20)
    found = find_change(OrderedSums(*(each.reshape(-1, 4).sum(axis=1) for each in scores)))
    assert found is not None
    assert found.first == 10


def test_a_sudden_change_is_certain() -> None:
    """Where all calls are good before and all are bad after, nothing else explains the scores."""
    found = find_change(sums([0.0] * 50 + [1.0] * 50))
    assert found is not None
    assert (found.first, found.earliest, found.latest) == (50, 50, 50)
    assert found.p_value < 1e-9


@pytest.mark.parametrize("scores", [[], [0.0] * 100, [0.3] * 100, [0.0] * 9 + [1.0] * 9], ids=len)
def test_where_nothing_changes_or_little_is_known_there_is_no_change(scores: list[float]) -> None:
    """With fewer than ten scores on each side, one bad call would look like a change."""
    assert find_change(sums(scores)) is None


def test_two_sets_of_scores_differ_by_the_same_evidence() -> None:
    """As that of a change between them; a set without scores shows nothing."""
    found = find_change(sums([0.0] * 40 + [1.0, 0.0] * 10))
    assert found is not None
    evidence = evidence_of_difference(sums([0.0] * 40), sums([1.0, 0.0] * 10))
    assert evidence == pytest.approx(found.evidence)
    assert evidence_of_difference(sums([]), sums([1.0, 0.0])) == 0.0
