"""Corrected rates: estimates of the mean human label over all calls, from a judge and some labels.

**Three layers.** The screen scores every call (f), the judge scores a sample of the calls (y), a person labels a sample
of the judged calls (z). A judged call has the weight v = 1/p1, a labelled one the weight w = 1/(p1 p2), with p1 and p2
the recorded probabilities of being judged and, once judged, of being labelled. The wanted rate is the mean of z over
the traffic. It is estimated in two steps, each prediction-powered:
    Y      the mean of y over the traffic, by `interval_bounds`: all calls seen by the screen, corrected by the judge,
           with the weight M of the screen and an interval, whose width gives the variance of Y;
    t + L (Y - y')   with t = wz / w and y' = wy / w the weighted means over the labelled calls.

**Spread.** S2 = the sum over the labelled calls of w^2 (z - m)^2, to which two imagined calls of the mean weight are
added, one with z = 1 and one with z = 0; m is the weighted mean with them. They stand for the bad (or good) call that
the labels happen to lack. The interval of the labels alone is a Wilson score interval with continuity correction on
the effective number of labels e = m (1 - m) w (w + 2W) / S2, with W = ww / w, as in `formulas`.

**Weight of the judge.** Every variance below is divided by w^2. With C = sum of w^2 (z - t)(y - y'), F the same with
(y - y')^2, and the covariances with Y, by the labelled calls that stand for all judged ones (d = y - M f),
    K_x = sum of w v (x - x')(d - d') + M sum of w (x - x')(f - f'),  for x = z and x = y,
the variance is S2 - 2 L (C - K_z) + L^2 (F + var(Y) - 2 K_y). Its minimum is at L = (C - K_z) / (F + var(Y) - 2 K_y).
Few labels estimate it badly, so L is shrunk by x^2 / (x^2 + SHRINK) and the variance is increased by the factor
1 + PENALTY / x^2, with x = e m (1 - m) the effective number of labels of the rarer kind. Before that DISAGREEING
imagined labels of the mean weight are added to it, with which the judge disagrees: a few labels with which the judge
agrees by chance do not make it perfect. The variance V that results is never more than S2, so the corrected interval
is never wider than that of the labels alone: its arms are scaled by the root of V / S2.

**Unsure labels.** A picked call that its reviewers are unsure about is good or bad, and whether they can tell depends
on which. The value leaves such calls out, as if they were like the others. The interval begins where it begins when all
of them are good, and ends where it ends when all are bad (worst-case bounds); it contains the interval without them.

**Sources.** Angelopoulos et al. 2023, arXiv:2301.09633, and Angelopoulos, Duchi and Zrnic 2023, arXiv:2311.01453
(prediction-powered mean, tuned weight); Sarndal, Swensson and Wretman 1992, "Model Assisted Survey Sampling", chapter 9
(two-phase sampling); Horowitz and Manski 2000, Journal of the American Statistical Association 95:77 (bounds where
outcomes are missing); `formulas` for the interval. Confirmed by simulation: `tests/benchmarks/corrected_rate.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.calibration import LEAST_INFORMATION, UNINFORMATIVE, LabelRates, rogan_gladen_bounds
from ragtrace.estimates.estimate import Estimate, estimate_mean, missing_estimate
from ragtrace.estimates.formulas import Floats, IntervalBounds, Z, wilson_interval
from ragtrace.estimates.moments import Moments

NOTHING_LABELLED: Final = "nothing_labelled"
SHRINK: Final = 3.0
PENALTY: Final = 0.7
IMAGINED: Final = 1.0
DISAGREEING: Final = 0.3
POWERS: Final = ("w", "ww", "wv")
PRODUCTS: Final = ("", "z", "y", "f", "zz", "zy", "yy", "zf", "yf", "ff")
SUMS: Final = tuple(power + product for power in POWERS for product in PRODUCTS)


class Arrays:
    """Arithmetic on numpy arrays, to compute many estimates at once.

    An array has one element for each estimate.
    """

    def let(self, name: str, value: Any) -> Any:
        return value

    def sqrt(self, value: Any) -> Any:
        return np.sqrt(value)

    def minimum(self, a: Any, b: Any) -> Any:
        return np.minimum(a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        return np.maximum(a, b)

    def ratio(self, a: Any, b: Any, least: Any, otherwise: float) -> Any:
        return np.where(b > least, a / np.where(b > least, b, 1.0), otherwise)


class LabelledCall(NamedTuple):
    """Call that a judge has scored and a person has labelled, with the sampling probabilities of both steps."""

    label: float | None
    """Label by a person, in [0, 1]: 1 where the counted property holds; None: the person is unsure."""
    score: float
    """Score by the judge for the same property, in [0, 1]."""
    judged: float = 1.0
    """Probability with which the call was judged."""
    labelled: float = 1.0
    """Probability with which the judged call was chosen to be labelled."""
    screen: float = 0.0
    """Score by the screen, in [0, 1]; 0 where no screen has the metric."""


def label_columns(labels: Any, scores: Any, screens: Any, judged: Any, labelled: Any) -> dict[str, Any]:
    """Return the summands of the `SUMS` as named arrays with one element for each labelled call.

    Args:
        labels: the persons' labels, an array with one entry a call, as all other arguments.
        scores: the judge's scores.
        screens: the screen's scores.
        judged: probabilities of being judged.
        labelled: probabilities of being labelled, once judged.
    """
    v = 1.0 / judged
    w = v / labelled
    values = {"z": labels, "y": scores, "f": screens}
    terms: dict[str, Any] = {}
    for power, weight in zip(POWERS, (w, w * w, w * v), strict=True):
        for product in PRODUCTS:
            term = weight
            for name in product:
                term = term * values[name]
            terms[power + product] = term
    return terms


def corrected_bounds(
    sums: Mapping[str, Any], judge: IntervalBounds[Any]
) -> tuple[IntervalBounds[Any], IntervalBounds[Any], Any]:
    """Return the corrected mean of human labels, the mean by the labels alone, and the effective number of labels.

    Args:
        sums: `SUMS` by name, floats or arrays.
        judge: mean score of the judge over the traffic.
    """
    s = sums
    w, ww = s["w"], s["ww"]
    unit = ww / w
    t, y0, f0 = s["wz"] / w, s["wy"] / w, s["wf"] / w
    everything = w + 2.0 * IMAGINED * unit
    m = (s["wz"] + IMAGINED * unit) / everything
    imagined = IMAGINED * unit * unit * ((1.0 - m) ** 2 + m * m)
    square = w * w
    spread = (_centred_sum(s, "ww", "z", "z", m, m) + imagined) / square
    e = m * (1.0 - m) * everything / w / spread
    mu = judge.weight
    variance = ((judge.high - judge.low) / (2.0 * Z)) ** 2

    def covariance(x: str, centre: Any) -> Any:
        by_judge = _centred_sum(s, "wv", x, "y", centre, y0) - mu * _centred_sum(s, "wv", x, "f", centre, f0)
        return (by_judge + mu * _centred_sum(s, "w", x, "f", centre, f0)) / square

    both = _centred_sum(s, "ww", "z", "y", t, y0) / square - covariance("z", t)
    of_y = _centred_sum(s, "ww", "y", "y", y0, y0) / square + variance - 2.0 * covariance("y", y0)
    usable = of_y > 1e-9 * spread
    rarer = e * m * (1.0 - m)
    weight = np.where(usable, both / np.where(usable, of_y, 1.0), 0.0) * rarer**2 / (rarer**2 + SHRINK)
    left = np.maximum(spread - weight * (2.0 * both - weight * of_y), 0.0)
    left = left + DISAGREEING * unit * unit / square
    scale = np.sqrt(np.minimum(left * (1.0 + PENALTY / rarer**2) / spread, 1.0))
    low, high = wilson_interval(t, e, Arrays())
    value = np.clip(t + weight * (judge.value - y0), 0.0, 1.0)
    corrected = IntervalBounds(
        value, np.maximum(value - scale * (t - low), 0.0), np.minimum(value + scale * (high - t), 1.0), weight
    )
    return corrected, IntervalBounds(t, low, high, weight * 0.0), e


def _centred_sum(s: Mapping[str, Any], power: str, a: str, b: str, of_a: Any, of_b: Any) -> Any:
    """Return the weighted sum of (a - of_a)(b - of_b) over the labelled calls, for values *a* and *b* of each call."""
    product = a + b if power + a + b in s else b + a
    return s[power + product] - of_a * s[power + b] - of_b * s[power + a] + of_a * of_b * s[power]


def corrected_rate(
    labels: Sequence[LabelledCall],
    judged: Moments | None = None,
    *,
    metric: str = "",
    workflow: str | None = None,
    evaluator: str = "",
) -> Estimate:
    """Estimate the mean of human labels over all calls, with a 95 % interval, from a judge and a sample of labels.

    Args:
        labels: the labelled calls, drawn from the judged calls of the same traffic with the probabilities they carry,
            those that the reviewers are unsure about among them.
        judged: the judge's `Moments` of that traffic; None: the labels alone are used.
        metric: name of the metric.
        workflow: name of the workflow; None: all.
        evaluator: id of the judge.

    Returns:
        The estimate. If no label is unsure, its interval is never wider than that of the labels alone; else it also
        contains what the unsure ones may be. Its value is None, with a reason, if there are no other labels.

    Raises:
        SettingsError: a label, a score or a probability is outside its range.

    Source: the text at the top of this module.
    """
    if all(each.label is None for each in labels):
        return missing_estimate(NOTHING_LABELLED, "tuned", "rate", metric=metric, workflow=workflow)
    # A label that is None becomes NaN.
    columns = np.array(labels, dtype=float).T
    sure = np.array([each.label is not None for each in labels])
    numbers = np.where(sure, columns, np.vstack((np.zeros(len(sure)), columns[1:])))
    probability, chosen = numbers[2:4]
    within = (numbers >= 0.0).all() and (numbers <= 1.0).all() and (probability * chosen > 0.0).all()
    if not within:
        raise SettingsError(
            "labels, scores and the screen's scores must be in [0, 1] and probabilities in (0, 1], got other numbers; "
            "the label of a call that a reviewer is unsure about is None"
        )
    judge = None if judged is None else _judge_mean(judged)
    best, effective = _mean_label(columns[:, sure], judge)
    low, high = best.low, best.high
    if not sure.all():
        good, bad = (np.vstack((np.where(sure, columns[0], filled), columns[1:])) for filled in (0.0, 1.0))
        low, high = min(low, _mean_label(good, judge)[0].low), max(high, _mean_label(bad, judge)[0].high)
    known = judge is not None
    return Estimate(
        float(best.value), float(low), float(high), round(judged.n) if judged is not None else int(sure.sum()),
        float(effective), "tuned" if known else "weighted", "rate", float(best.weight), metric, workflow, evaluator,
        corrected="labels",
    )  # fmt: skip


def _mean_label(columns: Any, judge: IntervalBounds[float] | None) -> tuple[IntervalBounds[Any], Any]:
    """Return the mean label over the traffic with its interval, and the effective number of labels.

    Args:
        columns: (5, n) array of the fields of n labelled calls, each with a label.
        judge: mean score of the judge over the traffic; None: the labels alone are used.
    """
    label, score, probability, chosen, screen = columns
    terms = label_columns(label, score, screen, probability, chosen)
    sums = {name: np.float64(term.sum()) for name, term in terms.items()}
    corrected, alone, effective = corrected_bounds(sums, judge or IntervalBounds(0.0, 0.0, 1.0, 0.0))
    return alone if judge is None else corrected, effective


def _judge_mean(judged: Moments) -> IntervalBounds[float] | None:
    """Return the judge's mean score over the traffic with its interval, or None if no call was judged."""
    found = estimate_mean(judged)
    if found.value is None or found.low is None or found.high is None:
        return None
    return IntervalBounds(found.value, found.low, found.high, found.weight)


def rogan_gladen(*, marked: float, judged: float, found: float, bad: float, passed: float, good: float) -> Estimate:
    """Estimate the true share of bad calls, with a 95 % interval, from a judge's verdicts and labels of other traffic.

    It assumes that the judge's sensitivity and specificity are the same there and here. Where labels of the same
    traffic exist, `corrected_rate` needs no such assumption.

    Args:
        marked: number of calls that the judge marked as bad.
        judged: number of calls that it judged.
        found: number of the calls labelled bad that the judge marked as bad.
        bad: number of calls labelled bad.
        passed: number of the calls labelled good that the judge did not mark.
        good: number of calls labelled good.

    Returns:
        The estimate; its value is None where sensitivity and specificity sum to 1.1 or less (`judge_uninformative`).

    Raises:
        SettingsError: a count is negative or larger than its total, or a total is 0.

    Source: Rogan and Gladen 1978, American Journal of Epidemiology 107:71; the interval with adjusted counts is that of
    Lang and Reiczigel 2014, Preventive Veterinary Medicine 113:13.
    """
    for part, total in ((marked, judged), (found, bad), (passed, good)):
        if not 0 <= part <= total or not 0 < total < math.inf:
            raise SettingsError(
                f"a count must be from 0 to its total, and the total positive, got {part!r} of {total!r}"
            )
    if found / bad + passed / good <= 1.0 + LEAST_INFORMATION:
        return missing_estimate(UNINFORMATIVE, "weighted", "rate")
    sensitivity, specificity = (found + 1.0) / (bad + 2.0), (passed + 1.0) / (good + 2.0)
    if sensitivity + specificity <= 1.0:
        return missing_estimate(UNINFORMATIVE, "weighted", "rate")
    rates = LabelRates(
        sensitivity,
        1.0 - specificity,
        sensitivity * (1.0 - sensitivity) / (bad + 2.0),
        specificity * (1.0 - specificity) / (good + 2.0),
    )
    value = (marked / judged + passed / good - 1.0) / (found / bad + passed / good - 1.0)
    number = judged + Z * Z
    share = (marked + Z * Z / 2.0) / number
    ends = rogan_gladen_bounds(value, share, share * (1.0 - share) / number, rates, Floats())
    return Estimate(
        ends.value, ends.low, ends.high, round(judged), judged, "weighted", "rate", corrected="rogan_gladen"
    )
