"""Command `ragtrace report`, which reports on the local history of scored calls, without any backend."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.command_options import add_command, add_tag_option, chosen_tags, report_failure, whole_number
from ragtrace.system.atomic_file import write_atomically
from ragtrace.system.terminal import OK, USAGE, has_rich, print_error

if TYPE_CHECKING:
    from ragtrace.report.model import Report

_FORMATS: Final = ("terminal", "markdown", "html", "json")
_BY_SUFFIX: Final = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json"}
_SCORES: Final = ".jsonl"
_REPORT: Final = """\
Reports on a history, or on SCORES.jsonl of `ragtrace score`: rates with their
intervals, what changed, the worst answers, what was not scored, what it cost.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace report` to the parser of the command line."""
    parser = add_command(
        commands,
        "report",
        run,
        "what the history says: rates, changes, worst answers",
        "report [HISTORY.db | SCORES.jsonl] [options]",
        _REPORT,
    )
    parser.add_argument("path", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--calls", type=Path, metavar="FILE", help="of SCORES.jsonl: the file that was scored")
    parser.add_argument("--since", default="24h", metavar="TIME", help="start: 24h (the default), 7d or a date")
    parser.add_argument("--until", default="now", metavar="TIME", help="end (default now)")
    parser.add_argument("--workflow", metavar="NAME", help="of that workflow only")
    add_tag_option(parser)
    parser.add_argument(
        "--compare", default="previous", metavar="WHAT", help="previous (default), none, or A:B (releases)"
    )
    worst = whole_number(0, 1000)
    parser.add_argument("--worst", type=worst, default=10, metavar="N", help="worst answers to show (default 10)")
    parser.add_argument("--format", choices=_FORMATS, metavar="FORM", help=", ".join(_FORMATS))
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write; its suffix says the form")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace report`, which prints or writes a report, and return the exit status."""
    import sqlite3

    from ragtrace.core.errors import SettingsError
    from ragtrace.system.sqlite_files import SQLiteFileError

    path = options.path or os.environ.get("RAGTRACE_STORE", "")
    if not path:
        print_error("no history: name its file, or set RAGTRACE_STORE; configure(store=PATH) makes one")
        return USAGE
    try:
        report = _report_on_scores(path, options) if path.endswith(_SCORES) else _report_on_history(path, options)
        text = _render(report, options)
        if options.out is None:
            sys.stdout.write(text)
        else:
            write_atomically(options.out, [text.encode("utf-8", "backslashreplace")])
            print_error(f"report written to {options.out}")
    except BrokenPipeError:
        raise
    except (SettingsError, SQLiteFileError, sqlite3.Error, UnicodeError, OSError) as error:
        return report_failure(error, "report")
    return OK


def _report_on_history(path: str, options: argparse.Namespace) -> Report:
    from ragtrace.core.errors import SettingsError
    from ragtrace.report.analysis import build_report
    from ragtrace.report.model import parse_period

    if options.calls is not None:
        raise SettingsError(f"--calls goes with a file of scores (*{_SCORES}), got the history {path}; leave it out")
    now = time()
    period = parse_period(options.since, options.until, now)
    return build_report(path, period, options.workflow, options.compare, options.worst, now, tags=chosen_tags(options))


def _report_on_scores(path: str, options: argparse.Namespace) -> Report:
    """Build a report on an output file of `ragtrace score`, by way of a temporary history file."""
    from ragtrace.report.analysis import build_report
    from ragtrace.report.model import Period
    from ragtrace.report.score_history import write_history

    now, tags = time(), chosen_tags(options)
    with TemporaryDirectory(prefix="ragtrace-report-") as folder:
        history = str(Path(folder) / "history.db")
        write_history(Path(path), options.calls, history, now)
        period = Period(now - 1.0, now + 1.0)
        report = build_report(history, period, options.workflow, "none", options.worst, now, tags=tags)
        return replace(report, path=path)


def _render(report: Report, options: argparse.Namespace) -> str:
    """Render the report as text in the format that --format, or the suffix of --out, specifies."""
    suffix = "" if options.out is None else options.out.suffix.lower()
    form = options.format or _BY_SUFFIX.get(suffix, "terminal")
    if form == "html":
        from ragtrace.report.html_page import render_html

        return render_html(report)
    if form == "json":
        from ragtrace.report.model import to_json

        return to_json(report)
    if form == "markdown":
        from ragtrace.report.markdown import render_markdown

        return render_markdown(report)
    return for_terminal(report, is_seen=options.out is None)


def for_terminal(report: Report, *, is_seen: bool = True) -> str:
    """Render the report as standard output can show it, or as Markdown where the library rich is not installed.

    Args:
        is_seen: whether it is for standard output; False: for a file.
    """
    if not has_rich():
        from ragtrace.report.markdown import render_markdown

        return render_markdown(report)
    from ragtrace.report.console import render_terminal

    seen = is_seen and sys.stdout.isatty()
    ascii_only = is_seen and not (sys.stdout.encoding or "").lower().startswith("utf")
    width = shutil.get_terminal_size((100, 40)).columns if seen else 100
    colour = seen and not os.environ.get("NO_COLOR")
    return render_terminal(report, width=width, colour=colour, plain=ascii_only)
