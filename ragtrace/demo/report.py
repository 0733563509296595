"""The demo's report on a terminal, with rich."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ragtrace.demo import wording
from ragtrace.demo.outcome import Call, Outcome
from ragtrace.demo.plain import with_marks

WIDEST = 100
_COLUMNS = 40
"""Bars in the picture of the run."""
_ROWS = 3
_BLOCKS = " ▁▂▃▄▅▆▇█"
_RELEASE = "│"
_GOOD, _BAD, _QUIET = "green", "bold red", "dim"


class _Console(Console):
    """Leaves a reader that went away to the command line, which knows the exit status for it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(outcome: Outcome) -> None:
    """Print the report to standard output.

    Raises:
        BrokenPipeError: if nobody reads it any more.
    """
    console = _Console(highlight=False)
    console.width = min(console.width, WIDEST)
    _print(console, outcome)


def save_svg(outcome: Outcome, path: Path) -> None:
    """Write the report as a picture."""
    console = Console(
        highlight=False, record=True, width=WIDEST, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text("$ ragtrace demo", style="bold"))
    console.print()
    _print(console, outcome)
    svg = console.export_svg(title="ragtrace demo")
    # The template loads a font from a server; a README's picture must not, and any monospaced font will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    font = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
    path.write_text(re.sub(r"font-family: Fira Code, monospace", f"font-family: {font}", svg), encoding="utf-8")


def _print(console: Console, outcome: Outcome) -> None:
    for part in _parts(console, outcome):
        console.print(part)


def _parts(console: Console, outcome: Outcome) -> Iterator[RenderableType]:
    yield Text(wording.introduction(outcome))
    yield ""
    if not console.options.ascii_only:
        yield _picture(console, outcome)
        yield ""
    yield _table(outcome)
    yield ""
    worst = outcome.worst(wording.WORST)
    if worst:
        yield Rule("The worst answers", style=_QUIET)
    for number, call in enumerate(worst, start=1):
        yield _heading(number, call)
        yield Padding(_worst(console, call), (0, 0, 1, 2))
    yield _footer(outcome)


def _picture(console: Console, outcome: Outcome) -> Text:
    """Hallucination rate over the run as bars, one a slice of calls, with the release in the middle."""
    wide = 2 if console.width >= WIDEST else 1
    columns = min(_COLUMNS, len(outcome.calls))
    rates = outcome.timeline(columns)
    top = max(0.25, *(rate or 0.0 for rate in rates))
    text = Text("hallucination rate over the run\n", style="bold")
    for row in reversed(range(_ROWS)):
        text.append(f"{top:>4.0%} " if row == _ROWS - 1 else "  0% " if row == 0 else " " * 5, style=_QUIET)
        for column, rate in enumerate(rates):
            if column == columns // 2:
                text.append(_RELEASE, style=_QUIET)
            eighths = round((rate or 0.0) / top * _ROWS * 8) - row * 8
            text.append(_BLOCKS[max(0, min(8, eighths))] * wide, style=_GOOD if column < columns // 2 else _BAD)
        text.append("\n")
    before = "before".ljust(columns // 2 * wide)
    return text.append(f"{'':5}{before}{_RELEASE}after the simulated release", style=_QUIET)


def _table(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", overflow="fold")
    table.add_column("before", justify="right")
    table.add_column("after the simulated release", justify="right")
    for label, before, after in wording.rows(outcome):
        strong = label.startswith(("Faithfulness", "Hallucination"))
        table.add_row(label, Text(before, style=_GOOD if strong else ""), Text(after, style=_BAD if strong else ""))
    return table


def _heading(number: int, call: Call) -> Text:
    text = Text.assemble((f"{number}. ", _QUIET), (call.question, "bold"))
    if call.verdict.faithfulness is not None:
        text.append(f"  faithfulness {call.verdict.faithfulness:.2f}", style=_QUIET)
    return text


def _worst(console: Console, call: Call) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", style=_QUIET, no_wrap=True)
    table.add_column("", overflow="fold")
    table.add_row("answer", _answer(console, call))
    table.add_row("passage", Text(wording.quote(call) or "none", style="italic"))
    table.add_row("invented", Text(wording.truth(call), style="yellow"))
    return table


def _answer(console: Console, call: Call) -> Text:
    """Unsupported words in colour, or in brackets where there is none."""
    text, ranges = wording.marked(call)
    if console.color_system is None or console.no_color:
        return Text(with_marks(text, ranges))
    styled = Text(text)
    for start, end in ranges:
        styled.stylize(f"{_BAD} underline", start, end)
    return styled


def _footer(outcome: Outcome) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", style=_QUIET, no_wrap=True)
    table.add_column("", overflow="fold")
    for note in outcome.notes:
        table.add_row("note", Text(note, style="yellow"))
    for alarm in outcome.alarms:
        table.add_row("alert", Text(wording.alarm(alarm)))
    for line in wording.accounts(outcome.stats):
        table.add_row("calls", Text(line))
    table.add_row("spans", Text(wording.destination(outcome.destination)))
    table.add_row("took", Text(f"{outcome.seconds:.1f} s"))
    for found in outcome.backends:
        table.add_row("backend", Text(wording.backend(found), style="yellow" if found.problem else ""))
    return table
