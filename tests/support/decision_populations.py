"""Simulated traffic that a decision judge scores, with human labels on a sample, many samples at once.

A call has one to eight statements, and a bad call has bad ones: half of the bad calls exactly one, the others each with
a chance from Beta(0.26, 1.68), as answers labelled by people have; bad answers are longer. The judge gives a
probability for each statement, with errors that are alike within a call, and the score of a call is the largest. The
AUROC of a call's score is `auroc`; of the bad calls, `blind` are scored as good ones are, and of the good calls, `top`
get a score like that of a clearly bad one, as greetings, refusals and dates of today do. `temperature`, `shift` and
`digits` make the probabilities over- or underconfident, too high or low, or rounded.

Scores are tables of about 70 values (rounded logits), so that a sample is a few multinomial draws, and many samples are
fitted and corrected at once by the code of the package.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ragtrace.estimates.agreement import PARTS
from ragtrace.estimates.arrays import Arrays
from ragtrace.estimates.corrected import LabelledSums, ProductSums, corrected_bounds, sum_labelled
from ragtrace.estimates.curve_fitting import (
    Curves,
    bin_edges,
    cross_fit,
    fit_curves,
    fitted_promise,
    logits,
    picking_shares,
)
from ragtrace.estimates.formulas import Floats, IntervalBounds, interval_bounds, wilson_interval
from ragtrace.estimates.moments import NAMES
from ragtrace.estimates.score_curve import FEWEST_CALIBRATED, FEWEST_RARER, LEAST_SKILL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

STEP = 0.2
"""Width of a value of the scores, on the scale of logits."""
POOL = 60_000
LOOKED_AT = 200
"""Most samples of a cell of which the promised calibration error is computed, one by one."""
_ALIKE = 0.3
"""Correlation of the judge's errors within a call."""
_TOP = 4.0
"""Mean logit of the top scores that some good calls get."""


@dataclass(frozen=True)
class Decider:
    """Decision judge of a call's statements."""

    auroc: float = 0.85
    temperature: float = 1.0
    """Factor of the logits: 2.5 is overconfident, 0.5 underconfident."""
    shift: float = 0.0
    digits: int | None = None
    blind: float = 0.0
    top: float = 0.0
    """Share of the good calls with a score near 1; `auroc` is that of the others."""

    def __str__(self) -> str:
        rounded = "" if self.digits is None else f" to {self.digits} digits"
        top = f" top {self.top:g}" if self.top else ""
        return f"A {self.auroc:g} T {self.temperature:g} {self.shift:+g}{rounded} blind {self.blind:g}{top}"


@dataclass(frozen=True)
class Population:
    """Table of the scores of good and bad calls."""

    rate: float
    scores: Array
    bad: Array
    """Probability of each score among the bad calls."""
    good: Array

    @property
    def traffic(self) -> Array:
        """Probability of each score among all calls."""
        return self.rate * self.bad + (1.0 - self.rate) * self.good

    @property
    def truth(self) -> Array:
        """Probability that a call with each score is bad."""
        return self.rate * self.bad / np.maximum(self.traffic, 1e-300)

    @property
    def auroc(self) -> float:
        """Probability that a bad call has a higher score than a good one, ties counted half."""
        below = np.cumsum(self.good) - self.good / 2.0
        return float(self.bad @ below)


@cache
def _pool(bad: bool) -> tuple[Array, Array, Array]:
    """Return statements of many good or bad calls: which are bad, which there are, and the judge's errors."""
    random = np.random.default_rng(20_261_123 + bad)
    number = 1 + random.binomial(7, 0.45 if bad else 0.3, POOL)
    present = np.arange(8) < number[:, None]
    wrong = np.zeros((POOL, 8), dtype=bool)
    if bad:
        single = random.random(POOL) < 0.5
        chance = random.beta(0.26, 1.68, POOL)
        wrong = (random.random((POOL, 8)) < chance[:, None]) & ~single[:, None]
        wrong[np.arange(POOL), (random.random(POOL) * number).astype(int)] = True
    return wrong & present, present, _errors(random)


def _errors(random: np.random.Generator) -> Array:
    """Return a judge's errors about the statements of many calls."""
    found: Array = np.sqrt(_ALIKE) * random.normal(size=(POOL, 1)) + np.sqrt(1.0 - _ALIKE) * random.normal(
        size=(POOL, 8)
    )
    return found


def _scores(distance: float, prior: float, *, bad: bool, blind: float = 0.0, alike: float = 1.0) -> Array:
    """Return the logits of the honest scores of many good or bad calls, when statements are *distance* apart.

    Args:
        alike: correlation of the errors with those of the other judges.
    """
    wrong, present, errors = _pool(bad)
    if alike < 1.0:
        errors = alike * errors + np.sqrt(1.0 - alike**2) * _errors(np.random.default_rng(20_261_125 + bad))
    seen = wrong & (np.random.default_rng(7).random(len(wrong)) >= blind)[:, None] if blind else wrong
    evidence = distance * (np.where(seen, distance / 2.0, -distance / 2.0) + errors)
    found: Array = np.where(present, prior + evidence, -np.inf).max(1)
    return found


def _auroc(bad: Array, good: Array) -> float:
    return float(np.searchsorted(np.sort(good), bad).mean() / len(good))


@cache
def _distance(auroc: float) -> float:
    """Return how far bad statements are from good ones, in standard deviations of the judge's error, for an AUROC."""
    low, high = 0.05, 12.0
    for _ in range(30):
        middle = (low + high) / 2.0
        if _auroc(_scores(middle, 0.0, bad=True), _scores(middle, 0.0, bad=False)) < auroc:
            low = middle
        else:
            high = middle
    return low


def _prior(rate: float) -> float:
    """Return the logit of the share of bad statements, where the share *rate* of the calls is bad."""
    (wrong, present, _), (_, others, _) = _pool(True), _pool(False)
    statements = rate * present.sum() + (1.0 - rate) * others.sum()
    share = rate * wrong.sum() / statements
    return float(np.log(share / (1.0 - share)))


@cache
def call_scores(rate: float, judge: Decider, alike: float = 1.0) -> tuple[Array, Array]:
    """Return the scores that *judge* gives to many bad and to as many good calls of traffic with this *rate*.

    Judges score the same calls; *alike* is the correlation of the errors with those of a judge for which it is 1.
    """
    prior, distance = _prior(rate), _distance(judge.auroc)
    bad, good = (
        1.0 / (1.0 + np.exp(-judge.temperature * _scores(distance, prior, bad=bad, alike=alike) - judge.shift))
        for bad in (True, False)
    )
    return bad, good


@cache
def population(rate: float, judge: Decider) -> Population:
    """Return the table of the scores that *judge* gives to traffic of which the share *rate* is bad."""
    distance, prior = _distance(judge.auroc), _prior(rate)
    found: list[Array] = []
    for bad in (True, False):
        eta = judge.temperature * _scores(distance, prior, bad=bad, blind=judge.blind if bad else 0.0) + judge.shift
        if judge.top and not bad:
            random = np.random.default_rng(20_261_129)
            eta = np.where(random.random(POOL) < judge.top, random.normal(_TOP, 0.5, POOL), eta)
        if judge.digits is not None:
            rounded = np.round(1.0 / (1.0 + np.exp(-eta)), judge.digits)
            eta = np.log(np.clip(rounded, 1e-3, 0.999) / np.clip(1.0 - rounded, 1e-3, 0.999))
        found.append(np.clip(np.round(eta / STEP) * STEP, -6.9, 6.9))
    levels = np.unique(np.concatenate(found))
    tables = [np.bincount(np.searchsorted(levels, each), minlength=len(levels)) / POOL for each in found]
    return Population(rate, 1.0 / (1.0 + np.exp(-levels)), *tables)


@dataclass(frozen=True)
class DecisionCell:
    """What is simulated: traffic, judge, number of labels, and how calls are picked for them.

    Attributes:
        uncertain: whether calls of uncertain score are picked more often; else all alike.
        raw: whether the rate is corrected by raw scores instead of calibrated ones, which is not good enough.
    """

    rate: float
    judge: Decider
    labels: int
    uncertain: bool = False
    calls: int = 10_000
    raw: bool = False

    def __str__(self) -> str:
        how = "uncertain" if self.uncertain else "random"
        return f"{self.rate:.0%} {self.judge} {self.labels} labels {how}{' raw' * self.raw}"


@dataclass(frozen=True)
class DecisionSamples:
    """What each simulated sample gives, as arrays."""

    cell: DecisionCell
    true_rate: Array
    """Rate of bad calls of the sample's traffic."""
    corrected: IntervalBounds[Any]
    alone: IntervalBounds[Any]
    random_width: Array
    """Width of the interval of as many labels alone, drawn at random."""
    labels: Array
    rarer: Array
    effective: Array
    skill: Array
    error: Array
    """True expected calibration error of the curve of all labels."""
    promised: Array
    """Promised one, of the first samples that may be called calibrated; infinity: none; NaN: not looked at."""
    gain: Array
    """True gain of the curve's Brier score over that of the weighted mean label."""

    @property
    def coverage(self) -> float:
        return float(np.mean((self.corrected.low <= self.true_rate) & (self.true_rate <= self.corrected.high)))

    @property
    def relative(self) -> float:
        """Width relative to that of as many labels alone at random."""
        return float(np.mean(self.corrected.high - self.corrected.low) / np.mean(self.random_width))

    @property
    def widest(self) -> float:
        """Largest width of a sample, relative to that of the same labels alone."""
        return float(np.max((self.corrected.high - self.corrected.low) / (self.alone.high - self.alone.low)))

    @property
    def passed(self) -> NDArray[np.bool_]:
        """Whether the curve may be called calibrated."""
        enough = (self.labels >= FEWEST_CALIBRATED) & (self.rarer >= FEWEST_RARER)
        return np.asarray(enough & (self.skill > LEAST_SKILL))

    @property
    def promising(self) -> float:
        """Share of the looked at samples, which may be called calibrated, in which a calibration error is promised."""
        looked = ~np.isnan(self.promised)
        return float(np.isfinite(self.promised[looked]).mean()) if looked.any() else 0.0

    @property
    def kept(self) -> float:
        """Share of the samples with a promised calibration error in which it is kept; 1 if there are none."""
        promised = np.isfinite(self.promised)
        return float(np.mean((self.error <= self.promised)[promised])) if promised.any() else 1.0

    @property
    def wrongly_passed(self) -> float:
        """Share of the samples in which the curve may be called calibrated though it is worse than the mean label."""
        return float(np.mean(self.passed & (self.gain < 0.0)))


def simulate(cell: DecisionCell, samples: int, seed: int) -> DecisionSamples:
    """Draw traffic and labels many times, and fit, correct and judge each sample by the package's code."""
    random = np.random.default_rng(seed)
    known = population(cell.rate, cell.judge)
    s, x = known.scores, logits(known.scores)
    q = np.full(len(s), cell.labels / cell.calls)
    if cell.uncertain:
        shares = picking_shares(s)  # with the mean over places; the mean over the traffic is put right below
        u = np.sqrt(np.clip(s, 1e-3, 0.999) * (1.0 - np.clip(s, 1e-3, 0.999)))
        shares = 0.5 + (shares - 0.5) * u.mean() / float(known.traffic @ u)
        q = np.minimum(1.0, q * shares)
    joint = np.concatenate((known.rate * known.bad, (1.0 - known.rate) * known.good))
    drawn = random.multinomial(cell.calls, joint / joint.sum(), size=samples)
    picked = random.binomial(drawn, np.concatenate((q, q)))
    empty = picked.sum(1) == 0
    picked[empty, -1] = 1
    parts = np.zeros((PARTS, *picked.shape))
    left = picked
    for part in range(PARTS):
        parts[part] = left if part == PARTS - 1 else random.binomial(left, 1.0 / (PARTS - part))
        left = left - parts[part].astype(np.int64)
    bad, good = parts[..., : len(s)], parts[..., len(s) :]
    traffic = (drawn[:, : len(s)] + drawn[:, len(s) :]).astype(np.float64)
    w = 1.0 / q
    edges = bin_edges(s, known.traffic, cell.labels)
    bins = np.searchsorted(np.array(edges), s, side="right")
    crossed = cross_fit(x, bins, len(edges) + 1, w, bad, good)
    curves = fit_curves(x, bins, len(edges) + 1, w, bad.sum(0), good.sum(0))
    corrected, alone, effective = _corrected(cell, s, q, traffic, crossed, bad, good)
    labels = picked.sum(1).astype(np.float64)
    of_bad = bad.sum((0, 2))
    low, high = wilson_interval(alone.value, labels, Arrays())
    rarer = np.minimum(of_bad, labels - of_bad)
    passed = (labels >= FEWEST_CALIBRATED) & (rarer >= FEWEST_RARER) & (crossed.skill > LEAST_SKILL)
    promised = np.full(samples, np.nan)
    for at in np.flatnonzero(passed)[:LOOKED_AT]:
        promised[at] = _promised(s, w, crossed.values[:, at], bad[:, at], good[:, at])
    return DecisionSamples(
        cell,
        drawn[:, : len(s)].sum(1) / cell.calls,
        corrected,
        alone,
        high - low,
        labels,
        rarer,
        effective,
        crossed.skill,
        promised=promised,
        **_true_errors(known, curves, x, bins, alone.value),
    )


def _promised(s: Array, w: Array, values: Array, bad: Array, good: Array) -> float:
    """Return the calibration error that is promised in one sample, from the numbers of its labels by part and place."""
    counts = np.stack((good, bad)).astype(np.int64)
    drawn = np.indices(counts.shape).reshape(3, -1).repeat(counts.ravel(), 1)
    # Labels of equal scores are in any order, as they are drawn.
    label, part, place = np.random.default_rng(drawn.shape[1]).permutation(drawn, axis=1)
    z, weights = label.astype(float), w[place]
    n, rate = float(weights.sum() ** 2 / (weights @ weights)), float(weights @ z / weights.sum())
    return fitted_promise(s[place], z, weights, values[part, place], wilson_interval(rate, n, Floats()))


def _true_errors(known: Population, curves: Curves, x: Array, bins: NDArray[np.int64], mean: Array) -> dict[str, Array]:
    """Return true calibration error, and true gain of the curves over the weighted mean label."""
    g = curves.values(x, bins)
    gain = (known.rate - mean) ** 2 + known.rate * (1.0 - known.rate)
    brier = ((g - known.truth) ** 2 + known.truth * (1.0 - known.truth)) @ known.traffic
    return {"error": np.abs(g - known.truth) @ known.traffic, "gain": gain - brier}


def _corrected(
    cell: DecisionCell, s: Array, q: Array, traffic: Array, crossed: Any, bad: Array, good: Array
) -> tuple[IntervalBounds[Any], IntervalBounds[Any], Array]:
    """Return corrected interval, that of the labels alone, and the effective number of labels, of each sample."""
    values = np.broadcast_to(s, crossed.values.shape) if cell.raw else crossed.values
    one = np.ones_like(s)

    def summed(label: float, count: Array) -> LabelledSums:
        """Return the sums over the calls with *label*, of which *count* were drawn."""

        def add_up(term: Array) -> Array:
            return (count * term).sum((0, 2)) if np.ndim(term) > 1 else count.sum(0) @ term

        return sum_labelled(
            labels=one * label,
            judge_scores=values,
            screen_scores=one * 0.0,
            judging_probabilities=one,
            labelling_probabilities=q,
            add_up=add_up,
        )

    sums = _added(summed(1.0, bad), summed(0.0, good))
    mean = s if cell.raw else np.einsum("pr,prn->rn", crossed.shares, values)
    moment: dict[str, Any] = {name: np.zeros(len(traffic)) for name in NAMES}
    for product, value in (("", np.ones_like(mean)), ("y", mean), ("yy", mean * mean)):
        total = (traffic * value).sum(1)
        moment |= {power + product: total for power in ("c", "w", "ww")}
    moment["www"] = moment["n"] = traffic.sum(1)
    found = corrected_bounds(sums, interval_bounds(moment, Arrays(), "tuned", "rate"))
    return found.corrected, found.alone, found.effective_labels


def _added(a: LabelledSums, b: LabelledSums) -> LabelledSums:
    """Return the sums over the calls of two sets."""

    def added(x: ProductSums, y: ProductSums) -> ProductSums:
        return ProductSums(**{each.name: getattr(x, each.name) + getattr(y, each.name) for each in fields(ProductSums)})

    return LabelledSums(w=added(a.w, b.w), ww=added(a.ww, b.ww), wv=added(a.wv, b.wv))
