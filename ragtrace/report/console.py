"""Rendering of a report as text for a terminal: its Markdown, laid out by the library rich."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.console import Console
from rich.markdown import Heading, Markdown, TableDataElement, TableElement
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from ragtrace.report import wording
from ragtrace.report.markdown import BARS, render_markdown

if TYPE_CHECKING:
    from rich.console import ConsoleOptions

    from ragtrace.report.model import Report

_WIDEST: Final = 100
_NARROWEST: Final = 40
_TO_ASCII: Final = str.maketrans(
    {"\u2212": "-", "\u00b7": "|", "▌": "|", "•": "-", "─": "-", "━": "-", **dict(zip(BARS, "01234567", strict=True))}
)
_STYLES: Final = {"bad": "bold red", "good": "bold green", "quiet": "bold"}


def render_terminal(report: Report, *, width: int = _WIDEST, colour: bool = False, plain: bool = False) -> str:
    """Render the report's Markdown as text for a terminal.

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
        theme=_theme(report),
    )
    console.print(_ReportText(render_markdown(report), hyperlinks=False))
    text = "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
    text = text.replace("\u200b", "")  # keeps Markdown from making a link of an address
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode() if plain else text


def _theme(report: Report) -> Theme:
    """Return the styles of the report's headings, tables and marked words; the title says good or bad news."""
    return Theme(
        {
            "markdown.h1": _STYLES[wording.verdict(report).tone],
            "markdown.h2": "bold",
            "markdown.h3": "bold",
            "markdown.strong": "bold underline red",
            "markdown.block_quote": "none",
            "markdown.table.header": "dim",
            "markdown.table.border": "dim",
        }
    )


class _LeftHeading(Heading):
    """Heading at the left and close to its section, where rich would put the title into the middle or into a frame."""

    new_line = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield self.text


class _OpenTable(TableElement):
    """Table without an edge, which in rich takes an empty line above and below."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.show_edge = False
                yield table


class _UncutCell(TableDataElement):
    """Cell of a table that breaks a long word, where rich would cut it off."""

    def __init__(self, justify: Any) -> None:
        super().__init__(justify)
        self.content.overflow = "fold"


class _ReportText(Markdown):
    """Markdown with headings at the left and tables that lose nothing."""

    elements: ClassVar = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "table_open": _OpenTable,
        "th_open": _UncutCell,
        "td_open": _UncutCell,
    }
