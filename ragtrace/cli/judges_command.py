"""Command `ragtrace judges`, which holds judges against human-labelled calls and compares them with each other."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.command_options import add_command, add_json_option, whole_number
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.estimates import Interval
    from ragtrace.offline.judge_comparison import Comparison, Contestant, JudgeResult

_JUDGES: Final = """\
`compare` has judges score the same labelled calls, and says which is the
cheapest that is not significantly worse than the best. `accuracy` says how well
scores separate bad from good calls, and how well they are calibrated.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace judges` to the parser of the command line."""
    usage = "judges (compare|accuracy) LABELS.jsonl --judge JUDGE [options]"
    parser = add_command(commands, "judges", run, "compare judges on labelled calls", usage, _JUDGES)
    parser.add_argument("action", choices=["compare", "accuracy"], help=argparse.SUPPRESS)
    parser.add_argument("labels", type=Path, metavar="LABELS.jsonl", help=argparse.SUPPRESS)
    parser.add_argument(
        "--judge", action="append", required=True, metavar="JUDGE", help="judge; give it again for others"
    )
    parser.add_argument("--metric", default="hallucinated", metavar="M", help="metric (default hallucinated)")
    parser.add_argument("--base-url", metavar="URL", help="server of the judges that ask one")
    parser.add_argument("--once", action="store_true", help="one run: agreement of two runs is not measured")
    parser.add_argument(
        "--concurrency",
        type=whole_number(1),
        metavar="N",
        help="calls judged at a time (default: the judge's limit, or 16)",
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace judges`, and return the exit status."""
    from ragtrace.core.errors import JudgeError, RagtraceError
    from ragtrace.offline.judge_comparison import compare_judges
    from ragtrace.offline.labelled_calls import read_labelled_calls

    if options.action == "compare" and len(options.judge) < 2:
        print_error("name two judges or more to compare: --judge A --judge B")
        return USAGE
    try:
        read = read_labelled_calls(options.labels, options.metric)
        contestants = [_contestant(each, options) for each in options.judge]
        runs = 1 if options.once or options.action == "accuracy" else 2
        found = compare_judges(contestants, read.calls, runs=runs, concurrency=options.concurrency)
    except JudgeError as error:
        print_error(f"a judge failed: {error}")
        return FAILURE
    except RagtraceError as error:
        print_error(str(error))
        return USAGE
    if options.json:
        record = {"calls": len(read.calls), "undecided": read.undecided, **_record(found)}
        sys.stdout.write(f"{json.dumps(record)}\n")
    else:
        lines = [
            f"{len(read.calls):,} labelled calls ({read.undecided:,} without a clear label are left out); "
            f"{found.compared:,} scored by every judge, {found.bad:,} of these labelled bad"
        ]
        lines += _compared_lines(found) if options.action == "compare" else _accuracy_lines(found)
        sys.stdout.write("\n".join(lines) + "\n")
    return OK if found.compared else FAILURE


def _contestant(text: str, options: argparse.Namespace) -> Contestant:
    from ragtrace.evaluation.metric_selection import metrics_for
    from ragtrace.offline.judge_comparison import Contestant
    from ragtrace.offline.judge_spec import judge_from_spec

    spec, _, metric = text.partition("=")
    asks = spec.startswith(("openai:", "decision"))
    judge = judge_from_spec(spec, base_url=options.base_url if asks else None)
    (chosen,) = metrics_for(judge, [metric or options.metric])
    return Contestant(text, judge, chosen)


def _record(found: Comparison) -> dict[str, Any]:
    """Return the comparison as values for JSON: intervals as value, low and high."""
    record = asdict(found)
    for each, shown in zip(found.results, record["results"], strict=True):
        shown["is_worse"] = each.is_worse
        for name in ("same_verdict", "below_best"):
            shown[name] = _interval_record(getattr(each, name))
        shown["quality"] = None if each.quality is None else _quality_record(each.quality)
        if each.calibrated is not None:
            shown["calibrated"] = {
                **_quality_record(each.calibrated.quality),
                **each.calibrated.calibration.record(),
                "lacking": each.calibrated.calibration.lacking,
                "diagram": [bar._asdict() for bar in each.calibrated.diagram],
            }
    return record


def _quality_record(quality: Any) -> dict[str, Any]:
    known = quality.agreement
    intervals = {
        "auroc": quality.auroc, "brier": quality.brier, "calibration_error": quality.calibration_error,
        "sensitivity": known.sensitivity, "specificity": known.specificity,
    }  # fmt: skip
    return {"n": quality.n, "bad": quality.bad} | {name: _interval_record(each) for name, each in intervals.items()}


def _interval_record(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else interval._asdict()


def _compared_lines(found: Comparison) -> list[str]:
    head = (
        "judge", "AUROC", "Brier", "ECE", "sensitivity", "specificity", "USD a call", "s a call", "two runs agree",
    )  # fmt: skip
    rows = [
        (each.name, *_quality_cells(each), _price(each), f"{each.seconds_a_call:.2f}", _repeat(each))
        for each in found.results
    ]
    lines = _table([head, *rows])
    for each in found.results:
        if each.below_best is not None:
            what = "significantly worse" if each.is_worse else "not significantly worse"
            lines.append(f"{each.name}: AUROC {each.below_best} below that of {found.best}: {what}")
        lines += _unscored(each)
    if found.cheapest:
        lines.append(f"cheapest that is not significantly worse than the best: {found.cheapest}")
    elif not found.best:
        lines.append("all labels are the same, so no judge is better than another")
    else:
        lines.append("no price is known of a judge that is not significantly worse than the best")
    return lines


def _quality_cells(each: JudgeResult) -> tuple[str, str, str, str, str]:
    quality = each.quality
    if quality is None:
        return "-", "-", "-", "-", "-"
    known = quality.agreement
    shown = (quality.auroc, quality.brier, quality.calibration_error, known.sensitivity, known.specificity)
    auroc, brier, error, sensitivity, specificity = ("-" if one is None else str(one) for one in shown)
    return auroc, brier, error, sensitivity, specificity


def _price(each: JudgeResult) -> str:
    return "not known" if each.usd_a_call is None else f"{each.usd_a_call:.6f}"


def _repeat(each: JudgeResult) -> str:
    if each.same_verdict is None or each.mean_change is None:
        return "-"
    return f"{each.same_verdict}, scores differ by {each.mean_change:.3f}"


def _unscored(each: JudgeResult) -> list[str]:
    return [f"{each.name}: {count:,} calls have no score: {why}" for why, count in sorted(each.unscored.items())]


def _accuracy_lines(found: Comparison) -> list[str]:
    lines: list[str] = []
    for each in found.results:
        models = f", served by {', '.join(each.served_models)}" if each.served_models else ""
        lines.append(f"{each.name}: {each.metric} by {each.evaluator}{models}")
        rows = [("scores", "AUROC", "Brier", "ECE")]
        if each.quality is not None:
            rows.append(("raw", *_quality_cells(each)[:3]))
        if each.calibrated is not None:
            quality = each.calibrated.quality
            rows.append((
                "calibrated, cross-fitted", "-" if quality.auroc is None else str(quality.auroc),
                str(quality.brier), str(quality.calibration_error),
            ))  # fmt: skip
        lines += _table(rows)
        if each.calibrated is not None:
            curve = each.calibrated.calibration
            lines.append(
                f"uncalibrated: not a rate ({curve.lacking})" if curve.lacking
                else f"calibrated by {curve.labels:,} labels; expected calibration error at most "
                f"{curve.promised_error:.3f}"
            )  # fmt: skip
            lines += [
                f"  probability {bar.probability:.3f}: {bar.share:.3f} [{bar.low:.3f}, {bar.high:.3f}] bad of "
                f"{bar.labels}"
                for bar in each.calibrated.diagram
            ]
        lines += _unscored(each)
    return lines


def _table(rows: list[Any]) -> list[str]:
    """Return the rows as lines of text, in columns as wide as their widest cell."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
