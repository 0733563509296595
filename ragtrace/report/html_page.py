"""Rendering of a report as a self-contained HTML page without scripts or external resources, with every text escaped.

Jinja2 escapes what the template shows, so that no new line of the template can forget to.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ragtrace.core.errors import SettingsError
from ragtrace.report import charts, wording
from ragtrace.report.model import BreakdownRow, Report, RetrievedChunk, WorstAnswer
from ragtrace.report.tables import alert_table, corrected_table, feedback_table, grouping_tables, guard_table

if TYPE_CHECKING:
    from jinja2 import Environment

    from ragtrace.estimates import Estimate


@cache
def template_environment(*more_packages: str) -> Environment:
    """Return the Jinja2 environment of the report's templates.

    It is cached, as compiling a template takes 0.1 s.

    Args:
        more_packages: packages with further templates, which come first where names are the same.

    Raises:
        SettingsError: Jinja2 is not installed.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise SettingsError("the HTML report needs Jinja2; install it with: pip install 'ragtrace-otel[cli]'") from None
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in (*more_packages, "ragtrace.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = "{:,}".format
    return environment


def render_html(report: Report) -> str:
    """Render the report as a complete HTML document.

    Raises:
        SettingsError: Jinja2 is not installed.
    """
    return template_environment().get_template("report.html").render(report_values(report))


def report_values(report: Report) -> dict[str, Any]:
    """Return the values that the templates of the report's parts show.

    They contain no links to single calls: `calls_url` is None, as a page without a server leads nowhere.
    """
    item = report.headline
    row = report.compared(item)
    breakdowns = _breakdowns(report)
    shown = [each for _, _, rows in breakdowns for each in rows[: wording.MOST_SHOWN_ROWS]]
    estimates = [
        estimate
        for each in shown
        for estimate in ((each.moved.before, each.moved.after) if each.moved else (each.estimate,))
    ]
    chart = None
    if item is not None:
        before = row.before if row and row.change else None
        chart = charts.timeline_chart(item, before, report.rollouts, report.latest_change, report.alerts)
    return {
        "report": report,
        "item": item,
        "row": row,
        "verdict": wording.verdict(report),
        "figures": _key_figures(report),
        "chart": chart,
        "legend": _legend(report, chart),
        "breakdowns": breakdowns,
        "breakdown_scale": charts.common_scale(estimates),
        "breakdown_changed": any(each.moved for each in shown),
        "whole": _overall_now(report),
        "tables": grouping_tables(report),
        "alerts": alert_table(report),
        "of_people": (corrected_table(report), feedback_table(report), guard_table(report)),
        "wording": wording,
        "charts": charts,
        "first_chunks": _split_chunks,
        "calls_url": None,
        "call_url": None,
    }


def _without_control_characters(value: object) -> object:
    if isinstance(value, str) and not hasattr(value, "__html__"):  # else it is markup of the template itself
        return wording.replace_control_characters(value)
    return value


def _key_figures(report: Report) -> list[tuple[str, str, str]]:
    """Return the key figures at the top of the report's page, each with label, value and 95 % interval."""
    item, row, groups = report.headline, report.compared(report.headline), report.comparison
    if item is None or item.overall is None:
        return []

    def figure(name: str, estimate: Estimate, more: str = "") -> tuple[str, str, str]:
        name = name[:1].upper() + name[1:] if " " in name else name
        return name, wording.format_value(estimate), wording.format_interval(estimate) + more

    corrected = [] if report.rate is None or not report.rate.corrected else [figure("Corrected by labels", report.rate)]
    if item.is_raw:  # the title and the line have the median
        return corrected
    if row and groups and row.change:
        difference = "Difference", wording.format_points(row.change.value), wording.format_change_interval(row.change)
        figures = [figure(groups.after, row.after), figure(groups.before, row.before), difference]
    else:
        figures = [figure("By the judge" if corrected else "This time", item.overall)]
    if report.recent is not None and report.recent.change.direction != "unclear":
        figures.append(
            figure(f"The last {wording.format_length(report.period.end - report.recent.since)}", report.recent.after)
        )
    if report.latest is not None:
        more = f", {report.latest.judged:,} calls scored"
        figures.append(figure(wording.latest_label(report), report.latest.estimate, more))
    return corrected + figures


def _legend(report: Report, chart: charts.TimelineChart | None) -> str:
    """Return the sentences that explain the timeline chart of the report's main metric, and say how many calls were
    judged."""
    item, row = report.headline, report.compared(report.headline)
    if item is None:
        return ""
    meaning = f"{wording.item_meaning(item)}. " if item.is_raw else ""
    if chart is None:
        return meaning.rstrip() or f"{wording.judged_calls_phrase(item)}."
    text = "Line: median score" if item.is_raw else "Line: estimate"
    if chart.is_by_call:
        text += " call by call, as the scored calls fall into one short part of this time."
    else:
        text += " over time."
    text += " Band: the middle half of the scores." if item.is_raw else " Band: its 95% interval."
    if item.box_before is not None and report.comparison is not None:
        text += f" Broken line: {report.comparison.before}, median {wording.format_number(item.box_before.median)}."
    if row is not None and row.change is not None and report.comparison is not None:
        text += f" Broken line in a grey band: {report.comparison.before}, {wording.format_estimate(row.before)}"
        text += f" ({wording.comparison_basis(report, item)})."
    if chart.onset is not None:
        since = f"since when it is {chart.onset.direction}"
        if chart.onset.end is not None:
            since = f"from when to when it was {chart.onset.direction}"
        text += f" Upright line in a band: {since}, with 95% confidence."
    if chart.alerts:
        text += " Bars at the top: alerts, from the broken line at their beginning on."
    if chart.rollouts:
        text += " Dotted upright lines: the first call of a release."
    counts = [point.judged for point in item.timeline]
    width = sorted(point.period.end - point.period.start for point in item.timeline)[len(counts) // 2]
    each = f"per {wording.format_length(width).removeprefix('1 ')}"
    if chart.is_by_call:
        each = f"of about {round(sum(point.estimate.n for point in item.timeline) / len(counts)):,} calls each"
    text += f" Bars: scored calls {each}, {min(counts):,} to {max(counts):,}."
    return f"{meaning}{text}" if item.is_raw else f"{text} {wording.judged_calls_phrase(item)}."


def _breakdowns(report: Report) -> list[tuple[str, str, tuple[BreakdownRow, ...]]]:
    """Return the estimates of the report's main metric by workflow, model and tags, with section titles and kinds.

    A section with a single row that has no name is left out.
    """
    item = report.headline
    if item is None:
        return []
    kinds = (("By workflow", "workflow", item.by_workflow), ("By model", "model", item.by_model))
    by_tags = ((f"By {name}", "tag", rows) for name, rows in item.by_tags)
    return [*(each for each in kinds if len(each[2]) > 1 or (each[2] and each[2][0].name)), *by_tags]


def _overall_now(report: Report) -> float | None:
    """Return the main metric's mean over all calls, to be marked in the row of each workflow and model."""
    item, row = report.headline, report.compared(report.headline)
    if row is not None and row.change is not None:
        return row.after.value
    return None if item is None or item.overall is None else item.overall.value


def _split_chunks(answer: WorstAnswer) -> tuple[list[tuple[int, RetrievedChunk]], list[tuple[int, RetrievedChunk]]]:
    """Split the numbered chunks of an answer into visible ones and ones that the page folds away.

    Shown are the chunks that unsupported statements were compared with; without such chunks, the first two.
    """
    ranked = list(enumerate(answer.passages or (), start=1))
    first = [pair for pair in ranked if pair[1].held_against] or ranked[:2]
    return first, [pair for pair in ranked if pair not in first]
