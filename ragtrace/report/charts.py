"""Geometry of the charts in the HTML report: positions in per cent, and SVG paths of the timeline chart."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from ragtrace.estimates import Estimate
from ragtrace.report.model import ChangeEnd, MetricReport, Onset, ReportedAlert, Rollout, ScoreSpread, TimelinePoint

WIDTH: Final = 1000
HEIGHT: Final = 200
_NARROWEST: Final = 6
"""Least width of an alert's mark, of the `WIDTH` of the chart."""
_STEPS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_MOST_LINES: Final = 6
_FINEST_OF_SCORES: Final = 0.05
"""Least distance of the lines of a decision judge's scores, so that scores that hardly differ do not look as if."""
_HOUR: Final = 3600
_TIME_STEPS: Final = (60, 300, 900, 1800, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, 24 * _HOUR, 48 * _HOUR,
                      7 * 24 * _HOUR, 14 * 24 * _HOUR, 30 * 24 * _HOUR, 90 * 24 * _HOUR)  # fmt: skip
_MOST_TIMES: Final = 6
_FEWEST_POINTS: Final = 2
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of a chart, which maps values linearly to positions in per cent and has round values as labels."""

    low: float
    high: float
    lines: tuple[float, ...] = ()

    def position(self, value: float) -> float:
        """Return the position of *value* on the axis in per cent: 0 at the low end, 100 at the high end."""
        return round(100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low))), 3)

    def y(self, value: float) -> float:
        """Return the vertical position of *value* in the SVG of a timeline chart, which is `HEIGHT` units high."""
        return round(HEIGHT * (1 - self.position(value) / 100), 2)


@dataclass(frozen=True, slots=True)
class CallAxis:
    """Axis of a chart on which calls stand in their order, at equal distances, and a time between its calls."""

    low: float
    high: float
    times: tuple[float, ...]
    """Times of the calls at equal steps of their order."""
    count: int

    def position(self, value: float) -> float:
        """Return the position of the time *value* in per cent: the share of the calls that came before."""
        return round(100 * bisect_left(self.times, value) / len(self.times), 3)


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """SVG chart of a metric's estimate over time, with 95 % interval, earlier estimate and new releases.

    Of a decision judge's scores, which have no estimate, it shows the median.
    """

    values: Axis
    times: Axis | CallAxis
    parts: tuple[tuple[float, float, int], ...]
    """Left and right end in per cent, and number of scored calls, of each point."""
    paths: tuple[tuple[str, str], ...]
    """CSS class and SVG path of each shape, the bottom layer first."""
    rollouts: tuple[Rollout, ...]
    onset: Onset | None
    """Onset of a change that lies within the times of the chart."""
    alerts: int
    """Number of alerts that lasted within the times of the chart."""
    ticks: tuple[tuple[str, float], ...]
    """Label and position in per cent of each round time on the time axis."""
    known: int
    """Number of points that have an estimate."""
    last: TimelinePoint
    """Last point that has an estimate."""

    @property
    def is_by_call(self) -> bool:
        """Whether calls, and not times, stand at equal distances."""
        return isinstance(self.times, CallAxis)


def timeline_chart(
    item: MetricReport,
    before: Estimate | None,
    rollouts: Sequence[Rollout],
    onset: Onset | None = None,
    alerts: Sequence[ReportedAlert] = (),
) -> TimelineChart | None:
    """Build the chart of a metric's estimate over time, or return None if fewer than two points have an estimate.

    Args:
        before: the level that the estimate is compared with.
        rollouts: new releases.
        onset: time since when the metric is better or worse.
        alerts: alerts, each of which is marked from its beginning to its end.
    """
    known = [point for point in item.timeline if point.value is not None]
    if len(known) < _FEWEST_POINTS:
        return None
    level = None if before is None else before.value
    if item.is_raw:
        level = None if item.box_before is None else item.box_before.median
    levels = [*_levels_to_show(known), *_interval_ends(before), *([] if level is None else [level])]
    values = _round_scale(levels, _FINEST_OF_SCORES if item.is_raw else 0.0)
    first, last = item.timeline[0], item.timeline[-1]
    times: Axis | CallAxis = Axis(first.period.start, last.period.end)
    if last.calls is not None:
        times = CallAxis(first.period.start, last.period.end, item.call_times, last.calls[1])
    parts = tuple(_part(point, times) for point in item.timeline)
    shown = tuple(each for each in rollouts if times.low <= each.at < times.high)
    onset = onset if onset is not None and times.low <= onset.at < times.high else None
    lasted = [each for each in alerts if each.since < times.high and each.last_seen >= times.low]
    paths = [
        *_onset_paths(onset, times),
        *_before_paths(level, _interval_ends(before), values),
        ("grid", "".join(f"M0 {values.y(line)}H{WIDTH}" for line in values.lines)),
        *_estimate_paths(item.timeline, parts, values),
        ("rollout", "".join(f"M{10 * times.position(each.at)} 0V{HEIGHT}" for each in shown)),
        ("alert-began", "".join(f"M{10 * times.position(each.since)} 0V{HEIGHT}" for each in lasted)),
        ("alert", "".join(f"M{10 * times.position(each.since)} 3H{_alert_end(each, times)}" for each in lasted)),
    ]
    return TimelineChart(
        values, times, parts, tuple((kind, path) for kind, path in paths if path), shown, onset, len(lasted),
        tuple(_ticks(times)), len(known), known[-1],
    )  # fmt: skip


def _part(point: TimelinePoint, times: Axis | CallAxis) -> tuple[float, float, int]:
    """Return where the part of a point begins and ends on the axis, in per cent, and its number of scored calls."""
    if isinstance(times, CallAxis) and point.calls is not None:
        first, last = point.calls
        return round(100 * (first - 1) / times.count, 3), round(100 * last / times.count, 3), point.judged
    return times.position(point.period.start), times.position(point.period.end), point.judged


def common_scale(estimates: Iterable[Estimate]) -> Axis:
    """Return one chart axis with round ends that covers the 95 % intervals of all *estimates*."""
    levels = [end for estimate in estimates for end in _interval_ends(estimate)]
    return _round_scale(levels) if levels else Axis(0.0, 1.0, (0.0, 0.5, 1.0))


def spread_scale(spread: ScoreSpread) -> Axis:
    """Return the axis for a box plot of scores: from 0 to 1, or wider if the scores go beyond."""
    if spread.shares:
        return Axis(0.0, 1.0)
    low = min(0.0, spread.low)
    return Axis(low, spread.high if spread.high > low else spread.high + 1.0)


def _band(point: TimelinePoint) -> tuple[tuple[float, float], ...]:
    """Return the ends of the band at a point, or nothing: a 95 % interval, or quartiles of scores that have none."""
    if point.middle is not None:
        return (point.middle,)
    low, high = point.estimate.low, point.estimate.high
    return () if low is None or high is None else ((low, high),)


def _interval_ends(estimate: Estimate | None) -> tuple[float, ...]:
    return () if estimate is None or estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


def _levels_to_show(known: Sequence[TimelinePoint]) -> list[float]:
    """Return the values that the vertical axis must cover: all estimates, and the ends of most intervals.

    The widest quarter of the intervals is left out.

    One point with two judged calls has an interval from 0 to 90 %, which would flatten all others.
    """
    values = [point.value or 0.0 for point in known]
    ends = sorted((pair for point in known for pair in _band(point)), key=lambda pair: pair[1] - pair[0])
    # Share of the intervals, from 0 to 1, that are shown in full: the narrowest ones.
    usual = ends[: max(1, round(0.75 * len(ends)))]
    return [*values, *(end for pair in usual for end in pair)]


def _round_scale(levels: Sequence[float], finest: float = 0.0) -> Axis:
    """Return a chart axis with round ends, with lines at least *finest* apart, that covers all *levels*.

    The axis begins at 0 if the levels are nearer to 0 than to each other.
    """
    low, high = min(levels), max(levels)
    low = 0.0 if low < (high - low) else low
    step = next((step for step in _STEPS if step >= finest and (high - low) / step <= _MOST_LINES - 1), _STEPS[-1])
    first, last = int((low + _ROUNDING) // step), -int(-(high - _ROUNDING) // step)
    last = max(last, first + 1)
    return Axis(first * step, last * step, tuple(round(number * step, 6) for number in range(first, last + 1)))


def _alert_end(alert: ReportedAlert, times: Axis | CallAxis) -> float:
    """Return where the mark of an alert ends; that of a short one is still wide enough to be seen."""
    return max(10 * times.position(alert.last_seen), 10 * times.position(alert.since) + _NARROWEST)


def _onset_paths(onset: Onset | None, times: Axis | CallAxis) -> list[tuple[str, str]]:
    """Return the SVG paths of the onset of a change: an upright line, and a band for its 95 % confidence set."""
    if onset is None:
        return []
    paths: list[tuple[str, str]] = []
    both: list[Onset | ChangeEnd] = [onset] if onset.end is None else [onset, onset.end]
    for each in both:
        earliest, latest = 10 * times.position(each.earliest), 10 * times.position(each.latest)
        band = f"M{earliest} 0H{latest}V{HEIGHT}H{earliest}Z"
        line = f"M{10 * times.position(each.at)} 0V{HEIGHT}"
        paths += [(f"onset-band {onset.direction}", band), (f"onset {onset.direction}", line)]
    return paths


def _before_paths(level: float | None, interval: Sequence[float], values: Axis) -> list[tuple[str, str]]:
    """Return the SVG paths of the earlier estimate or median: a dashed line, and a band for the 95 % interval."""
    if level is None:
        return []
    line = ("before", f"M0 {values.y(level)}H{WIDTH}")
    if not interval:
        return [line]
    low, high = interval
    return [("before-band", f"M0 {values.y(low)}H{WIDTH}V{values.y(high)}H0Z"), line]


def _estimate_paths(
    timeline: Sequence[TimelinePoint], parts: Sequence[tuple[float, float, int]], values: Axis
) -> list[tuple[str, str]]:
    """Return the SVG paths of a metric's estimates over time: interval band, line and points.

    The line has gaps where no call was judged.
    """
    runs: list[list[tuple[float, TimelinePoint]]] = [[]]
    for point, (left, right, _) in zip(timeline, parts, strict=True):
        if point.value is None:
            runs.append([])
        else:
            runs[-1].append((round(5 * (left + right), 3), point))
    band = line = dots = bars = ""
    for run in filter(None, runs):
        middle = [f"{x} {values.y(point.value or 0.0)}" for x, point in run]
        dots += "".join(f"M{place}h0" for place in middle)
        ends = [(x, values.y(low), values.y(high)) for x, point in run for low, high in _band(point)]
        if len(run) == 1:
            bars += "".join(f"M{x} {low}V{high}" for x, low, high in ends)
            continue
        line += f"M{'L'.join(middle)}"
        if ends:
            upper = "L".join(f"{x} {high}" for x, _, high in ends)
            lower = "L".join(f"{x} {low}" for x, low, _ in reversed(ends))
            band += f"M{upper}L{lower}Z"
    return [("band", band), ("bar", bars), ("line", line), ("dots", dots)]


def _ticks(times: Axis | CallAxis) -> Iterable[tuple[str, float]]:
    if isinstance(times, CallAxis):
        sizes = (digit * 10**exponent for exponent in range(12) for digit in (1, 2, 5))
        step = next(size for size in sizes if times.count / size <= _MOST_TIMES)
        for number in range(step, times.count + 1, step):
            yield f"call {number:,}" if number == step else f"{number:,}", round(100 * number / times.count, 3)
        return
    length = times.high - times.low
    step = next((step for step in _TIME_STEPS if length / step <= _MOST_TIMES), _TIME_STEPS[-1])
    for number in range(-int(-times.low // step), int(times.high // step) + 1):
        at = datetime.fromtimestamp(number * step, timezone.utc)
        label = at.strftime("%d %b") if step >= 24 * _HOUR or (at.hour, at.minute) == (0, 0) else at.strftime("%H:%M")
        yield label, times.position(number * step)
