"""How well scores separate bad from good calls: areas, best F1, and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from ragtrace.estimates.discrimination import average_precision, best_f1, discrimination

LABELS = np.array([1.0, 0.0, 1.0, 0.0])


def test_average_precision_is_precision_where_a_bad_call_is_found() -> None:
    """Bad calls at ranks 1 and 3: the mean of 1/1 and 2/3."""
    assert average_precision(LABELS, np.array([0.9, 0.8, 0.7, 0.1])) == pytest.approx((1.0 + 2.0 / 3.0) / 2.0)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [1, 3, 0, 2], [3, 2, 1, 0]])
def test_equal_scores_do_not_depend_on_the_order_of_the_file(order: list[int]) -> None:
    """A judge that says the same of all has the share of bad calls as area, and F1 of flagging all."""
    labels, same = LABELS[order], np.full(4, 0.5)
    assert average_precision(labels, same) == 0.5
    assert best_f1(labels, same) == pytest.approx(2.0 * 2.0 / (4.0 + 2.0))


def test_best_f1_is_that_of_the_best_cut() -> None:
    """Flagging the worst three finds both bad ones: F1 is 2 * 2 / (3 + 2)."""
    assert best_f1(LABELS, np.array([0.9, 0.8, 0.7, 0.1])) == pytest.approx(0.8)


def test_intervals_resample_whole_questions() -> None:
    """Calls that repeat one question tell no more than one: their intervals are wider than of as many questions."""
    rng = np.random.default_rng(5)
    labels = [bool(each) for each in rng.random(40) < 0.5]
    scores = [float(min(1.0, max(0.0, 0.5 + 0.2 * (each - 0.5) + rng.normal(0.0, 0.2)))) for each in labels]
    alone = discrimination(labels * 5, scores * 5)
    grouped = discrimination(labels * 5, scores * 5, list(range(40)) * 5)
    for name in ("auroc", "average_precision", "best_f1"):
        narrow, wide = getattr(alone, name), getattr(grouped, name)
        assert narrow.value == wide.value
        assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
