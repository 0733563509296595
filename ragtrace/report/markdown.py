"""The report in Markdown, for an issue or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ragtrace.report import words
from ragtrace.report.meaning import meaning
from ragtrace.report.model import Measured, Part, Problem, Report

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+\-.!|~>$:@^=/])")
_FIGURE: Final = re.compile(r"(?<=\d)\\(?=[.-]\d)|\\(?=[+-]\d)")
"""A backslash within a number or before its sign, where no mark-up can begin."""
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_PASSAGE_CHARS: Final = 400


def markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown; texts of calls cannot become links, images, mentions or HTML."""
    return "\n".join(_lines(report)) + "\n"


def escaped(text: str) -> str:
    """*text* as Markdown that shows it and does nothing else, on one line."""
    line = " ".join(words.clean(text).split())
    line = "".join(_ENTITIES.get(char, char) for char in _FIGURE.sub("", _SPECIAL.sub(r"\\\1", line)))
    # Bare addresses become links in many dialects even where their colon is escaped.
    return re.sub(r"(?i)\b(https?|ftp|www)(?=\\[:.])", lambda found: f"{found[1]}&#8203;", line)


def _lines(report: Report) -> Iterator[str]:
    said = words.verdict(report)
    yield f"# {escaped(said.title)}\n"
    yield f"{escaped(said.detail)}.\n"
    if report.headline is not None and meaning(report.headline.metric):
        yield f"{escaped(words.title(report.headline.metric))}: {meaning(report.headline.metric)}\\.\n"
    if words.without_context(report):
        yield f"{escaped(words.without_context(report))}\n"
    if report.latest is not None:
        now = f"{words.latest(report)} {words.with_interval(report.latest.estimate)}"
        yield f"{escaped(now)}, {report.latest.judged:,} calls scored\n"
    yield f"{escaped(words.subject(report))}\n"
    yield from (f"> {escaped(note)}\n" for note in report.notes)
    yield from _comparison(report)
    if report.headline is not None:
        yield from _places(report, report.headline)
        yield from _timeline(report.headline)
    yield from _problems(report)
    yield from _rest(report)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|---{'|--:' * (len(head) - 1)}|"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"
    yield ""


def _comparison(report: Report) -> Iterator[str]:
    two = report.comparison
    if two is None or not report.changes:
        rows = [item for item in report.measured if item.overall is not None]
        cells = [(words.title(item.metric), item.evaluator, words.with_interval(item.overall)) for item in rows]
        yield from _table(("Metric", "Evaluator", "Estimate (95% interval)"), cells)
        return
    yield from _table(
        ("Metric", escaped(two.before), escaped(two.after), "Difference (95% interval)"),
        (
            (
                f"{words.title(row.metric)} by {row.evaluator}",
                words.with_interval(row.before),
                words.with_interval(row.after),
                words.change(row),
            )
            for row in two.rows
        ),
    )


def _places(report: Report, item: Measured) -> Iterator[str]:
    for name, parts in (("workflow", item.by_workflow), ("model", item.by_model)):
        if not parts:
            continue
        yield f"## {escaped(words.title(item.metric))} by {name}\n"
        shown, two = parts[: words.MOST_PARTS], report.comparison
        if two is not None and any(part.moved for part in shown):
            sides = escaped(two.before), escaped(two.after)
            yield from _table(
                (name.title(), *sides, "Difference (95% interval)", "Of the change"),
                (_moved(part, report, item) for part in shown),
            )
        else:
            yield from _table((name.title(), "Estimate (95% interval)", "Calls", "Scored"), map(_part, shown))
        yield f"{words.left_out(parts)}\n"


def _moved(part: Part, report: Report, item: Measured) -> tuple[str, ...]:
    moved = part.moved
    sides = ("-", "-") if moved is None else (words.with_interval(moved.before), words.with_interval(moved.after))
    return words.name(part.name), *sides, words.part_change(part), words.came_from(part, report.compared(item)) or "-"


def _part(part: Part) -> tuple[str, str, str, str]:
    return words.name(part.name), words.with_interval(part.estimate), f"{part.calls:,}", f"{part.judged:,}"


def _timeline(item: Measured) -> Iterator[str]:
    yield f"## {escaped(words.title(item.metric))} over time\n"
    rows = (
        (words.moment(point.period.start), words.with_interval(point.estimate), f"{point.judged:,}")
        for point in item.timeline
    )
    yield from _table(("From", "Estimate (95% interval)", "Scored"), rows)


def _problems(report: Report) -> Iterator[str]:
    if report.problems:
        yield "## The worst answers\n"
        yield f"Bold words are {words.marked(report)}.\n"
    for number, problem in enumerate(report.problems, start=1):
        yield from _problem(number, problem)


def _problem(number: int, problem: Problem) -> Iterator[str]:
    score = f"{words.title(problem.metric)} {words.share(problem.score)}"
    yield f"### {number}\\. {escaped(problem.query) or 'question not known'}\n"
    where = [words.moment(problem.at), problem.workflow, problem.model, problem.evaluator, problem.trace_id]
    yield f"{escaped(score)}; {escaped(', '.join(filter(None, where)))}\n"
    text, marks = words.excerpt(problem)
    pieces = [
        f"**{escaped(piece)}**" if marked else _keeping_ends(piece) for piece, marked in words.pieces(text, marks)
    ]
    yield f"Answer: {''.join(pieces) or 'not kept'}\n"
    for rank, passage in enumerate(problem.passages or (), start=1):
        held = f" ({words.held(problem)})" if passage.held_against else ""
        yield f"- chunk {rank}{held}: {escaped(words.shortened(passage.text, _PASSAGE_CHARS))}"
    yield ""


def _keeping_ends(piece: str) -> str:
    """Escaped, with the blanks that part it from its neighbours."""
    return f"{' ' * piece[:1].isspace()}{escaped(piece)}{' ' * (piece[-1:].isspace() and len(piece) > 1)}"


def _rest(report: Report) -> Iterator[str]:
    yield "## How the scores are spread\n"
    spread = [(item, item.box) for item in report.measured if item.box is not None]
    yield from _table(
        ("Metric", "5%", "25%", "Median", "75%", "95%", "Mean", "Scores"),
        (
            (
                f"{words.title(item.metric)} by {item.evaluator}",
                *map(words.number, (box.low, box.first, box.median, box.third, box.high, box.mean)),
                f"{box.n:,}",
            )
            for item, box in spread
        ),
    )
    reasons = [
        (f"{words.title(item.metric)} by {item.evaluator}", words.reason(reason), f"{count:,}")
        for item in report.measured
        for reason, count in item.unscored.items()
    ]
    if reasons:
        yield "## Not scored\n"
        yield from _table(("Metric", "Reason", "Calls"), reasons)
    yield "## What judging cost\n"
    yield from _table(
        ("Evaluator", "Calls", "Failed", "Requests", "Tokens in", "Tokens out", "Cost"),
        (
            (
                each.evaluator,
                *(
                    f"{n:,}"
                    for n in (each.looked_at, each.failed, each.requests, each.input_tokens, each.output_tokens)
                ),
                words.cost(each),
            )
            for each in report.spent
        ),
    )
