"""Command `ragtrace baseline`, which computes or shows a baseline: the usual scores of an application."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import closing
from dataclasses import asdict
from time import time
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.command_options import add_command, add_json_option, report_failure, whole_number
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.alerts.sensitivity import Sensitivity
    from ragtrace.estimates import Baseline, BaselineKey

LEAST: Final = 100
_BASELINE: Final = """\
Learns from a history how the scores of each workflow were distributed when all
was well, for configure(baseline=PATH). `show` prints what was learned, and
after how many calls an alert on it notices a change.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace baseline` to the parser of the command line."""
    parser = add_command(
        commands,
        "baseline",
        run,
        "learn from a history how good answers usually are",
        "baseline ([HISTORY.db] | show BASELINE.json) [options]",
        _BASELINE,
    )
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--service-version", metavar="V", help="of calls of that release alone")
    parser.add_argument("--since", default="1970-01-01", metavar="TIME", help="start: a date, 7d (default: all)")
    parser.add_argument("--until", default="now", metavar="TIME", help="end (default now)")
    calls = whole_number(LEAST)
    parser.add_argument(
        "--calls", type=calls, default=2000, metavar="N", help="the first N scored calls (default 2000)"
    )
    parser.add_argument("--out", metavar="PATH", help="default HISTORY.db.baseline.json")
    parser.add_argument(
        "--change", type=_share, default=0.05, metavar="D", help="change of the mean that alerts notice (default 0.05)"
    )
    add_json_option(parser)


def _share(text: str) -> float:
    share = float(text)
    if not 0.0 < share < 1.0:
        raise argparse.ArgumentTypeError(f"must be more than 0 and less than 1, got {text}")
    return share


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace baseline`, which computes or shows a baseline, and return the exit status."""
    import sqlite3

    from ragtrace.core.errors import SettingsError
    from ragtrace.estimates import Baseline
    from ragtrace.system.sqlite_files import SQLiteFileError

    paths: list[str] = options.paths or [path for path in [os.environ.get("RAGTRACE_STORE", "")] if path]
    shows = len(paths) == 2 and paths[0] == "show"
    if not (shows or len(paths) == 1):
        print_error("name one history, or `show` and one baseline; configure(store=PATH) makes a history")
        return USAGE
    try:
        if shows:
            _print(Baseline.load(paths[1]), paths[1], options)
            return OK
        return _learn(paths[0], options)
    except BrokenPipeError:
        raise
    except (SettingsError, SQLiteFileError, sqlite3.Error, OSError) as error:
        status = report_failure(error, "baseline")
        return FAILURE if shows else status


def _learn(history: str, options: argparse.Namespace) -> int:
    from ragtrace.estimates import Baseline
    from ragtrace.estimates.baseline import exclusive_lock
    from ragtrace.history.reading import HistoryReader
    from ragtrace.report.model import parse_period

    chosen = parse_period(options.since, options.until, time())
    release, path = options.service_version, options.out or f"{history}.baseline.json"
    with closing(HistoryReader(history)) as reader:
        found = reader.baseline(chosen.start, chosen.end, release=release, calls=options.calls, least=LEAST)
        known = sorted({source.release for source in reader.columns(chosen.start, chosen.end).sources.values()})
    if not found.distributions:
        of = "" if release is None else f" of release {release!r} (known: {', '.join(known) or 'none'})"
        most = max(map(len, found.learning.values()), default=0)
        print_error(
            f"no baseline: {history} has at most {most} scored calls{of} of a workflow in that time, not {LEAST}"
        )
        return FAILURE
    with exclusive_lock(path):
        before = Baseline.load(path) if os.path.exists(path) else Baseline()
        learning = {key: calls for key, calls in before.learning.items() if key not in found.distributions}
        adjusted = {key: each for key, each in before.adjustments.items() if key not in found.distributions}
        both = {**before.distributions, **found.distributions}
        Baseline(both, learning, {**adjusted, **found.adjustments}).write(path)
    _print(found, path, options)
    return OK


def _print(baseline: Baseline, path: str, options: argparse.Namespace) -> None:
    from ragtrace.alerts.sensitivity import SLOW_REASON
    from ragtrace.system.faults import printable

    alerts = {
        key: alert for key in sorted(baseline.distributions) if (alert := _sensitivity(baseline, key)) is not None
    }
    if options.json:
        known = [
            {
                **key._asdict(),
                **asdict(each),
                "provisional": key not in baseline.adjustments,
                "change": options.change,
                "calls_to_notice": alerts[key].calls_to_notice(options.change) if key in alerts else None,
            }
            for key, each in sorted(baseline.distributions.items())
        ]
        begun = [{**key._asdict(), "calls": len(calls)} for key, calls in sorted(baseline.learning.items())]
        sys.stdout.write(f"{json.dumps({'path': path, 'distributions': known, 'learning': begun})}\n")
        return
    now = time()
    rows: list[tuple[str, ...]] = [("workflow", "metric", "evaluator", "mean", "5 %", "")]
    for key, each in sorted(baseline.distributions.items()):
        provisional = "" if key in baseline.adjustments else ", provisional"
        rows.append((*key, f"{each.mean:.3f}", f"{each.quantile:.3f}", each.describe(now) + provisional))
    for key, calls in sorted(baseline.learning.items()):
        rows.append((*key, "-", "-", f"{len(calls):,} calls so far"))
    rows = [(*(printable(name) or "-" for name in row[:3]), *row[3:]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        sys.stdout.write("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")
    for key, alert in alerts.items():
        if said := alert.describe(options.change):
            sys.stdout.write(f"alert ({printable(key.workflow) or '-'}, {key.metric}): {said}\n")
    if any(alert.is_slow(options.change) for alert in alerts.values()):
        sys.stdout.write(f"warning: that is slow. {SLOW_REASON[0].upper()}{SLOW_REASON[1:]}\n")
    sys.stdout.write(f"baseline: {path}\n")


def _sensitivity(baseline: Baseline, key: BaselineKey) -> Sensitivity | None:
    """Return what the default alert notices with the baseline of *key*; None: nothing says which scores are worse."""
    from ragtrace.alerts import Alert
    from ragtrace.alerts.sensitivity import Sensitivity
    from ragtrace.core.errors import SettingsError

    adjustment = baseline.adjustments.get(key)
    found = baseline.distributions[key] if adjustment is None else adjustment.distribution
    try:
        return Sensitivity(Alert(key.metric), found, adjustment)
    except SettingsError:
        return None
