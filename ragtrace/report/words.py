"""The words and figures of a report, the same in every form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final, Literal, TypeAlias

from ragtrace.estimates import Estimate
from ragtrace.report.model import Change, Compared, Measured, Part, Problem, Report, Spent

Tone: TypeAlias = Literal["bad", "good", "quiet"]
_SMALL: Final = 0.00995
_TINY: Final = 0.00095
_ANSWER_CHARS: Final = 1_600
PASSAGE_CHARS: Final = 1_200
NOTHING: Final = "no calls were kept in this time"
_TITLES: Final = {
    "hallucinated": "Hallucination rate",
    "hallucination": "Unsupported statements",
    "answered_without_context": "Answers without any context",
    "suspicious": "Suspicious answers",
}
"""Of metrics whose name alone does not say what their mean is a share of."""
WITHOUT_CONTEXT: Final = "answered_without_context"
"""The metric that a report has a line of its own for: the plainest sign of a broken retriever."""
MOST_PARTS: Final = 12
"""Workflows or models shown where a reader has to look at each."""
_NAME_CHARS: Final = 80
_A_MOMENT_S: Final = 60.0
DECISIONS: Final = {
    "sampled": "seen: drawn by the sample",
    "suspicious": "seen: suspicious to the screen",
    "always_rule": "seen: by a rule",
    "not_sampled": "not seen: not drawn",
    "never_rule": "not seen: by a rule",
    "budget": "not seen: the budget was spent",
}
# The joiners U+200C and U+200D stay: Persian, Hindi and emoji are written with them.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a report says first."""

    title: str
    detail: str
    tone: Tone


def verdict(report: Report) -> Verdict:
    """Whether the first metric went up or down, by how much, and how sure that is."""
    item = report.headline
    if item is None or item.overall is None or item.overall.value is None:
        return Verdict("Nothing to tell yet", "no call was judged in this time" if report.calls else NOTHING, "quiet")
    found = _compared(report, item)
    if report.recent is None or found.tone != "quiet" or report.recent.change.direction == "unclear":
        return found
    lately = report.recent
    last = f"the last {span(report.period.end - lately.since)}"
    last += " of this time" if report.made_at - report.period.end > _A_MOMENT_S else ""
    tone: Tone = "bad" if lately.change.direction == "worse" else "good"
    detail = f"{percent(lately.after.value)} against {percent(lately.before.value)} earlier in this time; the "
    detail += f"difference is {_ends(lately.change)}{_over_all(report, item)}"
    return Verdict(f"{title(item.metric)} went {_way(lately.change)} in {last}", detail, tone)


def _compared(report: Report, item: Measured) -> Verdict:
    """The verdict of the comparison that was asked for."""
    called = title(item.metric)
    row, two = report.compared(item), report.comparison
    if two is None or row is None or row.change is None or row.before is None or row.after is None:
        why = "" if row is None or two is None else f"; no comparison with {two.before}: {row.reason}"
        value = None if item.overall is None else item.overall.value
        return Verdict(f"{called} is {percent(value)}", f"95% interval {interval(item.overall)}{why}", "quiet")
    moved = f"from {percent(row.before.value)} ({two.before}) to {percent(row.after.value)} ({two.after})"
    sure = f"the difference is {_ends(row.change)}"
    if row.change.direction == "unclear":
        return Verdict(f"No clear change in {called.lower()}", f"{moved}; {sure}: it may be chance", "quiet")
    tone: Tone = "bad" if row.change.direction == "worse" else "good"
    by = points(abs(row.change.value), signed=False)
    return Verdict(f"{called} went {_way(row.change)} by {by}", f"{moved}; {sure}", tone)


def _over_all(report: Report, item: Measured) -> str:
    row = report.compared(item)
    if row is None or row.change is None:
        return ""
    low, high = (points(end).removesuffix(" points") for end in (row.change.low, row.change.high))
    return f". Over all of this time: no clear change, {points(row.change.value)} ({low} to {high})"


def _way(change: Change) -> str:
    return "up" if change.value > 0 else "down"


def _ends(change: Change) -> str:
    low = points(change.low).removesuffix(" points")
    return f"{points(change.value)}, with 95% confidence between {low} and {points(change.high)}"


def title(metric: str) -> str:
    """A metric's name as a heading."""
    if metric in _TITLES:
        return _TITLES[metric]
    words = shortened(metric, _NAME_CHARS).replace("_", " ").strip()
    return words[:1].upper() + words[1:] or "(no name)"


def percent(value: float | None) -> str:
    """A share; two decimals where one would say little."""
    if value is None:
        return "-"
    return f"{100 * value:.2f}%" if 0 < value < _SMALL else f"{100 * value:.1f}%"


def interval(estimate: Estimate | None) -> str:
    """The 95 % interval of an estimate."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{percent(estimate.low)} to {percent(estimate.high)}"


def with_interval(estimate: Estimate | None) -> str:
    """An estimate with its interval."""
    if estimate is None or estimate.value is None:
        return "-" if estimate is None else f"unknown ({(estimate.reason or '').replace('_', ' ')})"
    return f"{percent(estimate.value)} ({interval(estimate)})"


def points(value: float, *, signed: bool = True) -> str:
    """A difference of two shares, in percentage points."""
    number = f"{100 * value:+.2f}" if 0 < abs(value) < _TINY else f"{100 * value:+.1f}"
    number = number.replace("-", "\u2212") if signed else number.lstrip("+-")  # a minus as wide as the plus
    return f"{number} points"


def change(row: Compared) -> str:
    """What became of a metric, or why nobody knows."""
    found: Change | None = row.change
    if found is None:
        return row.reason
    return f"{points(found.value)} ({points(found.low).removesuffix(' points')} to {points(found.high)})"


def part_change(part: Part) -> str:
    """What became of a workflow or model, with the interval; empty if it is not known."""
    found = None if part.moved is None else part.moved.change
    if found is None:
        return "not known"
    return f"{points(found.value)} ({points(found.low).removesuffix(' points')} to {points(found.high)})"


def came_from(part: Part, row: Compared | None) -> str:
    """How much of the change of all calls is this part's, in points; empty if it is not known."""
    if part.moved is None or part.moved.share is None or row is None or row.change is None:
        return ""
    whole = points(row.change.value).removesuffix(" points")
    return f"{points(part.moved.share * row.change.value).removesuffix(' points')} of {whole} points"


def latest(report: Report) -> str:
    """The name of the newest part of the time."""
    if report.latest is None:
        return ""
    length = span(report.latest.period.end - report.latest.period.start).removeprefix("1 ")
    is_now = report.made_at - report.period.end <= _A_MOMENT_S
    return f"Now: the last {length}" if is_now else f"At the end: the last {length}"


def without_context(report: Report) -> str:
    """The share of answers given although retrieval returned nothing, with its interval; empty if it is not known."""
    found = (each for each in report.measured if each.metric == WITHOUT_CONTEXT and each.overall is not None)
    item = next(found, None)
    if item is None or item.overall is None or item.overall.value is None:
        return ""
    return f"Answers given without any context: {with_interval(item.overall)} of {item.judged:,}"


def within(report: Report, item: Measured) -> str:
    """What the figures before and after rest on: releases, and the judge, which is the same for both."""
    two = report.comparison
    judge = f"both scored by {clean(item.evaluator)}"
    if two is None or two.kind == "releases" or not two.releases_before or not two.releases_after:
        return judge
    before, now = (listed(each).replace(", ", " and ") for each in (two.releases_before, two.releases_after))
    return f"release {before} before, {now} after; {judge}"


def how_often(problem: Problem) -> str:
    """In how many of the worst calls the very same happened; empty if in one."""
    if problem.repeats < 2:
        return ""
    return f"the same question and answer in {problem.repeats} of the {problem.among:,} worst calls"


def span(seconds: float) -> str:
    """A length of time in the largest unit that fits."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length or (unit == "hours" and seconds >= length):
            return f"{seconds / length:.3g} {unit if seconds != length else 'hour'}"
    return "second" if round(seconds) == 1 else f"{seconds:.0f} seconds"


def moment(at: float) -> str:
    """A time, to the minute, in UTC."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def between(start: float, end: float) -> str:
    """A time from when to when."""
    first, last = moment(start), moment(end)
    return f"{first[:-4]} to {last[11:] if first[:10] == last[:10] else last}"


def subject(report: Report) -> str:
    """What was looked at, on one line."""
    parts = [f"{report.calls:,} calls", between(report.period.start, report.period.end)]
    if report.services:
        parts.append(listed(report.services))
    if report.releases:
        parts.append(f"release {listed(report.releases)}")
    if report.workflow is not None:
        parts.append(f"workflow {name(report.workflow)} only")
    return " \u00b7 ".join(parts)


def name(text: str) -> str:
    """A workflow's, model's or release's name, which may be anything."""
    return shortened(text, _NAME_CHARS) or "(no name)"


def left_out(parts: Sequence[Part]) -> str:
    """What is not shown of *parts*; empty if all are."""
    rest = parts[MOST_PARTS:]
    return f"{len(rest):,} more, with {sum(part.calls for part in rest):,} calls" if rest else ""


def listed(names: tuple[str, ...], most: int = 4) -> str:
    """Names with commas, not too many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(name, names[:most])) + more


def number(value: float) -> str:
    """A score without a scale."""
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def reason(code: str) -> str:
    """A reason code in words."""
    return clean(code).replace("_", " ")


def judged(item: Measured) -> str:
    """How many calls a figure rests on."""
    of = "" if item.overall is None else f" of {item.overall.n:,}"
    return f"{item.judged:,}{of} calls scored by {clean(item.evaluator)}"


def cost(spent: Spent) -> str:
    """Money, with what is not known of it."""
    if not spent.requests:
        return "free" if not spent.cost_usd else f"{spent.cost_usd:.4f} USD"
    if spent.unpriced and not spent.cost_usd:
        return f"price not known of {spent.unpriced:,} calls" if spent.unpriced < spent.looked_at else "price not known"
    known = f"{spent.cost_usd:,.4f} USD" if spent.unpriced < spent.looked_at else "price not known"
    return known + (f" and {spent.unpriced:,} calls at no known price" if 0 < spent.unpriced < spent.looked_at else "")


def share(value: float) -> str:
    """One score in [0, 1]."""
    return f"{100 * value:.3g}%"


def duration(seconds: float) -> str:
    """Seconds, or milliseconds where these are few."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def clean(text: str) -> str:
    """*text* without characters that control a terminal or turn text around; these show as a replacement character."""
    return _CONTROL.sub("\ufffd", text)


def excerpt(problem: Problem) -> tuple[str, list[tuple[int, int]]]:
    """The answer, cut to what can be shown around the first marked words, and the ranges to mark in what is left."""
    answer, marks = problem.answer, problem.marks
    start = max(0, min(marks[0][0] - _ANSWER_CHARS // 3, len(answer) - _ANSWER_CHARS)) if marks else 0
    end = min(len(answer), start + _ANSWER_CHARS)
    head, tail = "... " * (start > 0), " ..." * (end < len(answer))
    shift = len(head) - start
    kept = [(max(a, start) + shift, min(b, end) + shift) for a, b in marks if a < end and b > start]
    return clean(head + answer[start:end] + tail), kept


def marked(report: Report) -> str:
    """Return what the marked words of the worst answers are."""
    compared = {problem.compared for problem in report.problems if problem.marks}
    if compared == {True}:
        return "in no retrieved chunk; words alone were compared, so they may be a true paraphrase"
    others = ", or in none where words alone were compared" if True in compared else ""
    return f"supported by no retrieved chunk{others}"


def held(problem: Problem) -> str:
    """Return how a chunk stands to the marked words of *problem* that were held against it."""
    return "does not have the marked words" if problem.compared else "does not support the marked words"


def shortened(text: str, most: int = PASSAGE_CHARS) -> str:
    """*text* up to *most* characters."""
    return clean(text if len(text) <= most else f"{text[:most]} ...")


def pieces(text: str, marks: list[tuple[int, int]]) -> list[tuple[str, bool]]:
    """*text* in pieces, each marked or not."""
    found: list[tuple[str, bool]] = []
    copied = 0
    for start, end in marks:
        found += [(text[copied:start], False), (text[start:end], True)]
        copied = end
    return [piece for piece in (*found, (text[copied:], False)) if piece[0]]
