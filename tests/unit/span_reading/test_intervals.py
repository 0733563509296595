"""Times of steps: whether an interval touches any of many."""

from __future__ import annotations

from hypothesis import given, strategies

from ragtrace.span_reading.intervals import Interval, Intervals, Overlaps, overlap, time_span
from ragtrace.span_reading.readers import read_span
from tests.unit.span_reading.made import llm

INTERVALS = strategies.tuples(strategies.integers(0, 40), strategies.integers(0, 8)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1])
)


@given(strategies.lists(INTERVALS, max_size=12), INTERVALS)
def test_an_interval_touches_the_union_if_it_touches_one_of_them(intervals: list[Interval], asked: Interval) -> None:
    """One common moment is enough."""
    expected = any(start <= asked[1] and asked[0] <= end for start, end in intervals)
    assert Intervals(intervals).touch(asked) is expected


@given(strategies.lists(INTERVALS.filter(lambda each: each[0] < each[1]), max_size=12), INTERVALS)
def test_intervals_that_overlap_are_counted(intervals: list[Interval], asked: Interval) -> None:
    """As if each was compared."""
    if asked[0] < asked[1]:
        assert Overlaps(intervals).count(asked) == sum(overlap(each, asked) for each in intervals)


def test_a_common_end_is_no_overlap() -> None:
    """Steps that follow one another do not run at the same time."""
    assert overlap((0, 10), (9, 20))
    assert not overlap((0, 10), (10, 20))


def test_the_time_of_steps_is_from_the_first_start_to_the_last_end() -> None:
    """In nanoseconds, and (0, 0) for no steps."""
    readings = [each for each in map(read_span, (llm((30, 40)), llm((10, 20)), llm((15, 60)))) if each is not None]
    assert time_span(readings) == (10_000_000, 60_000_000)
    assert time_span([]) == (0, 0)
