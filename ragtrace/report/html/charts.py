"""Pictures: shapes in SVG that stretch with the page, words in HTML that do not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

from ragtrace.estimates import Estimate
from ragtrace.report import words
from ragtrace.report.html.element import Html, element
from ragtrace.report.model import Box, Measured, Period, Point, Rollout

_WIDTH: Final = 1000
_HEIGHT: Final = 200
_STEPS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_MOST_LINES: Final = 6
_HOUR: Final = 3600
_TIME_STEPS: Final = (60, 300, 900, 1800, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, 24 * _HOUR, 48 * _HOUR,
                      7 * 24 * _HOUR, 14 * 24 * _HOUR, 30 * 24 * _HOUR, 90 * 24 * _HOUR)  # fmt: skip
_MOST_TIMES: Final = 6
_FEWEST_POINTS: Final = 2
_ROUNDING: Final = 1e-9
_SHOWN: Final = 0.75
"""Share of the intervals that are shown in full."""


class Scale:
    """From values to per cents of a length."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        """Where *value* is: 0 to 100."""
        return round(100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low))), 3)


def over_time(item: Measured, before: Estimate | None, rollouts: Sequence[Rollout] = ()) -> Html:
    """The estimate over time with its interval as a band, the level compared with, and when releases came up."""
    known = [point for point in item.timeline if point.estimate.value is not None]
    if len(known) < _FEWEST_POINTS:
        return element("p", "Too little was judged for a picture over time.", class_="quiet")
    scale, lines = _axis([*_levels(known), *_ends(before)])
    times = Scale(item.timeline[0].period.start, item.timeline[-1].period.end)
    shapes = [_grid(scale, lines), *_bands(item.timeline, times, scale)]
    starts = "".join(f"M{10 * times.at(each.at)} 0V{_HEIGHT}" for each in rollouts if times.low <= each.at < times.high)
    shapes += [_shape(starts, "rollout")] if starts else []
    notes = [element("span", f"{100 * line:g}%", style=f"bottom:{scale.at(line)}%") for line in lines]
    if before is not None and before.value is not None:
        shapes = [*_level(before, scale), *shapes]
    described = f"{words.title(item.metric)} over time, {len(known)} points, the last at " + words.with_interval(
        known[-1].estimate
    )
    picture = element(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=described,
    )
    ticks = _times(Period(times.low, times.high), times)
    marks = [
        element("span", f"\u25b8 {words.name(each.release)}", style=f"left:{times.at(each.at)}%")
        for each in rollouts
        if times.low <= each.at < times.high
    ]
    return element(
        "div",
        element("div", *marks, class_="rollouts") if marks else None,
        element("div", picture, element("div", *notes, class_="levels"), class_="plot"),
        element("div", *_scored(item.timeline, times), class_="scored"),
        element("div", *ticks, class_="times"),
        class_="chart",
    )


def _level(before: Estimate, scale: Scale) -> list[Html]:
    """What is compared with: a broken line in a band of its own."""
    line = _shape(f"M0 {_y(scale, before.value or 0.0)}H{_WIDTH}", "before")
    if before.low is None or before.high is None:
        return [line]
    band = f"M0 {_y(scale, before.low)}H{_WIDTH}V{_y(scale, before.high)}H0Z"
    return [_shape(band, "before-band"), line]


def _scored(timeline: Sequence[Point], times: Scale) -> list[Html]:
    """Bars below the picture: how many scored calls each point rests on."""
    most = max((point.judged for point in timeline), default=0) or 1
    bars: list[Html] = []
    for point in timeline:
        start, end = times.at(point.period.start), times.at(point.period.end)
        place = f"left:{start + 0.15:.3f}%;width:{max(0.2, end - start - 0.3):.3f}%"
        bars.append(element("s", style=f"{place};height:{100 * point.judged / most:.1f}%"))
    return bars


def _ends(estimate: Estimate | None) -> tuple[float, ...]:
    return () if estimate is None or estimate.low is None or estimate.high is None else (estimate.low, estimate.high)


def _levels(known: Sequence[Point]) -> list[float]:
    """What the picture must show: all estimates, and the intervals but for the widest, which may leave it.

    One point with two judged calls has an interval from 0 to 90 %; drawn in full, it would flatten all others.
    """
    values = [point.estimate.value or 0.0 for point in known]
    ends = sorted((_ends(point.estimate) for point in known), key=lambda pair: pair[1] - pair[0])
    usual = ends[: max(1, round(_SHOWN * len(ends)))]
    return [*values, *(end for pair in usual for end in pair)]


def _axis(levels: Sequence[float]) -> tuple[Scale, list[float]]:
    """A scale with round ends that holds all *levels*; from 0 where they are nearer to it than to each other."""
    low, high = min(levels), max(levels)
    low = 0.0 if low < (high - low) else low
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_LINES - 1), _STEPS[-1])
    first, last = int((low + _ROUNDING) // step), -int(-(high - _ROUNDING) // step)
    last = max(last, first + 1)
    return Scale(first * step, last * step), [round(number * step, 6) for number in range(first, last + 1)]


def _y(scale: Scale, value: float) -> float:
    return round(_HEIGHT * (1 - scale.at(value) / 100), 2)


def _grid(scale: Scale, lines: Sequence[float]) -> Html:
    return _shape("".join(f"M0 {_y(scale, line)}H{_WIDTH}" for line in lines), "grid")


def _shape(path: str, kind: str) -> Html:
    return element("path", d=path, class_=kind, vector_effect="non-scaling-stroke")


def _bands(timeline: Sequence[Point], times: Scale, scale: Scale) -> list[Html]:
    """Band, line and points, with gaps where nothing was judged."""
    band = line = dots = bars = ""
    for run in _runs(timeline):
        places = [
            (
                10 * times.at((point.period.start + point.period.end) / 2),
                point.estimate.value or 0.0,
                *_ends(point.estimate),
            )
            for point in run
        ]
        dots += "".join(f"M{x} {_y(scale, value)}h0" for x, value, _, _ in places)
        if len(places) == 1:
            x, _, low, high = places[0]
            bars += f"M{x} {_y(scale, low)}V{_y(scale, high)}"
            continue
        upper = "L".join(f"{x} {_y(scale, high)}" for x, _, _, high in places)
        lower = "L".join(f"{x} {_y(scale, low)}" for x, _, low, _ in reversed(places))
        band += f"M{upper}L{lower}Z"
        line += "M" + "L".join(f"{x} {_y(scale, value)}" for x, value, _, _ in places)
    kinds = ((band, "band"), (bars, "bar"), (line, "line"), (dots, "dots"))
    return [_shape(path, kind) for path, kind in kinds if path]


def _runs(timeline: Sequence[Point]) -> list[list[Point]]:
    """Points next to each other that have an estimate."""
    runs: list[list[Point]] = [[]]
    for point in timeline:
        if point.estimate.value is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if run]


def _times(period: Period, scale: Scale) -> list[Html]:
    """Round times along the axis."""
    length = period.end - period.start
    step = next((step for step in _TIME_STEPS if length / step <= _MOST_TIMES), _TIME_STEPS[-1])
    first = -int(-period.start // step)
    labels: list[Html] = []
    for number in range(first, int(period.end // step) + 1):
        at = datetime.fromtimestamp(number * step, timezone.utc)
        says = at.strftime("%d %b") if step >= 24 * _HOUR or (at.hour, at.minute) == (0, 0) else at.strftime("%H:%M")
        labels.append(element("span", says, style=f"left:{scale.at(number * step)}%"))
    return labels


def whisker(estimate: Estimate, scale: Scale, before: Estimate | None = None, whole: float | None = None) -> Html:
    """One estimate and its interval on a common scale: a dot; what it was before: a ring; all calls: a stroke."""
    line = None if whole is None else element("u", style=f"left:{scale.at(whole)}%")
    marks = [line, *_interval(before, scale, "was"), *_interval(estimate, scale, None)]
    return element("div", *marks, class_="whisker" if before is None else "whisker two")


def _interval(estimate: Estimate | None, scale: Scale, kind: str | None) -> list[Html]:
    if estimate is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return []
    low, high = scale.at(estimate.low), scale.at(estimate.high)
    return [
        element("i", style=f"left:{low}%;width:{max(0.4, high - low):.3f}%", class_=kind),
        element("b", style=f"left:{scale.at(estimate.value)}%", class_=kind),
    ]


def common(estimates: Sequence[Estimate]) -> tuple[Scale, list[float]]:
    """A scale that holds all *estimates*, and the round values on it."""
    levels = [end for estimate in estimates for end in _ends(estimate)]
    return _axis(levels) if levels else (Scale(0.0, 1.0), [0.0, 0.5, 1.0])


def ticks(scale: Scale, lines: Sequence[float]) -> Html:
    """The round values of a scale, below what is drawn on it."""
    return element(
        "div", *(element("span", f"{100 * line:g}%", style=f"left:{scale.at(line)}%") for line in lines), class_="axis"
    )


def box(shown: Box) -> Html:
    """A box plot over the shares of the calls; for scores that are not in [0, 1] on a scale of their own."""
    if shown.shares:
        scale = Scale(0.0, 1.0)
    else:
        scale = Scale(min(0.0, shown.low), shown.high if shown.high > min(0.0, shown.low) else shown.high + 1.0)
    most = max(shown.shares, default=0.0) or 1.0
    bars = [element("s", style=f"height:{max(1.5 * (share > 0), 100 * share / most):.1f}%") for share in shown.shares]
    left, right = scale.at(shown.first), scale.at(shown.third)
    low, high = scale.at(shown.low), scale.at(shown.high)
    return element(
        "div",
        element("div", *bars, class_="shares") if bars else None,
        element(
            "div",
            element("u", style=f"left:{low}%;width:{max(0.3, high - low):.3f}%"),
            element("i", style=f"left:{left}%;width:{max(0.6, right - left):.3f}%"),
            element("b", style=f"left:{scale.at(shown.median)}%"),
            element("em", style=f"left:{scale.at(shown.mean)}%"),
            class_="box",
        ),
        element(
            "div", element("span", words.number(scale.low)), element("span", words.number(scale.high)), class_="ends"
        ),
        class_="spread",
        role="img",
        aria_label=f"median {words.number(shown.median)}, half of the calls from {words.number(shown.first)} to "
        f"{words.number(shown.third)}",
    )
