"""Corrected rates: estimates of the mean human label over all calls, from a judge and some labels.

The labels are of calls of the same traffic. Where they are of other traffic, `calibration` takes only the judge's error
rates from there (`rogan_gladen`).

**Three layers of scores.** Each looks at a random sample of what the layer before looked at:

    layer    looks at                  score in [0, 1]   probability of being drawn   weight of a drawn call
    screen   every call                f                                              1
    judge    a sample of the calls     y                 p1                           v = 1 / p1
    person   a sample of the judged    z                 p2                           w = 1 / (p1 p2)

The wanted rate is the mean of z over the traffic.

**The steps of `corrected_rate`**, each of which has its equations at its function:
    1. `estimate_mean`      Y, the mean of y over the traffic, from all judged calls: all calls seen by the screen,
                            corrected by the judge. Its screen's weight M and its interval come from `formulas`.
    2. `sum_labelled`       `LabelledSums`: all that is taken from the labelled calls.
    3. `_label_statistics`  t, the mean of z by the labels alone, its variance, and the effective number of labels.
    4. `_judge_correction`  L, the weight of the judge, and the variance that it leaves.
    5. `corrected_bounds`   t + L (Y - y'), where y' is the mean of y by the labelled calls, with its interval.
    6. `_mean_label`        steps 2 to 5 for calls with a label. `corrected_rate` takes them once more with all unsure
                            labels as 0, and with all as 1.

A further layer needs its score and its probability in `LabelledCall`, its products and weights in step 2, and a
correction of its own beside step 4. A further number about the result belongs to `CorrectedBounds`.

**Invariants.** 0 <= low <= value <= high <= 1. Without unsure labels the corrected interval is never wider than that of
the labels alone (step 4 never leaves more variance than step 3 found). A judge that guesses has a weight near 0.

**Changing it.** `tests/unit/estimates/test_corrected.py` has the invariants and figures worked out by hand. The
coverage of the intervals depends on IMAGINED, DISAGREEING, SHRINK and PENALTY, which `cascade` uses, too: after a
change of these or of an equation, run `tests/simulation/test_corrected_rate.py`, and the whole grid of
`tests/benchmarks/corrected_rate.py`.

**Numbers.** Steps 2 to 5 compute with sums, not with calls, so that the simulations that confirm the intervals run the
same code on thousands of samples at once: `Numbers` are floats here, and arrays there.

**Sources.** Angelopoulos et al. 2023, arXiv:2301.09633, and Angelopoulos, Duchi and Zrnic 2023, arXiv:2311.01453
(prediction-powered mean, tuned weight); Sarndal, Swensson and Wretman 1992, "Model Assisted Survey Sampling", chapter 9
(two-phase sampling); Horowitz and Manski 2000, Journal of the American Statistical Association 95:77 (bounds where
outcomes are missing); `formulas` for the interval. Confirmed by simulation: `tests/benchmarks/corrected_rate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.arrays import Arrays, Numbers
from ragtrace.estimates.estimate import Estimate, estimate_mean, missing_estimate
from ragtrace.estimates.formulas import IntervalBounds, Z, wilson_interval
from ragtrace.estimates.moments import Moments

NOTHING_LABELLED: Final = "nothing_labelled"
"""Reason of a missing estimate: no person has labelled a call, or all of them were unsure."""
IMAGINED: Final = 1.0
"""Number of imagined calls with the label 1, and of those with the label 0, that are added to the labelled calls.

They stand for the bad (or good) call that the labels happen to lack.
"""
DISAGREEING: Final = 0.3
"""Number of imagined labels with which the judge disagrees.

With them, a few labels with which the judge agrees by chance do not make it perfect.
"""
SHRINK: Final = 3.0
"""Squared number of labels of the rarer kind with which the judge has half of its best weight."""
PENALTY: Final = 0.7
"""Increase of the variance because the weight of the judge is estimated, as a factor 1 + PENALTY / (number squared)."""
_ARITHMETIC: Final = Arrays()


# --- data ------------------------------------------------------------------------------------------------------------


class LabelledCall(NamedTuple):
    """Call that a judge has scored and a person has labelled, with the sampling probabilities of both steps."""

    label: float | None
    """Label by a person, in [0, 1]: 1 where the counted property holds; None: the person is unsure."""
    score: float
    """Score by the judge for the same property, in [0, 1]."""
    judging_probability: float = 1.0
    """Probability with which the call was judged."""
    labelling_probability: float = 1.0
    """Probability with which the judged call was chosen to be labelled."""
    screen: float = 0.0
    """Score by the screen, in [0, 1]; 0 where no screen has the metric."""


@dataclass(frozen=True, slots=True)
class Means:
    """Mean label, judge's score and screen's score of a set of calls."""

    z: Numbers
    y: Numbers
    f: Numbers


@dataclass(frozen=True, slots=True)
class CentredSums:
    """Sums over the labelled calls of weight * (a - mean of a)(b - mean of b); the field `zy` has a = z and b = y."""

    zz: Numbers
    zy: Numbers
    yy: Numbers
    zf: Numbers
    yf: Numbers


@dataclass(frozen=True, slots=True)
class ProductSums:
    """Sums over the labelled calls of one weight times products of the scores; the field `zy` sums weight * z * y."""

    weights: Numbers
    """Sum of the weight alone."""
    z: Numbers
    y: Numbers
    f: Numbers
    zz: Numbers
    zy: Numbers
    yy: Numbers
    zf: Numbers
    yf: Numbers

    def centred(self, means: Means) -> CentredSums:
        """Return the sums of products of deviations from *means*, by multiplying out (a - mean of a)(b - mean of b)."""

        def expanded(ab: Numbers, a: Numbers, b: Numbers, mean_a: Numbers, mean_b: Numbers) -> Numbers:
            return ab - mean_a * b - mean_b * a + mean_a * mean_b * self.weights

        return CentredSums(
            zz=expanded(self.zz, self.z, self.z, means.z, means.z),
            zy=expanded(self.zy, self.z, self.y, means.z, means.y),
            yy=expanded(self.yy, self.y, self.y, means.y, means.y),
            zf=expanded(self.zf, self.z, self.f, means.z, means.f),
            yf=expanded(self.yf, self.y, self.f, means.y, means.f),
        )


@dataclass(frozen=True, slots=True)
class LabelledSums:
    """Sums of the scores of the labelled calls, with each of three weights, from which a rate is estimated."""

    w: ProductSums
    """With the weight w of each labelled call: estimates sums over the traffic."""
    ww: ProductSums
    """With its square: estimates the variances of the sums with w."""
    wv: ProductSums
    """With w times v: estimates the variances of sums over the judged calls, whose weight is v."""


@dataclass(frozen=True, slots=True)
class CorrectedBounds:
    """Mean human label over the traffic with its interval, with the judge and without, by the same labels."""

    corrected: IntervalBounds[Numbers]
    """By labels and judge, or by the labels alone if there is no judge; `weight` is that of the judge (L)."""
    alone: IntervalBounds[Numbers]
    """By the labels alone."""
    effective_labels: Numbers
    """Effective number of labels (e)."""


@dataclass(frozen=True, slots=True)
class _LabelStatistics:
    """Statistics of the labelled calls that the interval of their mean label is computed from."""

    means: Means
    """Weighted means over the labelled calls: t, y' and f'."""
    traffic_weight: Numbers
    """Mean weight of a call of the traffic (W), which is the weight of an imagined call."""
    variance: Numbers
    """Variance of the mean label, imagined calls included (S2)."""
    effective_labels: Numbers
    """Effective number of labels (e)."""
    rarer_labels: Numbers
    """Effective number of labels of the rarer kind, good or bad (x)."""


@dataclass(frozen=True, slots=True)
class _JudgeCorrection:
    """Weight of the judge's scores in the estimate, and what it leaves of the variance."""

    judge_weight: Numbers
    """Weight of the judge (L)."""
    variance: Numbers
    """Variance of the corrected mean (V), at most that of the mean label."""


# --- the rate, from labelled calls -----------------------------------------------------------------------------------


def corrected_rate(
    labels: Sequence[LabelledCall],
    judge_moments: Moments | None = None,
    *,
    metric: str = "",
    workflow: str | None = None,
    evaluator: str = "",
) -> Estimate:
    """Estimate the mean of human labels over all calls, with a 95 % interval, from a judge and a sample of labels.

    Args:
        labels: the labelled calls, drawn from the judged calls of the same traffic with the probabilities they carry,
            those that the reviewers are unsure about among them.
        judge_moments: the judge's `Moments` of that traffic; None: the labels alone are used.
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
    sure = [call for call in labels if call.label is not None]
    if not sure:
        return missing_estimate(NOTHING_LABELLED, "tuned", "rate", metric=metric, workflow=workflow)
    _check_ranges(labels)
    judge_mean = None if judge_moments is None else _judge_mean(judge_moments)
    found = _mean_label(sure, judge_mean)
    best, low, high = found.corrected, found.corrected.low, found.corrected.high
    if len(sure) < len(labels):
        # Whether a reviewer can tell depends on whether the call is good: the value leaves unsure calls out, as if they
        # were like the others; the interval reaches from where all of them are 0 to where all are 1.
        low = min(low, _mean_label(_with_unsure_as(0.0, labels), judge_mean).corrected.low)
        high = max(high, _mean_label(_with_unsure_as(1.0, labels), judge_mean).corrected.high)
    return Estimate(
        value=float(best.value),
        low=float(low),
        high=float(high),
        n=len(sure) if judge_moments is None else round(judge_moments.n),
        effective_n=float(found.effective_labels),
        method="weighted" if judge_mean is None else "tuned",
        of="rate",
        weight=float(best.weight),
        metric=metric,
        workflow=workflow,
        evaluator=evaluator,
        corrected="labels",
    )


def _check_ranges(labels: Sequence[LabelledCall]) -> None:
    for call in labels:
        scores_and_probabilities = (0.0 if call.label is None else call.label, *call[1:])
        within = all(0.0 <= number <= 1.0 for number in scores_and_probabilities)
        if not within or not call.judging_probability * call.labelling_probability > 0.0:
            raise SettingsError(
                "labels, scores and the screen's scores must be in [0, 1] and probabilities in (0, 1], got other "
                "numbers; the label of a call that a reviewer is unsure about is None"
            )


def _judge_mean(judge_moments: Moments) -> IntervalBounds[Numbers] | None:
    """Return the judge's mean score over the traffic with its interval (Y), or None if no call was judged."""
    found = estimate_mean(judge_moments)
    if found.value is None or found.low is None or found.high is None:
        return None
    return IntervalBounds(found.value, found.low, found.high, found.weight)


def _with_unsure_as(label: float, calls: Sequence[LabelledCall]) -> list[LabelledCall]:
    return [call._replace(label=label) if call.label is None else call for call in calls]


def _mean_label(calls: Sequence[LabelledCall], judge_mean: IntervalBounds[Numbers] | None) -> CorrectedBounds:
    """Return the mean label over the traffic with its interval, with the judge and by the labels alone.

    Args:
        calls: the labelled calls, each of which has a label.
        judge_mean: mean score of the judge over the traffic; None: the labels alone are used.
    """
    labels, judge_scores, judging, labelling, screen_scores = np.array(calls, dtype=float).T  # the fields, in order
    return corrected_bounds(sum_labelled(labels, judge_scores, screen_scores, judging, labelling), judge_mean)


# --- the equations, from sums ----------------------------------------------------------------------------------------


def sum_labelled(
    labels: Numbers,
    judge_scores: Numbers,
    screen_scores: Numbers,
    judging_probabilities: Numbers,
    labelling_probabilities: Numbers,
    add_up: Callable[[Numbers], Numbers] = np.sum,
) -> LabelledSums:
    """Return the sums over the labelled calls that `corrected_bounds` takes.

    Args:
        labels: the persons' labels (z), an array with one entry a call, as all other arrays.
        judge_scores: the judge's scores (y).
        screen_scores: the screen's scores (f).
        judging_probabilities: probabilities of being judged (p1).
        labelling_probabilities: probabilities of being labelled, once judged (p2).
        add_up: adds up an array with one summand a call; simulations give one that counts each call as often as it was
            drawn.
    """
    v = 1.0 / judging_probabilities
    w = v / labelling_probabilities
    z, y, f = labels, judge_scores, screen_scores

    def sums(weight: Numbers) -> ProductSums:
        return ProductSums(
            weights=add_up(weight),
            z=add_up(weight * z),
            y=add_up(weight * y),
            f=add_up(weight * f),
            zz=add_up(weight * z * z),
            zy=add_up(weight * z * y),
            yy=add_up(weight * y * y),
            zf=add_up(weight * z * f),
            yf=add_up(weight * y * f),
        )

    return LabelledSums(w=sums(w), ww=sums(w * w), wv=sums(w * v))


def corrected_bounds(sums: LabelledSums, judge_mean: IntervalBounds[Numbers] | None) -> CorrectedBounds:
    """Return the mean human label over the traffic, corrected by the judge and by the labels alone.

    The corrected mean is t + L (Y - y'). Its interval has the arms (t - low and high - t) of the interval by the labels
    alone, scaled by the root of V / S2.

    Args:
        sums: sums over the labelled calls.
        judge_mean: mean score of the judge over the traffic (Y), with its interval and the weight of the screen (M);
            None: there is no correction.
    """
    labels = _label_statistics(sums)
    alone = _bounds_by_labels(labels)
    if judge_mean is None:
        return CorrectedBounds(alone, alone, labels.effective_labels)
    correction = _judge_correction(sums, labels, judge_mean)
    value = np.clip(alone.value + correction.judge_weight * (judge_mean.value - labels.means.y), 0.0, 1.0)
    scale = np.sqrt(correction.variance / labels.variance)
    corrected = IntervalBounds(
        value,
        np.maximum(value - scale * (alone.value - alone.low), 0.0),
        np.minimum(value + scale * (alone.high - alone.value), 1.0),
        correction.judge_weight,
    )
    return CorrectedBounds(corrected, alone, labels.effective_labels)


def _label_statistics(sums: LabelledSums) -> _LabelStatistics:
    """Return the mean label by the labelled calls alone, its variance and the effective number of labels.

    With w, ww, wz, ... for the sums, k = IMAGINED and W = ww / w, the mean weight of a call of the traffic,
        t  = wz / w                                                        mean label, y' and f' likewise
        m  = (wz + k W) / (w + 2 k W)                                      the same with the imagined calls
        S2 = (sum of w^2 (z - m)^2 + k W^2 ((1 - m)^2 + m^2)) / w^2        variance of the mean label
        e  = m (1 - m) (w + 2 k W) / w / S2                                effective number of labels
        x  = e m (1 - m)                                                   the same, of the rarer kind
    """
    w = sums.w.weights
    square = w * w
    traffic_weight = sums.ww.weights / w
    means = Means(z=sums.w.z / w, y=sums.w.y / w, f=sums.w.f / w)
    all_weight = w + 2.0 * IMAGINED * traffic_weight
    m = (sums.w.z + IMAGINED * traffic_weight) / all_weight
    imagined = IMAGINED * traffic_weight * traffic_weight * ((1.0 - m) ** 2 + m * m)
    variance = (sums.ww.centred(Means(z=m, y=means.y, f=means.f)).zz + imagined) / square
    effective = m * (1.0 - m) * all_weight / w / variance
    return _LabelStatistics(
        means=means,
        traffic_weight=traffic_weight,
        variance=variance,
        effective_labels=effective,
        rarer_labels=effective * m * (1.0 - m),
    )


def _bounds_by_labels(labels: _LabelStatistics) -> IntervalBounds[Numbers]:
    """Return the mean label by the labels alone with its interval.

    It is a Wilson score interval with continuity correction, on the effective number of labels.
    """
    mean = labels.means.z
    low, high = wilson_interval(mean, labels.effective_labels, _ARITHMETIC)
    return IntervalBounds(mean, low, high, mean * 0.0)


def _judge_correction(
    sums: LabelledSums, labels: _LabelStatistics, judge_mean: IntervalBounds[Numbers]
) -> _JudgeCorrection:
    """Return the weight of the judge with which the variance of the corrected mean is least, and that variance.

    The variance of t + L (Y - y') is S2 - 2 L c + L^2 d, which is least at L = c / d, with
        c = C - K_z             C = (sum of w^2 (z - t)(y - y')) / w^2   covariance of t and y'
        d = F + var(Y) - 2 K_y  F = (sum of w^2 (y - y')^2) / w^2        variance of y'
    and K_z, K_y the covariances of t and y' with Y: see `covariance_with_judge`. Few labels estimate c / d badly, so L
    is shrunk, and the variance is increased, by the number x of labels of the rarer kind:
        L = c / d x^2 / (x^2 + SHRINK)
        V = (S2 - L (2 c - L d) + DISAGREEING W^2 / w^2) (1 + PENALTY / x^2),  at most S2.
    """
    square = sums.w.weights * sums.w.weights
    w, ww, wv = (each.centred(labels.means) for each in (sums.w, sums.ww, sums.wv))

    def covariance_with_judge(wv_y: Numbers, wv_f: Numbers, w_f: Numbers) -> Numbers:
        """Return the covariance of Y with the mean of x by the labelled calls, for x = z and x = y.

        Y corrects the screen by the judged calls, for which the labelled calls stand here. With d = y - M f it is
            K_x = (sum of w v (x - x')(d - d') + M sum of w (x - x')(f - f')) / w^2.

        Args:
            wv_y: sum of w v (x - x')(y - y').
            wv_f: sum of w v (x - x')(f - f').
            w_f: sum of w (x - x')(f - f').
        """
        return (wv_y - screen_weight * wv_f + screen_weight * w_f) / square

    screen_weight = judge_mean.weight
    variance_of_judge = ((judge_mean.high - judge_mean.low) / (2.0 * Z)) ** 2
    c = ww.zy / square - covariance_with_judge(wv.zy, wv.zf, w.zf)
    d = ww.yy / square + variance_of_judge - 2.0 * covariance_with_judge(wv.yy, wv.yf, w.yf)
    x2 = labels.rarer_labels**2
    # A judge whose mean does not vary has nothing to correct with: d is rounding error, which is less than a billionth
    # of the variance by the labels, and the weight is 0.
    judge_weight = _ARITHMETIC.ratio(c, d, 1e-9 * labels.variance, 0.0) * x2 / (x2 + SHRINK)
    left = np.maximum(labels.variance - judge_weight * (2.0 * c - judge_weight * d), 0.0)
    left = left + DISAGREEING * labels.traffic_weight * labels.traffic_weight / square
    return _JudgeCorrection(judge_weight, np.minimum(left * (1.0 + PENALTY / x2), labels.variance))
