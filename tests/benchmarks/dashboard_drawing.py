"""Draws a Grafana dashboard as one HTML page of SVG: as much of Grafana's panels as the shipped dashboard uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from tests.benchmarks.dashboard_plots import COLOURS, Frame, Line, heat, lines, series, shades, spans, states
from tests.support.kits import filled_in

_COLUMN, _ROW, _GAP = 1600 / 24, 33.0, 8.0
_STYLE: Final = """
body{margin:0;background:#111217;color:#ccccdc;font:13px Inter,"DejaVu Sans",Helvetica,Arial,sans-serif}
.panel{position:absolute;background:#181b1f;border:1px solid #25282e;border-radius:3px;
box-sizing:border-box;overflow:hidden}
.title{padding:7px 10px 0;font-weight:600;font-size:13px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.legend{position:absolute;bottom:5px;left:10px;right:6px;font-size:10.5px;color:#b0b3bd;line-height:1.35}
.legend span{white-space:nowrap;margin-right:8px}
.legend i{display:inline-block;width:10px;height:3px;margin-right:4px;vertical-align:middle;border-radius:1px}
.row{position:absolute;font-weight:600;font-size:15px;padding:8px 4px}
.big{font-size:34px;font-weight:600;text-align:center;padding-top:16px}
.small{text-align:center;color:#8e919b;font-size:12px}
.text{padding:2px 12px;line-height:1.4;font-size:12.5px}.text p{margin:0 0 5px}
.values{display:flex;justify-content:space-around}.values .big{padding-top:26px}
table{border-collapse:collapse;width:calc(100% - 20px);margin:6px 10px;font-size:12px;white-space:nowrap}
th{text-align:right;color:#6e9fff;font-weight:500;padding:4px 6px;border-bottom:1px solid #25282e}
td{text-align:right;padding:6px;border-bottom:1px solid #25282e}th.t,td.t{text-align:left}
.head{position:absolute;left:12px;top:8px;font-size:18px;font-weight:600}
.head span{font-weight:400;font-size:12px;background:#22252b;border:1px solid #34373e;border-radius:3px;
padding:3px 8px;margin-left:10px}
text{fill:#8e919b;font-size:10.5px}
"""


def html(
    collected: Mapping[str, Sequence[Mapping[str, Any]]],
    variables: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
) -> str:
    """The page."""
    shown = collected["panels"]
    times = [at for one in shown for answer in one["answers"] for _, points in answer["series"] for at, _ in points]
    start, end = min(times), max(times)
    spikes = [list(span) for mark in collected["marks"] for _, points in mark["series"] for span in spans(points)]
    parts = [_head(variables)]
    parts += [_row(row, variables) for row in rows]
    parts += [_panel(one["panel"], one["answers"], variables, start, end, spikes) for one in shown]
    return f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>{''.join(parts)}"


def _head(variables: Mapping[str, str]) -> str:
    shown = (("Service", "service"), ("Workflow", "workflow"), ("Metric", "metric"),
             ("Evaluator", "evaluator"), ("Window", "window"))  # fmt: skip
    chosen = "".join(f"<span>{label}&ensp;<b>{escape(variables[name])}</b></span>" for label, name in shown)
    return f"<div class=head>ragtrace: quality of RAG answers{chosen}</div>"


def _place(panel: Mapping[str, Any]) -> tuple[float, float, float, float]:
    at = panel["gridPos"]
    return at["x"] * _COLUMN + _GAP / 2, at["y"] * _ROW + 44, at["w"] * _COLUMN - _GAP, at["h"] * _ROW - _GAP


def _row(row: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    x, y, _, _ = _place(row)
    return f'<div class=row style="left:{x}px;top:{y - 4}px">⌄&ensp;{escape(filled_in(row["title"], variables))}</div>'


def _panel(
    panel: Mapping[str, Any],
    answers: Sequence[Mapping[str, Any]],
    variables: Mapping[str, str],
    start: float,
    end: float,
    spikes: Sequence[Sequence[float]],
) -> str:
    x, y, width, height = _place(panel)
    draw = {"text": _text, "stat": _stat, "heatmap": heat, "state-timeline": states, "table": _table}
    frame = Frame(width, height, start, end, 1.0)
    shaded = "" if panel["type"] != "timeseries" else shades(spikes, frame)
    body = shaded + filled_in(draw.get(panel["type"], lines)(panel, answers, frame), variables)
    title = escape(filled_in(panel["title"], variables))
    style = f"left:{x:.0f}px;top:{y:.0f}px;width:{width:.0f}px;height:{height:.0f}px"
    return f'<div class=panel style="{style}"><div class=title>{title}</div>{body}</div>'


def _text(panel: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], frame: Frame) -> str:
    content = escape(panel["options"]["content"])
    content = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", content)
    content = re.sub(r"[*](.+?)[*]", r"<i>\1</i>", content)
    return f"<div class=text>{''.join(f'<p>{part}</p>' for part in content.split(chr(10) * 2))}</div>"


def _table(panel: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], frame: Frame) -> str:
    """Rows are what has the same labels, as the panel's own steps make them."""
    options = next(each["options"] for each in panel["transformations"] if each["id"] == "organize")
    names, places = options["renameByName"], options["indexByName"]
    keys = sorted((key for key in names), key=lambda key: places[key])
    units = {each["matcher"]["options"]: each["properties"][0]["value"] for each in panel["fieldConfig"]["overrides"]}
    rows: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for answer in answers:
        column = f"Value #{answer['target']['refId']}"
        for labels, points in answer["series"]:
            row = rows.setdefault(tuple(sorted(labels.items())), dict(labels))
            unit = units[names[column]]
            row[column] = f"{points[-1][1]:.1%}" if unit == "percentunit" else f"{points[-1][1]:,.0f}"
    head = "".join(f"<th{_side(key)}>{escape(names[key])}</th>" for key in keys)
    cells = ("".join(f"<td{_side(key)}>{escape(row.get(key, ''))}</td>" for key in keys) for row in rows.values())
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _side(key: str) -> str:
    return "" if key.startswith("Value") else " class=t"


def _stat(panel: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], frame: Frame) -> str:
    shown = [line for line in series(panel, answers) if line.points[-1][0] >= frame.end - 10]
    if not shown:
        return f"<div class=big>{escape(panel['fieldConfig']['defaults']['noValue'])}</div>"
    coloured = panel["options"]["colorMode"] == "value"
    cells = [_value(line, coloured=coloured) for line in shown]
    return f"<div class=values>{''.join(cells)}</div>"


def _value(line: Line, *, coloured: bool) -> str:
    value = line.points[-1][1]
    colour = (COLOURS["red"] if value >= 1 else COLOURS["green"]) if coloured else "#fff"
    big = f'<div class=big style="color:{colour}">{value:,.0f}</div>'
    return f"<div>{big}<div class=small>{escape(line.name)}</div></div>"
