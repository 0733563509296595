"""Command `ragtrace dataset`, which writes a file of test cases made from stored RAG calls."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.command_options import (
    add_command,
    add_json_option,
    add_tag_option,
    chosen_tags,
    report_failure,
    whole_number,
)
from ragtrace.system.terminal import FAILURE, OK, print_error

if TYPE_CHECKING:
    from ragtrace.report.dataset import Dataset

_DATASET: Final = """\
Writes the calls of a history that an expression selects as test cases:
--where "faithfulness < 0.5 and workflow = support", for instance.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace dataset` to the parser of the command line."""
    parser = add_command(
        commands,
        "dataset",
        run,
        "make test cases from the calls of a history",
        "dataset HISTORY.db --out CASES.jsonl [options]",
        _DATASET,
    )
    parser.add_argument("history", help=argparse.SUPPRESS)
    parser.add_argument("--where", metavar="EXPRESSION", help="which calls (default: all)")
    add_tag_option(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write")
    parser.add_argument("--since", "--last", metavar="T", help="start: 7d or a date (default: all)")
    parser.add_argument("--until", default="now", metavar="T", help="end (default now)")
    parser.add_argument("--one-per-query", action="store_true", help="one case a query, whatever was retrieved")
    parser.add_argument("--most", type=whole_number(1), metavar="N", help="at most N cases, the newest")
    parser.add_argument(
        "--redact",
        action="append",
        default=[],
        metavar="REGEX",
        help="replace what matches by [redacted]",
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
        tags=chosen_tags(options),
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
