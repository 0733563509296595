"""Where it is bad, and where it became so: by workflow and by model, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.estimates import Estimate
from ragtrace.report import words
from ragtrace.report.html import charts
from ragtrace.report.html.charts import Scale
from ragtrace.report.html.element import Html, element
from ragtrace.report.model import Measured, Part, Report


def places(report: Report, item: Measured) -> Html | None:
    """By workflow and by model: before and after if there is a before, else as it is."""
    kinds = [(name, parts[: words.MOST_PARTS], words.left_out(parts))
             for name, parts in (("By workflow", item.by_workflow), ("By model", item.by_model))
             if len(parts) > 1 or (parts and parts[0].name)]  # fmt: skip
    if not kinds:
        return None
    scale, lines = charts.common([each for _, parts, _ in kinds for part in parts for each in _estimates(part)])
    cards = [
        element(
            "div",
            element("h3", name),
            *(_part(part, report, item, scale) for part in parts),
            charts.ticks(scale, lines),
            element("p", more, class_="part quiet") if more else None,
            class_="card",
        )
        for name, parts, more in kinds
    ]
    changed = any(part.moved for _, parts, _ in kinds for part in parts)
    heading = "Where it changed" if changed else "Where"
    return element(
        "section",
        element("h2", f"{heading}: {words.title(item.metric).lower()}"),
        element("p", _lead(report, item, changed=changed), class_="lead"),
        element("div", *cards, class_="grid2"),
    )


def _lead(report: Report, item: Measured, *, changed: bool) -> str:
    whole = "" if item.overall is None else f" Upright line: all calls now, {words.percent(_whole(report, item))}."
    if not changed or report.comparison is None:
        return f"Dot: the estimate. Bar: its 95% interval.{whole}"
    two = report.comparison
    return (
        f"Ring: {two.before}. Dot: {two.after}. Bars: their 95% intervals.{whole} First comes where most "
        "of the change comes from."
    )


def _whole(report: Report, item: Measured) -> float | None:
    """Of all calls that the dots are parts of."""
    row = report.compared(item)
    if row is not None and row.change is not None and row.after is not None:
        return row.after.value
    return None if item.overall is None else item.overall.value


def _estimates(part: Part) -> Sequence[Estimate]:
    return (part.estimate,) if part.moved is None else (part.moved.before, part.moved.after)


def _part(part: Part, report: Report, item: Measured, scale: Scale) -> Html:
    moved = part.moved
    figure, under = (words.percent(part.estimate.value), _scored(part)) if moved is None else _moved(part, report, item)
    estimate, before = (part.estimate, None) if moved is None else (moved.after, moved.before)
    return element(
        "div",
        element("div", element("span", words.name(part.name), dir="auto"), element("b", figure, class_="v")),
        charts.whisker(estimate, scale, before, _whole(report, item)),
        *(element("small", line, class_="quiet") for line in under),
        class_="part",
    )


def _scored(part: Part) -> list[str]:
    return [f"{words.interval(part.estimate)} \u00b7 {part.judged:,} of {part.calls:,} calls scored"]


def _moved(part: Part, report: Report, item: Measured) -> tuple[str, list[str]]:
    moved = part.moved
    if moved is None:
        return "", []
    figure = f"{words.percent(moved.before.value)} \u2192 {words.percent(moved.after.value)}"
    share = words.came_from(part, report.compared(item))
    from_here = f"{share} come from here \u00b7 " if share else ""
    counts = f"scored calls: {moved.judged_before:,} \u2192 {moved.judged_after:,}"
    return figure, [f"Difference {words.part_change(part)}", f"{from_here}{counts}"]
