"""Rates and calibration curves of decision judges keep their bounds: a part of `benchmarks/decision_scores.py`.

Each cell is 1,000 simulated samples with a fixed seed; the benchmark has 2,500 of 1,000 cells.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ragtrace.estimates.curve_fitting import fit_scores
from tests.benchmarks.decision_scores import misses
from tests.support.decision_populations import Decider, DecisionCell, DecisionSamples, population, simulate

SAMPLES = 1_000
SEED = 161_803

CELLS = [
    DecisionCell(0.01, Decider(0.75, temperature=2.5), 100),
    DecisionCell(0.03, Decider(0.85), 50),
    DecisionCell(0.03, Decider(0.85), 200, uncertain=True),
    DecisionCell(0.03, Decider(0.92, blind=0.5), 500),
    DecisionCell(0.1, Decider(0.85, shift=1.5), 200),
    DecisionCell(0.1, Decider(0.85), 200, uncertain=True),
    DecisionCell(0.1, Decider(0.92), 500, uncertain=True),
    DecisionCell(0.3, Decider(0.85, digits=2), 100),
    DecisionCell(0.3, Decider(0.92, temperature=2.5, shift=1.5), 200, uncertain=True),
    DecisionCell(0.3, Decider(0.75), 1_000),
    DecisionCell(0.002, Decider(0.97, top=0.01), 50, uncertain=True),
    DecisionCell(0.01, Decider(0.999, top=0.02), 100),
    DecisionCell(0.03, Decider(0.99, top=0.035), 50),
    DecisionCell(0.1, Decider(0.999, top=0.05), 50),
    DecisionCell(0.1, Decider(0.97, top=0.2), 500),
    DecisionCell(0.3, Decider(0.97, top=0.1), 500),
]


@cache
def samples_of(cell: DecisionCell) -> DecisionSamples:
    return simulate(cell, SAMPLES, SEED)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_rates_cover_and_promises_are_kept(cell: DecisionCell) -> None:
    """Coverage of 93 %, never wider than the labels alone, a promised ECE kept in 97 %, the gate right in 99 %."""
    assert misses(samples_of(cell)) == []


def test_raw_scores_do_not_correct() -> None:
    """With few labels of an overconfident judge they cover clearly less often than calibrated, cross-fitted ones."""
    judge = Decider(0.75, temperature=2.5)
    raw, calibrated = (simulate(DecisionCell(0.1, judge, 50, raw=raw), SAMPLES, SEED) for raw in (True, False))
    assert raw.coverage < 0.94 < calibrated.coverage


def test_a_useless_judge_is_never_called_calibrated() -> None:
    """Scores that are the same for good and bad calls pass the gate in at most 4 % of samples, whatever the labels."""
    found = simulate(DecisionCell(0.3, Decider(0.5), 200), SAMPLES, SEED)
    assert float(found.passed.mean()) <= 0.05
    assert found.wrongly_passed <= 0.04


def test_a_good_judge_is_called_calibrated_from_two_hundred_labels() -> None:
    """At 10 % bad calls and an AUROC of .85, with picks by uncertainty, mostly; with 100 it seldom is."""
    assert float(samples_of(DecisionCell(0.1, Decider(0.85), 200, uncertain=True)).passed.mean()) > 0.8
    assert float(simulate(DecisionCell(0.1, Decider(0.85), 100, True), SAMPLES, SEED).passed.mean()) < 0.2


def test_the_fit_of_real_labels_is_that_of_the_simulation() -> None:
    """`fit_scores` on a sample drawn call by call: its curve is near the truth, and keeps what it promises."""
    known, random = population(0.1, Decider(0.85, temperature=2.5)), np.random.default_rng(SEED)
    kept = []
    for _ in range(40):
        joint = np.concatenate((known.rate * known.bad, (1.0 - known.rate) * known.good))
        drawn = random.choice(len(joint), 400, p=joint / joint.sum())
        labels, scores = (drawn < len(known.scores)).astype(float), known.scores[drawn % len(known.scores)]
        fitted = fit_scores(
            scores.tolist(), labels.tolist(), [1.0] * 400, range(400), known.scores, known.traffic
        ).calibration
        g = np.array([fitted.curve.probability(score) for score in known.scores.tolist()])
        kept.append(float(np.abs(g - known.truth) @ known.traffic) <= fitted.promised_error)
    assert all(kept)
