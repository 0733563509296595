"""The first page says that something changed in hardly any week in which nothing did, however often one looks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ragtrace.estimates.rhythm import DAY
from tests.benchmarks.hourly_looks import called_worse, rate_of
from tests.support.hourly_looks import HOUR, T0, between, drawn, look


@pytest.mark.parametrize(
    ("name", "kind", "history"),
    [
        ("5 %", "all", 2.0),
        ("20 %", "all", 2.0),
        ("5 %", "suspicious", 2.0),
        ("day", "all", 16.0),
        ("week", "all", 23.0),
    ],
)
def test_hardly_any_week_without_a_change_says_that_there_is_one(name: str, kind: str, history: float) -> None:
    """At no look of a week; `tests/benchmarks/hourly_looks.py` has more weeks, and 2,000 calls a day."""
    rng, said, weeks = np.random.default_rng(20261129), 0, 12
    for _ in range(weeks):
        traffic = drawn(rng, history + 7.0, 200, rate_of(name, 7.0 * rng.random()), kind)
        times = T0 + history * DAY + np.arange(0.0, 7.0 * DAY, 3.0 * HOUR)
        said += any(look(traffic, float(now)).says_something for now in times)
    assert said <= 3  # as many as 6 % of the weeks are exceeded in 1 of 200 such tests


@pytest.mark.parametrize(("rates", "hours"), [((0.03, 0.09), 12), ((0.03, 0.06), 48)])
def test_a_rise_is_red_in_time(rates: tuple[float, float], hours: int) -> None:
    """In at least 80 % of the histories, less what as few of them may miss by chance."""
    rng, red, runs = np.random.default_rng(20261130), 0, 10
    for _ in range(runs):
        traffic = drawn(rng, 8.0 + hours / 24, 2000, partial(between, 0.0, 8.0, *rates))
        red += any(look(traffic, T0 + 8 * DAY + hour * HOUR).is_red for hour in range(4, hours + 1, 4))
    assert red >= 6


def test_an_incident_that_is_over_is_not_said_to_last() -> None:
    """In at most 5 %, of 25 histories; and its beginning and end lie in their intervals."""
    rng, over, held, lasts = np.random.default_rng(20261201), 0, 0, 0
    for _ in range(25):
        end = 4.0 - rng.uniform(2.0, 20.0) / 24.0
        begin = end - rng.uniform(3.0, 6.0) / 24.0
        traffic = drawn(rng, 4.0, 2000, partial(between, begin, end, 0.2, 0.05))
        onset = look(traffic, T0 + 4.0 * DAY).onset
        if onset is None:
            continue
        assert onset.direction == "worse"
        if onset.end is None:
            lasts += 1
            continue
        over += 1
        held += onset.earliest <= T0 + begin * DAY <= onset.latest
        held += onset.end.earliest <= T0 + end * DAY <= onset.end.latest
    assert lasts <= 2
    assert over >= 10
    assert held >= 2 * over - 4


def test_a_change_that_lasts_is_not_said_to_be_over() -> None:
    """However long ago it began, and although some of the latest calls are good; in at most 2 %, of 60 histories."""
    rng, over = np.random.default_rng(20261203), 0
    for _ in range(60):
        begin = 8.0 - rng.uniform(1.0, 24.0) / 24.0
        onset = look(drawn(rng, 8.0, 500, partial(between, begin, 9.0, 0.3, 0.05)), T0 + 8.0 * DAY).onset
        over += onset is not None and onset.end is not None
    assert over <= 3


@pytest.mark.parametrize(("old", "new", "most", "bounds"), [(0.05, 0.05, 2000, (0, 9)), (0.04, 0.08, 1000, (70, 100))])
def test_a_rollout_may_be_watched(old: float, new: float, most: int, bounds: tuple[int, int]) -> None:
    """A release that is no worse is called worse in at most 5 % of roll-outs, one twice as bad in 80 %, of 100."""
    rng, worse = np.random.default_rng(20261202), 0
    for _ in range(100):
        old_bad, new_bad = np.cumsum(rng.random((2, most)) < np.array([[old], [new]]), axis=1).astype(float)
        worse += any(called_worse(old_bad[n - 1], new_bad[n - 1], n) for n in range(20, most + 1, 40))
    assert bounds[0] <= worse <= bounds[1]
