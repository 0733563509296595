"""Command `ragtrace demo`, which runs a RAG application over real documents and shows its scores."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragtrace.cli.command_options import add_command, add_json_option, whole_number
from ragtrace.system.terminal import FAILURE, OK, flush, has_rich, print_error

if TYPE_CHECKING:
    from ragtrace.demo.outcome import Outcome

_DEMO = """\
Runs a real RAG application over the docstrings of Python's standard library.
Half-way a simulated release invents details in a share of the answers; the demo
shows what ragtrace sees of it. Needs no key and no network.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace demo` to the parser of the command line."""
    summary = "watch a RAG application over real documents"
    demo = add_command(commands, "demo", run, summary, "demo [options]", _DEMO)
    demo.add_argument("--questions", type=whole_number(2), default=400, metavar="N", help="number (default 400)")
    demo.add_argument("--seed", type=int, default=7, metavar="N", help="choice of questions (default 7)")
    add_json_option(demo)
    demo.add_argument(
        "--backends",
        action="store_true",
        help="start Phoenix, Prometheus, Alertmanager and stay up",
    )
    demo.add_argument("--decisions", action="store_true", help="judge by a (local, fake) decision model")
    demo.add_argument("--store", type=Path, metavar="PATH", help="keep the calls in this local history")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace demo`, show the outcome of the demo, and return the exit status."""
    from ragtrace.core.errors import RagtraceError
    from ragtrace.demo.backends import running_backends
    from ragtrace.demo.demo_run import Options, run

    wanted = Options(options.questions, options.seed, options.store, options.decisions)
    terminal = not options.json and sys.stderr is not None and sys.stderr.isatty()
    progress = _count_on_stderr if terminal else _no_progress
    try:
        if not options.backends:
            _print_outcome(run(wanted, progress), options)
            return OK
        with running_backends(wanted, progress) as (outcome, backends):
            _print_outcome(outcome, options)
            flush(sys.stdout)
            backends.wait_until_stopped(print_error)
    except RagtraceError as error:
        print_error(str(error))
        return FAILURE
    return OK


def _no_progress(stage: str, done: int, total: int) -> None:
    """Ignore a progress update, because standard error is no terminal or the output is JSON."""


def _count_on_stderr(stage: str, done: int, total: int) -> None:
    line = f"{stage}: {done} of {total}" if done < total else ""
    sys.stderr.write(f"\r{line:<60}\r")
    sys.stderr.flush()


def _print_outcome(outcome: Outcome, options: argparse.Namespace) -> None:
    from ragtrace.demo.outcome import as_json
    from ragtrace.demo.outcome_report import WORST, print_report

    if options.json:
        sys.stdout.write(f"{json.dumps(as_json(outcome, WORST))}\n")
    else:
        print_report(outcome, rich=has_rich())
