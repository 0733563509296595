"""Limits of an application's own baseline hold as often as they say, on simulated traffic."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest

from ragtrace.estimates import CALLS, Distribution


@pytest.mark.parametrize("repeats", [1, 4])
def test_a_limit_holds_as_often_as_it_says(repeats: int) -> None:
    """Also where every question is asked four times: 84 % of the limits at one standard error are below the mean."""
    rng = random.Random(3)
    held = 0
    for _ in range(600):
        scores = [min(1.0, max(0.0, rng.gauss(0.7, 0.15))) for _ in range(500 // repeats)] * repeats
        found = Distribution.of(scores, questions=list(range(500 // repeats)) * repeats)
        held += found.mean_bound(1.0, "lower") < 0.6978  # the mean of the clipped normal distribution
    assert held / 600 == pytest.approx(0.841, abs=0.05)


def share_suspicious(found: Distribution, scores: list[float], rng: random.Random) -> float:
    """Return the share of calls with these *scores* that the baseline *found* calls suspicious."""
    return statistics.fmean(found.suspicious(score, rng.getrandbits(128)) for score in scores)


def continuous(rng: random.Random) -> float:
    return rng.betavariate(6, 2)


def tied(rng: random.Random) -> float:
    return rng.choice([0.25, 0.5, 0.5, *[1.0] * 13])


def almost_all_perfect(rng: random.Random) -> float:
    return 1.0 if rng.random() < 0.98 else rng.random()


@pytest.mark.parametrize("draw", [continuous, tied, almost_all_perfect])
def test_on_unchanged_traffic_five_percent_are_suspicious(draw: Callable[[random.Random], float]) -> None:
    """Mean over 100 baselines of 500 calls, each met by 2,000 calls: 5 % within 0.3, whatever is tied.

    The rate of a single baseline varies by its own error, whose standard deviation is about 1 %.
    """
    rng = random.Random(4)
    rates: list[float] = []
    for _ in range(100):
        found = Distribution.of([draw(rng) for _ in range(CALLS)])
        rates.append(share_suspicious(found, [draw(rng) for _ in range(2000)], rng))
    assert statistics.fmean(rates) == pytest.approx(0.05, abs=0.003)
    assert max(rates) < 0.09
