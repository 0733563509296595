"""The parts of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragtrace.estimates import Estimate
from ragtrace.report import words
from ragtrace.report.html import charts
from ragtrace.report.html.element import Html, element
from ragtrace.report.meaning import meaning
from ragtrace.report.model import Compared, Measured, Report

_DIFFERENCE: Final = "Difference"


def hero(report: Report) -> Html:
    """What matters, at a glance: up or down, by how much, how sure."""
    said, item = words.verdict(report), report.headline
    row = report.compared(item)
    body: list[Html | None] = [element("strong", said.title, class_="title"), element("p", said.detail)]
    if item is not None and meaning(item.metric):
        body[1] = element("p", f"{said.detail}. {words.title(item.metric)}: {meaning(item.metric)}.")
    if item is not None and item.overall is not None:
        body.append(_figures(report, item, row))
        before = row.before if row is not None else None
        body += [
            charts.over_time(item, before, report.rollouts),
            element("p", _legend(report, item, before), class_="meta"),
        ]
    if words.without_context(report):
        body.append(element("p", f"{words.without_context(report)}.", class_="meta"))
    if report.notes:
        body.append(element("ul", *(element("li", note) for note in report.notes), class_="notes"))
    return element("section", *body, class_=f"card hero {said.tone}")


def _legend(report: Report, item: Measured, before: Estimate | None) -> str:
    said = "Line: estimate over time. Band: its 95% interval."
    if before is not None and before.value is not None and report.comparison is not None:
        said += f" Broken line in a grey band: {report.comparison.before}, {words.with_interval(before)}"
        said += f" ({words.within(report, item)})."
    if report.rollouts:
        said += " Dotted upright lines: the first call of a release."
    counts = [point.judged for point in item.timeline]
    if counts:
        each = sorted(point.period.end - point.period.start for point in item.timeline)[len(counts) // 2]
        said += f" Bars: scored calls per {words.span(each).removeprefix('1 ')}, {min(counts):,} to {max(counts):,}."
    return f"{said} {words.judged(item)}."


def _figures(report: Report, item: Measured, row: Compared | None) -> Html:
    figures: list[tuple[str, str, str]] = []
    two = report.comparison
    if row is not None and two is not None and row.change is not None and row.before and row.after:
        low, high = (words.points(end).removesuffix(" points") for end in (row.change.low, row.change.high))
        figures = [
            (_first_upper(two.after), words.percent(row.after.value), words.interval(row.after)),
            (_first_upper(two.before), words.percent(row.before.value), words.interval(row.before)),
            ("Difference", words.points(row.change.value), f"{low} to {high}"),
        ]
    elif item.overall is not None:
        figures = [("This time", words.percent(item.overall.value), words.interval(item.overall))]
    if report.recent is not None and report.recent.after.value is not None:
        last = f"The last {words.span(report.period.end - report.recent.since)}"
        figures.append((last, words.percent(report.recent.after.value), words.interval(report.recent.after)))
    if report.latest is not None:
        found = report.latest.estimate
        under = f"{words.interval(found)}, {report.latest.judged:,} calls scored"
        figures.append((words.latest(report), words.percent(found.value), under))
    cells = [
        element("div", element("dt", name), element("dd", value, element("small", under)))
        for name, value, under in figures
    ]
    return element("dl", *cells, class_="figures")


def _first_upper(label: str) -> str:
    return label[:1].upper() + label[1:] if " " in label else label


def comparison(report: Report) -> Html | None:
    """Every metric in both groups of calls."""
    two = report.comparison
    if two is None or not report.changes:
        return _estimates(report)
    rows = [
        element(
            "tr",
            element("td", words.title(row.metric), element("small", f"by {row.evaluator}")),
            _estimate_cell(row.before, two.before),
            _estimate_cell(row.after, two.after),
            _change_cell(row),
        )
        for row in two.rows
    ]
    head = element(
        "tr",
        element("th", "Metric"),
        element("th", two.before, element("small", f" ({two.calls_before:,} calls)"), class_="n"),
        element("th", two.after, element("small", f" ({two.calls_after:,} calls)"), class_="n"),
        element("th", _DIFFERENCE, class_="n"),
    )
    lead = "Below each figure is its 95% interval. A difference is coloured only where its interval leaves 0 out."
    return _section("What changed", lead, _table(head, rows))


def _estimates(report: Report) -> Html | None:
    """Every estimated metric, where there is nothing to compare with."""
    rows = [
        element(
            "tr",
            element("td", words.title(item.metric), element("small", f"by {item.evaluator}")),
            element(
                "td", words.percent(item.overall.value), element("small", words.interval(item.overall)), class_="n"
            ),
            element("td", f"{item.judged:,} of {item.overall.n:,}", class_="n", data_label="Calls scored"),
        )
        for item in report.measured
        if item.overall is not None
    ]
    if not rows:
        return None
    head = element(
        "tr", element("th", "Metric"), element("th", "Estimate", class_="n"), element("th", "Calls scored", class_="n")
    )
    return _section("All metrics", "Below each figure is its 95% interval.", _table(head, rows))


def _estimate_cell(estimate: Estimate | None, label: str) -> Html:
    value = "-" if estimate is None else words.percent(estimate.value)
    return element("td", value, element("small", words.interval(estimate)), class_="n", data_label=label)


def _change_cell(row: Compared) -> Html:
    if row.change is None:
        return element("td", "not known", element("small", row.reason), class_="n", data_label=_DIFFERENCE)
    tone = {"worse": " bad", "better": " good", "unclear": ""}[row.change.direction]
    low, high = (words.points(end).removesuffix(" points") for end in (row.change.low, row.change.high))
    under = element("small", f"{low} to {high}")
    return element("td", words.points(row.change.value), under, class_=f"n{tone}", data_label=_DIFFERENCE)


def _section(heading: str, lead: str, *body: Html) -> Html:
    return element(
        "section", element("h2", heading), element("p", lead, class_="lead"), element("div", *body, class_="card")
    )


def _table(head: Html, rows: Sequence[Html]) -> Html:
    return element(
        "div", element("table", element("thead", head), element("tbody", *rows), class_="stack"), class_="scroll"
    )


def spreads(report: Report) -> Html | None:
    """The distribution of each metric."""
    cards = [_spread(item) for item in report.measured if item.box is not None]
    if not cards:
        return None
    lead = (
        "Bars: share of the calls. Box: the middle half of the calls, with the median as a stroke and the mean as a "
        "diamond; thin line: 5% to 95%. Each score counts for the calls that it stands for."
    )
    return element(
        "section",
        element("h2", "How the scores are spread"),
        element("p", lead, class_="lead"),
        element("div", *cards, class_="grid2"),
    )


def _spread(item: Measured) -> Html:
    shown = item.box
    if shown is None:
        return element("div")
    better = "higher is better" if item.higher_is_better else "lower is better"
    middle = f"median {words.number(shown.median)} \u00b7 mean {words.number(shown.mean)}"
    under = f"{middle} \u00b7 {shown.n:,} scores by {item.evaluator} \u00b7 {better}"
    return element(
        "div",
        element("h3", words.title(item.metric)),
        element("small", under, class_="quiet"),
        charts.box(shown),
        class_="card",
    )


def unscored(report: Report) -> Html | None:
    """What has no score, and why."""
    rows = [
        element(
            "tr",
            element("td", words.title(item.metric), element("small", f"by {item.evaluator}")),
            element("td", words.reason(reason), data_label="Reason"),
            element("td", f"{count:,}", class_="n", data_label="Calls"),
        )
        for item in report.measured
        for reason, count in item.unscored.items()
    ]
    if not rows:
        return None
    head = element("tr", element("th", "Metric"), element("th", "Reason"), element("th", "Calls", class_="n"))
    lead = "These count in no figure above: a call without a score is neither good nor bad."
    return _section("Not scored", lead, _table(head, rows))


def costs(report: Report) -> Html | None:
    """What judging cost, and why the judge saw a call or not."""
    if not report.spent:
        return None
    names = ("Evaluator", "Calls", "Failed", "Requests", "Tokens in", "Tokens out", "Time (median, p95)", "Cost")
    head = element("tr", *(element("th", name, class_="n" if number else None) for number, name in enumerate(names)))
    rows = [
        element(
            "tr",
            element("td", words.name(each.evaluator)),
            *(
                element("td", cell, class_="n", data_label=label)
                for label, cell in zip(
                    names[1:],
                    (
                        f"{each.looked_at:,}", f"{each.failed:,}", f"{each.requests:,}", f"{each.input_tokens:,}",
                        f"{each.output_tokens:,}", f"{words.duration(each.median_s)}, {words.duration(each.p95_s)}",
                        words.cost(each),
                    ),
                    strict=True,
                )
            ),
        )
        for each in report.spent
    ]  # fmt: skip
    decisions = [f"{count:,} {words.DECISIONS.get(reason, reason)}" for reason, count in report.decisions.items()]
    lead = f"Calls by the judge: {'; '.join(decisions)}." if decisions else "No judge was configured beside the screen."
    return _section("What judging cost", lead, _table(head, rows))
