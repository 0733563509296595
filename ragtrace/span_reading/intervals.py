"""Times of steps: closed intervals, each given by its start and its end in nanoseconds since the epoch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TypeAlias

from ragtrace.span_reading.finished_span import SpanReading

Interval: TypeAlias = tuple[int, int]


def time_span(readings: Iterable[SpanReading]) -> Interval:
    """Return the earliest start and the latest end of the spans of some steps; (0, 0) if there are none."""
    spans = [reading.span for reading in readings]
    return min((each.start_ns for each in spans), default=0), max((each.end_ns for each in spans), default=0)


def interval_of(reading: SpanReading) -> Interval:
    """Return the time of a step's span."""
    return reading.span.start_ns, reading.span.end_ns


def overlap(one: Interval, other: Interval) -> bool:
    """Return whether each of two intervals begins before the end of the other."""
    return one[0] < other[1] and other[0] < one[1]


class Intervals:
    """Union of intervals, which is asked in logarithmic time whether an interval touches it."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(intervals):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def touch(self, interval: Interval) -> bool:
        """Return whether *interval* has at least one moment in common with the union."""
        before = bisect_right(self._starts, interval[1])  # of the intervals that begin by its end, the last ends last
        return before > 0 and self._ends[before - 1] >= interval[0]


class Overlaps:
    """Intervals, of which those that overlap with another interval are counted in logarithmic time."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        found = list(intervals)
        self._starts = sorted(start for start, _ in found)
        self._ends = sorted(end for _, end in found)

    def count(self, interval: Interval) -> int:
        """Return how many of the intervals overlap with *interval*, which takes some time."""
        # Those that begin before its end, without those of them that have ended by its start.
        return bisect_left(self._starts, interval[1]) - bisect_right(self._ends, interval[0])
