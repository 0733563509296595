"""Promised calibration error of a decision judge's curve: what it counts, and where nothing is promised."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ragtrace.estimates.curve_fitting import fit_scores
from ragtrace.estimates.score_curve import ScoreCalibration, promised_error


def calibration(top: float, labels: int = 500) -> ScoreCalibration:
    """Calibration of a judge that gives the share *top* of the good calls a higher score than the bad ones."""
    random = np.random.default_rng(20_261_129)
    bad = random.random(10_000) < 0.2
    good_at = np.where(random.random(len(bad)) < top, 4.0 + 0.5 * random.normal(size=len(bad)), -1.0)
    x = np.where(bad, 1.5, good_at) + random.normal(size=len(bad)) * np.where(good_at > 0.0, 0.3, 1.0)
    scores = 1.0 / (1.0 + np.exp(-x))
    drawn = random.choice(len(bad), labels, replace=False)
    weights = [len(bad) / labels] * labels
    return fit_scores(
        scores[drawn].tolist(), bad[drawn].astype(float).tolist(), weights, range(labels), scores
    ).calibration


def test_where_the_curve_fits_an_error_is_promised() -> None:
    """In the words for which judges that holds."""
    found = calibration(0.0)
    assert found.is_calibrated
    assert found.promised_error < 0.1
    assert found.promise.startswith(f"expected calibration error at most {found.promised_error:.3f}")
    assert "for judges whose score rises with the rate, in simulations" in found.promise


def test_where_bars_disagree_with_the_curve_nothing_is_promised() -> None:
    """The scores still predict the labels, so that the curve may be called calibrated. JSON has null for it."""
    found = calibration(0.2)
    assert found.is_calibrated
    assert math.isinf(found.promised_error)
    assert "no calibration error is promised" in found.promise
    record = found.record()
    assert record["promised_error"] is None
    assert ScoreCalibration.read_record(json.loads(json.dumps(record, allow_nan=False))) == found


def test_the_promise_counts_labels_and_gap() -> None:
    """Few labels and a curve beside the labels both make it larger; an interval that holds 1/2 counts as 1/2."""
    assert promised_error(0.1, 0.2, 400.0, 0.01) == pytest.approx(0.75 * (2.5 * 0.02 + 0.015) + 0.009)
    assert promised_error(0.4, 0.6, 100.0, 0.0) == pytest.approx(0.75 * (2.5 * 0.05 + 0.015))
