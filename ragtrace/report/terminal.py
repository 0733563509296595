"""Rendering of a report as text for a terminal, with the library rich."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from ragtrace.report import wording
from ragtrace.report.model import MetricReport, Report, Rollout, WorstAnswer
from ragtrace.report.tables import (
    Table,
    breakdown_tables,
    closing_tables,
    corrected_table,
    feedback_table,
    grouping_tables,
    metrics_table,
)

_WIDEST: Final = 100
_NARROWEST: Final = 40
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_TO_ASCII: Final = str.maketrans({"\u2212": "-", "\u00b7": "|", **dict(zip(_BLOCKS, "01234567", strict=True))})
_NO_ESTIMATE: Final = "."
_STYLES: Final = {"bad": "bold red", "good": "bold green", "quiet": "bold"}
_CHUNK_CHARS: Final = 300


def render_terminal(report: Report, *, width: int = _WIDEST, colour: bool = False, plain: bool = False) -> str:
    """Render the report as text for a terminal.

    Args:
        width: columns, of which at most 100 are used.
        colour: whether escape sequences may be written.
        plain: whether only ASCII may be written.
    """
    out = StringIO()
    console = Console(
        file=out,
        width=max(_NARROWEST, min(width, _WIDEST)),
        height=25,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    console.print(Group(*_report_parts(report)))
    text = "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode() if plain else text


def _report_parts(report: Report) -> Iterator[RenderableType]:
    verdict, item = wording.verdict(report), report.headline
    yield _text(verdict.title, _STYLES[verdict.tone])
    for sentence in (verdict.detail, wording.latest_sentence(report), wording.without_context_sentence(report)):
        if sentence:
            yield _text(f"{sentence}.")
    if item is not None and wording.metric_meaning(item.metric):
        yield _text(f"{wording.metric_meaning(item.metric)}.", "dim")
    yield _text(wording.subject_line(report), "dim")
    yield from (_text(f"Note: {note}") for note in report.notes)
    if item is not None:
        yield from _timeline(item, report.rollouts)
    yield from _table(metrics_table(report))
    yield from _table(corrected_table(report))
    yield from _table(feedback_table(report))
    for table in breakdown_tables(report, item) if item is not None else ():
        yield from _table(table)
    for table in grouping_tables(report):
        yield from _table(table)
    if report.problems:
        yield ""
        yield _text(f"{wording.worst_answers_title(report)}; [[words]] are {wording.marks_legend(report)}", "bold")
    for number, answer in enumerate(report.problems, start=1):
        yield from _worst_answer(number, answer)
    for table in closing_tables(report):
        yield from _table(table)


def _text(text: str, style: str = "") -> Text:
    return Text(_one_line(text), style, overflow="fold")


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", wording.replace_control_characters(text))


def _timeline(item: MetricReport, rollouts: Sequence[Rollout]) -> Iterator[RenderableType]:
    known = [point.estimate.value for point in item.timeline if point.estimate.value is not None]
    if not known:
        return
    low, high = (min(known), 1.0) if item.higher_is_better else (0.0, max(known))
    bars = ""
    for point in item.timeline:
        value = point.estimate.value
        share = 0.0 if value is None or high <= low else (value - low) / (high - low)
        bars += _NO_ESTIMATE if value is None else _BLOCKS[round((len(_BLOCKS) - 1) * max(0.0, min(1.0, share)))]
    first, last = item.timeline[0].period.start, item.timeline[-1].period.end
    lines = [_text(bars), _text(wording.format_period(first, last), "dim")]
    lines += [
        _text(f"{wording.format_time(rollout.at)}: release {wording.display_name(rollout.release)}", "dim")
        for rollout in rollouts
        if first < rollout.at < last
    ]
    yield ""
    yield _text(
        f"{wording.metric_title(item.metric)} over time, {wording.format_share(low)} to {wording.format_share(high)}:"
    )
    yield Padding(Group(*lines), (0, 0, 0, 2))


def _table(table: Table) -> Iterator[RenderableType]:
    if not table.rows:
        return
    yield ""
    yield _text(table.title, "bold")
    grid = RichTable(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for number, name in enumerate(table.head):
        grid.add_column(_text(name), justify="right" if number else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(_text, row))
    yield grid
    if table.more:
        yield _text(table.more)


def _worst_answer(number: int, answer: WorstAnswer) -> Iterator[RenderableType]:
    yield ""
    yield _text(f"{number}. {answer.query or '(the question is not known)'}  ({wording.format_score(answer)})")
    text = _text("answer: ")
    pieces = wording.split_answer_at_marks(answer)
    for piece, marked in pieces:
        line = _one_line(piece)
        text.append(f"[[{line}]]" if marked else line, "bold underline red" if marked else "")
    lines = [text if pieces else _text("answer: not kept")]
    for rank, chunk in enumerate(answer.passages or (), start=1):
        held = f" ({wording.chunk_support_sentence(answer)})" if chunk.held_against else ""
        lines.append(_text(f"chunk {rank}{held}: {wording.shorten(chunk.text, _CHUNK_CHARS)}"))
    lines.append(_text(", ".join(wording.answer_details(answer)), "dim"))
    yield Padding(Group(*lines), (0, 0, 0, 3))
