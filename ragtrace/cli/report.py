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

from ragtrace.cli.options import add_command, report_failure, whole_number
from ragtrace.system.atomic_file import write_atomically
from ragtrace.system.terminal import OK, USAGE, has_rich, print_error

if TYPE_CHECKING:
    from ragtrace.report.model import Report

_FORMATS: Final = ("terminal", "markdown", "html", "json", "csv")
_BY_SUFFIX: Final = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json", ".csv": "csv"}
_SCORES: Final = ".jsonl"
_REPORT: Final = """\
Reports on the local history that configure(store=PATH) keeps: whether scores went up or down, by how much and how
sure that is; in which workflows and models; the worst answers with the words that no retrieved chunk supports; what
was not scored, and why; what judging cost. Reads only; the application may go on writing. Reports as well on
SCORES.jsonl, the output of `ragtrace score`; the file of the calls, --calls, adds the texts of the worst answers.
"""
_NOTES: Final = """\
times:
  24h, 7d, 90m    that long ago; or a date, or a date with time (2025-11-03T14:00), in UTC unless it has an offset

comparison:
  previous        with the time of the same length before (the default)
  A:B             two versions (the resource attribute service.version), or two models, within the time
  none

environment:
  RAGTRACE_STORE  the history, if PATH is not given
  NO_COLOR        no colours

exit status: 0 done, 1 the history cannot be read or the report not written, 2 wrong usage, 130 interrupted,
141 the reader of the output went away
"""


def add(commands: Any) -> None:
    """Add the command `ragtrace report` to the parser of the command line."""
    parser = add_command(
        commands,
        "report",
        run,
        "what the local history says: estimates over time, what changed, the worst answers",
        _REPORT,
        _NOTES,
    )
    parser.add_argument("path", nargs="?", metavar="PATH", help="history, or SCORES.jsonl (default RAGTRACE_STORE)")
    parser.add_argument("--calls", type=Path, metavar="CALLS.jsonl", help="with SCORES.jsonl: the file that was scored")
    parser.add_argument("--since", default="24h", metavar="TIME", help="start (default 24h, that is, 24 hours ago)")
    parser.add_argument("--until", default="now", metavar="TIME", help="end (default now)")
    parser.add_argument("--workflow", metavar="NAME", help="of that workflow only")
    parser.add_argument("--compare", default="previous", metavar="WHAT", help="previous (default), A:B or none")
    worst = whole_number(0, 1000)
    parser.add_argument("--worst", type=worst, default=10, metavar="N", help="worst answers to show (default 10)")
    parser.add_argument("--format", choices=_FORMATS, help="default: by the suffix of --out, else terminal")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to FILE instead of standard output")


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
    return build_report(path, period, options.workflow, options.compare, options.worst, now)


def _report_on_scores(path: str, options: argparse.Namespace) -> Report:
    """Build a report on an output file of `ragtrace score`, by way of a temporary history file."""
    from ragtrace.report.analysis import build_report
    from ragtrace.report.model import Period
    from ragtrace.report.score_history import write_history

    now = time()
    with TemporaryDirectory(prefix="ragtrace-report-") as folder:
        history = str(Path(folder) / "history.db")
        write_history(Path(path), options.calls, history, now)
        period = Period(now - 1.0, now + 1.0)
        return replace(build_report(history, period, options.workflow, "none", options.worst, now), path=path)


def _render(report: Report, options: argparse.Namespace) -> str:
    """Render the report as text in the format that --format, or the suffix of --out, specifies."""
    suffix = "" if options.out is None else options.out.suffix.lower()
    form = options.format or _BY_SUFFIX.get(suffix, "terminal")
    if form == "html":
        from ragtrace.report.html_page import render_html

        return render_html(report)
    if form in ("json", "csv"):
        from ragtrace.report.json_csv import to_csv, to_json

        return to_json(report) if form == "json" else to_csv(report)
    if form == "markdown" or not has_rich():
        from ragtrace.report.markdown import render_markdown

        return render_markdown(report)
    from ragtrace.report.terminal import render_terminal

    seen = options.out is None and sys.stdout.isatty()
    ascii_only = options.out is None and not (sys.stdout.encoding or "").lower().startswith("utf")
    width = shutil.get_terminal_size((100, 40)).columns if seen else 100
    colour = seen and not os.environ.get("NO_COLOR")
    return render_terminal(report, width=width, colour=colour, plain=ascii_only)
