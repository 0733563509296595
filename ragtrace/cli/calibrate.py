"""Command `ragtrace calibrate`, which picks calls for human labelling and compares labels with judge scores."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.options import add_command, add_json_option, report_failure, whole_number
from ragtrace.system.atomic_file import write_atomically
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.estimates import Agreement, Estimate
    from ragtrace.report.calibration import Calibration

_CALIBRATE: Final = """\
pick draws judged calls for people to label, with `ragtrace review` or `ragtrace
labels`. fit says how far judge and labels agree, and which rate of bad calls the
labels would show on all calls.
"""
_NOTES: Final = """\
examples:
  ragtrace calibrate pick history.db -n 100 --metric hallucinated
  ragtrace calibrate fit history.db --metric hallucinated --out calibration.json

exit status: 0 done, 1 not readable or writable, or nothing judged or labelled,
2 wrong usage, 130 interrupted; keys of the JSON object: docs/calibration.md
"""


def add(commands: Any) -> None:
    """Add the command `ragtrace calibrate` to the parser of the command line."""
    parser = add_command(commands, "calibrate", run, "hold a judge against human labels", _CALIBRATE, _NOTES)
    parser.usage = "ragtrace calibrate {pick,fit} HISTORY.db [OPTIONS]"
    parser.add_argument("action", choices=["pick", "fit"], help="draw calls to label, or compare the labels")
    parser.add_argument("history", metavar="HISTORY.db", help="the history that configure(store=PATH) keeps")
    parser.add_argument("--metric", default="hallucinated", metavar="M", help="metric (default hallucinated)")
    parser.add_argument("--evaluator", metavar="JUDGE", help="id@version (default: that of most live scores)")
    parser.add_argument("-n", type=whole_number(1), default=60, metavar="N", help="pick: about N calls (default 60)")
    parser.add_argument("--seed", type=whole_number(0), metavar="S", help="pick: seed of the random numbers")
    parser.add_argument("--again", action="store_true", help="pick: anew; labels of the earlier pick do not count")
    parser.add_argument("--out", type=Path, metavar="FILE", help="fit: write the calibration file")
    parser.add_argument("--report", type=Path, metavar="PAGE", help="fit: write an HTML page with plots")
    parser.add_argument(
        "--most-false-alarms", type=float, metavar="R", help="fit: share of good calls beyond the threshold, at most"
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace calibrate`, and return the exit status."""
    import sqlite3

    from ragtrace.core.errors import SettingsError
    from ragtrace.system.sqlite_files import SQLiteFileError

    try:
        return _pick(options) if options.action == "pick" else _fit(options)
    except BrokenPipeError:
        raise
    except (SettingsError, SQLiteFileError, sqlite3.Error, OSError) as error:
        return report_failure(error, "history")


def _pick(options: argparse.Namespace) -> int:
    from ragtrace.history.reading import HistoryReader
    from ragtrace.labels.label_store import LabelStore
    from ragtrace.report.calibration import judged_calls, pick_calls

    with closing(LabelStore(options.history)) as store:
        before = store.picks(options.metric)
        if before and not options.again:
            print_error(
                f"{len(before)} calls are picked for {options.metric!r} already; label these, or pick others with "
                "--again (the labels of those that are not picked again count nowhere)"
            )
            return USAGE
        identities = store.identities()
        with closing(HistoryReader(options.history)) as reader:
            calls = judged_calls(reader.columns(0.0, float("inf")), identities, options.metric, options.evaluator)
            picks = pick_calls(calls, options.n, options.seed)
            chosen = {pick.identity for pick in picks}
            bodies = [reader.body(number) for number, identity in identities.items() if identity in chosen]
        without_texts = sum(not body or bool(body.get("without_texts")) for body in bodies)
        if not picks:
            print_error(f"no call can be picked: none of those judged for {options.metric!r} has a trace id")
            return FAILURE
        store.replace_picks(options.metric, picks, time())
    known = {"metric": options.metric, "evaluator": calls.series.evaluator, "judged": int(calls.judged.sum())}
    if options.json:
        sys.stdout.write(f"{json.dumps({**known, 'picked': len(picks), 'without_texts': without_texts})}\n")
    else:
        sys.stdout.write(
            f"picked {len(picks)} of {known['judged']:,} calls that {known['evaluator']} judged for {options.metric}; "
            f"next: ragtrace review {options.history}\n"
        )
        if without_texts:
            sys.stdout.write(
                f"{without_texts} of them have no stored texts (NO_CONTENT): label them only if you can read them "
                "elsewhere, such as in their traces\n"
            )
    return OK


def _fit(options: argparse.Namespace) -> int:
    from ragtrace.report.calibration import calibrate

    found = calibrate(
        options.history,
        options.metric,
        evaluator=options.evaluator,
        most_false_alarms=options.most_false_alarms,
    )
    if options.json:
        sys.stdout.write(f"{json.dumps(_record(found))}\n")
    else:
        sys.stdout.write("\n".join(_lines(found)) + "\n")
    if not found.labelled:
        print_error(
            f"no picked call is labelled yet; `ragtrace review {options.history}` shows them on a page to label, and "
            "`ragtrace labels import` reads labels from a file"
        )
        return FAILURE
    if options.report is not None:
        from ragtrace.report.calibration_page import render_calibration

        write_atomically(options.report, [render_calibration(found).encode("utf-8", "backslashreplace")])
        print_error(f"page written to {options.report}")
    if options.out is not None:
        found.save(options.out)
        print_error(f"calibration written to {options.out}; use it with configure(calibration={str(options.out)!r})")
    return OK


def _record(found: Calibration) -> dict[str, Any]:
    from ragtrace.labels.label_store import call_of_identity

    record = asdict(found)
    del record["points"], record["unsure_points"]
    record |= {"key": found.key._asdict(), "threshold": None, "score_threshold": found.score_threshold}
    if found.threshold is not None:
        record["threshold"] = {"badness": found.threshold.value, "error": _agreement_record(found.threshold.error)}
    for name in ("judge", "labels", "corrected"):
        record[name] = _rate_record(getattr(found, name))
    record["by_reviewer"] = {name: _rate_record(rate) for name, rate in found.by_reviewer.items()}
    record |= {"alpha": found.alpha, "doubt": found.between_reviewers.doubt}
    del record["between_reviewers"]["reviewers"]
    if found.agreement is not None:
        record["agreement"] = _agreement_record(found.agreement)
    for each, shown in zip(found.disagreements, record["disagreements"], strict=True):
        shown["call"] = call_of_identity(each.identity)
        del shown["identity"]
    return record


def _rate_record(rate: Estimate) -> dict[str, float | None]:
    return {"value": rate.value, "low": rate.low, "high": rate.high}


def _agreement_record(agreement: Agreement) -> dict[str, Any]:
    named = asdict(agreement)
    return {name: value._asdict() if hasattr(value, "_asdict") else value for name, value in named.items()}


def _lines(found: Calibration) -> list[str]:
    from ragtrace.core.text import format_plainly
    from ragtrace.labels.label_store import call_of_identity
    from ragtrace.system.faults import printable

    unsure = f", {found.unsure} unsure" if found.unsure else ""
    lines = [
        f"{found.metric} by {found.evaluator}: {found.labelled} of {found.picked} picked calls labelled{unsure}; "
        f"reviewers: {', '.join(map(printable, found.reviewers)) or 'none'}",
        *(
            [f"STALE: the newest calls are judged by {found.stale}, of which these labels say nothing; pick again"]
            if found.stale
            else []
        ),
        "rate of bad calls, with 95 % intervals",
        f"  by the judge, uncorrected  {_rate(found.judge)}",
        f"  by the labels alone        {_rate(found.labels)}",
        f"  corrected by the labels    {_rate(found.corrected)}",
    ]
    lines += [f"  by the labels of {printable(name)} alone: {_rate(rate)}" for name, rate in found.by_reviewer.items()]
    if found.between_reviewers.doubt:
        lines.append(f"  {found.between_reviewers.doubt}")
    if found.between_reviewers.is_unreliable:
        lines.append("  the corrected rate counts the mean of their labels, errors included: settle these calls first")
    if found.about_unsure:
        lines.append(f"  {found.about_unsure}")
    if found.labelled and found.labelled + found.unsure < found.picked:
        missing = found.picked - found.labelled - found.unsure
        lines.append(f"  {missing} picked calls have no label: the rates hold if these are like the others")
    if found.elsewhere:
        lines.append(f"  {found.elsewhere} labels count nowhere: their call was not picked, or its scores are deleted")
    if found.agreement is not None:
        each = found.agreement
        lines += [
            f"agreement of judge and labels in {each.n} calls"
            + (f", without {found.divided} on which reviewers are divided" if found.divided else ""),
            f"  the same           {each.agree}; the best constant verdict: {each.constant:.3f}",
            f"  Cohen's kappa      {each.kappa or 'unknown: all the same'}",
            f"  sensitivity        {each.sensitivity or 'unknown: no call is labelled bad'}",
            f"  specificity        {each.specificity or 'unknown: no call is labelled good'}",
        ]
    if found.threshold is not None and found.score_threshold is not None:
        error, score = found.threshold.error, format_plainly(found.score_threshold, 3)
        side = "at most" if found.higher_is_better else "at least"
        lines += [
            f"threshold that the labels recommend: bad with a score of {side} {score}",
            f"  sensitivity        {error.sensitivity}, on questions that did not choose it (cross-fitted)",
            f"  specificity        {error.specificity}",
        ]
    if len(found.reviewers) > 1:
        between = found.between_reviewers
        alpha = "unknown: all labels are the same" if found.alpha is None else f"{round(found.alpha, 3) + 0.0:.3f}"
        if between.compared:
            lines.append(
                f"  between reviewers  Krippendorff's alpha {alpha}; they differ in {between.differing} of "
                f"{between.compared} calls"
            )
    if found.disagreements:
        lines.append(f"judge and label differ in {len(found.disagreements)} calls; the worst come first:")
        for differing in found.disagreements:
            said = "bad" if differing.label > 0.5 else "good"
            lines.append(
                f"  {call_of_identity(differing.identity)}  labelled {said}, judge {differing.badness:.2f} (1 is bad), "
                f"stands for {differing.weight:,.0f} calls"
            )
    return lines


def _rate(estimate: Any) -> str:
    if estimate.value is None:
        return f"unknown ({estimate.reason})"
    return f"{estimate.value:.2%} [{estimate.low:.2%}, {estimate.high:.2%}]"
