"""Plots in SVG: lines with their bands, stacked areas, heat maps and states over time, as Grafana draws them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from html import escape
from itertools import groupby, pairwise
from typing import Any, Final

_LINES: Final = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#f2495c", "#8ab8ff", "#96d98d")
_BAND: Final = "#5794f2"
_OBJECTIVE: Final = "#f2495c"
_SPECIAL: Final = {"mean": _BAND, "objective": _OBJECTIVE, "same hours of the past week": _OBJECTIVE}
COLOURS: Final = {
    "green": "#56a64b",
    "light-yellow": "#fff899",
    "yellow": "#f2cc0c",
    "light-blue": "#8ab8ff",
    "light-purple": "#ca95e5",
    "blue": "#5794f2",
    "purple": "#a352cc",
    "orange": "#ff9830",
    "red": "#e02f44",
    "text": "#ffffff",
}


@dataclass(frozen=True)
class Line:
    """A series as a panel draws it."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str


@dataclass(frozen=True)
class Frame:
    """From times and values to pixels."""

    width: float
    height: float
    start: float
    end: float
    top: float
    left: float = 58.0
    below: float = 52.0
    base: float = 0.0

    def x(self, at: float) -> float:
        return self.left + (at - self.start) / max(1e-9, self.end - self.start) * (self.width - self.left - 12)

    def y(self, value: float) -> float:
        room = self.height - self.below - 34
        return 34 + room * (1 - (min(max(value, self.base), self.top) - self.base) / max(self.top - self.base, 1e-12))


def _runs(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Points without a gap between them."""
    spacing = min((b[0] - a[0] for a, b in pairwise(points)), default=1.0)
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value != value or (runs[-1] and at - runs[-1][-1][0] > 1.5 * spacing):
            runs.append([])
        if value == value:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def spans(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """From when to when a series was there."""
    return [(run[0][0], run[-1][0]) for run in _runs(points)]


def shades(spikes: Sequence[Sequence[float]], frame: Frame) -> str:
    """What Grafana does with a mark that lasts: a shade over its time."""
    drawn = [
        f'<rect x="{frame.x(start):.1f}" y="34" width="{max(1.0, frame.x(end) - frame.x(start)):.1f}" '
        f'height="{frame.height - frame.below - 34:.1f}" fill="#e02f44" fill-opacity=".09"/>'
        for start, end in spikes
    ]
    return _svg(frame, drawn)


def _named(answer: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    legend = answer["target"].get("legendFormat") or ""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend)


def series(panel: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """Every series of a panel, with its name and colour."""
    fixed, number = dict(_SPECIAL), 0
    for override in panel["fieldConfig"]["overrides"]:
        for each in override["properties"]:
            if each["id"] == "color" and override["matcher"]["options"] not in fixed:
                fixed[override["matcher"]["options"]] = COLOURS[each["value"]["fixedColor"]]
    for answer in answers:
        for labels, points in answer["series"]:
            name = _named(answer, labels)
            if not points:
                continue
            yield Line(name, points, fixed.get(name, _LINES[number % len(_LINES)]))
            number += 1


def lines(panel: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], frame: Frame) -> str:
    """Series over time, with a band if they are an interval; stacked if the panel says so."""
    found = list(series(panel, answers))
    defaults = panel["fieldConfig"]["defaults"]
    unit, custom = defaults.get("unit", ""), defaults.get("custom") or {}
    if custom.get("stacking", {}).get("mode") == "normal":
        return _stacked(found, frame, unit)
    frame, ticks = _scaled(frame, [value for line in found for _, value in line.points if value == value], defaults)
    drawn = [_axes(frame, ticks, unit)]
    by_name = {line.name: line for line in found}
    if "95 % low" in by_name:
        drawn.append(_band(by_name["95 % low"], by_name["95 % high"], frame))
    drawn += [_path(line, frame) for line in found if not line.name.startswith("95 %")]
    figures = bool(panel["options"]["legend"]["calcs"])
    shown = [Line(_figure(line) if figures else line.name, (), _shade(line)) for line in found]
    return _svg(frame, drawn) + _legend(shown)


def _figure(line: Line) -> str:
    value = next((value for _, value in reversed(line.points) if value == value), None)
    return line.name if value is None else f"{line.name} {value:.1%}"


def _shade(line: Line) -> str:
    return "#2c3f63" if line.name.startswith("95 %") else line.colour


def _scaled(frame: Frame, values: Sequence[float], defaults: Mapping[str, Any]) -> tuple[Frame, list[float]]:
    """The frame with round ends around the values and what the panel wants on its axis in any case."""
    custom = defaults.get("custom") or {}
    wanted = [custom[key] for key in ("axisSoftMin", "axisSoftMax") if custom.get(key) is not None]
    wanted += [defaults[key] for key in ("min", "max") if defaults.get(key) is not None]
    low, high = min([*values, *wanted], default=0.0), max([*values, *wanted], default=1.0)
    high = high if high > low else low + 1.0
    rough = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(each * size for each in (1.0, 2.0, 2.5, 5.0, 10.0) if each * size >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    return replace(frame, base=ticks[0], top=ticks[-1]), ticks


def _stacked(found: Sequence[Line], frame: Frame, unit: str) -> str:
    alone = [line for line in found if line.name == "all calls"]
    found = [line for line in found if line.name != "all calls"]
    times = sorted({at for line in found for at, _ in line.points})
    base = dict.fromkeys(times, 0.0)
    sums = [sum(dict(line.points).get(at, 0.0) for line in found) for at in times]
    frame, ticks = _scaled(frame, [*sums, *(value for line in alone for _, value in line.points)], {"min": 0})
    drawn = [_axes(frame, ticks, unit)]
    for line in found:
        values = dict(line.points)
        over = {at: base[at] + values.get(at, 0.0) for at in times}
        edge = [f"{frame.x(at):.1f},{frame.y(over[at]):.1f}" for at in times]
        back = [f"{frame.x(at):.1f},{frame.y(base[at]):.1f}" for at in reversed(times)]
        drawn.append(f'<polygon points="{" ".join(edge + back)}" fill="{line.colour}" fill-opacity=".45"/>')
        drawn.append(f'<polyline points="{" ".join(edge)}" fill="none" stroke="{line.colour}"/>')
        base = over
    drawn += [_path(line, frame) for line in alone]
    return _svg(frame, drawn) + _legend([*found, *alone])


def _band(low: Line, high: Line, frame: Frame) -> str:
    edge = [f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in high.points]
    edge += [f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in reversed(low.points)]
    return f'<polygon points="{" ".join(edge)}" fill="{_BAND}" fill-opacity=".25"/>'


def _path(line: Line, frame: Frame) -> str:
    dash = ' stroke-dasharray="7 6" stroke-width="1.2"' if line.name == "objective" else ' stroke-width="1.8"'
    drawn = ""
    for run in _runs(line.points):
        points = " ".join(f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in run)
        drawn += f'<polyline points="{points}" fill="none" stroke="{line.colour}"{dash} stroke-linecap="round"/>'
    return drawn


def _axes(frame: Frame, ticks: Sequence[float], unit: str) -> str:
    drawn = []
    for value in ticks:
        y = frame.y(value)
        drawn.append(f'<line x1="{frame.left}" x2="{frame.width - 12}" y1="{y:.1f}" y2="{y:.1f}" stroke="#26292f"/>')
        drawn.append(f'<text x="{frame.left - 6}" y="{y + 3:.1f}" text-anchor="end">{_with_unit(value, unit)}</text>')
    return "".join(drawn) + _times(frame)


def _times(frame: Frame) -> str:
    most = 6 if frame.width > 420 else 3
    step = next(each for each in (60, 120, 180, 300, 600, 3600) if (frame.end - frame.start) / each <= most)
    first = math.ceil(frame.start / step)
    ticks = [number * step for number in range(first, int(frame.end // step) + 1)]
    texts = (
        f'<text x="{frame.x(at):.1f}" y="{frame.height - frame.below + 14:.1f}" text-anchor="middle">'
        f"{datetime.fromtimestamp(at, timezone.utc):%H:%M}</text>"
        for at in ticks
    )
    return "".join(texts)


def _with_unit(value: float, unit: str) -> str:
    plain = f"{value:,.10g}" if abs(value) >= 1 or not value else f"{value:.3g}"
    match unit:
        case "percentunit":
            return f"{100 * value:.4g}%"
        case "s":
            return f"{value * 1000:.4g} ms" if value < 1 else f"{value:.3g} s"
        case "currencyUSD":
            return f"${plain}"
        case _ if unit.startswith("suffix:"):
            return plain + " " * bool(value) + unit.removeprefix("suffix: ") if value else "0"
        case _:
            return plain


def heat(panel: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], frame: Frame) -> str:
    """A heat map of a histogram's buckets, with exemplars."""
    answer = answers[0]
    by_bound = sorted((float(labels["le"]), dict(map(tuple, points))) for labels, points in answer["series"])
    by_bound = [(bound, points) for bound, points in by_bound if bound != float("inf")]
    times = sorted({at for _, points in by_bound for at in points})
    step = times[1] - times[0] if len(times) > 1 else 1.0
    cells, lower, before = list[tuple[float, float, float, float]](), 0.0, dict[float, float]()
    for bound, points in by_bound:
        cells += [(at, lower, bound, points[at] - before.get(at, 0.0)) for at in points]
        lower, before = bound, points
    most = max((count for *_, count in cells), default=1.0)
    start, end = frame.start, frame.end
    frame = Frame(frame.width, frame.height, start, end, 1.0, below=40)
    drawn = [_axes(frame, (0.0, 0.25, 0.5, 0.75, 1.0), "")]
    for at, low, high, count in cells:
        if count > most * 0.002:
            depth = 0.12 + 0.88 * (count / most) ** 0.4
            x, y, width = frame.x(at - step), frame.y(high), frame.x(at) - frame.x(at - step) + 0.4
            drawn.append(
                f'<rect x="{max(frame.left, x):.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{frame.y(low) - y - 1:.1f}" '
                f'fill="#5794f2" fill-opacity="{depth:.2f}"/>'
            )
    for x, y in _apart((frame.x(at), frame.y(value)) for at, value in answer["exemplars"] if start <= at <= end):
        drawn.append(f'<path d="M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4z" fill="#ff780a" stroke="#111217"/>')
    return _svg(frame, drawn) + _scale(most)


def _scale(most: float) -> str:
    """The colours by the calls they stand for, as Grafana has below a heat map."""
    steps = (0.02, 0.1, 0.3, 0.6, 1.0)
    shades = "".join(
        f'<i style="background:rgba(87,148,242,{0.12 + 0.88 * share**0.4:.2f});width:34px;height:9px;margin:0"></i>'
        for share in steps
    )
    diamond = '<i style="background:#ff780a;width:7px;height:7px;transform:rotate(45deg)"></i>'
    return (
        f"<div class=legend><span>calls: 0 {shades} {most:,.0f}</span><span>{diamond}one call (exemplar)</span></div>"
    )


def _apart(places: Iterable[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    """One place of those that would cover each other."""
    return {(int(x // 22), int(y // 9)): (x, y) for x, y in places}.values()


def states(panel: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], frame: Frame) -> str:
    """A row a series, coloured by the state that its value stands for."""
    found = list(series(panel, answers))
    mapping = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    frame = Frame(frame.width, frame.height, frame.start, frame.end, 1.0, left=232, below=44)
    height = (frame.height - 34 - 52) / max(1, len(found))
    drawn = [_times(frame)]
    for number, line in enumerate(found):
        y = 34 + number * height
        name = escape(line.name.strip())
        drawn.append(f'<text x="{frame.left - 8}" y="{y + height / 2 + 1:.1f}" text-anchor="end">{name}</text>')
        spacing = min((b[0] - a[0] for a, b in pairwise(line.points)), default=4.0)
        for start, end, value in _constant(line.points, spacing):
            x, width = frame.x(start), frame.x(min(end, frame.end)) - frame.x(start)
            state = mapping[f"{value:.0f}"]
            drawn.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.5, width):.1f}" height="{height * 0.8:.1f}" '
                f'fill="{COLOURS[state["color"]]}" fill-opacity=".8"/>'
            )
            if width > 7 * len(state["text"]):
                drawn.append(f'<text x="{x + 4:.1f}" y="{y + height / 2 + 1:.1f}" fill="#fff" style="fill:#fff">'
                             f"{state['text']}</text>")  # fmt: skip
    shown = [Line(each["text"], (), COLOURS[each["color"]]) for each in mapping.values()]
    return _svg(frame, drawn) + _legend(shown)


def _constant(points: Sequence[tuple[float, float]], spacing: float) -> Iterator[tuple[float, float, float]]:
    """From when to when a series had which value."""
    for run in _runs(points):
        for value, group in groupby(run, key=lambda point: point[1]):
            times = [at for at, _ in group]
            yield times[0], times[-1] + spacing, value


def _svg(frame: Frame, drawn: Sequence[str]) -> str:
    size = f'width="{frame.width:.0f}" height="{frame.height:.0f}"'
    return f'<svg {size} style="position:absolute;left:0;top:0">{"".join(drawn)}</svg>'


def _legend(lines: Sequence[Line]) -> str:
    entries = (f'<span><i style="background:{line.colour}"></i>{escape(line.name)}</span>' for line in lines)
    return f"<div class=legend>{''.join(entries)}</div>"
