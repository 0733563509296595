"""Command `ragtrace score`, which scores a file of recorded RAG calls."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.command_options import (
    add_command,
    add_json_option,
    add_tag_option,
    chosen_tags,
    positive_seconds,
    whole_number,
)
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.core.types import Judge, Metric
    from ragtrace.offline.backfill import BackfillOutcome, Preview, StoredCalls
    from ragtrace.offline.batch import MetricSummary, Summary
    from ragtrace.offline.score_file import FileOutcome

_SCORE = """\
Scores a file of recorded calls, or the calls of a history by another judge.
"""
OUT_OF_BOUNDS: Final = 3
_SQLITE: Final = b"SQLite format 3\0"
"""First bytes of an SQLite file, by which a history is recognised."""


def register(commands: Any) -> None:
    """Add the command `ragtrace score` to the parser of the command line."""
    usage = "score (CALLS.jsonl | HISTORY.db) [options]"
    parser = add_command(commands, "score", run, "score recorded or stored calls", usage, _SCORE)
    parser.add_argument("calls", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--format", choices=("calls", "otlp"), default="calls", help="the file holds calls or spans")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all scores: *.jsonl or *.csv")
    parser.add_argument("--metrics", metavar="A,B", help="names, or all (default: the usual ones)")
    parser.add_argument("--judge", default="embedded", metavar="JUDGE", help="embedded, openai:MODEL or decision:MODEL")
    modes = ("fast", "careful", "sentences")
    parser.add_argument("--mode", choices=modes, metavar="MODE", help=f"of openai:MODEL: {', '.join(modes)}")
    parser.add_argument("--base-url", metavar="URL", help="of openai:MODEL and decision:MODEL")
    parser.add_argument(
        "--concurrency",
        type=whole_number(1),
        metavar="N",
        help="calls at a time (default: the judge's limit, or 16)",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        metavar="S",
        help="for one call (default: the judge's limit, or 120)",
    )
    for option, side in (("--fail-under", "below"), ("--fail-over", "above")):
        parser.add_argument(
            option,
            type=_bound,
            action="append",
            default=[],
            metavar="METRIC=X",
            help=f"exit status {OUT_OF_BOUNDS} if the mean is {side} it",
        )
    parser.add_argument("--since", metavar="TIME", help="of a history: start (default 24h)")
    parser.add_argument("--until", metavar="TIME", help="of a history: end (default now)")
    parser.add_argument("--workflow", metavar="NAME", help="of a history: calls of this workflow")
    add_tag_option(parser, "of a history: ")
    parser.add_argument("--preview", action="store_true", help="of a history: say what it would cost")
    parser.add_argument("--max-usd", type=_dollars, metavar="USD", help="of a history: spend no more than this")
    parser.add_argument("--restart", action="store_true", help="judge all anew")
    add_json_option(parser)


def _dollars(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0.0 < amount < math.inf:
        raise argparse.ArgumentTypeError(f"must be an amount of US dollars above 0, got {text!r}")
    return amount


def _bound(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name.strip() or not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"must be a metric and a number such as faithfulness=0.8, got {text!r}")
    return name.strip(), number


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace score`, which scores a file and prints the outcome, and return the exit status."""
    import sqlite3

    from ragtrace.core.errors import JudgeError, SettingsError
    from ragtrace.system.sqlite_files import SQLiteFileError

    of_history = False
    try:
        of_history = _is_history(options)
        if of_history and options.preview:
            _print_preview(_preview(options), options)
            return OK
        outcome: FileOutcome | BackfillOutcome = _backfill(options) if of_history else _score(options)
    except SettingsError as error:
        print_error(str(error))
        return USAGE
    except FileNotFoundError as error:
        print_error(f"no such file or directory: {error.filename}")
        return USAGE
    except JudgeError as error:
        print_error(f"the judge kept failing ({error}); {_what_is_kept(options, of_history)}")
        return FAILURE
    except (OSError, sqlite3.Error, SQLiteFileError) as error:
        print_error(f"{error}; {_what_is_kept(options, of_history)}")
        return FAILURE
    except KeyboardInterrupt:
        print_error(_what_is_kept(options, of_history))
        raise
    crossed = _violated_bounds(outcome.summary, options)
    _print(outcome, crossed, options)
    if crossed:
        return OUT_OF_BOUNDS
    return FAILURE if getattr(outcome, "bad", 0) or outcome.summary.failed else OK


def _what_is_kept(options: argparse.Namespace, of_history: bool) -> str:
    """Return a phrase about what a run that has ended early has kept."""
    if of_history or options.out is not None:
        return "what was judged is kept: the same command goes on from there"
    return "what was judged is not kept; with --out FILE the same command would go on from there"


def _is_history(options: argparse.Namespace) -> bool:
    """Return whether the input file is a history (and not a file of calls), and check that the options match.

    Raises:
        SettingsError: an option belongs to the other kind of file.
        OSError: the file cannot be read.
    """
    from ragtrace.core.errors import SettingsError

    with options.calls.open("rb") as file:
        found = bool(file.read(len(_SQLITE)) == _SQLITE)
    of_history = ("since", "until", "workflow", "tag", "preview", "max_usd")
    of_file = ("out", "restart")
    for name in of_file if found else of_history:
        if getattr(options, name):
            kind = "a file of calls" if found else "a history"
            raise SettingsError(f"--{name.replace('_', '-')} is for {kind}, and {options.calls} is not; leave it out")
    if found and options.format != "calls":
        raise SettingsError(f"--format is for a file of calls, and {options.calls} is a history; leave it out")
    return found


def _select_calls(options: argparse.Namespace) -> tuple[StoredCalls, Judge, tuple[Metric, ...]]:
    """Return the stored calls that the options select, the judge, and the metrics to compute from the judge's
    labels.
    """
    from ragtrace.core.errors import SettingsError
    from ragtrace.offline.backfill import select_calls
    from ragtrace.report.model import parse_period

    judge, names = _judge_and_names(options)
    wanted = _metrics_for(options, judge, names)
    metrics = tuple(metric for metric in wanted if metric.needs)
    if not metrics:
        raise SettingsError("none of these metrics is computed from a judge's labels; name others with --metrics")
    period = parse_period(options.since or "24h", options.until or "now", time())
    found = select_calls(
        str(options.calls),
        period.start,
        period.end,
        options.workflow,
        judge,
        metrics,
        tags=chosen_tags(options),
    )
    return found, judge, metrics


def _preview(options: argparse.Namespace) -> Preview:
    from ragtrace.offline.backfill import preview

    chosen, judge, _ = _select_calls(options)
    return preview(str(options.calls), chosen, judge)


def _backfill(options: argparse.Namespace) -> BackfillOutcome:
    from ragtrace.offline.backfill import backfill

    chosen, judge, metrics = _select_calls(options)
    return backfill(
        str(options.calls),
        chosen,
        judge=judge,
        metrics=metrics,
        max_usd=options.max_usd,
        concurrency=options.concurrency,
        timeout=options.timeout or "judge",
        quiet=options.json,
    )


def _print_preview(found: Preview, options: argparse.Namespace) -> None:
    if options.json:
        sys.stdout.write(f"{json.dumps(asdict(found))}\n")
        return
    lines = [
        _calls_line(found.calls, found.judged, found.no_content, found.no_answer),
        f"to judge: {found.to_judge:,} calls",
    ]
    if found.to_judge:
        usd = "price not known" if found.cost_usd is None else f"{found.cost_usd:.4f} USD"
        tokens = f"{found.input_tokens:,} tokens in, {found.output_tokens:,} out"
        lines.append(f"that takes about {found.n_calls:,} requests, {tokens}, {usd}")
        lines.append(f"estimated from {found.basis}" if found.n_calls else found.basis)
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _calls_line(calls: int, judged: int, no_content: int, no_answer: int) -> str:
    """Format the non-zero counts of stored calls as one line."""
    rest = {
        "judged already": judged,
        "without stored texts (NO_CONTENT)": no_content,
        "without an answer": no_answer,
    }
    known = [f"calls of the period: {calls:,}", *(f"{count:,} {what}" for what, count in rest.items() if count)]
    return ", ".join(known)


def _bounds(options: argparse.Namespace) -> list[tuple[str, str, float]]:
    """Parse the bounds given by --fail-under and --fail-over, each with side, metric and value."""
    sides = (("under", options.fail_under), ("over", options.fail_over))
    return [(side, name, bound) for side, bounds in sides for name, bound in bounds]


def _violated_bounds(summary: Summary, options: argparse.Namespace) -> list[str]:
    """Return a message for each bound (--fail-under, --fail-over) that the mean score of a metric violates."""
    crossed: list[str] = []
    for side, name, bound in _bounds(options):
        metric = summary.metrics.get(name)
        if metric is None or metric.mean is None:
            crossed.append(f"{name}: no call was scored, so it is not known to keep --fail-{side} {bound:g}")
        elif metric.mean < bound if side == "under" else metric.mean > bound:
            crossed.append(f"{name}: mean {metric.mean:.4f} of {metric.scored:,} calls is {side} {bound:g}")
    return crossed


def _check_bounds(options: argparse.Namespace, metrics: Sequence[Metric]) -> None:
    """Check the bounds given by --fail-under and --fail-over against the metrics to compute.

    `SettingsError` is raised for a bound on any other metric, and for a bound that excludes good scores.
    """
    from ragtrace.core.errors import SettingsError

    computed = {metric.name: metric for metric in metrics}
    for side, name, bound in _bounds(options):
        given = f"--fail-{side} {name}={bound:g}"
        if name not in computed:
            raise SettingsError(
                f"{given}: this run does not compute that metric; add it with --metrics, or name one of "
                f"{', '.join(computed)}"
            )
        higher_is_better = computed[name].higher_is_better
        if higher_is_better is not (side == "under"):
            more, other = ("higher", "under") if higher_is_better else ("lower", "over")
            raise SettingsError(f"{given}: for {name} {more} is better, so write --fail-{other} {name}={bound:g}")


def _score(options: argparse.Namespace) -> FileOutcome:
    from ragtrace.offline.score_file import score_file

    judge, names = _judge_and_names(options)
    _metrics_for(options, judge, names)
    return score_file(
        options.calls,
        options.out,
        judge=judge,
        metrics=names,
        file_format=options.format,
        judge_spec=" ".join(filter(None, (options.judge, options.mode))),
        concurrency=options.concurrency,
        timeout=options.timeout or "judge",
        restart=options.restart,
        quiet=options.json,
        complain=print_error,
    )


def _metrics_for(options: argparse.Namespace, judge: Judge, names: list[str] | None) -> tuple[Metric, ...]:
    """Return the metrics to compute, after checking the bounds given by --fail-under and --fail-over."""
    from ragtrace.evaluation.metric_selection import metrics_for

    metrics = metrics_for(judge, names)
    _check_bounds(options, metrics)
    return metrics


def _judge_and_names(options: argparse.Namespace) -> tuple[Judge, list[str] | None]:
    """Return the judge and the names of the metrics, with None for the default metrics."""
    from ragtrace.evaluation.metric_selection import metrics_for
    from ragtrace.metrics import registry
    from ragtrace.offline.judge_spec import judge_from_spec

    if os.getcwd() not in sys.path:  # the user's own judge may be a module beside the calls, as with `python -m`
        sys.path.insert(0, os.getcwd())
    judge = judge_from_spec(options.judge, mode=options.mode, base_url=options.base_url)
    names = None if options.metrics is None else [name.strip() for name in options.metrics.split(",") if name.strip()]
    if names is None:  # a metric that only a bound names is computed as well
        bounded = [registry.find(name) for _, name, _ in _bounds(options)]
        offered = [metric for metric in bounded if metric is not None and judge.offers(metric)]
        names = list(dict.fromkeys(metric.name for metric in (*metrics_for(judge, None), *offered)))
    return judge, names


def _print(outcome: FileOutcome | BackfillOutcome, crossed: Sequence[str], options: argparse.Namespace) -> None:
    if options.json:
        rest = {name: value for name, value in asdict(outcome).items() if name != "summary" and value is not None}
        sys.stdout.write(f"{json.dumps({**asdict(outcome.summary), **rest, 'out_of_bounds': crossed})}\n")
    else:
        lines = [*_summary_lines(outcome, options), *(f"out of bounds: {what}" for what in crossed)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))


def _summary_lines(outcome: FileOutcome | BackfillOutcome, options: argparse.Namespace) -> list[str]:
    from ragtrace.offline.backfill import BackfillOutcome

    summary = outcome.summary
    width = max((len(name) for name in summary.metrics), default=6)
    lines = [f"{'metric':<{width}}    mean  scored  unscored"]
    lines += [_metric_line(metric, width) for metric in summary.metrics.values()]
    earlier = 0 if isinstance(outcome, BackfillOutcome) else outcome.resumed
    resumed = f" ({earlier:,} by an earlier run)" if earlier else ""
    lines.append(f"calls: {summary.calls:,}{resumed}, {summary.failed:,} failed, in {outcome.duration_s:.1f} s")
    if summary.n_calls:
        requests = f"{summary.n_calls:,} requests, {summary.input_tokens:,} tokens in, {summary.output_tokens:,} out"
        costs = [f"{summary.cost_usd:.4f} USD"] if summary.cost_usd or not summary.unpriced else []
        costs += [f"price of {summary.unpriced:,} calls not known"] if summary.unpriced else []
        lines.append(f"judge: {requests}, {', '.join(costs)}")
    if outcome.again:
        with_out = isinstance(outcome, BackfillOutcome) or options.out is not None
        which = "the same command judges them again" if with_out else "with --out FILE a second run judges these alone"
        lines.append(f"{outcome.again:,} calls failed for a reason that may pass: {which}")
    if isinstance(outcome, BackfillOutcome):
        return lines + _history_lines(outcome, options)
    if outcome.spans is not None:
        lines.append(_spans_line(outcome.spans))
    if outcome.bad:
        lines.append(f"{outcome.bad:,} bad lines were skipped")
    if outcome.unread_keys:
        seen = ", ".join(f"{key} (on {count:,} lines)" for key, count in outcome.unread_keys.items())
        lines.append(f"unknown keys: {seen}"[:500])
    return lines if options.out is None else [*lines, f"scores: {options.out}"]


def _history_lines(outcome: BackfillOutcome, options: argparse.Namespace) -> list[str]:
    lines = [_calls_line(outcome.in_period, outcome.judged, outcome.no_content, outcome.no_answer)]
    if outcome.left:
        lines.append(f"{outcome.left:,} calls are left: --max-usd was reached; the same command goes on with them")
    if outcome.deleted:
        lines.append(f"{outcome.deleted:,} calls were deleted from the history meanwhile")
    return [*lines, f"scores: {options.calls}, beside those of other judges"]


def _spans_line(counts: Mapping[str, int]) -> str:
    """Format the non-zero counts of spans as one line."""
    spans, steps = counts["spans"], counts["steps"]
    rest = [f"{count:,} {name}" for name, count in counts.items() if count and name not in ("spans", "steps")]
    return f"spans: {spans:,}, {steps:,} of them steps of calls{''.join(f', {each}' for each in rest)}".replace(
        "_", " "
    )


def _metric_line(metric: MetricSummary, width: int) -> str:
    from ragtrace.core.types import NOT_A_RATE

    mean = "      -" if metric.mean is None else f"{metric.mean:7.4f}"
    reasons = {reason: count for by_reason in metric.unscored.values() for reason, count in by_reason.items()}
    why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
    note = f"  {NOT_A_RATE}" if metric.uncalibrated else ""
    return f"{metric.metric:<{width}} {mean} {metric.scored:>7,}  {why or 0}{note}"
