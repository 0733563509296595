"""Command `ragtrace judges`, which measures judges on human-labelled calls and compares them with each other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.command_options import add_command, add_json_option, positive_seconds, whole_number
from ragtrace.cli.results import text_table, write_result
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.offline.judge_comparison import Comparison, Contestant
    from ragtrace.offline.labelled_calls import LabelledFile

_JUDGES: Final = """\
Measures how well judges separate bad from good calls of a labelled file, and
what they take. Raw results are kept: the same command goes on where it was.

A line: {"query": "...", "contexts": ["..."], "answer": "...", "label": "bad"}
A judge: embedded, openai:MODEL, decision-logprobs:MODEL, decision:MODEL, or
module:object. A model on this machine needs no key:
  ragtrace judges labels.jsonl --judge embedded \\
    --judge decision-logprobs:qwen2.5 --base-url http://localhost:11434/v1
"""
_USUAL: Final = ("hallucinated", "faithfulness", "consistency")


def register(commands: Any) -> None:
    """Add the command `ragtrace judges` to the parser of the command line."""
    usage = "judges LABELS.jsonl --judge JUDGE [--judge JUDGE ...] [options]"
    parser = add_command(commands, "judges", run, "measure judges on labelled calls", usage, _JUDGES)
    parser.add_argument("labels", type=Path, metavar="LABELS.jsonl", help=argparse.SUPPRESS)
    parser.add_argument(
        "--judge", action="append", required=True, metavar="JUDGE", help="judge; give it again for others"
    )
    parser.add_argument("--metric", default="hallucinated", metavar="M", help="what the labels are of, if they say it")
    parser.add_argument("--base-url", metavar="URL", help="server of the judges that ask one")
    parser.add_argument(
        "--concurrency",
        type=whole_number(1),
        metavar="N",
        help="calls judged at a time (default: the judge's limit, or 16)",
    )
    parser.add_argument(
        "--timeout", type=positive_seconds, metavar="S", help="for one call (default: the judge's limit, or 120)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="raw results (default: LABELS.jsonl.judges)")
    parser.add_argument("--restart", action="store_true", help="judge all anew")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace judges`, and return the exit status."""
    from ragtrace.core.errors import RagtraceError
    from ragtrace.offline.judge_comparison import measure_judges
    from ragtrace.offline.labelled_calls import read_labelled_calls

    folder: Path = options.out or options.labels.with_name(f"{options.labels.name}.judges")
    try:
        read = read_labelled_calls(options.labels, options.metric)
        contestants = [_contestant(each, options) for each in options.judge]
        found = measure_judges(
            contestants, read.calls, folder,
            restart=options.restart, quiet=options.json, say=lambda message: None if options.json else _say(message),
        )  # fmt: skip
    except RagtraceError as error:
        print_error(str(error))
        return USAGE
    except OSError as error:
        print_error(f"the raw results cannot be kept: {error}; name another folder with --out")
        return FAILURE
    except KeyboardInterrupt:
        print_error(f"what was judged is kept in {folder}: the same command goes on from there")
        raise
    record = {
        "calls": len(read.calls), "undecided": read.undecided, "results": found.rows, "costs_a_call": found.costs,
        "raw": str(folder),
    }  # fmt: skip
    write_result(record, _lines(found, read, folder), as_json=options.json)
    return OK if any(row.scored for row in found.rows) else FAILURE


def _say(message: str) -> None:
    sys.stderr.write(f"ragtrace: {message}\n")


def _contestant(text: str, options: argparse.Namespace) -> Contestant:
    from ragtrace.evaluation.metric_selection import metrics_for
    from ragtrace.metrics import registry
    from ragtrace.offline.judge_comparison import Contestant
    from ragtrace.offline.judge_spec import LOCAL_TIMEOUT_S, is_local, judge_from_spec

    spec, _, metrics = text.partition("=")
    asks = spec.startswith(("openai:", "openai-", "decision"))
    server = options.base_url if asks else None
    slow = is_local(server)  # the calls beside the first would time out in its queue
    judge = judge_from_spec(spec, base_url=server)
    usual = [metric.name for metric in registry.resolve(_USUAL) if judge.offers(metric)]
    return Contestant(
        text,
        judge,
        metrics_for(judge, metrics.split(",") if metrics else usual),
        server or "",
        timeout=options.timeout or (LOCAL_TIMEOUT_S if slow else "judge"),
        concurrency=options.concurrency or (1 if slow else None),
    )


def _lines(found: Comparison, read: LabelledFile, folder: Path) -> Iterator[str]:
    bad = sum(each.bad for each in read.calls)
    yield (
        f"{len(read.calls):,} labelled calls, {bad:,} of them bad ({read.undecided:,} without a clear label are left "
        "out)\n"
    )
    yield from text_table(
        [
            ("judge", "metric", "scored", "AUROC", "area under PR", "best F1", "AUROC below the best row's"),
            *((row.judge, row.metric, f"{row.scored:,}", *(str(figure or "-") for figure in (
                row.auroc, row.average_precision, row.best_f1, row.below_best))) for row in found.rows),
        ]
    )  # fmt: skip
    for row in found.rows:
        if row.unscored:
            reasons = ", ".join(f"{count:,} {why}" for why, count in sorted(row.unscored.items()))
            yield f"{row.judge}, {row.metric}: {sum(row.unscored.values()):,} calls have no score: {reasons}"
    yield ""
    yield from text_table(
        [
            ("judge, means of a call", "requests", "tokens in", "tokens out", "seconds", "USD", "evaluator",
             "served by"),
            *((one.judge, f"{one.requests:.1f}", f"{one.input_tokens:,.0f}", f"{one.output_tokens:,.0f}",
               f"{one.seconds:.2f}", "not known" if one.usd is None else f"{one.usd:.6f}", one.evaluator,
               ", ".join(one.served_models) or "-") for one in found.costs),
        ]
    )  # fmt: skip
    yield f"\nraw results: {folder}"
