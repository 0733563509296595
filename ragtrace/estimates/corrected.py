"""Corrected rates: estimates of the mean human label over all calls, from a judge and some labels.

The labels are of calls of the same traffic. Where they are of other traffic, `calibration` takes only the judge's error
rates from there (`rogan_gladen`).

**Three layers of scores.** Each looks at a random sample of what the layer before looked at:

    layer    looks at                  score in [0, 1]   probability of being drawn   weight of a drawn call
    screen   every call                f                                              1
    judge    a sample of the calls     y                 p1                           v = 1 / p1
    person   a sample of the judged    z                 p2                           w = 1 / (p1 p2)

The wanted rate is the mean of z over the traffic.

**The steps of `corrected_rate`**; the file has first what reads calls, then steps 2 to 5, with their equations:
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

**Numbers.** Steps 2 to 5 compute with sums, not with calls, so that the simulations that confirm the intervals run the
same code on thousands of samples at once: `Numbers` are floats here, and arrays there. As they all have one type, no
checker sees two of them exchanged: so the classes and functions below take them by name alone.

**Promises, and the tests that guard them.** In `tests/unit/estimates/test_corrected.py`, unless a file is named:
    the equations of steps 2 to 5, summed call by    `test_the_rate_follows_the_equations_summed_call_by_call`,
        call instead of from sums                    and one example by hand:
                                                     `test_a_worked_example_gives_these_numbers`
    0 <= low <= value <= high <= 1, and an interval  `test_the_interval_is_never_wider_than_that_of_the_labels`;
        no wider than that of the labels alone       over many samples: `tests/simulation/test_corrected_rate.py`
        (step 4 never leaves more variance than
        step 3 found), without unsure labels
    a judge that guesses has a weight near 0         `test_a_judge_that_guesses_changes_next_to_nothing`
    labels of one kind alone are no certainty        `test_no_bad_label_is_no_certainty`
    the interval covers the true rate in 93 % of     `tests/simulation/test_corrected_rate.py`, a part of the grid of
        samples                                      `tests/benchmarks/corrected_rate.py`; with a judge that gives
                                                     probabilities: `tests/simulation/test_decision_scores.py`
    good calls with a top score that no label has    `test_good_calls_with_a_top_score_may_be_unseen`
        met count in the interval
    it covers where reviewers are unsure, and        `tests/simulation/test_unsure_labels.py`, and for its ends
        without unsure labels nothing changes            `test_unsure_calls_reach_from_all_of_them_0_to_all_1`
    a result has no NaN: what cannot be computed     `test_a_call_that_stands_for_too_many_is_an_error`,
        with is refused                                  `test_numbers_outside_their_range_are_an_error`

**Constants.** IMAGINED, DISAGREEING, SHRINK, PENALTY and UNSEEN make the interval honest where there are few labels,
and cost width. `python -m tests.benchmarks.corrected_rate --every 6 --seed 5 --again 1000 --set PENALTY=0 ...` prints,
over 1,680 populations, the lowest coverage with ten labels of each kind and with fewer (93 % is promised), and the mean
width as a share of that by the labels alone:
    as they are                             .941   .952   .917
    IMAGINED=0.1, of 1                      .942   .942   .910
    DISAGREEING=0, of 0.3                   .944   .947   .905
    SHRINK=0, of 6                          .941   .904   .915
    PENALTY=0, of 0.7                       .941   .952   .914
    UNSEEN=0, of 3                          .934   .927   .904
    UNSEEN=6                                .943   .957   .940
SHRINK is 6, not 3, for the decision judges of `tests/benchmarks/decision_scores.py` with rates of 0.2 to 2 %: their
lowest coverage was .927 with 3, and .943 with 6.

**Changing it.** After a change of an equation, or of a constant, all of which `cascade` uses, too, run these tests,
`tests/simulation/test_cascade.py`, and the whole grids of `tests/benchmarks/corrected_rate.py` and `decision_scores.py`
there (minutes); the option `--set` of the former tries another value of a constant. No version has to be raised:
reports compute the estimate anew from stored calls and labels.

**Sources**, by what is taken from each:
    the mean t + L (Y - y')            prediction-powered inference: Angelopoulos et al. 2023, arXiv:2301.09633
    L = c / d, the tuned weight        Angelopoulos, Duchi and Zrnic 2023, arXiv:2311.01453 (PPI++), "power tuning"
    two samples, one in the other,     two-phase sampling, and the mean as a ratio of two weighted sums: Sarndal,
        and w = 1 / (p1 p2)            Swensson and Wretman 1992, "Model Assisted Survey Sampling", chapters 9 and 5
    all unsure labels as 0, and as 1   Horowitz and Manski 2000, Journal of the American Statistical Association 95:77
    the interval of the labels alone   Wilson's score interval: see `formulas`
    imagined calls, SHRINK, PENALTY    none: ragtrace's own, against intervals that are too narrow with few labels. That
        DISAGREEING and UNSEEN         a tuned weight may do harm there: Mani et al. 2025, arXiv:2505.20178
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.arrays import Arrays, Numbers
from ragtrace.estimates.estimate import Estimate, estimate_mean, missing_estimate
from ragtrace.estimates.formulas import IntervalBounds, Method, Z, wilson_interval
from ragtrace.estimates.moments import Moments

NOTHING_LABELLED: Final = "nothing_labelled"
"""Reason of a missing estimate: no person has labelled a call, or all of them were unsure."""
IMAGINED: Final = 1.0
"""Number of imagined calls with the label 1, and of those with the label 0, that are added to the labelled calls.

They stand for the bad (or good) call that the labels happen to lack: without them, labels of one kind alone have no
variance. Fewer make intervals too narrow, more make them wider (see "Constants" above). The number has to be above 0:
S2 and x, which are divided by, would be 0 where all labels are alike.
"""
DISAGREEING: Final = 0.3
"""Number of imagined labels with which the judge disagrees.

With them, a few labels with which the judge agrees by chance do not make it perfect. More leave less of the gain that
a good judge brings (see "Constants" above).
"""
SHRINK: Final = 6.0
"""Squared number of labels of the rarer kind with which the judge has half of its best weight: about 2.4 labels.

It matters with fewer than five bad labels, or good ones, of which the best weight is a guess (see "Constants" above).
"""
PENALTY: Final = 0.7
"""Increase of the variance because the weight of the judge is estimated, as a factor 1 + PENALTY / (number squared).

The number is that of the labels of the rarer kind. It matters beside the two others (see "Constants" above).
"""
UNSEEN: Final = 3.0
"""Number of labels that may disagree with the judge's highest scores while none of the labelled calls shows it.

A judge may give some good calls, greetings and refusals say, a score as high as that of a bad call. If none of them is
labelled, the rate is too high by their share, which is at most 3 / n with 95 % confidence (the rule of three).
"""
LEAST_PROBABILITY: Final = 1e-100
"""Least product of the two probabilities of a labelled call: one call in so many is in no sample.

The squares of weights are summed. From about 1e-150 on, the square of 1 / probability is no float any more, and the
ends of the interval would be NaN.
"""
_ARITHMETIC: Final = Arrays()
_NO_VARIANCE: Final = 1e-9
"""Share of the variance by the labels up to which a variance is taken for rounding error; of a sum likewise."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Mean label, judge's score and screen's score of a set of calls."""

    z: Numbers
    y: Numbers
    f: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class CentredSums:
    """Sums over the labelled calls of weight * (a - mean of a)(b - mean of b); the field `zy` has a = z and b = y."""

    zz: Numbers
    zy: Numbers
    yy: Numbers
    zf: Numbers
    yf: Numbers


class _Factor(NamedTuple):
    """One of the two scores whose products are summed."""

    total: Numbers
    """Weighted sum of the score over the labelled calls."""
    mean: Numbers
    """Number that its deviations are taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        z = _Factor(total=self.z, mean=means.z)
        y = _Factor(total=self.y, mean=means.y)
        f = _Factor(total=self.f, mean=means.f)

        def expanded(product: Numbers, a: _Factor, b: _Factor) -> Numbers:
            return product - a.mean * b.total - b.mean * a.total + a.mean * b.mean * self.weights

        return CentredSums(
            zz=expanded(self.zz, z, z),
            zy=expanded(self.zy, z, y),
            yy=expanded(self.yy, y, y),
            zf=expanded(self.zf, z, f),
            yf=expanded(self.yf, y, f),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSums:
    """Sums of the scores of the labelled calls, with each of three weights, from which a rate is estimated."""

    w: ProductSums
    """With the weight w of each labelled call: estimates sums over the traffic."""
    ww: ProductSums
    """With its square: estimates the variances of the sums with w."""
    wv: ProductSums
    """With w times v: estimates the variances of sums over the judged calls, whose weight is v."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedBounds:
    """Mean human label over the traffic with its interval, with the judge and without, by the same labels."""

    corrected: IntervalBounds[Numbers]
    """By labels and judge, or by the labels alone if there is no judge; `weight` is that of the judge (L)."""
    alone: IntervalBounds[Numbers]
    """By the labels alone."""
    effective_labels: Numbers
    """Effective number of labels (e)."""


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgeCorrection:
    """Weight of the judge's scores in the estimate, and what it leaves of the variance."""

    judge_weight: Numbers
    """Weight of the judge (L)."""
    variance: Numbers
    """Variance of the corrected mean (V), at most that of the mean label."""
    unseen_high: Numbers
    """Error of the corrected mean by labels of 0 at high scores, of which there may be more than the labels show."""
    unseen_low: Numbers
    """The same by labels of 1 at low scores."""


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
        The estimate. If no label is unsure, its interval is never wider than that of the labels alone. Else it is the
        shortest one that has in it the three intervals without the unsure calls, with all of them as 0 and with all as
        1. If some are 0 and others 1, the judge may have another weight than in these three, and the interval of such
        labels may reach a little beyond: of 8,000 random ones, unsure calls being what the judge says or the opposite,
        397 did, by .05 at most (.09 in a search for the worst among few labels), and no value. The value is None, with
        a reason, if there are no other labels.

    Raises:
        SettingsError: a label, a score or a probability is outside its range, or a call stands for too many others
            (`LEAST_PROBABILITY`).

    Source: the text at the top of this module.
    """
    _check_ranges(labels)
    sure = [call for call in labels if call.label is not None]
    judge_mean = None if judge_moments is None else _judge_mean(judge_moments)
    method: Method = "weighted" if judge_mean is None else "tuned"
    # Without a score of a judge, the labelled calls are all that is known of the traffic.
    n = len(sure) if judge_moments is None or judge_mean is None else round(judge_moments.n)
    if not sure:
        none = missing_estimate(NOTHING_LABELLED, method, "rate", metric=metric, workflow=workflow)
        return replace(none, n=n, evaluator=evaluator, corrected="labels")
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
        n=n,
        effective_n=float(found.effective_labels),
        method=method,
        of="rate",
        weight=float(best.weight),
        metric=metric,
        workflow=workflow,
        evaluator=evaluator,
        corrected="labels",
    )


def _check_ranges(labels: Sequence[LabelledCall]) -> None:
    """Raise a `SettingsError` if a number of a call is outside its range, as NaN is, too, or its weight too large."""
    for call in labels:
        numbers = call._replace(label=0.0 if call.label is None else call.label)
        within = all(0.0 <= number <= 1.0 for number in numbers if number is not None)
        probabilities = call.judging_probability, call.labelling_probability
        if not within or min(probabilities) <= 0.0:
            raise SettingsError(
                "labels, scores and the screen's scores must be in [0, 1] and probabilities in (0, 1], got other "
                "numbers; the label of a call that a reviewer is unsure about is None"
            )
        if probabilities[0] * probabilities[1] < LEAST_PROBABILITY:
            raise SettingsError(
                f"the product of a call's two probabilities must be at least {LEAST_PROBABILITY}, got "
                f"{probabilities[0]!r} and {probabilities[1]!r}: a call that stands for more others has no estimate"
            )


def _judge_mean(judge_moments: Moments) -> IntervalBounds[Numbers] | None:
    """Return the judge's mean score over the traffic with its interval (Y), or None if no call was judged."""
    found = estimate_mean(judge_moments)
    if found.value is None or found.low is None or found.high is None:
        return None
    return IntervalBounds(value=found.value, low=found.low, high=found.high, weight=found.weight)


def _with_unsure_as(label: float, calls: Sequence[LabelledCall]) -> list[LabelledCall]:
    return [call._replace(label=label) if call.label is None else call for call in calls]


def _mean_label(calls: Sequence[LabelledCall], judge_mean: IntervalBounds[Numbers] | None) -> CorrectedBounds:
    """Return the mean label over the traffic with its interval, with the judge and by the labels alone.

    Args:
        calls: the labelled calls, each of which has a label.
        judge_mean: mean score of the judge over the traffic; None: the labels alone are used.
    """
    columns = dict(zip(LabelledCall._fields, np.array(calls, dtype=float).T, strict=True))
    sums = sum_labelled(
        labels=columns["label"],
        judge_scores=columns["score"],
        screen_scores=columns["screen"],
        judging_probabilities=columns["judging_probability"],
        labelling_probabilities=columns["labelling_probability"],
    )
    return corrected_bounds(sums, judge_mean)


# --- the equations, from sums ----------------------------------------------------------------------------------------


def sum_labelled(
    *,
    labels: Numbers,
    judge_scores: Numbers,
    screen_scores: Numbers,
    judging_probabilities: Numbers,
    labelling_probabilities: Numbers,
    add_up: Callable[[Numbers], Numbers] = np.sum,
) -> LabelledSums:
    """Return the sums over the labelled calls that `corrected_bounds` takes.

    Args:
        labels: (k,) persons' labels (z), in [0, 1], one for each of k labelled calls, in the order of all other arrays.
            In simulations k is the number of different calls there are, of which each is drawn so many times.
        judge_scores: (k,) judge's scores (y), in [0, 1]; or (..., k), where each sample has scores of its own.
        screen_scores: (k,) screen's scores (f), in [0, 1].
        judging_probabilities: (k,) probabilities of being judged (p1), in (0, 1].
        labelling_probabilities: (k,) probabilities of being labelled, once judged (p2), in (0, 1].
        add_up: adds up an array of the shape of *judge_scores*; simulations give one that counts each call as often as
            it was drawn, and returns one sum for each of their samples.

    Source: Sarndal et al. 1992, chapter 9: the weight of a call in the second phase is 1 / (p1 p2).
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

    The corrected mean is t + L (Y - y'), clipped to [0, 1]. Its interval has the arms (t - low and high - t) of that by
    the labels alone, scaled by the root of V / S2. The shorter of them, that towards the rarer label, then grows to the
    root of its square and of U^2, U the error by unseen disagreement, as far as both arms stay no longer together than
    those by the labels alone.

    Args:
        sums: sums over the labelled calls, of which there is one at least.
        judge_mean: mean score of the judge over the traffic (Y), with its interval and the weight of the screen (M);
            None: there is no correction.

    Source: Angelopoulos et al. 2023, arXiv:2301.09633, the prediction-powered mean, with a weight L. Arms of Wilson's
    interval in place of normal ones are ragtrace's: normal ones have no length where all labels are alike.
    """
    labels = _label_statistics(sums)
    alone = _bounds_by_labels(labels)
    if judge_mean is None:
        return CorrectedBounds(corrected=alone, alone=alone, effective_labels=labels.effective_labels)
    correction = _judge_correction(sums, labels, judge_mean)
    value = np.clip(alone.value + correction.judge_weight * (judge_mean.value - labels.means.y), 0.0, 1.0)
    scale = np.sqrt(correction.variance / labels.variance)
    below, above = scale * (alone.value - alone.low), scale * (alone.high - alone.value)
    width, is_rare = alone.high - alone.low, alone.value <= 0.5
    unseen_below, unseen_above = correction.unseen_high * is_rare, correction.unseen_low * (1.0 - is_rare)
    corrected = IntervalBounds(
        value=value,
        low=np.maximum(value - np.minimum(np.hypot(below, unseen_below), width - above), 0.0),
        high=np.minimum(value + np.minimum(np.hypot(above, unseen_above), width - below), 1.0),
        weight=correction.judge_weight,
    )
    return CorrectedBounds(corrected=corrected, alone=alone, effective_labels=labels.effective_labels)


def _label_statistics(sums: LabelledSums) -> _LabelStatistics:
    """Return the mean label by the labelled calls alone, its variance and the effective number of labels.

    With w, ww, wz, ... for the sums, k = IMAGINED and W = ww / w, the mean weight of a call of the traffic,
        t  = wz / w                                                        mean label, y' and f' likewise
        m  = (wz + k W) / (w + 2 k W)                                      the same with the imagined calls
        S2 = (sum of w^2 (z - m)^2 + k W^2 ((1 - m)^2 + m^2)) / w^2        variance of the mean label
        e  = m (1 - m) (w + 2 k W) / w / S2                                effective number of labels
        x  = e m (1 - m)                                                   the same, of the rarer kind

    Source: Sarndal et al. 1992, chapter 5 (t, and S2 with m = t and k = 0); k is that of `formulas`, "Spread".
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

    Source: `formulas`, "Plain interval".
    """
    mean = labels.means.z
    low, high = wilson_interval(mean, labels.effective_labels, _ARITHMETIC)
    return IntervalBounds(value=mean, low=low, high=high, weight=mean * 0.0)


def _judge_correction(
    sums: LabelledSums, labels: _LabelStatistics, judge_mean: IntervalBounds[Numbers]
) -> _JudgeCorrection:
    """Return the weight of the judge with which the variance of the corrected mean is least, and that variance.

    The variance of t + L (Y - y') is S2 - 2 L c + L^2 d, which is least at L = c / d, with
        c = C - K_z             C = (sum of w^2 (z - t)(y - y')) / w^2   covariance of t and y'
        d = F + var(Y) - 2 K_y  F = (sum of w^2 (y - y')^2) / w^2        variance of y'
    and K_z, K_y the covariances of t and y' with Y: see `covariance_with_judge`. var(Y) is the square of the standard
    error that an interval of Y's length has, as Y comes with an interval only. Near 0 and 1 that interval is cut off
    and skewed, and still has the right length here: by 10 or more calls, all judged, var(Y) is 1.0 to 2.7 times y (1 -
    y) / n, most where one call is bad, and 0.9 to 1.5 / n^2 where none is and the other formula would find no
    variance. Too large a var(Y) makes L smaller and V larger, which is safe. Few labels estimate c / d badly, so L
    is shrunk, and the variance is increased, by the number x of labels of the rarer kind:
        L = c / d x^2 / (x^2 + SHRINK)
        V = (S2 - L (2 c - L d) + DISAGREEING W^2 / w^2) (1 + PENALTY / x^2),  at most S2.
    The error by labels of 0 at high scores, which no label may have shown yet, is
        U = UNSEEN |L| (wyy / wy) (wwy / wy) / w,
    where wyy / wy is how high a high score is, and wwy / wy the weight of a call that has one. That by labels of 1 at
    low scores is the same with 1 - y.

    Source: Angelopoulos, Duchi and Zrnic 2023, arXiv:2311.01453, power tuning of a mean: with n labels of equal weight
    and a Y by N other calls, L = c / d is their cov(z, y) / ((1 + n / N) var(y)). K is there because the labelled calls
    are among those that Y is computed from. SHRINK, DISAGREEING, PENALTY and UNSEEN are ragtrace's; that an event which
    none of n calls shows has a share of at most 3 / n: Hanley and Lippman-Hand 1983, JAMA 249:1743.
    """
    square = sums.w.weights * sums.w.weights
    w, ww, wv = sums.w.centred(labels.means), sums.ww.centred(labels.means), sums.wv.centred(labels.means)

    def covariance_with_judge(*, wv_xy: Numbers, wv_xf: Numbers, w_xf: Numbers) -> Numbers:
        """Return the covariance of Y with the mean of x by the labelled calls, for x = z and x = y.

        Y corrects the screen by the judged calls, for which the labelled calls stand here. With r = y - M f it is
            K_x = (sum of w v (x - x')(r - r') + M sum of w (x - x')(f - f')) / w^2.

        Args:
            wv_xy: sum of w v (x - x')(y - y').
            wv_xf: sum of w v (x - x')(f - f').
            w_xf: sum of w (x - x')(f - f').
        """
        return (wv_xy - screen_weight * wv_xf + screen_weight * w_xf) / square

    screen_weight = judge_mean.weight
    variance_of_judge = ((judge_mean.high - judge_mean.low) / (2.0 * Z)) ** 2
    c = ww.zy / square - covariance_with_judge(wv_xy=wv.zy, wv_xf=wv.zf, w_xf=w.zf)
    k_y = covariance_with_judge(wv_xy=wv.yy, wv_xf=wv.yf, w_xf=w.yf)
    d = ww.yy / square + variance_of_judge - 2.0 * k_y
    x2 = labels.rarer_labels**2
    # A judge whose mean does not vary has nothing to correct with: d is rounding error, and the weight is 0.
    best_weight = _ARITHMETIC.ratio(c, d, least=_NO_VARIANCE * labels.variance, otherwise=0.0)
    judge_weight = best_weight * x2 / (x2 + SHRINK)
    left = np.maximum(labels.variance - judge_weight * (2.0 * c - judge_weight * d), 0.0)
    left = left + DISAGREEING * labels.traffic_weight * labels.traffic_weight / square
    variance = np.minimum(left * (1.0 + PENALTY / x2), labels.variance)
    totals, squares = sums.w, sums.ww
    low_scores = totals.weights - totals.y
    return _JudgeCorrection(
        judge_weight=judge_weight,
        variance=variance,
        unseen_high=_unseen(judge_weight, totals.yy, squares.y, totals.y, totals.weights),
        unseen_low=_unseen(
            judge_weight, low_scores - totals.y + totals.yy, squares.weights - squares.y, low_scores, totals.weights
        ),
    )


def _unseen(judge_weight: Numbers, squared: Numbers, of_squares: Numbers, total: Numbers, weights: Numbers) -> Numbers:
    """Return the error that `UNSEEN` labels of the other kind make at high scores (U).

    Args:
        judge_weight: weight of the judge (L).
        squared: sum of w y^2.
        of_squares: sum of w^2 y.
        total: sum of w y; if it is 0, no labelled call has a high score.
        weights: sum of w.
    """
    least = _NO_VARIANCE * weights  # below it, the total is rounding error
    height, weight = (_ARITHMETIC.ratio(each, total, least, otherwise=0.0) for each in (squared, of_squares))
    return UNSEEN * np.abs(judge_weight) * height * weight / weights
