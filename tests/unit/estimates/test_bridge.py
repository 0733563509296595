"""Bridge over a change of the model: how far the mean moved, and from how many calls that is known."""

from __future__ import annotations

import numpy as np
import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.bridge import FEWEST, calls_needed, score_offset
from ragtrace.estimates.logistic import sigmoid


def pairs(random: np.random.Generator, count: int, alike: float) -> tuple[list[float], list[float]]:
    """Scores of two models whose errors have the correlation *alike*, of traffic of which a tenth is bad."""
    bad = random.random(count) < 0.1
    common, first, second = random.normal(size=(3, count))
    made = [
        sigmoid(np.where(bad, 2.0, -3.0) + 1.5 * (alike**0.5 * common + (1.0 - alike) ** 0.5 * own) + shift)
        for own, shift in ((first, 0.0), (second, 0.4))
    ]
    return made[0].tolist(), made[1].tolist()


def test_three_thousand_calls_know_the_offset_to_a_point() -> None:
    """Of another model, with errors that correlate by .7: within one point on either side, covered in 93.5 %."""
    random = np.random.default_rng(11)
    before, after = pairs(random, 200_000, 0.7)
    true, covered = float(np.mean(after) - np.mean(before)), 0
    for _ in range(400):
        found = score_offset(*pairs(random, 3_000, 0.7))
        assert found.half_width <= 0.01
        covered += found.low <= true <= found.high
    assert covered >= 0.935 * 400


def test_alike_models_need_few_calls() -> None:
    """300 at least; the wilder the differences, the more."""
    random = np.random.default_rng(12)
    minor, other = (calls_needed(score_offset(*pairs(random, 2_000, alike))) for alike in (0.99, 0.3))
    assert minor == FEWEST
    assert other > minor


def test_equal_scores_have_no_interval_of_zero_width() -> None:
    """Fifty calls without a difference do not prove that there is none."""
    found = score_offset([0.2] * 50, [0.2] * 50)
    assert found.value == 0.0
    assert found.half_width > 0.01


@pytest.mark.parametrize(("before", "after"), [([0.1], [0.1]), ([0.1, 0.2], [0.1]), ([0.1, 1.2], [0.1, 0.2])])
def test_what_cannot_be_compared_is_refused(before: list[float], after: list[float]) -> None:
    """One pair, scores without a partner, numbers that are no scores."""
    with pytest.raises(SettingsError):
        score_offset(before, after)
