"""Command `ragtrace dataset`, which writes a file of test cases made from stored RAG calls."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.options import add_command, add_json_option, report_failure, whole_number
from ragtrace.system.terminal import FAILURE, OK, print_error

if TYPE_CHECKING:
    from ragtrace.report.dataset import Dataset

_DATASET: Final = """\
`ragtrace dataset HISTORY.db --where EXPRESSION --out CASES.jsonl` writes the calls that the expression selects as test
cases: query, contexts, answer, scores, human labels and feedback. Calls with the same query and contexts become one
case (the newest), where queries that differ in case, punctuation or blanks alone are the same. Texts are as redacted as
the history has them; --redact takes more out of them. Reads the history only.
"""
_NOTES: Final = """\
expressions:
  faithfulness < 0.5                        the score of a metric (the judge's, else the screen's): < <= > >= = !=
  faithfulness.label = fail                 its label; .status (scored, judge_error, ...), .reason, .evaluator
  workflow = support and release != 1.4.0   workflow, model, release, service, status (ok or error)
  label = bad or feedback < 0.5             what people said; label.hallucinated: for that metric alone
  not (model = "gpt 5" or status = error)   and, or, not, brackets; quotes around texts with blanks
  A comparison of what a call does not have is neither true nor false; such calls are counted as unknown.

the cases are read by
  ragtrace score CASES.jsonl --out SCORES.jsonl
  pytest --ragtrace-cases CASES.jsonl --ragtrace-app module:function

keys of the JSON object:
  path, cases, calls (of the time), matched, unknown (no value to compare), duplicates, no_content (the history has no
  query: capture_content="NO_CONTENT"), left_out (beyond --most)

examples:
  ragtrace dataset history.db --where "faithfulness < 0.5" --last 7d --out cases.jsonl
  ragtrace dataset history.db --where "feedback < 0.5 and workflow = support" --redact "[\\w.]+@[\\w.]+" --out c.jsonl

exit status: 0 done, 1 the history cannot be read, the file not written, or no case was found, 2 wrong usage,
130 interrupted
"""


def add(commands: Any) -> None:
    """Add the command `ragtrace dataset` to the parser of the command line."""
    parser = add_command(commands, "dataset", run, "make test cases from the calls of a history", _DATASET, _NOTES)
    parser.add_argument("history", metavar="HISTORY.db", help="the history that configure(store=PATH) keeps")
    parser.add_argument("--where", metavar="EXPRESSION", help="which calls, see below (default: all)")
    parser.add_argument("--out", type=Path, required=True, metavar="CASES.jsonl", help="file to write")
    parser.add_argument(
        "--last", "--since", dest="since", metavar="TIME", help="calls since then: 24h, 7d, or a date (default: all)"
    )
    parser.add_argument("--until", default="now", metavar="TIME", help="calls before then (default now)")
    parser.add_argument("--one-per-query", action="store_true", help="one case a query, whatever was retrieved for it")
    parser.add_argument("--most", type=whole_number(1), metavar="N", help="at most N cases, the newest")
    parser.add_argument(
        "--redact",
        action="append",
        default=[],
        metavar="REGEX",
        help="replace what the expression matches by [redacted]; may be given several times",
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace dataset`, and return the exit status."""
    import sqlite3

    from ragtrace.core.errors import SettingsError
    from ragtrace.offline.score_rows import json_line
    from ragtrace.system.atomic_file import write_atomically
    from ragtrace.system.sqlite_files import SQLiteFileError

    try:
        found = _dataset(options)
        if found.cases:  # an empty data set does not replace the file of an earlier run
            write_atomically(options.out, map(json_line, found.cases), mode=0o600)
    except BrokenPipeError:
        raise
    except (SettingsError, SQLiteFileError, sqlite3.Error, OSError) as error:
        return report_failure(error, "file of cases")
    _print(found, options)
    if not found.cases:
        print_error(f"no case was found, so {options.out} is not written")
        return FAILURE
    return OK


def _dataset(options: argparse.Namespace) -> Dataset:
    from ragtrace.capture.redact import Redact
    from ragtrace.history.call_filter import CallFilter
    from ragtrace.report.dataset import build_dataset
    from ragtrace.report.model import Period, parse_time

    now = time()
    start = float("-inf") if options.since is None else parse_time(options.since, now, "--last")
    period = Period(start, parse_time(options.until, now, "--until"))
    return build_dataset(
        options.history,
        None if options.where is None else CallFilter(options.where),
        period,
        one_per_query=options.one_per_query,
        most=options.most,
        redact=Redact(patterns=options.redact, max_chars=None) if options.redact else None,
    )


def _print(found: Dataset, options: argparse.Namespace) -> None:
    if options.json:
        path = str(options.out) if found.cases else None
        names = ("calls", "matched", "unknown", "duplicates", "no_content", "left_out")
        counts = {name: getattr(found, name) for name in names}
        sys.stdout.write(f"{json.dumps({'path': path, 'cases': len(found.cases), **counts})}\n")
        return
    rest = {
        "duplicates": found.duplicates,
        "without a stored query": found.no_content,
        "beyond --most": found.left_out,
    }
    left_out = ", ".join(f"{why}: {count:,}" for why, count in rest.items() if count)
    lines = [f"{found.matched:,} of {found.calls:,} calls matched{f' ({left_out})' if left_out else ''}"]
    if found.unknown:
        lines.append(f"{found.unknown:,} calls lack a value that the expression compares, and match neither way")
    if found.cases:
        lines.append(f"{len(found.cases):,} cases: {options.out}")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
