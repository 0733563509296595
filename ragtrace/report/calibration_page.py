"""Calibration of a judge as a self-contained HTML page: rates, agreement, labels by score, and disagreements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ragtrace.core.text import format_plainly
from ragtrace.estimates import Interval, agreement, missing_estimate
from ragtrace.estimates.calibration import TOO_FEW_LABELS
from ragtrace.labels.label_store import call_of_identity
from ragtrace.report import charts, wording
from ragtrace.report.calibration import BAD, Calibration, LabelledPoint
from ragtrace.report.html_page import template_environment

if TYPE_CHECKING:
    from typing import TypeAlias

    from ragtrace.estimates import Estimate

    Row: TypeAlias = tuple[str, "Estimate | Interval", str]

_BINS: Final = 5
_FROM_0_TO_1: Final = charts.Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))


def render_calibration(found: Calibration) -> str:
    """Render the calibration as a complete HTML document.

    Raises:
        SettingsError: Jinja2 is not installed.
    """
    return template_environment().get_template("calibration.html").render(calibration_values(found))


def calibration_values(found: Calibration) -> dict[str, Any]:
    """Return the values that the template of a calibration shows."""
    estimates = (found.judge, found.labels, found.corrected)
    names = ("By the judge, uncorrected", "By the labels alone", "Corrected by the labels")
    rates: list[Row] = [
        (name, estimate, wording.format_interval(estimate)) for name, estimate in zip(names, estimates, strict=True)
    ]
    too_few = wording.too_few_labels(found.labelled, found.labels_needed) if found.has_too_few else ""
    if too_few:
        rates[-1] = (names[-1], missing_estimate(TOO_FEW_LABELS, "tuned", "rate"), too_few)
        if found.judge.value is None:  # the page begins with what it needs
            rates = [row for row in rates if row[1].value is not None]
    rates += [
        (f"By the labels of {name} alone", rate, wording.format_interval(rate))
        for name, rate in found.by_reviewer.items()
    ]
    plots = [
        (
            "Rate of bad calls",
            "Dot: the estimate. Bar: its 95% interval.",
            rates,
            charts.common_scale([*estimates, *found.by_reviewer.values()]),
        ),
        (
            "Labels by the judge's score",
            "Share of the calls that are labelled bad, by the judge's badness (1 is bad), each call weighted by the "
            "calls that it stands for. A judge that can be trusted has shares that rise from 0% to 100%.",
            list(_labels_by_score(found)),
            _FROM_0_TO_1,
        ),
    ]
    if found.diagram:
        plots.append(
            (
                "Labels by calibrated probability (reliability diagram)",
                "Share of the calls that are labelled bad among calls of similar probability, by curves that were not "
                "fitted to them, with 95% intervals. Of a curve that can be relied on, most bars hold the probability "
                "at their left.",
                [
                    (f"probability {bar.probability:.3f}", Interval(bar.share, bar.low, bar.high),
                     f"{bar.low:.1%} to {bar.high:.1%} · {bar.labels} labelled calls")
                    for bar in found.diagram
                ],
                _FROM_0_TO_1,
            )
        )  # fmt: skip
    return {
        "found": found,
        "too_few": too_few,
        "figures": list(calibration_figures(found)),
        "plots": [plot for plot in plots if plot[2]] if found.labelled else [],
        "wording": wording,
        "call_of_identity": call_of_identity,
        "shown_call": None,  # a page without a server leads nowhere
        "label_url": "",
        # What the macros of the report use besides.
        "report": None,
        "row": None,
        "whole": None,
        "charts": charts,
    }


def calibration_figures(found: Calibration) -> Iterator[tuple[str, str, str]]:
    """Yield the key figures of a calibration, each with name, value, and 95 % interval or what it means."""
    known = found.agreement
    if known is not None:
        yield _figure(
            f"Agreement, without {found.divided} divided calls" if found.divided else "Agreement", known.agree
        )
        yield "Best constant verdict", f"{known.constant:.1%}", "a judge that is not clearly better adds nothing"
        yield _figure("Cohen's kappa", known.kappa, share=False)
        yield _figure("Sensitivity", known.sensitivity)
        yield _figure("Specificity", known.specificity)
    yield from _score_figures(found)
    between = found.between_reviewers
    if found.alpha is not None:
        told = f"between reviewers, who differ in {between.differing} of {between.compared} calls"
        yield "Krippendorff's alpha", f"{found.alpha:.2f}", told
    elif between.compared:
        yield "Krippendorff's alpha", "unknown", f"all labels of {between.compared} calls with several are the same"
    if found.threshold is not None:
        side = "at most" if found.higher_is_better else "at least"
        error = found.threshold.error
        figures = (_figure("sensitivity", error.sensitivity), _figure("specificity", error.specificity))
        of_others = ", ".join(f"{name} {value} ({interval})" for name, value, interval in figures)
        score = format_plainly(found.score_threshold or 0.0, 3)
        told = f"{of_others}, on questions that did not choose it (cross-fitted)"
        yield "Recommended threshold", f"a score of {side} {score} is bad", told


def _score_figures(found: Calibration) -> Iterator[tuple[str, str, str]]:
    """Yield what the labels say about a decision model's probabilities; nothing of another judge."""
    if found.scores is not None:
        lacking, labels = (
            found.scores.lacking,
            f"{found.scores.labels:,} labels ({found.scores.rarer:,} of the rarer kind)",
        )
        told = f"not a rate: {lacking}" if lacking else f"by {labels}; {found.scores.promise}"
        yield "Scores", "uncalibrated" if lacking else "calibrated", told
    if found.effective_labels is not None:
        yield (
            "Effective labels",
            f"~{found.effective_labels:,.0f}",
            f"as narrow as with so many labels alone; {found.labelled} given",
        )


def _figure(name: str, interval: Interval | None, *, share: bool = True) -> tuple[str, str, str]:
    if interval is None:
        return name, "unknown", "the labels are of one kind"
    form = ".1%" if share else ".2f"
    return name, f"{interval.value:{form}}", f"{interval.low:{form}} to {interval.high:{form}}"


def _labels_by_score(found: Calibration) -> Iterator[Row]:
    """Yield the share of calls labelled bad for each range of the judge's score.

    Ranges without labelled calls are left out.
    """
    bins: dict[int, list[LabelledPoint]] = {}
    for point in found.points:
        bins.setdefault(min(_BINS - 1, int(point.badness * _BINS)), []).append(point)
    for number, points in sorted(bins.items()):
        labels, weights = [point.label > BAD for point in points], [point.weight for point in points]
        # The agreement with a verdict of bad on every call is the share of bad labels.
        share = agreement(labels, [True] * len(labels), weights).agree
        name = f"badness {number / _BINS:.1f} to {(number + 1) / _BINS:.1f}"
        yield name, share, f"{share.low:.1%} to {share.high:.1%} · {len(points)} labelled calls"
