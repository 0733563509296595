"""Missing scores are told of where they are unusual for the application, and nights and weekends are not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from ragtrace.alerts.score_gaps import ScoreGaps

HOUR = 3_600.0
DAY = 24 * HOUR
Open = Callable[[float], bool]


def always(at: float) -> bool:
    return True


def by_day(at: float) -> bool:
    return 7.0 <= at % DAY / HOUR < 21.0


def working_hours(at: float) -> bool:
    return by_day(at) and at // DAY % 7 < 5


def scores(seed: int, a_day: float, is_open: Open, days: float) -> Iterator[float]:
    """Times of scores, at random where the application is open."""
    rng, at = random.Random(seed), 0.0
    share = sum(is_open(minute * 60.0) for minute in range(7 * 1440)) / (7 * 1440)
    while at < days * DAY:
        at += rng.expovariate(a_day / share / DAY)
        if is_open(at):
            yield at


@pytest.mark.parametrize("is_open", [always, by_day, working_hours])
@pytest.mark.parametrize("a_day", [30, 200, 1_000])
@pytest.mark.parametrize("first_day", [0, 3, 5])
def test_no_gap_of_half_a_year_is_unusual_where_all_is_as_ever(is_open: Open, a_day: float, first_day: int) -> None:
    """Whatever the day of the week on which a process begins to learn."""
    gaps = ScoreGaps(HOUR)
    for at in scores(40_000 + first_day, a_day, lambda at: is_open(at + first_day * DAY), 182 if a_day < 1_000 else 60):
        assert not gaps.is_unusual(at)
        gaps.add(at)


@pytest.mark.parametrize("is_open", [always, by_day])
@pytest.mark.parametrize("a_day", [30, 200, 1_000])
@pytest.mark.parametrize("days", [8, 60])
def test_a_day_without_scores_is_unusual_where_no_gap_was_of_half_a_day(is_open: Open, a_day: float, days: int) -> None:
    """From the second week on."""
    gaps = ScoreGaps(HOUR)
    for at in scores(41_000, a_day, is_open, days):
        gaps.add(at)
    assert gaps.limit < DAY


def test_one_stop_hides_no_other_and_a_new_habit_is_learned() -> None:
    """After one stop of three days the next is unusual, too; after two, they are usual."""
    gaps, at, unusual = ScoreGaps(HOUR), 0.0, []
    for _ in range(3):
        for _ in range(10 * 24):
            at += HOUR
            gaps.add(at)
        at += 3 * DAY
        unusual.append(gaps.is_unusual(at))
        gaps.add(at)
    assert unusual == [True, True, False]


def test_a_habit_is_forgotten_after_eight_weeks() -> None:
    """An application that has become busy is not judged by the quiet days of its beginning."""
    gaps, at = ScoreGaps(HOUR), 0.0
    for step in (*[2 * DAY] * 5, *[HOUR] * (24 * 63)):
        at += step
        gaps.add(at)
    assert gaps.limit == pytest.approx(20 * HOUR, rel=0.01)
