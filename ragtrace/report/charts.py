"""Geometry of the charts in the HTML report: positions in per cent, and SVG paths of the timeline chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from ragtrace.estimates import Estimate
from ragtrace.report.model import MetricReport, Onset, Period, ReportedAlert, Rollout, ScoreSpread, TimelinePoint

WIDTH: Final = 1000
HEIGHT: Final = 200
_NARROWEST: Final = 6
"""Least width of an alert's mark, of the `WIDTH` of the chart."""
_STEPS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_MOST_LINES: Final = 6
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
class TimelineChart:
    """SVG chart of a metric's estimate over time, with 95 % interval, earlier estimate and new releases."""

    values: Axis
    times: Axis
    points: tuple[TimelinePoint, ...]
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
    last: Estimate


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
    known = [point for point in item.timeline if point.estimate.value is not None]
    if len(known) < _FEWEST_POINTS:
        return None
    values = _round_scale([*_levels_to_show(known), *_interval_ends(before)])
    times = Axis(item.timeline[0].period.start, item.timeline[-1].period.end)
    shown = tuple(each for each in rollouts if times.low <= each.at < times.high)
    onset = onset if onset is not None and times.low <= onset.at < times.high else None
    lasted = [each for each in alerts if each.since < times.high and each.last_seen >= times.low]
    paths = [
        *_onset_paths(onset, times),
        *_before_paths(before, values),
        ("grid", "".join(f"M0 {values.y(line)}H{WIDTH}" for line in values.lines)),
        *_estimate_paths(item.timeline, times, values),
        ("rollout", "".join(f"M{10 * times.position(each.at)} 0V{HEIGHT}" for each in shown)),
        ("alert-began", "".join(f"M{10 * times.position(each.since)} 0V{HEIGHT}" for each in lasted)),
        ("alert", "".join(f"M{10 * times.position(each.since)} 3H{_alert_end(each, times)}" for each in lasted)),
    ]
    return TimelineChart(
        values, times, item.timeline, tuple((kind, path) for kind, path in paths if path), shown, onset, len(lasted),
        tuple(_ticks(Period(times.low, times.high), times)), len(known), known[-1].estimate,
    )  # fmt: skip


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


def _interval_ends(estimate: Estimate | None) -> tuple[float, ...]:
    return () if estimate is None or estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


def _levels_to_show(known: Sequence[TimelinePoint]) -> list[float]:
    """Return the values that the vertical axis must cover: all estimates, and the ends of most intervals.

    The widest quarter of the intervals is left out.

    One point with two judged calls has an interval from 0 to 90 %, which would flatten all others.
    """
    values = [point.estimate.value or 0.0 for point in known]
    ends = sorted((_interval_ends(point.estimate) for point in known), key=lambda pair: pair[1] - pair[0])
    # Share of the intervals, from 0 to 1, that are shown in full: the narrowest ones.
    usual = ends[: max(1, round(0.75 * len(ends)))]
    return [*values, *(end for pair in usual for end in pair)]


def _round_scale(levels: Sequence[float]) -> Axis:
    """Return a chart axis with round ends that covers all *levels*.

    The axis begins at 0 if the levels are nearer to 0 than to each other.
    """
    low, high = min(levels), max(levels)
    low = 0.0 if low < (high - low) else low
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_LINES - 1), _STEPS[-1])
    first, last = int((low + _ROUNDING) // step), -int(-(high - _ROUNDING) // step)
    last = max(last, first + 1)
    return Axis(first * step, last * step, tuple(round(number * step, 6) for number in range(first, last + 1)))


def _alert_end(alert: ReportedAlert, times: Axis) -> float:
    """Return where the mark of an alert ends; that of a short one is still wide enough to be seen."""
    return max(10 * times.position(alert.last_seen), 10 * times.position(alert.since) + _NARROWEST)


def _onset_paths(onset: Onset | None, times: Axis) -> list[tuple[str, str]]:
    """Return the SVG paths of the onset of a change: an upright line, and a band for its 95 % confidence set."""
    if onset is None:
        return []
    earliest, latest = 10 * times.position(onset.earliest), 10 * times.position(onset.latest)
    band = f"M{earliest} 0H{latest}V{HEIGHT}H{earliest}Z"
    line = f"M{10 * times.position(onset.at)} 0V{HEIGHT}"
    return [(f"onset-band {onset.direction}", band), (f"onset {onset.direction}", line)]


def _before_paths(before: Estimate | None, values: Axis) -> list[tuple[str, str]]:
    """Return the SVG paths of the earlier estimate: a dashed line, and a band for the 95 % interval."""
    if before is None or before.value is None:
        return []
    line = ("before", f"M0 {values.y(before.value)}H{WIDTH}")
    if before.low is None or before.high is None:
        return [line]
    return [("before-band", f"M0 {values.y(before.low)}H{WIDTH}V{values.y(before.high)}H0Z"), line]


def _estimate_paths(timeline: Sequence[TimelinePoint], times: Axis, values: Axis) -> list[tuple[str, str]]:
    """Return the SVG paths of a metric's estimates over time: interval band, line and points.

    The line has gaps where no call was judged.
    """
    runs: list[list[TimelinePoint]] = [[]]
    for point in timeline:
        if point.estimate.value is None:
            runs.append([])
        else:
            runs[-1].append(point)
    band = line = dots = bars = ""
    for run in filter(None, runs):
        xs = [10 * times.position((point.period.start + point.period.end) / 2) for point in run]
        middle = [f"{x} {values.y(point.estimate.value or 0.0)}" for x, point in zip(xs, run, strict=True)]
        low, high = zip(*(map(values.y, _interval_ends(point.estimate)) for point in run), strict=True)
        dots += "".join(f"M{place}h0" for place in middle)
        if len(run) == 1:
            bars += f"M{xs[0]} {low[0]}V{high[0]}"
            continue
        upper = "L".join(f"{x} {y}" for x, y in zip(xs, high, strict=True))
        lower = "L".join(f"{x} {y}" for x, y in zip(reversed(xs), reversed(low), strict=True))
        band += f"M{upper}L{lower}Z"
        line += f"M{'L'.join(middle)}"
    return [("band", band), ("bar", bars), ("line", line), ("dots", dots)]


def _ticks(period: Period, times: Axis) -> Iterable[tuple[str, float]]:
    length = period.end - period.start
    step = next((step for step in _TIME_STEPS if length / step <= _MOST_TIMES), _TIME_STEPS[-1])
    for number in range(-int(-period.start // step), int(period.end // step) + 1):
        at = datetime.fromtimestamp(number * step, timezone.utc)
        label = at.strftime("%d %b") if step >= 24 * _HOUR or (at.hour, at.minute) == (0, 0) else at.strftime("%H:%M")
        yield label, times.position(number * step)
