"""Number of human labels that a corrected rate needs before it may stand for the rate.

With few labels the corrected rate is a guess: ten labels can make "64.2% (0.0% to 64.2%)" of a judge's 5 %. So the
judge's own rate is shown until there are enough labels, and every view says how many are missing.
"""

from __future__ import annotations

import math
from typing import Final

from ragtrace.estimates.calibration import TOO_FEW_LABELS
from ragtrace.estimates.estimate import Estimate
from ragtrace.estimates.score_curve import FEWEST_FOR_RATE

FEWEST_LABELS: Final = 20
"""Fewest labels with which a corrected rate is shown as the rate: with fewer, one label moves it by over five points.

A period with fewer labelled calls is corrected by the labels of all times.
"""
WIDEST_INTERVAL: Final = 0.5
"""Widest 95 % interval, as a share, of a rate that is given as one number: a wider one says nearly nothing."""


def fewest_labels(*, is_decision: bool) -> int:
    """Return the fewest labels that correct the rate of a judge; a decision judge's scores need more than others."""
    return FEWEST_FOR_RATE if is_decision else FEWEST_LABELS


def labels_needed(corrected: Estimate, labels: int) -> int:
    """Return the number of labels that a corrected rate needs to stand for the rate, or *labels* if these suffice.

    Args:
        corrected: the corrected rate.
        labels: number of labels that it rests on.
    """
    fewest = fewest_labels(is_decision=corrected.reason == TOO_FEW_LABELS)
    if labels < fewest:
        return fewest
    if corrected.low is None or corrected.high is None:
        return labels  # another reason keeps the rate from being known, which more labels may not change
    # An interval is as wide as the root of the number of labels is small.
    excess = (corrected.high - corrected.low) / WIDEST_INTERVAL
    return labels if excess <= 1.0 else max(labels + 1, math.ceil(labels * excess * excess))
