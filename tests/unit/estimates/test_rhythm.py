"""The rhythm of days and weeks is learned from scores, and takes no change for usual."""

from __future__ import annotations

import numpy as np
import pytest

from ragtrace.estimates.ordered_sums import OrderedSums
from ragtrace.estimates.rhythm import DAY, TimedSums, learn_rhythm

START = 1_800_000_000.0


def scores(days: float, begin: float, mean: float = 0.3, swing: float = 0.1, period: float = DAY) -> TimedSums:
    """Sums of scores without noise, an hour each, whose mean swings around *mean*."""
    at = START + begin * DAY + np.arange(0.5, days * 24) * 3600.0
    wave = mean + swing * np.sin(2.0 * np.pi * at / period)
    return TimedSums(at, OrderedSums.of(np.full(len(at), 50.0), wave))


NOTHING = TimedSums(np.zeros(0), OrderedSums(*(np.zeros(0) for _ in range(5))))


@pytest.mark.parametrize("past", [NOTHING, scores(3, -3), scores(14, -14)], ids=["no days", "3 days", "14 days"])
def test_a_wave_of_the_day_is_what_is_expected(past: TimedSums) -> None:
    """Of the window's mean, whatever its level; from the two days of the window alone, too."""
    window = scores(2, 0, mean=0.4)
    found = learn_rhythm(window, past)
    assert found is not None
    assert not found.is_weekly
    assert found.expected == pytest.approx(0.1 * np.sin(2.0 * np.pi * window.at / DAY), abs=1e-6)
    assert np.ptp(window.sums.less(found.expected).wy / window.sums.w) < 1e-6


def test_a_wave_of_the_week_is_known_after_three_weeks() -> None:
    """Before, every day of the past has a level of its own."""
    window = scores(2, 0, period=7 * DAY)
    found = learn_rhythm(window, scores(21, -21, period=7 * DAY))
    assert found is not None
    assert found.is_weekly
    wave = np.sin(2.0 * np.pi * window.at / (7 * DAY))
    assert found.expected == pytest.approx(0.1 * (wave - wave.mean()), abs=1e-6)
    earlier = learn_rhythm(window, scores(15, -15, period=7 * DAY))
    assert earlier is not None
    assert not earlier.is_weekly


def test_within_a_day_no_rhythm_is_known() -> None:
    """Neither of no calls."""
    assert learn_rhythm(scores(1, 0), NOTHING) is None
    assert learn_rhythm(NOTHING, NOTHING) is None
    assert learn_rhythm(NOTHING, scores(14, -14)) is None


def test_a_change_of_level_in_the_past_is_no_rhythm() -> None:
    """Such as by a release, a week ago."""
    at = START + np.arange(-14 * 24 + 0.5, 0) * 3600.0
    past = TimedSums(at, OrderedSums.of(np.ones(len(at)), np.where(at < START - 7 * DAY, 0.2, 0.6)))
    found = learn_rhythm(scores(2, 0, swing=0.0), past)
    assert found is not None
    assert np.abs(found.expected).max() < 0.002


def test_what_is_left_of_a_change_grows_with_the_days() -> None:
    """Half a day is hard to tell from a rhythm that two days show; a whole day is none of it."""
    window = scores(2, 0)
    short, long = (learn_rhythm(window, past) for past in (NOTHING, scores(14, -14)))
    assert short is not None
    assert long is not None
    half, whole = np.array(36), np.array(24)
    assert float(short.kept(half)) < 0.8
    assert float(long.kept(half)) > 0.93
    assert float(short.kept(whole)) == pytest.approx(1.0, abs=0.01)


def test_the_usual_difference_of_two_times_is_told_beside_a_change() -> None:
    """Of the last quarter of two days, which is worse than usual by .2, the wave makes no part of that."""
    window, past = scores(2, 0), scores(14, -14)
    after = np.arange(len(window.at)) >= 36
    y = window.sums.wy / window.sums.w + 0.2 * after
    sums = OrderedSums.of(window.sums.w, y)
    found = learn_rhythm(TimedSums(window.at, sums), past)
    assert found is not None
    wave = 0.1 * np.sin(2.0 * np.pi * window.at / DAY)
    usual = found.usual_change(36, sums.less(found.expected))
    assert usual == pytest.approx(wave[after].mean() - wave[~after].mean(), abs=1e-6)


def test_hours_without_calls_are_no_problem() -> None:
    """Nor a past with calls at one hour of the day alone."""
    window, past = scores(2, 0), scores(14, -14)
    night = (window.at % DAY) < 10 * 3600.0
    sums = OrderedSums(*(np.where(night, 0.0, each) for each in window.sums))
    at_noon = np.flatnonzero(np.abs(past.at % DAY - DAY / 2) < 1800.0)
    few = TimedSums(past.at[at_noon], OrderedSums(*(each[at_noon] for each in past.sums)))
    for mine, known in ((TimedSums(window.at, sums), past), (window, few)):
        found = learn_rhythm(mine, known)
        assert found is not None
        assert np.isfinite(found.expected).all()
        assert np.isfinite(found.kept(np.arange(1, 47))).all()
