"""The demo's calls in a local history, and the report on it."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ragtrace.core.errors import RagtraceError, SettingsError
from ragtrace.demo.outcome import Outcome
from ragtrace.demo.passages import DemoError
from ragtrace.demo.run import Options, renamed

if TYPE_CHECKING:
    from ragtrace.report.model import Report

_BEFORE_S = 1.0
"""A call's time may be rounded."""


@contextmanager
def kept(options: Options, report: Path | None) -> Generator[Options, None, None]:
    """*options* with a history for *report*, if there is to be one: the user's, else one that is gone after the block.

    Raises:
        DemoError: the report has no folder to be written to.
    """
    _check(report)
    if report is None or options.store is not None:
        yield options
        return
    with tempfile.TemporaryDirectory(prefix="ragtrace-demo-", ignore_cleanup_errors=True) as folder:
        yield replace(options, store=Path(folder) / "history.db")


def write_report(outcome: Outcome, store: Path, file: Path) -> None:
    """Write the HTML report on the run that is just over, with the release compared with what was before.

    Raises:
        DemoError: the history cannot be read, or the file not written.
    """
    from ragtrace.report.html_page import render_html

    try:
        text = render_html(_report(outcome, store))
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except (OSError, sqlite3.Error, RagtraceError) as error:
        raise DemoError(f"the report cannot be written to {file}: {error}; name another file") from error


def _report(outcome: Outcome, store: Path) -> Report:
    from ragtrace.report.analysis import ReportRequest, build_report
    from ragtrace.report.model import Period

    now = time.time()
    wanted = ReportRequest(
        str(store),
        Period(now - outcome.seconds - _BEFORE_S, now),
        compare=f"{outcome.model}:{renamed(outcome.model)}",
        made_at=now,
    )
    try:
        return build_report(wanted)
    except SettingsError:  # no call of one of the two was answered
        return build_report(replace(wanted, compare="none"))


def _check(report: Path | None) -> None:
    if report is not None and not report.absolute().parent.is_dir():
        raise DemoError(f"the report cannot be written to {report}: there is no folder {report.parent}; make it first")
    if report is not None and find_spec("jinja2") is None:
        raise DemoError("--report needs Jinja2; install it with: pip install 'ragtrace-otel[cli]'")
