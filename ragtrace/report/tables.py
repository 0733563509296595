"""Tables of a report as rows of text, for output in a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragtrace.core.types import NOT_A_RATE
from ragtrace.report import wording
from ragtrace.report.model import MetricReport, Report

GUARD: Final = "guard"
"""Kind of the groups of calls of one workflow whose answers a guard found beyond its bound."""


@dataclass(frozen=True, slots=True)
class Table:
    """Table of a report: rows of text under a title, with names in the first column and figures in the others."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: str = ""
    """Sentence below the table, which says how many rows are left out, or how to read the rows; empty for none."""
    groups: Sequence[tuple[str, str]] = ()
    """Kind and name of the group of calls that each row is about; empty: the rows are about no groups."""


def metrics_table(report: Report) -> Table:
    """Return the table of all metrics: estimates before and after, or one estimate if nothing was compared."""
    groups = report.comparison
    if groups is None or not report.changes:
        rows = [
            (wording.metric_by_evaluator(item), wording.format_estimate(item.overall))
            for item in report.measured
            if item.overall
        ]
        known = any(item.overall and item.overall.value is not None for item in report.measured)
        return Table(
            "Estimates", ("Metric", "Estimate (95% interval)"), rows, wording.INTERVALS_SENTENCE if known else ""
        )
    changes = [
        (
            wording.metric_by_evaluator(row),
            wording.format_estimate(row.before),
            wording.format_estimate(row.after),
            wording.format_change(row.change, row.reason),
        )
        for row in groups.rows
    ]
    head = ("Metric", groups.before, groups.after, "Difference (95% interval)")
    return Table("What changed", head, changes, wording.INTERVALS_SENTENCE)


def corrected_table(report: Report) -> Table:
    """Return the table of each metric as estimated by the judge and as corrected by human labels.

    The table is empty if no rate is corrected.
    """
    rows = [
        (
            wording.metric_by_evaluator(item),
            wording.format_estimate(item.overall),
            wording.format_corrected(item.corrected),
            wording.correction_basis(item.corrected),
        )
        for item in report.measured
        if item.overall is not None and item.corrected is not None
    ]
    head = ("Metric", "By the judge", "Corrected (95% interval)", "Labels")
    return Table("Corrected by human labels", head, rows, wording.corrected_sentence(report) if rows else "")


def alert_table(report: Report) -> Table:
    """Return the table of the alerts of the period, the latest first; without alerts, the table is empty."""
    rows = [
        (
            wording.display_name(each.name),
            wording.alert_problem(each),
            wording.alert_begin(each),
            wording.alert_end(each),
            wording.alert_value(each),
        )
        for each in report.alerts[: wording.MOST_SHOWN_ROWS]
    ]
    rest = len(report.alerts) - len(rows)
    more = wording.ALERTS_SENTENCE + (f" {rest:,} earlier ones are left out." if rest else "")
    return Table("Alerts", ("Alert", "Problem", "Since", "Over", "What was seen"), rows, more if rows else "")


def feedback_table(report: Report) -> Table:
    """Return the table of user feedback beside the main metric's scores of the same calls.

    Without feedback, the table is empty.
    """
    title = "Score" if report.headline is None else wording.item_title(report.headline)
    rows = [
        (
            each.name,
            f"{each.ratings:,}",
            _mean(each.mean),
            f"{each.low:,}",
            f"{each.corrections:,}",
            f"{_mean(each.mean_low)} ({each.judged_low:,} calls)",
            f"{_mean(each.mean_other)} ({each.judged_other:,} calls)",
        )
        for each in report.feedback
    ]
    head = (
        "Feedback",
        "Ratings",
        "Mean",
        "Below 0.5",
        "Corrections",
        f"{title} of these",
        f"{title} of the others rated",
    )
    return Table("What users said", head, rows, wording.FEEDBACK_SENTENCE if rows else "")


def guard_table(report: Report) -> Table:
    """Return the table of what guards did with answers, beside the labels that people gave these.

    Without guards, the table is empty.
    """
    rows = [
        (
            f"{each.workflow}: {wording.metric_title(each.metric)}, {each.mode}",
            f"{each.answers:,}",
            f"{each.failed:,}, {wording.format_share_interval(each.failed_share)}",
            wording.list_counts(each.unchecked, wording.guard_reason),
            wording.list_counts(each.actions, str),
            wording.format_added(each.added_p50_ms, each.added_p95_ms),
            wording.labelled_share(each.good_failed, each.labelled_good),
            wording.labelled_share(each.bad_failed, each.labelled_bad),
        )
        for each in report.guards
    ]
    head = (
        "Guard",
        "Answers",
        "Failed",
        "Not checked",
        "Done",
        "Added time, p50 and p95",
        "Good answers that failed",
        "Bad answers that failed",
    )
    groups = [(GUARD, each.workflow) for each in report.guards]
    return Table("What guards did", head, rows, wording.GUARD_SENTENCE if rows else "", groups)


def _mean(value: float | None) -> str:
    return "-" if value is None else wording.format_number(value)


def breakdown_tables(report: Report, item: MetricReport) -> list[Table]:
    """Return the tables of a metric's estimates by workflow, model and tags, with their changes if there are any."""
    tables: list[Table] = []
    by_tags = (
        (name, tuple(replace(row, name=row.name.partition("=")[2]) for row in rows)) for name, rows in item.by_tags
    )
    for kind, breakdown in (("workflow", item.by_workflow), ("model", item.by_model), *by_tags):
        shown, overall = breakdown[: wording.MOST_SHOWN_ROWS], report.compared(item)
        heading, more = f"{wording.metric_title(item.metric)} by {kind}", wording.omitted_rows_sentence(breakdown)
        if any(row.moved for row in shown):
            changes = [
                (
                    wording.display_name(row.name),
                    wording.format_share(row.moved.before.value if row.moved else None),
                    wording.format_share(row.moved.after.value if row.moved else None),
                    wording.format_change(row.moved.change if row.moved else None),
                    wording.format_contribution(row, overall) or "-",
                )
                for row in shown
            ]
            head = (kind.capitalize(), "Before", "After", "Difference (95% interval)", "Of the change")
            tables.append(Table(heading, head, changes, more))
        elif shown:
            rows = [
                (
                    wording.display_name(row.name),
                    wording.format_estimate(row.estimate),
                    f"{row.calls:,}",
                    f"{row.judged:,}",
                )
                for row in shown
            ]
            tables.append(Table(heading, (kind.capitalize(), "Estimate (95% interval)", "Calls", "Scored"), rows, more))
    return tables


def grouping_tables(report: Report) -> list[Table]:
    """Return the tables of the common properties and the kinds of defects of bad calls."""
    found = report.grouping
    if found is None:
        return []
    title = wording.metric_title(found.metric)
    worse = [
        (
            wording.group_name(row),
            wording.format_estimate(row.estimate),
            wording.format_share(row.others.value),
            wording.format_change(row.change),
            f"{row.judged:,}",
        )
        for row in found.worse[: wording.MOST_SHOWN_ROWS]
    ]
    groups = [(row.kind, row.name) for row in found.worse[: wording.MOST_SHOWN_ROWS]]
    repeated = wording.repetition_sentence(found)
    more = f"{repeated} {wording.grouping_sentence(found)}".strip()
    head = ("Shared by the calls", "Estimate (95% interval)", "Others", "Difference (95% interval)", "Scored")
    defects = [
        (f"{each.kind}: {each.meaning}", wording.format_estimate(each.share), f"{each.judged:,}")
        for each in found.defects
    ]
    tables = [
        Table(f"{title}: what the {wording.low_calls_phrase(found.metric)} share", head, worse, more, groups),
        Table(
            f"{title}: what is wrong with the bad calls",
            ("Defect", "Share of the bad calls", "Scored"),
            defects,
            "" if worse else repeated,
        ),
    ]
    return [table for table in tables if table.rows]


def closing_tables(report: Report) -> list[Table]:
    """Return the last tables of a report: distribution of scores, calls without score, cost of judging."""
    before = "" if report.comparison is None else f", {report.comparison.before}"
    spread = [
        (
            wording.metric_by_evaluator(item) + when + (f" ({NOT_A_RATE})" if item.is_raw else ""),
            *map(wording.format_number, (box.low, box.first, box.median, box.third, box.high, box.mean)),
            f"{box.n:,}",
        )
        for item in report.measured
        for box, when in ((item.box, ""), (item.box_before, before))
        if box is not None
    ]
    unscored = [
        ("" if at else wording.metric_by_evaluator(item), reason, f"{count:,}", wording.format_share(share))
        for item in report.measured
        for at, (reason, count, share) in enumerate(wording.unscored_rows(item))
    ]
    costs = [
        (
            each.evaluator,
            *(f"{n:,}" for n in (each.looked_at, each.failed, each.requests, each.input_tokens, each.output_tokens)),
            wording.format_cost(each),
        )
        for each in report.spent
    ]
    quantiles = ("Metric", "5%", "25%", "Median", "75%", "95%", "Mean", "Scores")
    tables = [
        Table("How the scores are spread", quantiles, spread),
        Table("Not scored", ("Metric", "Reason", "Calls", "Share"), unscored, wording.UNSCORED_SENTENCE),
        Table(
            "What judging cost", ("Evaluator", "Calls", "Failed", "Requests", "Tokens in", "Tokens out", "Cost"), costs
        ),
    ]
    return [table for table in tables if table.rows]
