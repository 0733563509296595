"""Command `ragtrace demo`, which runs a RAG application over real documents and shows its scores."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ragtrace.cli.options import add_command, add_json_option, whole_number
from ragtrace.system.terminal import FAILURE, OK, flush, has_rich, print_error

if TYPE_CHECKING:
    from ragtrace.cli.demo.outcome import Outcome
    from ragtrace.cli.demo.run import Options

_DEMO = """\
Runs a real RAG application over real documents and shows what ragtrace sees of it: thousands of passages from the
docstrings of Python's standard library (or your own files), BM25 retrieval, an extractive generator, a few hundred
questions. Half-way a new model is released: this regression is simulated, it invents details in a share of its answers.
Needs no key and no network.
"""
_DEMO_NOTES = """\
environment:
  OTEL_EXPORTER_OTLP_ENDPOINT       send all spans, events and metrics to this backend as well
  OPENAI_BASE_URL, OPENAI_API_KEY   the server of --model
  NO_COLOR                          no colours

keys of the JSON object:
  documents             source, passages
  model, judge, seed, questions, seconds, notes
  simulated_regression  share: of the answers it is asked to alter; inventions: how many of each kind it made
  before, after         calls, scored, faithfulness (mean; null if none is scored), flagged (anything unsupported),
                        hallucination_rate (flagged of scored), invented (answers that were altered: the known truth),
                        caught (of these, flagged), located (of these, with invented words marked), healthy (scored,
                        nothing invented), wrongly_flagged (of these, flagged), unscored (count by reason)
  alerts                rule and mean_calls: what was asked for beforehand; raised_after: calls since the simulated
                        release (null: not raised; 0 or less: raised before it, and falsely); text: of the notice
  worst                 question, answer, faithfulness, invented (kind, text, start, end, instead_of),
                        unsupported (text; unsupported: offsets into the answer; support; quote of the closest passage)
  stats                 ragtrace.stats(): offered, scored, dropped ... by evaluator, and failures of ragtrace itself
  sent_to               endpoint (null: nowhere), spans, failed
  backends              with --backends: name, url (null: it does not run), problem (why not)

exit status: 0 done, 1 failure, 2 wrong usage, 130 interrupted, 141 the reader of the output went away
"""


def add(commands: Any) -> None:
    """Add the command `ragtrace demo` to the parser of the command line."""
    summary = "watch a RAG application over real documents, on this machine alone"
    demo = add_command(commands, "demo", run, summary, _DEMO, _DEMO_NOTES)
    demo.add_argument("--docs", type=Path, metavar="DIR", help="your own .txt, .md and .rst files instead")
    demo.add_argument(
        "--questions", type=whole_number(2), metavar="N", help="how many to ask (default 400; with --model 40)"
    )
    demo.add_argument("--seed", type=int, default=7, metavar="N", help="choice of questions and inventions (default 7)")
    demo.add_argument(
        "--model",
        metavar="NAME",
        help="generate with this model behind OPENAI_BASE_URL; the simulated regression goes on top of its answers",
    )
    add_json_option(demo)
    demo.add_argument(
        "--backends",
        action="store_true",
        help="send it all to Phoenix, Prometheus and Alertmanager, started for it where installed, and stay up",
    )
    demo.add_argument("--store", type=Path, metavar="PATH", help="keep the calls in this local history")
    demo.add_argument("--report", type=Path, metavar="FILE.html", help="write the report on the run's local history")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace demo`, show the outcome of the demo, and return the exit status."""
    from ragtrace.cli.demo.documents import DemoError
    from ragtrace.core.errors import RagtraceError

    try:
        with ExitStack() as stack:
            _run(options, stack)
    except (DemoError, RagtraceError) as error:
        print_error(str(error))
        return FAILURE
    return OK


def _run(options: argparse.Namespace, stack: ExitStack) -> None:
    """Run the demo with the command-line *options*, adding everything that must be closed afterwards to *stack*."""
    from ragtrace.cli.demo.backends import running_backends
    from ragtrace.cli.demo.documents import DemoError
    from ragtrace.cli.demo.run import Options, run

    report, store = cast("tuple[Path | None, Path | None]", (options.report, options.store))
    if report is not None and not report.absolute().parent.is_dir():
        raise DemoError(f"the report cannot be written to {report}: there is no folder {report.parent}; make it first")
    if report is not None and find_spec("jinja2") is None:
        raise DemoError("--report needs Jinja2; install it with: pip install 'ragtrace-otel[cli]'")
    if report is not None and store is None:  # the report needs a history
        folder = tempfile.TemporaryDirectory(prefix="ragtrace-demo-", ignore_cleanup_errors=True)
        store = Path(stack.enter_context(folder)) / "history.db"
    wanted = Options(options.docs, options.questions, options.seed, options.model, store)
    terminal = not options.json and sys.stderr is not None and sys.stderr.isatty()
    progress = _count_on_stderr if terminal else _no_progress
    if options.backends:
        outcome, backends = stack.enter_context(running_backends(wanted, progress))
        _print_outcome(outcome, wanted, options)
        flush(sys.stdout)
        backends.wait_until_stopped(print_error)
    else:
        _print_outcome(run(wanted, progress), wanted, options)


def _no_progress(stage: str, done: int, total: int) -> None:
    """Ignore a progress update, because standard error is no terminal or the output is JSON."""


def _count_on_stderr(stage: str, done: int, total: int) -> None:
    line = f"{stage}: {done} of {total}" if done < total else ""
    sys.stderr.write(f"\r{line:<60}\r")
    sys.stderr.flush()


def _print_outcome(outcome: Outcome, wanted: Options, options: argparse.Namespace) -> None:
    from ragtrace.cli.demo import report
    from ragtrace.cli.demo.outcome import as_json

    if options.json:
        sys.stdout.write(f"{json.dumps(as_json(outcome, report.WORST))}\n")
    else:
        report.print_report(outcome, rich=has_rich())
    if options.report and wanted.store:
        _write_report(outcome, wanted.store, options.report)
        print_error(f"report written to {options.report}")


def _write_report(outcome: Outcome, store: Path, file: Path) -> None:
    """Write the HTML report of the finished demo, which compares the calls before and after the simulated release."""
    from ragtrace.cli.demo.documents import DemoError
    from ragtrace.cli.demo.run import release_name
    from ragtrace.core.errors import RagtraceError
    from ragtrace.report.analysis import build_report
    from ragtrace.report.html_page import render_html
    from ragtrace.report.model import Period

    now = time.time()
    period = Period(now - outcome.seconds - 1.0, now)  # one second more, as times of calls may be rounded
    both_answered = all(half.calls for half in outcome.halves)
    compare = f"{outcome.model}:{release_name(outcome.model)}" if both_answered else "none"
    try:
        text = render_html(build_report(str(store), period, compare=compare, made_at=now))
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except (OSError, sqlite3.Error, RagtraceError) as error:
        raise DemoError(f"the report cannot be written to {file}: {error}; name another file") from error
