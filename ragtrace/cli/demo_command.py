"""Command `ragtrace demo`, which runs a RAG application over real documents and shows its scores."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragtrace.cli.command_options import add_command, add_json_option, whole_number
from ragtrace.cli.report_command import for_terminal
from ragtrace.system.terminal import FAILURE, OK, print_error

if TYPE_CHECKING:
    from ragtrace.demo.outcome import Outcome

_DEMO = """\
Runs a real RAG application over the docstrings of Python's standard library.
Half-way a simulated release invents details in a share of the answers; the
report shows what ragtrace sees of it. Needs no key and no network.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace demo` to the parser of the command line."""
    summary = "watch a RAG application over real documents"
    demo = add_command(commands, "demo", run, summary, "demo [options]", _DEMO)
    demo.add_argument("--questions", type=whole_number(2), default=400, metavar="N", help="number (default 400)")
    demo.add_argument("--seed", type=int, default=7, metavar="N", help="choice of questions (default 7)")
    add_json_option(demo)
    demo.add_argument("--decisions", action="store_true", help="judge by a (local, fake) decision model")
    demo.add_argument("--store", type=Path, metavar="PATH", help="keep the calls in this local history")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace demo`, show the outcome of the demo, and return the exit status."""
    from ragtrace.core.errors import RagtraceError
    from ragtrace.demo.demo_run import Options, run

    wanted = Options(options.questions, options.seed, options.store, options.decisions)
    try:
        outcome = run(wanted, no_progress if options.json else count_on_stderr)
        sys.stdout.write(f"{json.dumps(outcome.as_json())}\n" if options.json else as_text(outcome))
    except RagtraceError as error:
        print_error(str(error))
        return FAILURE
    return OK


def as_text(outcome: Outcome) -> str:
    """Return what the demo prints on standard output: the report on its calls, and what it knows beside it."""
    return f"{outcome.introduction()}\n\n{for_terminal(outcome.shown_report())}\n{outcome.conclusion()}\n"


def no_progress(stage: str, done: int, total: int) -> None:
    """Ignore a progress update."""


def count_on_stderr(stage: str, done: int, total: int) -> None:
    """Show a progress update on standard error, if that is a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        line = f"{stage}: {done} of {total}" if done < total else ""
        sys.stderr.write(f"\r{line:<60}\r")
        sys.stderr.flush()
