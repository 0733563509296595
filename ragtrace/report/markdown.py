"""Rendering of a report as Markdown, for an issue or a chat message. The text in a terminal is made from it, too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ragtrace.report import wording
from ragtrace.report.model import MetricReport, Report, Rollout, WorstAnswer
from ragtrace.report.tables import (
    Table,
    alert_table,
    breakdown_tables,
    closing_tables,
    corrected_table,
    feedback_table,
    grouping_tables,
    guard_table,
    metrics_table,
)

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()#+\-.!|~>$:@^=/])")
_FIGURE: Final = re.compile(r"(?<=\d)\\(?=[.-]\d)|\\(?=[+-]\d)")
"""Pattern of a backslash within a number or before its sign, where no mark-up can begin."""
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CHUNK_CHARS: Final = 300
BARS: Final = "▁▂▃▄▅▆▇█"
_NO_ESTIMATE: Final = "."


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
        verdict.detail,
        *verdict.since,
        wording.latest_sentence(report),
        wording.without_context_sentence(report),
        wording.item_meaning(item) if item is not None else "",
    ]
    yield from (f"{escaped(sentence)}.\n" for sentence in sentences if sentence)
    yield f"{escaped(wording.subject_line(report))}\n"
    yield from (f"> {escaped(note)}\n" for note in report.notes)
    if item is not None:
        yield from _timeline(item, report.rollouts)
    yield from _table(alert_table(report))
    yield from _table(metrics_table(report))
    yield from _table(corrected_table(report))
    yield from _table(feedback_table(report))
    yield from _table(guard_table(report))
    for table in breakdown_tables(report, item) if item is not None else ():
        yield from _table(table)
    for table in grouping_tables(report):
        yield from _table(table)
    if report.problems:
        yield f"## {wording.worst_answers_title(report)}\n"
        yield f"{_marked('Words like these')} are {wording.marks_legend(report)}.\n"
    for number, answer in enumerate(report.problems, start=1):
        yield from _worst_answer(number, answer)
    for table in closing_tables(report):
        yield from _table(table)


def _timeline(item: MetricReport, rollouts: Sequence[Rollout]) -> Iterator[str]:
    """Yield the estimates over time as a line of bars, with what the bars mean and the new releases."""
    known = [point.value for point in item.timeline if point.value is not None]
    if not known:
        return
    low, high = (min(known), 1.0) if item.higher_is_better else (0.0, max(known))
    bars = ""
    for point in item.timeline:
        value = point.value
        share = 0.0 if value is None or high <= low else (value - low) / (high - low)
        bars += _NO_ESTIMATE if value is None else BARS[round((len(BARS) - 1) * max(0.0, min(1.0, share)))]
    first, last = item.timeline[0].period.start, item.timeline[-1].period.end
    numbered = item.timeline[-1].calls
    over = wording.format_period(first, last) if numbered is None else f"call 1 to call {numbered[1]:,}"
    scale = " to ".join(map(wording.format_number if item.is_raw else wording.format_share, (low, high)))
    scale = f"{'median ' if item.is_raw else ''}{scale}, from {over}"
    yield f"## {escaped(wording.item_title(item))} {'over time' if numbered is None else 'call by call'}\n"
    yield f"{escaped(bars)}\n"
    yield f"{escaped(scale)}.\n"
    shown = [rollout for rollout in rollouts if first < rollout.at < last]
    for rollout in shown:
        yield f"- {escaped(f'{wording.format_time(rollout.at)}: release {wording.display_name(rollout.release)}')}"
    if shown:
        yield ""


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
        _marked(piece) if is_marked else _escaped_with_ends(piece)
        for piece, is_marked in wording.split_answer_at_marks(answer)
    ]
    yield f"Answer: {''.join(pieces) or 'not kept'}\n"
    for rank, chunk in enumerate(answer.passages or (), start=1):
        held = f" ({wording.chunk_support_sentence(answer)})" if chunk.held_against else ""
        yield f"- chunk {rank}{held}: {escaped(wording.shorten(chunk.text, _CHUNK_CHARS))}"
    yield ""
    if likely := wording.likely_sentence(answer):
        yield f"{likely}:\n"
        for chance, chunks, text in wording.likely_statements(answer):
            yield f"- {escaped(chance)}, {escaped(chunks)}: {escaped(text)}"
        yield ""


def _marked(piece: str) -> str:
    """Mark a piece of text: bold for where that is shown, and in [[ ]] for where it is not."""
    # Inside the brackets, as the asterisks of a word in the middle of others, as in Chinese, would not count there.
    return f"\\[\\[**{escaped(piece)}**\\]\\]" if piece.strip() else piece


def _escaped_with_ends(piece: str) -> str:
    """Escape a piece of text for Markdown, keeping the whitespace at its start and end."""
    return f"{' ' * piece[:1].isspace()}{escaped(piece)}{' ' * (piece[-1:].isspace() and len(piece) > 1)}"
