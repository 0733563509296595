"""Fit of calibration curves to human labels, with cross-fitting, for one sample or for many simulated ones at once.

**Places.** Labels are given by place: a place has a score, and how many labels of either kind there are. Real labels
have a place each, with one label; a simulation has one place for each score that its judge can give, and many samples.
A label counts by its weight w, the inverse of its inclusion probability; v = w sum(w) / sum(w^2) are weights whose sum
is the effective number of labels.

**Curve.** The maximum a posteriori fit of Platt's curve g = sigma(b0 + b1 x), x the logit of the score, maximises
    sum of v (z ln g + (1 - z) ln (1 - g)) - 0.025 b0^2 - 0.5 (b1 - 1)^2  (`logistic`).
A negative slope says that the judge is worse than useless: it is replaced by 0, and b0 by the logit of
(sum vz + 0.5) / (sum v + 1). Then in each of ten bins, which are quantiles of the traffic's scores (five up to 100
labels), the odds of g are multiplied with (sum vz + 5) / (sum vg + 5).

**Cross-fitting.** The labels are divided into five parts; the probability of a labelled call is that of the curve
fitted without its part, as a curve knows the calls that it was fitted to too well. The mean probability over all
traffic that belongs to it is the mean of the five curves' means, weighted by the labels' weights in each part.

**Skill.** With r the weighted mean of the other parts' labels, d = (z - r)^2 - (z - g)^2, and the skill is
sum(w d) / sqrt(sum((w d)^2)), about normal with a mean of 0 or less where the scores tell nothing.

**Fit.** Skill and number of labels do not show that the bins are too few, or that the rate falls where the curve rises.
Up to 40 groups of at least ten labels, by rising score, do: the gap is the weighted mean of |mean label - mean g| over
them, which chance makes larger than the true one. The curve does not fit if more than one bar of the reliability
diagram does not hold its probability: of ten 95 % intervals, one may.

Sources: Platt 1999, "Probabilistic outputs for support vector machines"; Zrnic and Candes 2024, arXiv:2309.16598
(cross-prediction-powered inference); Wilson 1927 (bars of the reliability diagram).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.agreement import PARTS, parts_of_questions
from ragtrace.estimates.formulas import Floats, wilson_interval
from ragtrace.estimates.logistic import fit_logistic, sigmoid
from ragtrace.estimates.score_curve import (
    FEWEST_CALIBRATED,
    LEAST_SCORE,
    LabelSpread,
    ScoreCalibration,
    ScoreCurve,
    promised_error,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]

_BINS: Final = 10
_FEW_BINS: Final = 5
_IN_BIN: Final = 5.0
"""Imagined labels of each bin that agree with Platt's curve."""
_PRIOR_MEANS: Final = (0.0, 1.0)
_PRIOR_PRECISIONS: Final = (0.05, 1.0)
"""Priors of intercept and slope: without labels that say otherwise, the score is its own probability."""
_MOST_IN_DIAGRAM: Final = 10
_FEWEST_IN_BAR: Final = 25
_MOST_BARS_OFF: Final = 1
_MOST_GROUPS: Final = 40
_FEWEST_IN_GROUP: Final = 10
_LEAST_PICKED: Final = 0.5
"""Share of the picks that is spread evenly over all calls; the rest goes where the curve is least certain."""


class Curves(NamedTuple):
    """Fitted curves, one for each sample, as arrays."""

    intercept: Array
    slope: Array
    factors: Array
    """Factor of the odds in each bin; the last axis is that of the bins."""

    def values(self, x: Array, bins: Ints) -> Array:
        """Return the probabilities at places with the logits *x* in *bins*, on a new last axis."""
        odds = np.exp(self.intercept[..., None] + self.slope[..., None] * x) * self.factors[..., bins]
        values: Array = odds / (1.0 + odds)
        return values


def logits(scores: Array) -> Array:
    """Return the logits of *scores*, limited to what scores of 0.001 and 0.999 have."""
    limited = np.clip(scores, LEAST_SCORE, 1.0 - LEAST_SCORE)
    found: Array = np.log(limited / (1.0 - limited))
    return found


def bin_edges(traffic: Array, weights: Array, labels: int) -> tuple[float, ...]:
    """Return the scores at which a bin begins, quantiles of the traffic's scores.

    Args:
        traffic: scores of the traffic.
        weights: number of calls that each stands for.
        labels: number of labels that the curve is fitted to: few labels get few bins.
    """
    count = _FEW_BINS if labels <= FEWEST_CALIBRATED else _BINS
    order = np.argsort(traffic, kind="stable")
    reached: Array = np.cumsum(weights[order])
    wanted: Array = np.arange(1, count) / count * float(reached[-1])
    places: Ints = np.searchsorted(reached, wanted)
    edges = np.unique(traffic[order][np.minimum(places, len(order) - 1)])
    # A bin that begins at the lowest score leaves none below it.
    return tuple(float(edge) for edge in edges if edge > traffic.min())


def fit_curves(x: Array, bins: Ints, count: int, w: Array, bad: Array, good: Array) -> Curves:
    """Fit a curve to the labels of each sample.

    Args:
        x: logit of the score at each place.
        bins: bin of each place, from 0.
        count: number of bins.
        w: weight of a label at each place.
        bad: number of labels of bad calls at each place, on the last axis; other axes are samples.
        good: the same of good calls.
    """
    both = bad + good
    square = both @ (w * w)
    scale = np.where(square > 0.0, both @ w / np.where(square > 0.0, square, 1.0), 0.0)[..., None]
    vz, v = scale * w * bad, scale * w * both
    fitted = fit_logistic(np.stack((np.ones_like(x), x), 1), vz, v, _PRIOR_MEANS, _PRIOR_PRECISIONS)
    intercept, slope = fitted[..., 0], fitted[..., 1]
    positive = vz.sum(-1)
    backwards = slope < 0.0
    rate = (positive + 0.5) / (v.sum(-1) + 1.0)
    slope = np.where(backwards, 0.0, slope)
    intercept = np.where(backwards, np.log(rate / (1.0 - rate)), intercept)
    member = np.eye(count)[bins]
    g = sigmoid(intercept[..., None] + slope[..., None] * x)
    return Curves(intercept, slope, (vz @ member + _IN_BIN) / ((v * g) @ member + _IN_BIN))


class CrossFit(NamedTuple):
    """Curves of each part of the labels, fitted to the labels of all other parts."""

    curves: Curves
    """The first axis is that of the parts."""
    values: Array
    """Probability at each place by the curve of each part: the first axis is that of the parts."""
    rates: Array
    """Weighted mean label of the other parts."""
    shares: Array
    """Share of the weight of all labels that is in the part."""
    skill: Array
    """Standardised gain over the mean label, of each sample."""


def cross_fit(x: Array, bins: Ints, count: int, w: Array, bad: Array, good: Array) -> CrossFit:
    """Fit a curve to all parts of the labels but one, for each part and each sample.

    Args:
        x: logit of the score at each place.
        bins: bin of each place, from 0.
        count: number of bins.
        w: weight of a label at each place.
        bad: number of labels of bad calls: the first axis is that of the parts, the last that of the places.
        good: the same of good calls.
    """
    other_bad, other_good = bad.sum(0) - bad, good.sum(0) - good
    curves = fit_curves(x, bins, count, w, other_bad, other_good)
    values = curves.values(x, bins)
    total = (other_bad + other_good) @ w
    rates = np.where(total > 0.0, other_bad @ w / np.where(total > 0.0, total, 1.0), 0.0)
    of_bad = (1.0 - rates[..., None]) ** 2 - (1.0 - values) ** 2
    of_good = rates[..., None] ** 2 - values**2
    gained = (bad * of_bad + good * of_good) @ w
    squares = (bad * of_bad**2 + good * of_good**2) @ (w * w)
    spread = np.sqrt(squares.sum(0))
    skill = np.where(spread > 0.0, gained.sum(0) / np.where(spread > 0.0, spread, 1.0), 0.0)
    mine = (bad + good) @ w
    return CrossFit(curves, values, rates, mine / mine.sum(0), skill)


class FittedScores(NamedTuple):
    """Calibration of a decision judge's scores by labels, with the probabilities that its rate is corrected by."""

    calibration: ScoreCalibration
    labelled: Array
    """Probability of each labelled call, by the curve fitted without its part."""
    traffic: Array
    """Probability of each call of the traffic that belongs to these: the parts' weighted mean."""


def fit_scores(
    scores: Sequence[float],
    labels: Sequence[float],
    weights: Sequence[float],
    questions: Sequence[Hashable],
    traffic: Array,
    traffic_weights: Array | None = None,
) -> FittedScores:
    """Fit the calibration curve of a decision judge to human labels, with and without each part of them.

    Args:
        scores: raw scores of the labelled calls, in [0, 1]; high is bad.
        labels: their labels, in [0, 1]; 1 is bad.
        weights: inverse of the probability with which each was judged and labelled.
        questions: what is alike for calls with the same question, which are in one part.
        traffic: raw scores of all judged calls.
        traffic_weights: number of calls that each of these stands for; None: one.

    Raises:
        SettingsError: there are no labels, or a number is outside its range.
    """
    s, z, w = (np.array(each, dtype=np.float64) for each in (scores, labels, weights))
    if not len(s) or not len(s) == len(z) == len(w) == len(questions) or not len(traffic):
        raise SettingsError(
            f"scores, labels, weights and questions must be equally many and at least one, got {len(s)}, {len(z)}, "
            f"{len(w)} and {len(questions)} of {len(traffic)} calls"
        )
    if not all(((each >= 0.0) & (each <= 1.0)).all() for each in (s, z, traffic)) or not (w > 0.0).all():
        raise SettingsError("scores and labels must be in [0, 1] and weights positive, got other numbers")
    every = np.ones(len(traffic)) if traffic_weights is None else traffic_weights
    edges = bin_edges(traffic, every, len(s))
    count, x = len(edges) + 1, logits(s)
    bins = np.searchsorted(np.array(edges), s, side="right")
    part = np.array(parts_of_questions([bool(label > 0.5) for label in z], questions))
    inside = (part == np.arange(PARTS)[:, None]).astype(np.float64)
    crossed = cross_fit(x, bins, count, w, inside * z, inside * (1.0 - z))
    labelled = crossed.values[part, np.arange(len(s))]
    of_traffic = crossed.curves.values(logits(traffic), np.searchsorted(np.array(edges), traffic, side="right"))
    final = fit_curves(x, bins, count, w, z, 1.0 - z)
    n = float(w.sum() ** 2 / (w * w).sum())
    rate = float(w @ z / w.sum())
    low, high = wilson_interval(rate, n, Floats())
    bad = round(float(z.sum()))
    calibration = ScoreCalibration(
        ScoreCurve(float(final.intercept), float(final.slope), edges, tuple(map(float, final.factors))),
        len(s),
        min(bad, len(s) - bad),
        n,
        float(crossed.skill),
        fitted_promise(s, z, w, labelled, (low, high)),
        _spread(labelled, w * z),
        _spread(labelled, w * (1.0 - z)),
    )
    return FittedScores(calibration, labelled, crossed.shares @ of_traffic)


def fitted_promise(
    scores: Array, labels: Array, weights: Array, probabilities: Array, ends: tuple[float, float]
) -> float:
    """Return the largest calibration error that may be promised, or infinity if the curve does not fit the labels.

    Args:
        scores: raw scores of the labelled calls.
        labels: their labels.
        weights: inverse of the inclusion probability of each.
        probabilities: probability of each, by a curve that was not fitted to it.
        ends: 95 % interval of the rate of bad calls by the labels alone.
    """
    bars = reliability_diagram(probabilities, labels, weights)
    if sum(not bar.low <= bar.probability <= bar.high for bar in bars) > _MOST_BARS_OFF:
        return math.inf
    order = np.argsort(scores, kind="stable")
    groups = np.array_split(order, min(_MOST_GROUPS, max(1, len(order) // _FEWEST_IN_GROUP)))
    off = weights * (labels - probabilities)
    total = float(weights.sum())
    gap = sum(abs(float(off[group].sum())) for group in groups) / total
    return promised_error(*ends, total * total / float((weights * weights).sum()), gap)


def _spread(values: Array, weights: Array) -> LabelSpread | None:
    total = float(weights.sum())
    if total <= 0.0:
        return None
    mean = float(weights @ values / total)
    return LabelSpread(
        mean, float(weights @ (values - mean) ** 2 / total), total * total / float((weights * weights).sum())
    )


class DiagramBar(NamedTuple):
    """Bar of a reliability diagram: the share of bad calls among labelled calls of similar probability."""

    probability: float
    """Weighted mean probability of the calls by the curve, cross-fitted."""
    share: float
    """Weighted share of the calls that are labelled bad."""
    low: float
    """Lower end of the 95 % interval of that share."""
    high: float
    labels: int


def reliability_diagram(
    probabilities: Sequence[float] | Array, labels: Sequence[float] | Array, weights: Sequence[float] | Array
) -> list[DiagramBar]:
    """Return the bars of a reliability diagram: at most ten, of at least 25 labels each, by rising probability.

    Args:
        probabilities: probability of each labelled call, by a curve that was not fitted to it.
        labels: the labels, in [0, 1]; 1 is bad.
        weights: inverse of the inclusion probability of each.
    """
    g, z, w = (np.array(each, dtype=np.float64) for each in (probabilities, labels, weights))
    order = np.argsort(g, kind="stable")
    count = min(_MOST_IN_DIAGRAM, max(1, len(g) // _FEWEST_IN_BAR))
    bars: list[DiagramBar] = []
    for places in np.array_split(order, count) if len(g) else []:
        total = float(w[places].sum())
        share = min(1.0, float(w[places] @ z[places]) / total)
        n = total * total / float((w[places] ** 2).sum())
        low, high = wilson_interval(share, n, Floats(), small=0.0)
        bars.append(DiagramBar(float(w[places] @ g[places]) / total, share, low, high, len(places)))
    return bars


def picking_shares(probabilities: Array) -> Array:
    """Return how many labels each call should get, in proportion: half alike, half by how uncertain its label is.

    With u = sqrt(g (1 - g)), it is 0.5 + 0.5 u / mean u. Picking by the probability itself, instead, makes intervals
    up to three times as wide as picking at random.

    Args:
        probabilities: probability g that each call is bad: calibrated, or the raw score while there is no calibration.
    """
    g = np.clip(probabilities, LEAST_SCORE, 1.0 - LEAST_SCORE)
    u = np.sqrt(g * (1.0 - g))
    shares: Array = _LEAST_PICKED + (1.0 - _LEAST_PICKED) * u / u.mean()
    return shares


def effective_labels(labels: int, rate: float, width: float) -> float:
    """Return how many labels alone, drawn at random, would give an interval of this *width*.

    Args:
        labels: number of labels behind the interval.
        rate: rate of bad calls by the labels.
        width: width of the interval.
    """
    low, high = wilson_interval(rate, float(labels), Floats())
    return labels * ((high - low) / width) ** 2
