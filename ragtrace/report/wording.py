"""Wording of a report: headings, figures and names as text, shared by all output formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Final, Literal, TypeAlias

from ragtrace.core.labels import STATEMENT_METRICS
from ragtrace.core.step import GuardVerdict
from ragtrace.core.tags import TagValue, tag_text
from ragtrace.core.text import format_plainly
from ragtrace.core.types import NOT_A_RATE, UNCALIBRATED
from ragtrace.estimates import Estimate, Interval
from ragtrace.estimates.label_demand import FEWEST_LABELS, WIDEST_INTERVAL, fewest_labels
from ragtrace.report.model import (
    BreakdownRow,
    Change,
    ChangedGroup,
    CorrectedRate,
    EvaluatorCost,
    Grouping,
    GroupRate,
    MetricComparison,
    MetricReport,
    Onset,
    Report,
    ReportedAlert,
    TimelinePoint,
    WorstAnswer,
)

Tone: TypeAlias = Literal["bad", "good", "quiet"]
Precision: TypeAlias = Literal["minutes", "seconds", "milliseconds"]
_TWO_DECIMALS_BELOW: Final = 0.00995
_TWO_DECIMALS_BELOW_POINTS: Final = 0.00095
_ANSWER_CHARS: Final = 1_600
CHUNK_CHARS: Final = 1_200
_NAME_CHARS: Final = 80
_FIRST_TIME: Final = -62_135_596_800.0
"""First second of the year 1, before which no time can be formatted."""
_LAST_TIME: Final = 253_402_300_799.0
"""Last second of the year 9999."""
_STATEMENT_CHARS: Final = 300
MOST_SHOWN_ROWS: Final = 12
"""Most rows, such as workflows or models, of a table that people read."""
_TITLES: Final = {
    "hallucinated": "Hallucination rate",
    "hallucination": "Unsupported statements",
    "answered_without_context": "Answers without any context",
    "suspicious": "Suspicious answers",
}
"""Titles of the metrics whose name alone does not say what their mean is a share of."""
_MEANINGS: Final = {
    "hallucinated": "share of the answers with at least one statement that no retrieved chunk supports, by the judge's "
    "verdicts",
    "suspicious": "share of the answers less consistent with their chunks than 95% of this application's baseline",
    "answered_without_context": "share of the answers that were given although retrieval returned nothing",
    "hallucination": "share of the statements in an answer that no retrieved chunk supports",
    "faithfulness": "share of the statements in an answer that the retrieved chunks support",
    "contradiction": "share of the statements in an answer that a retrieved chunk contradicts",
    "faithfulness_noncontradiction": "share of the statements in an answer that no retrieved chunk contradicts",
    "consistency": "how far an answer agrees with its retrieved chunks; its scale belongs to "
    "this application, so compare it with its own past",
    "answered": "share of the calls in which the answer attempts to answer",
    "answer_relevancy": "share of the statements in an answer that answer the question or are useful background",
    "context_relevance": "mean relevance of the retrieved chunks to the question",
    "contextual_accuracy": "share of the retrieved chunks that are relevant to the question",
    "citation_precision": "how well the cited chunks support the parts of the answer that cite them",
    "citation_recall": "how much of the answer is supported by what it cites",
}
_MEANINGS_OF_SCORES: Final = {
    "hallucinated": "largest probability, over the statements of an answer, that no retrieved chunk supports the "
    "statement, as the decision model gave it",
    "faithfulness": "mean probability that the retrieved chunks support a statement of the answer, as the decision "
    "model gave it",
}
"""Definitions of a decision judge's scores, which are probabilities that nobody has held against labels."""
_UNSUPPORTED: Final = "at least one of its statements is supported by none of the retrieved chunks, whether true or not"
_CONTRADICTED: Final = "a retrieved chunk contradicts at least one of its statements"
_BAD_CALLS: Final = {
    "hallucinated": _UNSUPPORTED,
    "hallucination": _UNSUPPORTED,
    "faithfulness": _UNSUPPORTED,
    "consistency": _UNSUPPORTED,
    "contradiction": _CONTRADICTED,
    "faithfulness_noncontradiction": _CONTRADICTED,
    "answer_relevancy": "it does not answer the question, or much of it is beside the question",
    "context_relevance": "the retrieved chunks do not help to answer the question",
    "contextual_accuracy": "most of the retrieved chunks do not help to answer the question",
    "citation_precision": "a cited chunk does not support the part that cites it",
    "citation_recall": "a part of it is not supported by what it cites",
}
"""Condition, by metric, under which a person is to label a call as bad."""
INTERVALS_SENTENCE: Final = (
    "Intervals are of the long-run rate, of which these calls are a sample, and take the calls as independent: where "
    "the same questions come again and again, they are too narrow."
)
_CORRECTED_HOLDS: Final = (
    "Human labels of some of the calls correct the judge's figures. Trust the corrected ones: their intervals count "
    "the judge's errors, too, but no errors of the labels."
)
_CORRECTED_DOUBTED: Final = (
    "Do not rely on a corrected figure whose labels are called stale or unreliable: there the judge's own figure "
    "stands at the top, and nobody knows how far it is from the truth."
)
_TOO_FEW_LABELS: Final = (
    f"A rate is corrected from {FEWEST_LABELS} labels on, or as many more as make its interval at most "
    f"{100 * WIDEST_INTERVAL:.0f} points wide; with fewer, its corrected value would be little more than a guess."
)
ALERTS_SENTENCE: Final = (
    "Each process watches the calls that it scores: an alert is over when it is over in every process that saw it. The "
    "means are of the calls since the alert began, which were selected for looking bad."
)
_PROBLEMS: Final = {
    "no_data": "has no scores any more",
    "judge_failing": "is not known: the evaluator fails",
    "judge_drift": "is judged in agreement with human labels less often than before",
}
FEEDBACK_SENTENCE: Final = (
    "Users choose which answers they rate, so these figures describe the rated calls alone: they are no estimates for "
    "all calls."
)
_GUARD_ACTIONS: Final = {
    "none": "the answer left as it was",
    "released": "the answer left as it was",
    "annotated": "the answer left with a note",
    "retried": "the function was called once more",
    "raised": "an exception was raised in its place",
}
GUARD_SENTENCE: Final = (
    "Counts and shares are of these calls. An answer that could not be checked has neither passed nor failed. In "
    "shadow mode every answer left as it was: what failed there is what another mode would have acted on. Good and bad "
    "are people's labels for the metric; ragtrace calibrate guard shows what each threshold would do to them."
)
DECISIONS: Final = {
    "sampled": "chosen: drawn by the sample",
    "suspicious": "chosen: suspicious to the screen",
    "always_rule": "chosen: by a rule",
    "not_sampled": "not chosen: not drawn",
    "never_rule": "not chosen: by a rule",
    "budget": "not chosen: the budget was spent",
    "overload": "not chosen: the queue for the judge was too full",
}
RAW_SENTENCE: Final = f"Scores of a decision judge are {NOT_A_RATE}."
_NO_RHYTHM: Final = (
    "Fewer than two days of scores are known, so that nobody can tell whether this is usual at this time of the day"
)
UNSCORED_SENTENCE: Final = (
    "These count in no figure above: nothing is known about a call without a score. Shares are of the calls that the "
    "evaluator looked at for the metric."
)
_ASKED_MODEL: Final = re.compile(r"([^@]+)@(.+)/[^/]+/(?:prompts|questions)-[^/]+", re.DOTALL)
"""Id of a judge that asks a model: its name, the model, how that is asked, and the version of what it is asked."""
# The joiners U+200C and U+200D stay: Persian, Hindi and emoji are written with them.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e0fff]"
)


# --- the verdict ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """Summary sentence at the top of a report, with details and a tone: good, bad or neutral news."""

    title: str
    detail: str
    tone: Tone
    since: tuple[str, ...] = ()
    """Sentences on since when the metric is better or worse, and in which group of calls; none: that is not known."""


def verdict(report: Report) -> Verdict:
    """Return the report's summary: whether its main metric went up or down, by how much, how certain that is, and
    since when."""
    if report.latest_change is None:
        return _verdict(report)
    is_part = any((report.workflow, report.model, report.release, report.tags))
    since = onset_sentences(report.latest_change, is_part=is_part)
    return replace(_verdict(report), since=(*since, *([] if report.rhythm else [_NO_RHYTHM])))


def _verdict(report: Report) -> Verdict:
    item = report.headline
    if item is not None and item.overall is not None and item.overall.reason == UNCALIBRATED:
        return _uncalibrated_verdict(report, item)
    if item is None or item.overall is None or item.overall.value is None:
        detail = "no call was judged in this time" if report.calls else "no calls were kept in this time"
        return Verdict("Nothing to tell yet", detail, "quiet")
    found = _judge_verdict(report, item)
    if item.corrected is not None and item.corrected.has_too_few:
        why = too_few_labels(item.corrected.labels, item.corrected.labels_needed)
        return replace(found, detail=f"{found.detail}. Not corrected by human labels: {why}")
    if report.rate is None or not report.rate.corrected or item.corrected is None:
        return found
    name, labels = metric_title(item.metric), f"{item.corrected.labels:,} labelled calls"
    own = f"by the judge alone it is {format_estimate(item.overall)}"
    title = f"{name} is {format_rate(report.rate)}"
    detail = f"corrected by {labels}, 95% interval {format_interval(report.rate)}; {own}"
    # A change is that of the judge's rate, as labels are too few to tell a change.
    changed = "" if found.tone == "quiet" else f". By the judge: {found.title}, {found.detail}"
    return Verdict(title, detail + changed, found.tone)


def _uncalibrated_verdict(report: Report, item: MetricReport) -> Verdict:
    """Return the summary of a report whose main metric is by a decision model, whose mean score is not a rate."""
    name, evaluator = metric_title(item.metric), short_name(item.evaluator, report.evaluators)
    if report.rate is not None and report.rate.corrected and item.corrected is not None:
        detail = f"by {item.corrected.labels:,} labelled calls, 95% interval {format_interval(report.rate)}"
        return Verdict(f"{name} is {format_rate(report.rate)}", f"{detail}; scores by {evaluator}", "quiet")
    unknown = f"{name} is not known ({NOT_A_RATE})"
    before = ""
    if item.box_before is not None and report.comparison is not None:
        before = f"median {format_number(item.box_before.median)} in {report.comparison.before}"
    lacking = "" if item.corrected is None else f"; not corrected: {correction_basis(item.corrected)}"
    advice = f"label {labels_to_go(item)} of them to know the rate (ragtrace calibrate pick){lacking}"
    title = (
        unknown
        if item.box is None
        else f"Median {score_title(item.metric).lower()} is {format_number(item.box.median)}"
    )
    judged = judged_calls_phrase(item, report.evaluators)
    said = ("" if item.box is None else unknown, before, judged, advice)
    return Verdict(title, "; ".join(filter(None, said)), "quiet")


def labels_button(item: MetricReport) -> str:
    """Return the name of the way to the labels that a decision judge's rate needs."""
    few = item.corrected is None or item.corrected.has_too_few
    return f"Label {labels_to_go(item).removeprefix('at least ')} calls" if few else "Calibration"


def labels_to_go(item: MetricReport) -> str:
    """Return how many calls are still to be labelled for a decision judge's rate, such as `at least 50`."""
    known = item.corrected
    if known is None or not known.labels:
        return f"at least {fewest_labels(is_decision=True):,}"
    return f"{known.labels_needed - known.labels:,} more" if known.has_too_few else "some"


def _judge_verdict(report: Report, item: MetricReport) -> Verdict:
    """Return the summary of a report's main metric as its evaluator gave the scores, without human labels."""
    compared, onset = _comparison_verdict(report, item), report.latest_change
    is_worse = onset is not None and onset.direction == "worse"
    if onset is not None and onset.end is not None and is_worse:
        if compared.tone == "good":
            return compared
        title = (
            f"{metric_title(item.metric)} went {'down' if item.higher_is_better else 'up'} for a time, and came back"
        )
        detail = compared.detail if compared.tone == "quiet" else f"{compared.title}, {compared.detail}"
        return Verdict(title, detail, "quiet")
    if compared.tone != "quiet" or not is_worse:
        return compared
    row = report.compared(item)
    if row is None or row.change is None:
        return replace(compared, tone="bad")
    title = f"{metric_title(item.metric)} went {'down' if item.higher_is_better else 'up'} within this time"
    return Verdict(title, f"Over all of it no clear change: {compared.detail}", "bad")


def _comparison_verdict(report: Report, item: MetricReport) -> Verdict:
    name, row, groups = metric_title(item.metric), report.compared(item), report.comparison
    if groups is None or row is None or row.change is None:
        why = "" if row is None or groups is None else f"; no comparison with {groups.before}: {row.reason}"
        own = f"{name} by the judge" if item.metric in STATEMENT_METRICS else name
        uncorrected = ""
        if item.corrected is not None and not item.corrected.has_too_few:  # `verdict` says that labels are too few
            uncorrected = f"; not corrected: {correction_basis(item.corrected)}"
        judged = judged_calls_phrase(item, report.evaluators)
        interval = f"95% interval {format_interval(item.overall)}, {judged}"
        return Verdict(f"{own} is {format_rate(item.overall)}", f"{interval}{uncorrected}{why}", "quiet")
    moved = (
        f"from {format_share(row.before.value)} ({groups.before}) to {format_share(row.after.value)} ({groups.after})"
    )
    detail = f"{moved}; the difference is {_with_confidence(row.change)}"
    if row.change.direction == "unclear":
        return Verdict(f"No clear change in {name.lower()}", f"{detail}: {_why_unclear(row.change)}", "quiet")
    size = format_points(row.change.value).lstrip("+\u2212")
    return Verdict(f"{name} went {_direction_of_change(row.change)} by {size}", detail, _tone_of_change(row.change))


def onset_sentences(onset: Onset, *, is_part: bool = False) -> tuple[str, ...]:
    """Return since when a metric is better or worse, and which group of calls brings most of the change.

    Args:
        onset: when it began, and where.
        is_part: whether the report is of a part of the calls, which may be that group itself.
    """
    since = f"{onset.direction.capitalize()} since {_onset_times(onset)}: {_moved(onset.before, onset.after)}"
    if (end := onset.end) is not None:
        until = _times_with_set(end.at, end.earliest, end.latest)
        since = f"Was {onset.direction} from {_onset_times(onset)} to {until}, and is as before since: "
        since += f"{format_share(onset.before.value)} before, {format_share(onset.after.value)} in that time, "
        since += f"{format_share(end.since.value)} since"
    group = onset.group
    named = () if group is None else [name for kind, name in group.names if kind == "release"]
    same_time = tuple(
        f"The first call of release {display_name(each.release)} was at {onset_time(onset, each.at)}, "
        "when the change may have begun"
        for each in onset.rollouts
        if each.release not in named
    )
    if group is None:
        nowhere = () if is_part else ("No single workflow, model or release brings most of the change",)
        return since, *nowhere, *same_time
    share = f"Most of the change ({100 * group.share:.0f}%)" if group.share < 1.0 else "All of the change"
    where = " with ".join(f"{kind} {display_name(name)}" for kind, name in group.names)
    if group.before is None:
        there = f"whose first call was at {onset_time(onset, group.at)}: {format_share(group.after.value)} there"
    else:
        was = f"{onset.direction} there since" if onset.end is None else f"{onset.direction} there from"
        there = f"{was} {_onset_times(group)}: {_moved(group.before, group.after, is_over=onset.end is not None)}"
    return since, f"{share} comes from {where}, {there}", *same_time


def _onset_times(onset: Onset | ChangedGroup) -> str:
    """Return the time of an onset with the two times between which it lies with 95 % confidence."""
    return _times_with_set(onset.at, onset.earliest, onset.latest)


def _times_with_set(at: float, earliest: float, latest: float) -> str:
    first, last = format_period(earliest, latest).split(" to ")
    return f"{format_time(at, _telling(earliest, latest))} (with 95% confidence between {first} and {last})"


def onset_label(onset: Onset) -> str:
    """Return the short label of an onset, such as `worse since 15:07 UTC`, or of a change that is over."""
    began = onset_time(onset)[11:]
    if onset.end is None:
        return f"{onset.direction} since {began}"
    return f"{onset.direction} from {began.removesuffix(' UTC')} to {format_time(onset.end.at)[11:]}"


def onset_time(onset: Onset | ChangedGroup, at: float | None = None) -> str:
    """Return the time of an onset, or the time *at*, as precise as the two times between which the onset lies."""
    return format_time(onset.at if at is None else at, _telling(onset.earliest, onset.latest))


def _moved(before: Estimate, after: Estimate, *, is_over: bool = False) -> str:
    when = "in that time" if is_over else "since"
    return f"{format_share(before.value)} before, {format_share(after.value)} {when}"


def _why_unclear(change: Change) -> str:
    """Return why a difference is no clear change."""
    if change.low <= 0.0 <= change.high:
        return "it may be chance"
    if abs(change.usual) < 0.1 * abs(change.value):
        return "in many looks, a difference as large is seen by chance"
    return f"{format_points(change.usual)} are usual at these times of the day and the week, and the rest may be chance"


def _tone_of_change(change: Change) -> Tone:
    return "bad" if change.direction == "worse" else "good"


def _direction_of_change(change: Change) -> str:
    return "up" if change.value > 0 else "down"


def _with_confidence(change: Change) -> str:
    ends = f"{_signed(change.low)} and {format_points(change.high)}"
    return f"{format_points(change.value)}, with 95% confidence between {ends}"


def _describes_present(report: Report) -> bool:
    # Longest time between the end of a period and the report with which the period counts as lasting until now.
    return report.made_at - report.period.end <= 60.0


# --- metrics and estimates --------------------------------------------------------------------------------------------


def metric_title(metric: str) -> str:
    """Return the title of *metric* for a heading, such as `Unsupported statements` for `hallucination`."""
    if metric in _TITLES:
        return _TITLES[metric]
    words = shorten(metric, _NAME_CHARS).replace("_", " ").strip()
    return words[:1].upper() + words[1:] or "(no name)"


def metric_by_evaluator(item: MetricReport | MetricComparison) -> str:
    """Return the title of a metric with the name of the evaluator that scored it."""
    return f"{item_title(item)} by {item.evaluator}"


def score_title(metric: str) -> str:
    """Return the title of a decision judge's scores of *metric*, which are no rate, such as `Hallucinated score`."""
    words = shorten(metric, _NAME_CHARS).replace("_", " ").strip()
    return f"{words[:1].upper()}{words[1:]} score"


def item_title(item: MetricReport | MetricComparison) -> str:
    """Return the title of a metric; that of its scores, where their mean is no rate."""
    raw = item.is_raw if isinstance(item, MetricReport) else item.before.reason == UNCALIBRATED
    return score_title(item.metric) if raw else metric_title(item.metric)


def item_meaning(item: MetricReport) -> str:
    """Return the title of a metric with a one-line definition, or "" if the metric has none."""
    if not item.is_raw:
        return metric_meaning(item.metric)
    what = _MEANINGS_OF_SCORES.get(item.metric, "computed from probabilities as the decision model gave them")
    return f"{score_title(item.metric)}: {what}"


def metric_meaning(metric: str) -> str:
    """Return the title of *metric* with a one-line definition, or "" if the metric has none."""
    return f"{metric_title(metric)}: {_MEANINGS[metric]}" if metric in _MEANINGS else ""


def label_rule(metric: str) -> str:
    """Return the sentence that tells a reviewer how to label an answer for *metric*."""
    name, meaning = display_name(metric), metric_meaning(metric)
    if metric in _BAD_CALLS:
        return f"{metric_title(metric)}: the answer is bad if {_BAD_CALLS[metric]}; else it is good."
    return f"The answer is, for {name}{f' ({meaning})' if meaning else ''}:"


def format_share(value: float | None) -> str:
    """Format a share from 0 to 1 as a percentage with one decimal, or with two if it is very small."""
    if value is None:
        return "-"
    return f"{100 * value:.2f}%" if 0 < value < _TWO_DECIMALS_BELOW else f"{100 * value:.1f}%"


def format_rate(estimate: Estimate | None) -> str:
    """Format an estimated share for a headline, as its two ends where the interval is too wide for a single number."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "-"
    if estimate.high - estimate.low > WIDEST_INTERVAL:
        return f"between {format_share(estimate.low)} and {format_share(estimate.high)}"
    return format_share(estimate.value)


def format_value(estimate: Estimate | None) -> str:
    """Format an estimated share without its interval, or return the words that stand in place of a rate."""
    if estimate is not None and estimate.reason == UNCALIBRATED:
        return NOT_A_RATE
    return "-" if estimate is None else format_share(estimate.value)


def format_interval(estimate: Estimate | None) -> str:
    """Format the 95 % interval of an estimated share."""
    if estimate is not None and estimate.reason == UNCALIBRATED:
        return NOT_A_RATE
    if estimate is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{format_share(estimate.low)} to {format_share(estimate.high)}"


def format_estimate(estimate: Estimate | None) -> str:
    """Format an estimated share with its 95 % interval."""
    if estimate is not None and estimate.reason == UNCALIBRATED:
        return NOT_A_RATE
    if estimate is None or estimate.value is None:
        return "-" if estimate is None else f"unknown ({reason_in_words(estimate.reason or '')})"
    return f"{format_share(estimate.value)} ({format_interval(estimate)})"


def point_value(point: TimelinePoint) -> str:
    """Format the level of a timeline at a point: an estimate with its interval, or a median."""
    return format_estimate(point.estimate) if point.median is None else f"median {format_number(point.median)}"


def format_points(value: float) -> str:
    """Format a difference of two shares in percentage points, with its sign."""
    return f"{_signed(value)} points"


def _signed(value: float) -> str:
    decimals = 2 if 0 < abs(value) < _TWO_DECIMALS_BELOW_POINTS else 1
    return f"{100 * value:+.{decimals}f}".replace("-", "\u2212")  # a minus sign as wide as the plus sign


def format_change_interval(change: Change) -> str:
    """Format the 95 % interval of a change, in percentage points without the unit."""
    return f"{_signed(change.low)} to {_signed(change.high)}"


def format_change(change: Change | None, missing: str = "not known") -> str:
    """Format a metric's change with its 95 % interval, or return *missing* if the change is unknown."""
    return missing if change is None else f"{format_points(change.value)} ({format_change_interval(change)})"


def format_contribution(row: BreakdownRow, overall: MetricComparison | None) -> str:
    """Format how many points of a metric's overall change come from one workflow or model, or return "" if unknown.

    Of a change that may be chance there is nothing to explain.
    """
    if row.moved is None or row.moved.share is None or overall is None or overall.change is None:
        return ""
    if overall.change.direction == "unclear":
        return ""
    return f"{_signed(row.moved.share * overall.change.value)} of {format_points(overall.change.value)}"


def latest_label(report: Report) -> str:
    """Return the label of the report's latest estimate, such as `Now: the last hour`, or "" if there is none."""
    if report.latest is None:
        return ""
    length = format_length(max(1.0, report.latest.period.end - report.latest.period.start)).removeprefix("1 ")
    return f"{'Now' if _describes_present(report) else 'At the end'}: the last {length}"


def latest_sentence(report: Report) -> str:
    """Return a sentence with the report's latest estimate of its main metric, or "" if there is none."""
    if report.latest is None:
        return ""
    return f"{latest_label(report)} {format_estimate(report.latest.estimate)}, {report.latest.judged:,} calls scored"


def without_context_sentence(report: Report) -> str:
    """Return a sentence on the share of answers given although retrieval returned nothing, or "" if unknown.

    The report has a line of its own for it, because it is the plainest sign of a broken retriever.
    """
    for item in report.measured:
        if item.metric == "answered_without_context" and item.overall is not None and item.overall.value is not None:
            return f"Answers given without any context: {format_estimate(item.overall)} of {item.judged:,}"
    return ""


def comparison_basis(report: Report, item: MetricReport) -> str:
    """Return a phrase that says which releases and which evaluator the compared figures come from."""
    groups = report.comparison
    judge = f"both scored by {replace_control_characters(item.evaluator)}"
    if groups is None or groups.kind == "releases" or not groups.releases_before or not groups.releases_after:
        return judge
    before, after = (
        join_names(each).replace(", ", " and ") for each in (groups.releases_before, groups.releases_after)
    )
    return f"release {before} before, {after} after; {judge}"


def too_few_labels(labels: int, needed: int) -> str:
    """Return a phrase that says that *labels* are too few for a corrected rate, which needs *needed*."""
    more = needed - labels
    return f"too few labels ({labels:,} of {needed:,}: {more:,} more {'is' if more == 1 else 'are'} needed)"


def format_corrected(corrected: CorrectedRate) -> str:
    """Format a corrected rate with its 95 % interval, or say that there are too few labels for one."""
    known = corrected.estimate.value is not None
    return "too few labels" if known and corrected.has_too_few else format_estimate(corrected.estimate)


def correction_basis(corrected: CorrectedRate) -> str:
    """Return a sentence that says which human labels correct a rate, and why they may be stale or too few."""
    which = "calls of this time" if corrected.estimate.corrected == "labels" else "calls of all times"
    labels = f"{corrected.labels:,} labelled {which}" if corrected.labels else "none"
    unsure = f"{corrected.unsure:,} unsure, which the interval counts both ways" if corrected.unsure else ""
    stale = f"STALE: {corrected.estimate.stale}" if corrected.estimate.stale else ""
    first = replace_control_characters(corrected.decision_judge)
    cascade = f"and {first}'s score of every call (cascade)" if first else ""
    too_few = too_few_labels(corrected.labels, corrected.labels_needed) if corrected.has_too_few else ""
    return "; ".join(filter(None, (labels, cascade, unsure, stale, too_few, corrected.doubt)))


def corrected_sentence(report: Report) -> str:
    """Return the sentences that say which of the corrected figures of a report to trust."""
    corrected = [item.corrected for item in report.measured if item.corrected is not None]
    holds = [_CORRECTED_HOLDS] if any(each.holds for each in corrected) else []
    few = [_TOO_FEW_LABELS] if any(each.has_too_few for each in corrected) else []
    doubted = [] if all(each.holds or each.has_too_few for each in corrected) else [_CORRECTED_DOUBTED]
    return " ".join(holds + few + doubted)


def alert_problem(alert: ReportedAlert) -> str:
    """Return what an alert saw, and of which calls."""
    bound = "its baseline" if alert.against_baseline else format_number(alert.bound)
    what = _PROBLEMS.get(alert.problem, f"is {alert.direction} {bound}")
    of = (("workflow", alert.workflow), ("model", alert.model))
    where = " and ".join(f"{kind} {display_name(name)}" for kind, name in of if name is not None)
    return f"{display_name(alert.metric)} {what}{f' in {where}' if where else ''}"


def alert_end(alert: ReportedAlert) -> str:
    """Return when an alert was over, or until when it is known to have lasted."""
    last = format_time(alert.last_seen, _telling(alert.since, alert.last_seen))
    return f"no, last seen {last}" if alert.ended is None else last


def alert_begin(alert: ReportedAlert) -> str:
    """Return when an alert began, as precise as when it was seen last."""
    return format_time(alert.since, _telling(alert.since, alert.last_seen))


def alert_value(alert: ReportedAlert) -> str:
    """Return the mean score that an alert saw, with its interval, the mean before, and how many processes did."""
    several = f"; by {alert.processes:,} processes" if alert.processes > 1 else ""
    if alert.value is None or alert.low is None or alert.high is None:
        return several.removeprefix("; ") or "-"
    interval = NOT_A_RATE if alert.is_raw else f"{format_number(alert.low)} to {format_number(alert.high)}"
    before = "" if alert.before is None else f", {format_number(alert.before)} before"
    return f"mean {format_number(alert.value)} ({interval}) of {alert.calls:,} calls{before}{several}"


def judged_calls_phrase(item: MetricReport, among: Collection[str] = ()) -> str:
    """Return a phrase that says on how many calls a metric was scored, and by which evaluator.

    Args:
        among: all evaluators, among which the evaluator has a short name; empty: it is named by its id.
    """
    of = "" if item.overall is None else f" of {item.overall.n:,}"
    by = short_name(item.evaluator, among) if among else replace_control_characters(item.evaluator)
    return f"{item.judged:,}{of} calls scored by {by}"


def group_name(row: GroupRate) -> str:
    """Return the display name of a group of calls, with the names of groups that have almost the same calls."""
    more = f" (the same calls: {', '.join(map(display_name, row.alike))})" if row.alike else ""
    if row.mostly is not None:
        more += f" (mostly one question: {display_name(row.mostly.query)})"
    return f"{row.kind} {display_name(row.name)}{more}" if row.kind != "retrieval" else f"{row.name}{more}"


def repetition_sentence(found: Grouping) -> str:
    """Return a sentence that says that most bad calls ask one question, or an empty text if they do not."""
    one = found.mostly
    return (
        ""
        if one is None
        else (
            f"Mostly one question: {one.calls:,} of the {one.of:,} {low_calls_phrase(found.metric)} ask "
            f"\u201c{display_name(one.query)}\u201d."
        )
    )


def grouping_sentence(found: Grouping) -> str:
    """Return a sentence that says how many groups of calls were compared, and how chance findings are kept out."""
    rest = len(found.worse) - MOST_SHOWN_ROWS
    more = f"{rest:,} more. " if rest > 0 else ""
    read = "" if found.read == found.judged else f", in {found.read:,} of {found.judged:,} scored calls"
    asked = f" ({found.questions:,} questions, each of which counts once)" if found.questions < found.read else ""
    return (
        f"{more}{found.examined:,} groups were compared with all other calls{read}{asked}; shown are those that are "
        "worse by the procedure of Benjamini and Yekutieli, by which at most 5% of the groups shown are expected to be "
        "there by chance. Groups overlap."
    )


def omitted_rows_sentence(rows: Sequence[BreakdownRow]) -> str:
    """Return a sentence that says how many workflows or models a table leaves out, or "" if it shows all."""
    rest = rows[MOST_SHOWN_ROWS:]
    return f"{len(rest):,} more, with {sum(row.calls for row in rest):,} calls" if rest else ""


# --- names, numbers and times -----------------------------------------------------------------------------------------


def format_length(seconds: float) -> str:
    """Format a length of time in the largest unit that fits, such as days or hours."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length or (unit == "hours" and seconds >= length):
            amount = format_plainly(seconds / length, 3)
            return f"{amount} {'hour' if amount == '1' else unit}"
    return "second" if round(seconds) == 1 else f"{seconds:.0f} seconds"


def format_time(at: float, precision: Precision = "minutes") -> str:
    """Format a time to the minute, or more precisely, in UTC: of a time that no calendar has, the nearest that one
    has."""
    when = datetime.fromtimestamp(min(max(at, _FIRST_TIME), _LAST_TIME), timezone.utc)
    return f"{when.replace(tzinfo=None).isoformat(' ', precision)} UTC"


def _telling(start: float, end: float) -> Precision:
    """Return the precision, to the minute if that is enough, with which two times are not written alike."""
    if format_time(start) != format_time(end):
        return "minutes"
    return "milliseconds" if format_time(start, "seconds") == format_time(end, "seconds") else "seconds"


def format_age(at: float, now: float) -> str:
    """Format how long ago the time *at* was at the time *now*, such as `3 minutes ago`."""
    # Clocks of machines differ by seconds: a call of just now may have a time to come.
    return f"{format_length(now - at)} ago" if now - at >= 60.0 else "just now"


def format_period(start: float, end: float) -> str:
    """Format a period, in UTC: to the second or the millisecond where its ends fall into one minute or second."""
    precision = _telling(start, end)
    first, last = format_time(start, precision), format_time(end, precision)
    return f"{first[:-4]} to {last[11:] if first[:10] == last[:10] else last}"


def damaged_sentence(calls: int) -> str:
    """Return what it means that the history has damaged data of some calls."""
    return f"Parts of {calls:,} stored call{'s' * (calls != 1)} are damaged: they are left out."


def subject_line(report: Report) -> str:
    """Return a line that says what a report covers: calls, period, services, releases and workflow."""
    parts = [f"{report.calls:,} calls", format_period(report.period.start, report.period.end)]
    if report.services:
        parts.append(join_names(report.services))
    if report.releases:
        parts.append(f"release {join_names(report.releases)}")
    if report.workflow is not None:
        parts.append(f"workflow {display_name(report.workflow)} only")
    if report.model is not None:
        parts.append(f"model {display_name(report.model)} only")
    if report.release is not None:
        parts.append(f"release {display_name(report.release)} only")
    parts += [f"{display_tag(name, value)} only" for name, value in report.tags.items()]
    return " \u00b7 ".join(parts)


def display_tag(name: str, value: TagValue) -> str:
    """Return name and value of a tag, as `--tag` takes them."""
    return display_name(f"{name}={tag_text(value)}")


def display_name(text: str) -> str:
    """Return the name of a workflow, model or release, shortened and without control characters."""
    return shorten(text, _NAME_CHARS) or "(no name)"


def short_name(evaluator: str, among: Iterable[str]) -> str:
    """Return the name of an evaluator as lists show it: that of the judge, and of the model that it asks.

    `decision@small-1/openai/questions-2` becomes `decision (small-1)`. The id stays where its version has no model, or
    where another evaluator of *among* would be named alike.
    """
    short = _judge_and_model(evaluator)
    is_alike = any(_judge_and_model(other) == short for other in among if other != evaluator)
    return display_name(evaluator if is_alike else short)


def _judge_and_model(evaluator: str) -> str:
    found = _ASKED_MODEL.fullmatch(evaluator)
    return f"{found[1]} ({found[2]})" if found else evaluator


def join_names(names: tuple[str, ...], most: int = 4) -> str:
    """Join the first *most* names with commas, and give the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(display_name, names[:most])) + more


def format_number(value: float) -> str:
    """Format a score of any range with about three significant digits."""
    return format_plainly(value, 3) if abs(value) < 999.5 else f"{value:,.0f}"


def reason_in_words(code: str) -> str:
    """Convert the code of the reason for a missing score to words."""
    return replace_control_characters(code).replace("_", " ")


def unscored_rows(item: MetricReport) -> list[tuple[str, int, float]]:
    """Return, for each reason why calls have no score, the reason in words, the number of calls and their share.

    Where there are several reasons, the first row is about all of them.
    """
    shares = item.unscored_shares
    rows = [(reason_in_words(reason), count, shares[reason]) for reason, count in item.unscored.items()]
    together = [("all reasons", sum(item.unscored.values()), sum(shares.values()))] if len(rows) > 1 else []
    return together + rows


def sampling_decisions(report: Report) -> str:
    """Return a text with the number of calls for each sampling decision (judged, or why not)."""
    return "; ".join(f"{count:,} {DECISIONS.get(reason, reason)}" for reason, count in report.decisions.items())


def format_cost(spent: EvaluatorCost) -> str:
    """Format the cost of an evaluator in dollars, with the number of calls whose price is unknown."""
    if not spent.requests:
        return "free" if not spent.cost_usd else f"{spent.cost_usd:.4f} USD"
    if spent.unpriced >= spent.looked_at:
        return "price not known"
    if spent.unpriced and not spent.cost_usd:
        return f"price not known of {spent.unpriced:,} calls"
    return f"{spent.cost_usd:,.4f} USD" + (f" and {spent.unpriced:,} calls at no known price" if spent.unpriced else "")


def format_score(answer: WorstAnswer) -> str:
    """Format the metric name and the score of one of the worst answers."""
    if answer.is_raw:  # a probability that was held against no label
        return f"{score_title(answer.metric)} {format_number(answer.score)}, {NOT_A_RATE}"
    return f"{metric_title(answer.metric)} {format_plainly(100 * answer.score, 3)}%"


def format_share_interval(share: Interval) -> str:
    """Format a share with its 95 % interval."""
    return f"{format_share(share.value)} ({format_share(share.low)} to {format_share(share.high)})"


def labelled_share(share: Interval | None, labelled: int) -> str:
    """Format a share of labelled answers, or say of how many it is not known."""
    return f"unknown ({labelled:,} labelled)" if share is None else f"{format_share_interval(share)} of {labelled:,}"


def list_counts(counts: Mapping[str, int], name: Callable[[str], str]) -> str:
    """Format numbers of answers with the names of what they have in common; "-" if there are none."""
    return ", ".join(f"{name(key)} {count:,}" for key, count in counts.items()) or "-"


def guard_reason(reason: str) -> str:
    """Return the reason why a guard could not check an answer, in words."""
    return "out of time" if reason == "timeout" else reason_in_words(reason)


def guard_sentence(found: GuardVerdict) -> str:
    """Return what a guard found and did with the answer of one call, as one line."""
    # No word here says that the answer is good or bad: a guard may compare a score that tells neither.
    score = "" if found.score is None else f" with {format_number(found.score)}"
    unchecked = f"not checked ({guard_reason(found.reason_in_counts)})"
    verdict = {"pass": f"within the bound{score}", "fail": f"beyond the bound{score}"}.get(found.verdict, unchecked)
    done = _GUARD_ACTIONS.get(found.action, f"the answer was {replace_control_characters(found.action)}")
    would = "would have held" if found.mode == "shadow" else "held"
    added = "" if found.added_s is None else f"; the guard {would} it back for {format_duration(found.added_s)}"
    return f"{metric_title(found.metric)}, {replace_control_characters(found.mode)}: {verdict}, {done}{added}"


def format_added(p50_ms: float | None, p95_ms: float | None) -> str:
    """Format the median and the 95th percentile of the time that a guard added to answers."""
    if p50_ms is None or p95_ms is None:
        return "-"
    return f"{format_duration(p50_ms / 1000)}, {format_duration(p95_ms / 1000)}"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, or in milliseconds if it is below one second."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{format_plainly(1000 * seconds, 3)} ms"


# --- texts of calls ---------------------------------------------------------------------------------------------------


def replace_control_characters(text: str) -> str:
    """Replace control characters and characters that reverse the reading direction in *text* by U+FFFD."""
    return _CONTROL.sub("\ufffd", text)


def shorten(text: str, most: int = CHUNK_CHARS) -> str:
    """Truncate *text* to *most* characters, and replace its control characters."""
    return replace_control_characters(text if len(text) <= most else f"{text[:most]} ...")


def merge_ranges(ranges: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Clip character *ranges* to [0, length), sort them, and join those that overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted((max(0, start), min(length, end)) for start, end in ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif start < end:
            joined.append((start, end))
    return joined


def split_at_marks(text: str, marks: Sequence[tuple[int, int]], most: int) -> list[tuple[str, bool]]:
    """Split *text* into marked and unmarked pieces, truncated to *most* characters around the first mark.

    Args:
        marks: character ranges, sorted and without overlap (`merge_ranges`).
    """
    start = max(0, min(marks[0][0] - most // 3, len(text) - most)) if marks else 0
    end = min(len(text), start + most)
    pieces, copied = [("... " * (start > 0), False)], start
    for first, last in marks:
        if first < end and last > start:
            pieces += [(text[copied : max(first, start)], False), (text[max(first, start) : min(last, end)], True)]
            copied = min(last, end)
    pieces += [(text[copied:end], False), (" ..." * (end < len(text)), False)]
    return [(piece, marked) for piece, marked in pieces if piece]


def split_answer_at_marks(answer: WorstAnswer) -> list[tuple[str, bool]]:
    """Split a bad answer into marked (unsupported) and unmarked pieces, truncated around the first mark."""
    pieces = split_at_marks(answer.answer, answer.marks, _ANSWER_CHARS)
    return [(replace_control_characters(piece), marked) for piece, marked in pieces]


def has_verdict(metric: str) -> bool:
    """Return whether a score of *metric* says of a single answer that it is good or bad.

    `consistency` does not: it compares words, on a scale that belongs to the application.
    """
    return metric != "consistency"


def low_calls_phrase(metric: str) -> str:
    """Return a phrase for the calls with the worst scores of *metric*, without a verdict if the metric gives none."""
    return "bad calls" if has_verdict(metric) else "calls with the lowest scores"


def worst_answers_title(report: Report) -> str:
    """Return the heading of the list of the worst answers, without a verdict where their metric gives none."""
    if all(has_verdict(answer.metric) for answer in report.problems):
        return "The worst answers"
    return "The answers that agree least with their chunks"


def likely_statements(answer: WorstAnswer) -> list[tuple[str, str, str]]:
    """Return the likeliest unsupported statements of an answer, each with its probability of support and its chunks."""
    lowest = sorted(answer.statements, key=lambda each: each.probability)[:MOST_SHOWN_ROWS]
    return [
        (
            f"probability of support {format_number(each.probability)}",
            f"closest chunk {', '.join(map(str, each.chunks))}" if each.chunks else "no chunk has its words",
            shorten(each.text, _STATEMENT_CHARS) or "(its text was not kept)",
        )
        for each in lowest
    ]


def likely_sentence(answer: WorstAnswer) -> str:
    """Return the sentence above the statements of an answer with their probabilities, or "" if there are none."""
    if not answer.statements:
        return ""
    rest = len(answer.statements) - MOST_SHOWN_ROWS
    more = f"; {rest:,} likelier ones are left out" if rest > 0 else ""
    return f"Statements by probability of support, as the decision model gave it{more}"


def marks_legend(report: Report) -> str:
    """Return the text that explains why words of the worst answers are marked."""
    compared = {answer.compared for answer in report.problems if answer.marks}
    if compared == {True}:
        return "in no retrieved chunk; words alone were compared, so they may be a true paraphrase"
    others = ", or in none where words alone were compared" if True in compared else ""
    return f"supported by no retrieved chunk{others}"


def chunk_support_sentence(answer: WorstAnswer) -> str:
    """Return the phrase for a chunk that lacks, or does not support, the marked words of the answer."""
    return "does not have the marked words" if answer.compared else "does not support the marked words"


def answer_details(answer: WorstAnswer, among: Collection[str] = ()) -> list[str]:
    """Return details of one of the worst answers as texts: time, workflow, model, release, tags, evaluator, trace id.

    Args:
        among: all evaluators, among which the evaluator has a short name; empty: it is named by its id.
    """
    return [
        format_time(answer.at),
        *(display_name(each) for each in (answer.workflow, answer.model) if each),
        *([f"release {display_name(answer.release)}"] if answer.release else []),
        *(display_tag(name, value) for name, value in answer.tags.items()),
        short_name(answer.evaluator, among) if among else display_name(answer.evaluator),
        *([f"trace {replace_control_characters(answer.trace_id)}"] if answer.trace_id else []),
        *([f"the same question and answer in {answer.repeats} of the {answer.among:,} "
           f"{'worst calls' if has_verdict(answer.metric) else low_calls_phrase(answer.metric)}"]
          if answer.repeats > 1 else []),
    ]  # fmt: skip
