"""The onset of a change lies in its confidence set in 95 % of all histories, and none is seen where there is none."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pytest

from ragtrace.estimates.change_point import ChangePoint, find_change
from ragtrace.estimates.ordered_sums import OrderedSums

REPLICATES: Final = 1000
SEED: Final = 19880301
SLACK: Final = 2 * math.sqrt(0.93 * 0.07 / REPLICATES)


def draw(
    rng: np.random.Generator, rates: tuple[float, float], calls: int, changed: int, kind: str
) -> ChangePoint | None:
    """A change in *calls* scores of which those from *changed* on have the second rate."""
    rate = np.where(np.arange(calls) < changed, *rates)
    if kind == "graded":  # between 0 and 1, with a third of the variance of verdicts
        return find_change(OrderedSums.of(np.ones(calls), rng.beta(2.0 * rate, 2.0 * (1.0 - rate))))
    bad = (rng.random(calls) < rate).astype(float)
    if kind == "verdicts":
        return find_change(OrderedSums.of(np.ones(calls), bad))
    chance = np.where(rng.random(calls) < np.where(bad > 0.0, 0.6, 0.2), 0.9, 0.3)  # suspicious ones are judged more
    seen = rng.random(calls) < chance
    return find_change(OrderedSums.of(np.where(seen, 1.0 / chance, 0.0), bad))


@pytest.mark.parametrize(
    ("rates", "calls", "changed"),
    [
        ((0.02, 0.12), 1000, 700),
        ((0.05, 0.20), 600, 300),
        ((0.05, 0.20), 600, 540),
        ((0.10, 0.40), 400, 100),
        ((0.30, 0.45), 1500, 900),
        ((0.25, 0.05), 800, 400),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["verdicts", "graded", "sampled"])
def test_the_confidence_set_holds_the_onset(rates: tuple[float, float], calls: int, changed: int, kind: str) -> None:
    """In at least 93 % of the histories in which the change is seen at all."""
    rng, held, seen = np.random.default_rng(SEED), 0, 0
    for _ in range(REPLICATES):
        found = draw(rng, rates, calls, changed, kind)
        if found is not None and found.p_value <= 0.01:
            seen += 1
            held += found.earliest <= changed <= found.latest
    assert seen > REPLICATES / 5
    assert held / seen >= 0.93 - SLACK


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("calls", [100, 1000])
@pytest.mark.parametrize("kind", ["verdicts", "graded", "sampled"])
def test_without_a_change_none_is_seen(rate: float, calls: int, kind: str) -> None:
    """At the level of 1 %, in at most about one history of a hundred."""
    rng = np.random.default_rng(SEED)
    found = [draw(rng, (rate, rate), calls, calls, kind) for _ in range(REPLICATES)]
    alarms = sum(each is not None and each.p_value <= 0.01 for each in found)
    assert alarms <= 10 + 2 * math.sqrt(10)
