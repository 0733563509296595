"""`ragtrace demo`: a real RAG application over real documents, and what ragtrace sees of it."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragtrace.system.terminal import FAILURE, OK, complain, flush, has_rich

if TYPE_CHECKING:
    from ragtrace.demo.outcome import Outcome
    from ragtrace.demo.run import Options

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
  simulated_regression  share: of the answers it is told to alter; inventions: how many of each kind it made
  before, after         calls, scored, faithfulness (mean; null if none is scored), flagged (anything unsupported),
                        hallucination_rate (flagged of scored), invented (answers that were altered: the known truth),
                        caught (of these, flagged), located (of these, with invented words marked), healthy (scored,
                        nothing invented), wrongly_flagged (of these, flagged), unscored (count by reason)
  alerts                rule and mean_calls: what was asked for beforehand; raised_after: calls since the simulated
                        release (null: not raised; 0 or less: raised before it, and falsely); text: what was told
  worst                 question, answer, faithfulness, invented (kind, text, start, end, instead_of),
                        unsupported (text; unsupported: offsets into the answer; support; quote of the closest passage)
  stats                 ragtrace.stats(): offered, scored, dropped ... by evaluator, and failures of ragtrace itself
  sent_to               endpoint (null: nowhere), spans, failed
  backends              with --backends: name, url (null: it does not run), problem (why not), shows (what it has)

exit status: 0 done, 1 failure, 2 wrong usage, 130 interrupted, 141 the reader of the output went away
"""


def add(commands: Any) -> None:
    """Describe the command to the parser."""
    demo = commands.add_parser(
        "demo",
        help="watch a RAG application over real documents, on this machine alone",
        description=_DEMO,
        epilog=_DEMO_NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--docs", type=Path, metavar="DIR", help="your own .txt, .md and .rst files instead")
    demo.add_argument("--questions", type=_count, metavar="N", help="how many to ask (default 400; with --model 40)")
    demo.add_argument("--seed", type=int, default=7, metavar="N", help="choice of questions and inventions (default 7)")
    demo.add_argument(
        "--model",
        metavar="NAME",
        help="generate with this model behind OPENAI_BASE_URL; the simulated regression goes on top of its answers",
    )
    demo.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    demo.add_argument(
        "--backends",
        action="store_true",
        help="send it all to Phoenix, Prometheus and Alertmanager, started for it where installed, and stay up",
    )
    demo.add_argument("--store", type=Path, metavar="PATH", help="keep the calls in this local history")
    demo.add_argument("--report", type=Path, metavar="FILE.html", help="write the report on the run's local history")
    demo.add_argument("--svg", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    demo.set_defaults(run=run)


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 2:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 2, got {text!r}")
    return number


def run(options: argparse.Namespace) -> int:
    """Run the demo and show what came of it; returns the exit status."""
    from ragtrace.core.errors import RagtraceError
    from ragtrace.demo.history import kept
    from ragtrace.demo.passages import DemoError
    from ragtrace.demo.run import Options

    asked = Options(
        docs=options.docs, questions=options.questions, seed=options.seed, model=options.model, store=options.store
    )
    try:
        with kept(asked, options.report) as wanted:
            (_stay if options.backends else _run)(wanted, options)
    except (DemoError, RagtraceError) as error:
        complain(str(error))
        return FAILURE
    return OK


def _run(wanted: Options, options: argparse.Namespace) -> None:
    from ragtrace.demo.progress import shown
    from ragtrace.demo.run import run

    with shown(rich=has_rich(), quiet=options.json) as progress:
        outcome = run(wanted, progress)
    _show(outcome, wanted, options)


def _stay(wanted: Options, options: argparse.Namespace) -> None:
    """Run the demo beside its backends, show the result, and stay until interrupted."""
    from ragtrace.demo.backends.stay import staying
    from ragtrace.demo.progress import shown

    with ExitStack() as stack:
        with shown(rich=has_rich(), quiet=options.json) as progress:
            stay = stack.enter_context(staying(wanted, progress))
        _show(stay.outcome, wanted, options)
        flush(sys.stdout)
        stay.until_interrupted(complain)


def _show(outcome: Outcome, wanted: Options, options: argparse.Namespace) -> None:
    if options.svg:
        from ragtrace.demo.report import save_svg

        save_svg(outcome, options.svg)
    _print(outcome, as_json=options.json, rich=has_rich())
    if options.report and wanted.store:
        from ragtrace.demo.history import write_report

        write_report(outcome, wanted.store, options.report)
        complain(f"report written to {options.report}")


def _print(outcome: Outcome, *, as_json: bool, rich: bool) -> None:
    if as_json:
        from ragtrace.demo import outcome as data
        from ragtrace.demo.wording import WORST

        sys.stdout.write(f"{json.dumps(data.as_json(outcome, WORST))}\n")
    elif rich:
        from ragtrace.demo import report

        report.show(outcome)
    else:
        from ragtrace.demo import plain

        sys.stdout.write(plain.report(outcome))
