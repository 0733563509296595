"""Streams of a decision judge's raw scores, and baselines learned from them, for simulations of alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ragtrace.estimates import Distribution, baseline_bound
from ragtrace.estimates.curve_fitting import fit_scores
from tests.support.alarms import Draw, Floats, run_lengths
from tests.support.decision_populations import Decider, population

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 5
"""Default batch of alerts on baselines."""
STREAMS_A_CURVE = 10


def raw_scores(rate: float, judge: Decider, usual: float) -> Draw:
    """Raw scores of traffic of which *rate* is bad, by a judge that knows traffic of which *usual* is bad."""
    known = population(usual, judge)
    cumulated = np.cumsum(rate * known.bad + (1.0 - rate) * known.good)
    cumulated /= cumulated[-1]
    return lambda rng, shape: (known.scores[np.searchsorted(cumulated, rng.random(shape))], 1.0)


def learned_bounds(draw: Draw, calls: int, streams: int, seed: int) -> Floats:
    """Bounds of the baselines that *streams* processes learn from *calls* calls each."""
    scores, _ = draw(np.random.default_rng(seed), (calls, streams))
    return np.array([baseline_bound(Distribution.of(scores[:, at].tolist()), "above") for at in range(streams)])


def alarm_calls(
    judge: Decider,
    before: float,
    after: float,
    *,
    baseline: int = 2_000,
    streams: int = 300,
    seed: int = 1,
    most: int = 6_000,
    batch: int = BATCH,
    draw: Callable[[float, Decider, float], Draw] = raw_scores,
) -> Floats:
    """Calls from a change of the rate of bad calls to the alarm, of each stream; *most* where there was none."""
    usual = draw(before, judge, before)
    bounds = learned_bounds(usual, baseline, streams, seed)
    return run_lengths(
        bounds,
        10_000.0,
        draw(after, judge, before),
        streams=streams,
        seed=seed + 1,
        most=most,
        batch=batch,
        head_start=0.0,
    )


def calibrated_alarm_calls(
    judge: Decider,
    bound: float,
    after: float,
    *,
    labels: int = 500,
    streams: int = 300,
    seed: int = 1,
    most: int = 6_000,
) -> Floats:
    """Calls until an alert with `above=bound` on calibrated probabilities, from a change of the rate to *after*.

    People labelled calls while the rate was *bound*. Curves that the alert refuses are left out.
    """
    random, known = np.random.default_rng(seed), population(bound, judge)
    joint = np.concatenate((bound * known.bad, (1.0 - bound) * known.good))
    traffic = np.cumsum(after * known.bad + (1.0 - after) * known.good)
    traffic /= traffic[-1]
    found: list[Floats] = []
    for number in range(streams // STREAMS_A_CURVE):
        drawn = random.choice(len(joint), labels, p=joint / joint.sum())
        scores, bad = known.scores[drawn % len(known.scores)], drawn < len(known.scores)
        fitted = fit_scores(
            scores.tolist(), bad.astype(float).tolist(), [1.0] * labels, range(labels), known.scores, known.traffic
        ).calibration
        if fitted.bound_lacking():
            continue
        table = np.array([fitted.curve.probability(score) for score in known.scores.tolist()])

        def draw(rng: np.random.Generator, shape: tuple[int, int], table: Floats = table) -> tuple[Floats, float]:
            return table[np.searchsorted(traffic, rng.random(shape))], 1.0

        of_curve = run_lengths(
            fitted.alert_bound(bound), 10_000.0, draw, streams=STREAMS_A_CURVE, seed=seed + 1 + number, most=most
        )
        found.append(of_curve)
    return np.concatenate(found)
