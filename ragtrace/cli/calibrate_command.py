"""Command `ragtrace calibrate`, which picks calls for human labelling and compares labels with judge scores."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ragtrace.cli.command_options import add_command, add_json_option, report_failure, whole_number
from ragtrace.cli.results import plain, text_table, write_result
from ragtrace.system.atomic_file import write_atomically
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.estimates import Estimate
    from ragtrace.estimates.score_curve import ScoreCalibration, ScoreCurve
    from ragtrace.report.bridging import Bridge
    from ragtrace.report.calibration import Calibration, JudgedCalls
    from ragtrace.report.guard_curve import GuardCurve

_CALIBRATE: Final = """\
`pick` draws judged calls for people to label; `fit` compares judge and labels.
`bridge` calibrates the model that now answers a decision judge. `plan` says
what to spend on labels, verdicts of a chat judge and a decision judge. `guard`
says how many answers a guard would block, good ones among them.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace calibrate` to the parser of the command line."""
    parser = add_command(
        commands, "calibrate", run, "hold a judge against human labels", "calibrate ACTION HISTORY.db [options]",
        _CALIBRATE,
    )  # fmt: skip
    actions = parser.add_subparsers(dest="action", title="actions", metavar="ACTION [options]", required=True)
    pick, fit, bridge, plan, guard = (
        add_command(actions, name, run, what, f"calibrate {name} {usage}", f"{what.capitalize()}.\n")
        for name, what, usage in (
            ("pick", "draw judged calls for people to label", "HISTORY.db [options]"),
            ("fit", "compare judge and labels", "HISTORY.db [options]"),
            ("bridge", "calibrate the model that now answers", "HISTORY.db --judge JUDGE [options]"),
            ("plan", "say what to spend on which stage", "[HISTORY.db] --usd USD [options]"),
            ("guard", "say what a guard would block", "HISTORY.db [options]"),
        )
    )
    for each in (pick, fit, bridge, plan, guard):
        each.add_argument("history", metavar="HISTORY.db", nargs="?" if each is plan else None, help=argparse.SUPPRESS)
        each.add_argument("--metric", default="hallucinated", metavar="M", help="metric (default hallucinated)")
        each.add_argument("--evaluator", metavar="JUDGE", help="id@version (default: of most live scores)")
        add_json_option(each)
    pick.add_argument("-n", type=whole_number(1), default=60, metavar="N", help="about N calls (default 60)")
    pick.add_argument("--seed", type=whole_number(0), metavar="S", help="seed of the random numbers")
    pick.add_argument("--again", action="store_true", help="anew; earlier labels may not count")
    pick.add_argument("--calibration", type=Path, metavar="FILE", help="of a decision judge, if there is one")
    for each in (fit, bridge):
        each.add_argument("--out", type=Path, metavar="FILE", help="write the calibration file")
    fit.add_argument("--report", type=Path, metavar="PAGE", help="write an HTML page with plots")
    fit.add_argument("--most-false-alarms", type=float, metavar="R", help="share of good calls beyond it")
    bridge.add_argument("--judge", required=True, metavar="JUDGE", help="as for ragtrace score")
    bridge.add_argument("--base-url", metavar="URL", help="server of the judge")
    bridge.add_argument("-n", type=whole_number(1), metavar="N", help="N calls at most (default 3000)")
    guard.add_argument("--max-false-block", type=float, metavar="R", help="most good answers blocked (0.02)")
    plan.add_argument("--usd", type=float, required=True, metavar="USD", help="dollars for everything")
    plan.add_argument("--calls", type=whole_number(1), metavar="N", help="calls of the traffic")
    plan.add_argument("--rate", type=float, metavar="R", help="expected rate of bad calls (default 0.05)")
    plan.add_argument("--auroc", type=float, metavar="A", help="that of the decision judge (default 0.85)")
    plan.add_argument("--label-usd", type=float, default=1.0, metavar="USD", help="dollars for a label (1)")
    plan.add_argument("--verdict-usd", type=float, metavar="USD", help="dollars for a verdict (0.01)")
    plan.add_argument("--decision-usd", type=float, metavar="USD", help="dollars for a decision (0.0001)")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace calibrate`, and return the exit status."""
    import sqlite3

    from ragtrace.core.errors import SettingsError
    from ragtrace.system.sqlite_files import SQLiteFileError

    try:
        return {"pick": _pick, "fit": _fit, "bridge": _bridge, "plan": _plan, "guard": _guard}[options.action](options)
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
        with closing(HistoryReader(options.history)) as reader:
            calls = judged_calls(reader, reader.columns(0.0, float("inf")), options.metric, options.evaluator)
            curve = _curve_for_picking(options, calls)
            picks = pick_calls(calls, options.n, options.seed, curve)
            bodies = [reader.body(number) for _, number in reader.numbers_of(pick.identity for pick in picks)]
        without_texts = sum(not body or bool(body.get("without_texts")) for body in bodies)
        if not picks:
            print_error(f"no call can be picked: none of those judged for {options.metric!r} has a trace id")
            return FAILURE
        store.replace_picks(options.metric, picks, time())
    known = {"metric": options.metric, "evaluator": calls.series.evaluator, "judged": int(calls.judged.sum())}
    lines = [
        f"picked {len(picks)} of {known['judged']:,} calls that {known['evaluator']} judged for {options.metric}; "
        f"next: ragtrace review {options.history}"
    ]
    if without_texts:
        lines.append(
            f"{without_texts} of them have no stored texts (NO_CONTENT): label them only if you can read them "
            "elsewhere, such as in their traces"
        )
    write_result({**known, "picked": len(picks), "without_texts": without_texts}, lines, as_json=options.json)
    return OK


def _curve_for_picking(options: argparse.Namespace, calls: JudgedCalls) -> ScoreCurve | None:
    """Return the score curve by which calls of a decision judge are picked for labelling; None: by its raw scores."""
    from ragtrace.estimates import CalibrationKey, find_calibration, read_calibrations
    from ragtrace.judges.llm.prompts import prompt_hash_of

    if options.calibration is None or not calls.is_decision:
        return None
    judge, _, version = calls.series.evaluator.rpartition("@")
    key = CalibrationKey(
        options.metric, max(calls.metric_versions(), default=""), judge, version, prompt_hash_of(version)
    )
    entry, stale = find_calibration(read_calibrations(options.calibration), key) or (None, "")
    if entry is None or stale or entry.scores is None or not entry.scores.is_calibrated:
        why = stale or "no curve that may be called calibrated"
        print_error(f"picked by raw scores: the calibration has {why} for {calls.series.evaluator}")
        return None
    return entry.scores.curve


def _bridge(options: argparse.Namespace) -> int:
    from ragtrace.core.errors import JudgeError
    from ragtrace.estimates import write_calibration
    from ragtrace.estimates.bridge import MOST
    from ragtrace.evaluation.metric_selection import metrics_for
    from ragtrace.offline.judge_spec import judge_from_spec
    from ragtrace.offline.progress import show_progress
    from ragtrace.report.bridging import bridge

    judge = judge_from_spec(options.judge, base_url=options.base_url)
    (metric,) = metrics_for(judge, [options.metric])
    try:
        with show_progress(None) as progress:
            found = bridge(
                options.history, metric, judge, evaluator=options.evaluator, most=options.n or MOST, progress=progress
            )
    except JudgeError as error:
        print_error(f"the judge failed: {error}")
        return FAILURE
    write_result(_bridge_record(found), _bridge_lines(found), as_json=options.json)
    if found.offset is None:
        return FAILURE
    if options.out is not None:
        if found.calibration is None:
            print_error("no labelled call was scored anew, so no calibration was written")
            return FAILURE
        write_calibration(options.out, found.calibration)
        print_error(f"calibration written to {options.out}; use it with configure(calibration={str(options.out)!r})")
    return OK


def _bridge_record(found: Bridge) -> dict[str, Any]:
    made = found.calibration
    scores = None if made is None or made.scores is None else _scores_record(made.scores)
    return {**plain(found), "calibration": None if made is None else made.key, "scores": scores}


def _bridge_lines(found: Bridge) -> list[str]:
    before, after = ", ".join(found.before) or "not known", found.after or "not known"
    lines = [f"{found.metric} by {found.evaluator}: model before {before}, now {after}"]
    if found.offset is None:
        lines.append("fewer than two calls have a score by both models, so nothing is known about the change")
    else:
        each = found.offset
        lines.append(
            f"mean score of the judge, by {each.n:,} calls that both scored: {each.value:+.4f} "
            f"[{each.low:+.4f}, {each.high:+.4f}]"
        )
        if each.half_width > 0.01:
            lines.append(f"  {found.needed:,} calls make that 0.01 on either side")
    for reason, count in sorted(found.unscored.items()):
        lines.append(f"  {count:,} calls have no new score: {reason}")
    if found.without_texts:
        lines.append(f"  {found.without_texts:,} calls have no stored texts, so they could not be scored anew")
    lines.append(f"labelled calls scored anew: {found.labelled:,}; without a new score: {found.lost_labels:,}")
    if found.calibration is not None and found.calibration.scores is not None:
        lines += _scores_lines(found.calibration.scores)
    else:
        lines.append("uncalibrated: the offset says how the judge's own mean moved, and no rate of bad calls")
    unpriced = f"; price of {found.unpriced:,} calls not known" if found.unpriced else ""
    lines.append(f"cost of these requests: {found.cost_usd:.4f} dollars{unpriced}")
    return lines


def _plan(options: argparse.Namespace) -> int:
    from ragtrace.estimates.spending import AUROC, USD_A_DECISION, USD_A_VERDICT, Prices, assumed_spread, plan_spending

    known = _known_of_history(options) if options.history is not None else _Known()
    calls, rate = options.calls or known.calls, options.rate or known.rate or 0.05
    if not calls:
        print_error("say how many calls there are: --calls, or name a history")
        return USAGE
    verdict = options.verdict_usd if options.verdict_usd is not None else known.verdict_usd
    decision = options.decision_usd if options.decision_usd is not None else known.decision_usd
    prices = Prices(
        options.label_usd,
        USD_A_VERDICT if verdict is None else verdict,
        USD_A_DECISION if decision is None else decision,
    )
    auroc = options.auroc or known.auroc or AUROC
    plans = plan_spending(options.usd, calls, assumed_spread(rate, auroc=auroc), prices)
    given = {"usd": options.usd, "calls": calls, "rate": rate, "auroc": auroc, "prices": asdict(prices)}
    if options.json:
        shown = [{**asdict(each), "stages": each.stages} for each in plans]
        sys.stdout.write(f"{json.dumps({**given, 'plans': shown})}\n")
        return OK
    lines = [
        f"{options.usd:,.2f} dollars for {calls:,} calls, of which {rate:.1%} are expected to be bad; AUROC of the "
        f"decision judge {auroc:.2f}; prices: label {prices.label:g}, verdict {prices.verdict:g}, decision "
        f"{prices.decision:g} dollars"
    ]
    for place, each in enumerate(plans):
        lines.append(
            f"{'best: ' if not place else '      '}{each.stages}: {each.labels:,} labels, {each.verdicts:,} verdicts, "
            f"{each.decisions:,} decisions for {each.usd:,.2f} dollars; as good as ~{each.effective_labels:,.0f} labels"
        )
    best, alone = plans[0], next((each for each in plans if not each.verdicts and not each.decisions), None)
    if alone is not None and best.effective_labels < 1.1 * alone.effective_labels:
        lines.append("judges save next to nothing here: spend the money on labels")
    sys.stdout.write("\n".join(lines) + "\n")
    return OK


class _Known(NamedTuple):
    """What a history says about the traffic and the prices of its judges; None: not known."""

    calls: int = 0
    rate: float | None = None
    auroc: float | None = None
    verdict_usd: float | None = None
    decision_usd: float | None = None


def _known_of_history(options: argparse.Namespace) -> _Known:
    import numpy as np

    from ragtrace.core.errors import SettingsError
    from ragtrace.estimates.discrimination import auroc
    from ragtrace.history.reading import HistoryReader
    from ragtrace.report.calibration import calibrate

    with closing(HistoryReader(options.history)) as reader:
        columns = reader.columns(0.0, float("inf"))

    def price(*, deciding: bool) -> float | None:
        raw = {evaluator for _, evaluator in columns.raw_scores}
        numbers = [number for number, name in columns.evaluators.items() if (name in raw) == deciding]
        rows = np.isin(columns.evaluator, numbers) & (columns.requests > 0) & ~np.isnan(columns.cost_usd)
        return float(columns.cost_usd[rows].mean()) if rows.any() else None

    rate = quality = None
    try:
        found = calibrate(options.history, options.metric, evaluator=options.evaluator)
    except SettingsError:  # nothing is picked or judged yet
        pass
    else:
        rate = found.labels.value or None
        sure = [point for point in found.points if point.label != 0.5]
        if found.scores is not None and 0 < sum(point.label > 0.5 for point in sure) < len(sure):
            labels = np.array([float(point.label > 0.5) for point in sure])
            quality = auroc(labels, np.array([point.badness for point in sure]))
    usable = quality if quality is not None and 0.5 < quality < 1.0 else None
    return _Known(len(columns), rate, usable, price(deciding=False), price(deciding=True))


def _guard(options: argparse.Namespace) -> int:
    from ragtrace.report.guard_curve import guard_curve

    limit = 0.02 if options.max_false_block is None else options.max_false_block
    if not 0.0 < limit < 1.0:
        print_error(f"--max-false-block must be more than 0 and less than 1, got {limit:g}; for 2 % write 0.02")
        return USAGE
    found = guard_curve(options.history, options.metric, options.evaluator)
    threshold = None if found.stale else found.labels.threshold(limit)
    write_result(_guard_record(found, limit, threshold), _guard_lines(found, limit, threshold), as_json=options.json)
    return FAILURE if threshold is None else OK


def _guard_record(found: GuardCurve, limit: float, threshold: float | None) -> dict[str, Any]:
    from ragtrace.estimates import Interval
    from ragtrace.estimates.false_blocks import THRESHOLDS

    side, rows = "below" if found.higher_is_better else "above", list[dict[str, Any]]()
    for each, blocked in zip(THRESHOLDS, found.blocked, strict=True):
        recall = found.labels.recall(each)
        rows.append(
            {
                side: found.score_bound(each),
                "blocked": blocked,
                "good_blocked": found.labels.share(each),
                "good_blocked_at_most": found.labels.bound(each),
                "bad_blocked": None if recall is None else Interval(*recall),
            }
        )
    names = ("metric", "evaluator", "judged", "labelled_good", "labelled_bad", "stale")
    return {
        **{name: getattr(found, name) for name in names},
        "good_drawn_alike": found.labels.good,
        "max_false_block": limit,
        side: None if threshold is None else found.score_bound(threshold),
        "missing_labels": found.labels.missing(limit) if threshold is None else 0,
        "curve": rows,
    }


def _guard_lines(found: GuardCurve, limit: float, threshold: float | None) -> list[str]:
    from ragtrace.estimates.false_blocks import FEWEST_BAD

    side = "below" if found.higher_is_better else "above"
    lines = [
        f"{found.metric} by {found.evaluator}: {found.judged:,} judged calls, {found.labelled_good} labelled good (as "
        f"many as {found.labels.good} drawn alike), {found.labelled_bad} labelled bad",
        f"{'bound':<12}{'all answers':>13}  {'good ones, at most':>24}  bad ones",
    ]
    shown = {step / 10 for step in range(10)}
    if threshold is not None:
        shown.add(threshold)
    for each in sorted(shown, reverse=True):
        share, recall, blocked = found.labels.share(each), found.labels.recall(each), found.blocked[round(each * 100)]
        good = "unknown" if share is None else f"{share:.1%}, {found.labels.bound(each):.1%}"
        bad = (
            f"unknown: {found.labelled_bad} of {FEWEST_BAD} labels"
            if recall is None
            else f"{recall[0]:.0%} [{recall[1]:.0%}, {recall[2]:.0%}]"
        )
        lines.append(f"{side} {found.score_bound(each):<6.2f}{blocked:>13.1%}  {good:>24}  {bad}")
    if found.stale:
        return [
            *lines,
            f"STALE: the newest calls are judged by {found.stale}, of which these labels say nothing; pick again",
        ]
    if threshold is None:
        missing = found.labels.missing(limit)
        return [
            *lines,
            f"no bound blocks at most {limit:.1%} of the good answers: {missing:,} labels of good ones are missing",
        ]
    bound = f"{side}={found.score_bound(threshold):g}"
    return [
        *lines,
        f"at most {limit:.1%} of the good answers, with 95 % confidence: ragtrace.Guard({found.metric!r}, {bound})",
    ]


def _fit(options: argparse.Namespace) -> int:
    from ragtrace.report.calibration import calibrate

    found = calibrate(
        options.history,
        options.metric,
        evaluator=options.evaluator,
        most_false_alarms=options.most_false_alarms,
    )
    write_result(_record(found), _lines(found), as_json=options.json)
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

    record: dict[str, Any] = {
        **plain(found),
        "threshold": found.threshold and {"badness": found.threshold.value, "error": found.threshold.error},
        "score_threshold": found.score_threshold,
        **{name: _rate_record(getattr(found, name)) for name in ("judge", "labels", "corrected")},
        "by_reviewer": {name: _rate_record(rate) for name, rate in found.by_reviewer.items()},
        "alpha": found.alpha,
        "doubt": found.between_reviewers.doubt,
        "labels_needed": found.labels_needed,
        "scores": None if found.scores is None else _scores_record(found.scores),
        "disagreements": [
            {
                "call": call_of_identity(each.identity),
                "badness": each.badness,
                "label": each.label,
                "weight": each.weight,
            }
            for each in found.disagreements
        ],
    }
    for name in ("points", "unsure_points"):
        del record[name]
    del record["between_reviewers"]["reviewers"]
    return record


def _scores_record(scores: ScoreCalibration) -> dict[str, Any]:
    return {**scores.record(), "is_calibrated": scores.is_calibrated, "lacking": scores.lacking}


def _scores_lines(scores: ScoreCalibration) -> list[str]:
    if not scores.is_calibrated:
        return [f"scores: uncalibrated: not a rate ({scores.lacking})"]
    return [f"scores: calibrated by {scores.labels:,} labels ({scores.rarer:,} of the rarer kind); {scores.promise}"]


def _rate_record(rate: Estimate) -> dict[str, float | None]:
    return {"value": rate.value, "low": rate.low, "high": rate.high}


def _lines(found: Calibration) -> list[str]:
    from ragtrace.labels.label_store import call_of_identity
    from ragtrace.report.calibration_page import calibration_figures
    from ragtrace.system.faults import printable

    unsure = f", {found.unsure} unsure" if found.unsure else ""
    bridge = ", or have the new judge score these calls (ragtrace calibrate bridge, whose file then holds for it)"
    bridge = "" if found.scores is None else bridge
    lines = [
        f"{found.metric} by {found.evaluator}: {found.labelled} of {found.picked} picked calls labelled{unsure}; "
        f"reviewers: {', '.join(map(printable, found.reviewers)) or 'none'}",
        *(
            [
                f"STALE: the newest calls are judged by {found.stale}, of which these labels say nothing; pick again"
                + bridge
            ]
            if found.stale
            else []
        ),
        "rate of bad calls, with 95 % intervals",
        f"  by the judge, uncorrected  {_rate(found.judge)}",
        f"  by the labels alone        {_rate(found.labels, none_bad=found.labelled if _none_bad(found) else 0)}",
        f"  corrected by the labels    {_corrected_rate(found)}",
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
        without = f", without {found.divided} on which reviewers are divided" if found.divided else ""
        lines.append(f"judge and labels in {found.agreement.n} calls{without}")
    if found.labelled:
        figures = [(name, f"{value}: {told}") for name, value, told in calibration_figures(found)]
        lines += [f"  {line}" for line in text_table(figures)]
    lines += [
        f"  probability {bar.probability:.3f}: {bar.share:.1%} [{bar.low:.1%}, {bar.high:.1%}] bad of {bar.labels}"
        for bar in found.diagram
    ]
    if found.disagreements:
        lines.append(f"judge and label differ in {len(found.disagreements)} calls; the worst come first:")
        for differing in found.disagreements:
            said = "bad" if differing.label > 0.5 else "good"
            lines.append(
                f"  {call_of_identity(differing.identity)}  labelled {said}, judge {differing.badness:.2f} (1 is bad), "
                f"stands for {differing.weight:,.0f} calls"
            )
    return lines


def _none_bad(found: Calibration) -> bool:
    """Return whether no labelled call of a decision judge is bad, so that only an upper limit of the rate is known."""
    return found.scores is not None and found.scores.bad is None


def _corrected_rate(found: Calibration) -> str:
    from ragtrace.report.wording import too_few_labels

    if found.corrected.reason == "stale_calibration":
        return "unknown: the labels are STALE, see above"
    if found.has_too_few:
        return too_few_labels(found.labelled, found.labels_needed)
    shown = _rate(found.corrected, none_bad=found.labelled if _none_bad(found) else 0)
    if found.effective_labels is None:
        return shown
    from ragtrace.system.faults import printable

    first = f" (with {printable(found.decision_judge)}'s scores: cascade)" if found.decision_judge else ""
    return f"{shown}, as narrow as ~{found.effective_labels:,.0f} labels alone{first}"


def _rate(estimate: Any, none_bad: int = 0) -> str:
    """Return an estimated rate in words; with *none_bad* labels, all good, only its upper limit."""
    if estimate.value is None:
        return "uncalibrated: not a rate" if estimate.reason == "uncalibrated" else f"unknown ({estimate.reason})"
    if none_bad:
        return f"0 of {none_bad:,}: below {estimate.high:.2%}"
    return f"{estimate.value:.2%} [{estimate.low:.2%}, {estimate.high:.2%}]"
