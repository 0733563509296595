"""How many labels a corrected rate needs before it stands for the rate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragtrace.estimates import Estimate, missing_estimate
from ragtrace.estimates.calibration import NOT_CALIBRATED, TOO_FEW_LABELS
from ragtrace.estimates.label_demand import labels_needed


def corrected(width: float) -> Estimate:
    """A corrected rate with an interval that is so wide."""
    known = missing_estimate("", "tuned", "rate")
    return replace(known, value=width / 2, low=0.0, high=width, reason=None, corrected="labels")


@pytest.mark.parametrize(
    ("labels", "width", "needed"),
    [(0, 0.2, 20), (19, 0.2, 20), (20, 0.5, 20), (20, 0.6, 29), (30, 0.501, 31), (150, 0.1, 150)],
)
def test_labels_are_enough_by_number_and_by_interval(labels: int, width: float, needed: int) -> None:
    """Twenty labels, or as many as make the interval at most 50 points wide."""
    assert labels_needed(corrected(width), labels) == needed


def test_a_decision_judge_needs_more_labels() -> None:
    """As its scores are no rate without them."""
    assert labels_needed(missing_estimate(TOO_FEW_LABELS, "tuned", "rate"), 30) == 50


def test_more_labels_do_not_help_where_something_else_is_missing() -> None:
    """Such as a calibration that holds."""
    assert labels_needed(missing_estimate(NOT_CALIBRATED, "tuned", "rate"), 30) == 30
