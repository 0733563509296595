"""Rendering of a report as Markdown, for an issue or a chat message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ragtrace.report import wording
from ragtrace.report.model import Report, WorstAnswer
from ragtrace.report.tables import (
    Table,
    breakdown_tables,
    closing_tables,
    corrected_table,
    feedback_table,
    grouping_tables,
    metrics_table,
)

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+\-.!|~>$:@^=/])")
_FIGURE: Final = re.compile(r"(?<=\d)\\(?=[.-]\d)|\\(?=[+-]\d)")
"""Pattern of a backslash within a number or before its sign, where no mark-up can begin."""
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CHUNK_CHARS: Final = 400


def render_markdown(report: Report) -> str:
    """Render the report as GitHub-flavoured Markdown, with call texts escaped so that they cannot act as markup."""
    return "\n".join(_lines(report)) + "\n"


def escaped(text: str) -> str:
    """Return *text* on one line and escaped for Markdown, so that none of its characters acts as markup."""
    line = " ".join(wording.replace_control_characters(text).split())
    line = "".join(_ENTITIES.get(char, char) for char in _FIGURE.sub("", _SPECIAL.sub(r"\\\1", line)))
    # Bare addresses become links in many dialects even where their colon is escaped.
    return re.sub(r"(?i)\b(https?|ftp|www)(?=\\[:.])", lambda found: f"{found[1]}&#8203;", line)


def _lines(report: Report) -> Iterator[str]:
    verdict, item = wording.verdict(report), report.headline
    yield f"# {escaped(verdict.title)}\n"
    sentences = [
        f"{verdict.detail}.",
        f"{wording.metric_meaning(item.metric)}." if item is not None and wording.metric_meaning(item.metric) else "",
        wording.without_context_sentence(report),
        wording.latest_sentence(report),
        wording.subject_line(report),
    ]
    yield from (f"{escaped(sentence)}\n" for sentence in sentences if sentence)
    yield from (f"> {escaped(note)}\n" for note in report.notes)
    yield from _table(metrics_table(report))
    yield from _table(corrected_table(report))
    yield from _table(feedback_table(report))
    if item is not None:
        for table in breakdown_tables(report, item):
            yield from _table(table)
        points = [
            (wording.format_time(point.period.start), wording.format_estimate(point.estimate), f"{point.judged:,}")
            for point in item.timeline
        ]
        for table in grouping_tables(report):
            yield from _table(table)
        head = ("From", "Estimate (95% interval)", "Scored")
        yield from _table(Table(f"{wording.metric_title(item.metric)} over time", head, points))
    if report.problems:
        yield f"## {wording.worst_answers_title(report)}\n"
        yield f"Bold words are {wording.marks_legend(report)}.\n"
    for number, answer in enumerate(report.problems, start=1):
        yield from _worst_answer(number, answer)
    for table in closing_tables(report):
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    if not table.rows:
        return
    yield f"## {escaped(table.title)}\n"
    yield f"| {' | '.join(map(escaped, table.head))} |"
    yield f"|---{'|--:' * (len(table.head) - 1)}|"
    for row in table.rows:
        yield f"| {' | '.join(map(escaped, row))} |"
    yield f"\n{table.more}\n" if table.more else ""


def _worst_answer(number: int, answer: WorstAnswer) -> Iterator[str]:
    yield f"### {number}\\. {escaped(answer.query) or 'question not known'}\n"
    yield f"{escaped(wording.format_score(answer))}; {escaped(', '.join(wording.answer_details(answer)))}\n"
    pieces = [
        f"**{escaped(piece)}**" if marked else _escaped_with_ends(piece)
        for piece, marked in wording.split_answer_at_marks(answer)
    ]
    yield f"Answer: {''.join(pieces) or 'not kept'}\n"
    for rank, chunk in enumerate(answer.passages or (), start=1):
        held = f" ({wording.chunk_support_sentence(answer)})" if chunk.held_against else ""
        yield f"- chunk {rank}{held}: {escaped(wording.shorten(chunk.text, _CHUNK_CHARS))}"
    yield ""


def _escaped_with_ends(piece: str) -> str:
    """Escape a piece of text for Markdown, keeping the whitespace at its start and end."""
    return f"{' ' * piece[:1].isspace()}{escaped(piece)}{' ' * (piece[-1:].isspace() and len(piece) > 1)}"
