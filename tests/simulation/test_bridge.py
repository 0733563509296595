"""The offset of a judge's mean score at a change of its model: covered, and known to a point from 3,000 calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from ragtrace.estimates.bridge import MOST, WANTED, Offset, calls_needed, score_offset
from tests.support.decision_populations import POOL, Decider, call_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SAMPLES: Final = 400
SEED: Final = 141_421
VERDICT_CALLS: Final = 6_400
"""Calls that verdicts of another model may need."""
MINOR: Final = (Decider(0.85), Decider(0.85, shift=0.2), 0.99)
VERSION: Final = (Decider(0.85), Decider(0.92), 0.9)
OTHER: Final = (Decider(0.85), Decider(0.92, temperature=2.5), 0.7)
CHANGES: Final = {"minor update": MINOR, "new version": VERSION, "other model": OTHER}
"""Judge before, judge after, and the correlation of their errors."""


def offsets(change: str, rate: float, calls: int, *, verdicts: bool = False) -> Iterator[tuple[Offset, float]]:
    """Yield the offset of each sample of *calls* calls, and the true one."""
    before, after, alike = CHANGES[change]
    first, second = (np.stack(call_scores(rate, judge, how)) for judge, how in ((before, 1.0), (after, alike)))
    if verdicts:
        first, second = (first >= 0.5).astype(float), (second >= 0.5).astype(float)
    of_bad, of_good = (second - first).mean(1)
    true = rate * of_bad + (1.0 - rate) * of_good
    random = np.random.default_rng([SEED, round(1_000 * rate), calls])
    for _ in range(SAMPLES):
        kind, at = (random.random(calls) >= rate).astype(int), random.integers(POOL, size=calls)
        yield score_offset(first[kind, at].tolist(), second[kind, at].tolist()), float(true)


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("change", CHANGES)
def test_three_thousand_calls_know_the_offset_of_the_scores_to_a_point(change: str, rate: float) -> None:
    """Every interval is at most one point to either side, and 93.5 % of them contain the offset."""
    found = list(offsets(change, rate, MOST))
    assert max(each.half_width for each, _ in found) <= WANTED
    assert max(calls_needed(each) for each, _ in found) <= MOST
    assert np.mean([each.low <= true <= each.high for each, true in found]) >= 0.935


@pytest.mark.parametrize(("change", "rate"), [("new version", 0.03), ("other model", 0.3)])
def test_verdicts_need_up_to_6400(change: str, rate: float) -> None:
    """So many know the offset of the verdicts to a point; 92 % of the intervals contain it."""
    found = list(offsets(change, rate, VERDICT_CALLS, verdicts=True))
    assert max(each.half_width for each, _ in found) <= WANTED
    assert np.mean([each.low <= true <= each.high for each, true in found]) >= 0.92
