"""Simulated traffic of a cascade: a lexical screen, a decision judge, a chat judge and people, many samples at once.

A population is a table over the screen's score, the decision judge's score, the chat judge's verdict and the label, so
that a stage of many samples is one binomial draw. The prices are a dollar a label, a cent a verdict and 0.01 cent a
decision; what verdicts and decisions cost is taken off the labels, so that a cascade costs what labels alone would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ragtrace.estimates.agreement import PARTS
from ragtrace.estimates.arrays import Arrays
from ragtrace.estimates.cascade import (
    STAGES,
    cascade_bounds,
    fit_label_probability,
    products,
    stage_columns,
    verdict_features,
)
from ragtrace.estimates.curve_fitting import logits
from ragtrace.estimates.formulas import IntervalBounds, wilson_interval
from ragtrace.estimates.logistic import sigmoid
from tests.support.decision_populations import Decider, population

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

JUDGE = Decider(0.85, blind=0.2)
USD_A_LABEL, USD_A_VERDICT, USD_A_DECISION = 1.0, 0.01, 0.0001
SCREEN_LEVELS = 6
_SUSPICIOUS = 0.6
_COARSE = 2
"""Values of the decision judge's score that are taken together."""


@dataclass(frozen=True)
class CascadeCell:
    """What is simulated.

    Attributes:
        usd: money for everything.
        verdicts: share of the calls that the chat judge sees.
        decisions: share of the calls that the decision judge sees, all suspicious ones among them.
        sensitivity: of the chat judge.
        specificity: of the chat judge.
        labels: expected number of labels; None: as many as the money buys.
    """

    rate: float
    judge: Decider = JUDGE
    calls: int = 10_000
    usd: float = 300.0
    verdicts: float = 0.2
    decisions: float = 0.3
    sensitivity: float = 0.90
    specificity: float = 0.95
    labels: int | None = None

    @property
    def bought(self) -> int:
        """Number of labels that are left when verdicts and decisions are paid."""
        spent = self.calls * (self.verdicts * USD_A_VERDICT + self.decisions * USD_A_DECISION)
        return round((self.usd - spent) / USD_A_LABEL) if self.labels is None else self.labels


@dataclass(frozen=True)
class CascadeSamples:
    """What each sample gives, as arrays."""

    cell: CascadeCell
    true_rate: Array
    found: IntervalBounds[Any]
    alone: IntervalBounds[Any]
    stages: tuple[Array, Array, Array]
    """Estimates of the mean score of the decision judge, of the mean h, and of the rate."""
    wanted: tuple[Array, Array, Array]
    """The same of all calls of the sample's traffic."""
    unweighted: tuple[float, float, float]
    """Mean errors of the three without weights."""

    @property
    def coverage(self) -> float:
        return float(np.mean((self.found.low <= self.true_rate) & (self.true_rate <= self.found.high)))

    @property
    def widest(self) -> float:
        return float(np.max((self.found.high - self.found.low) / (self.alone.high - self.alone.low)))

    @property
    def gain(self) -> float:
        """Effective labels relative to what labels alone at random would be for the same money."""
        low, high = wilson_interval(self.true_rate, np.full(len(self.true_rate), self.cell.usd), Arrays())
        return float((np.mean(high - low) / np.mean(self.found.high - self.found.low)) ** 2)

    def bias(self, stage: int) -> tuple[float, float]:
        """Return the mean error of a stage (0, 1 or 2) and its Monte Carlo standard error."""
        error = self.stages[stage] - self.wanted[stage]
        return float(error.mean()), float(error.std(ddof=1) / np.sqrt(len(error)))


def simulate_cascade(cell: CascadeCell, samples: int, seed: int) -> CascadeSamples:
    """Draw traffic and all stages many times, and estimate each sample by the package's code."""
    random = np.random.default_rng(seed)
    f, g, y, z, share = _table(cell)
    p1 = _shares(np.where(f > _SUSPICIOUS, 1e3, 1.0), share, cell.decisions)
    p2 = _shares(_uncertainty(sigmoid(logits(g)), share * p1), share * p1, cell.verdicts)
    guess = sigmoid(logits(g) + 2.0 * (2.0 * y - 1.0))
    p3 = _shares(_uncertainty(guess, share * p1 * p2), share * p1 * p2, cell.bought / cell.calls)
    traffic = random.multinomial(cell.calls, share, size=samples)
    decided = random.binomial(traffic, p1)
    judged = random.binomial(decided, p2)
    labelled = random.binomial(judged, p3)
    labelled[labelled.sum(1) == 0, -1] = 1
    parts, left = np.zeros((PARTS, *labelled.shape)), labelled
    for part in range(PARTS):
        parts[part] = left if part == PARTS - 1 else random.binomial(left, 1.0 / (PARTS - part))
        left = left - parts[part].astype(np.int64)
    a = 1.0 / p1
    b, d = a / p2, a / p2 / p3
    # h depends on score and verdict alone: the labels are added up over the screen's scores before it is fitted.
    features = verdict_features(g, y)
    bad, good = parts * z, parts * (1.0 - z)
    fitted = fit_label_probability(features, d, bad.sum(0) - bad, good.sum(0) - good)
    h = sigmoid(fitted @ features.T)
    weights = parts @ d
    h_of_all = np.einsum("pr,prn->rn", weights / weights.sum(0), h)
    sums: dict[str, Any] = {"n": traffic.sum(1) * 1.0, "f": traffic @ f, "ff": traffic @ (f * f)}
    for stage, counts, at_h in ((1, decided, None), (2, judged, h_of_all), (3, parts, h)):
        sums |= _stage_sums(stage, counts, {"a": a, "b": b, "d": d}, {"f": f, "g": g, "h": at_h, "z": z})
    found, alone, (l0, l1, _) = cascade_bounds(sums, Arrays())
    s = sums
    by_decisions = s["a_g"] / s["a_"] + l0 * (s["f"] / s["n"] - s["a_f"] / s["a_"])
    by_verdicts = s["b_h"] / s["b_"] + l1 * (by_decisions - s["b_g"] / s["b_"])
    every = traffic / cell.calls
    plain = (decided @ g / decided.sum(1), (judged * h_of_all).sum(1) / judged.sum(1), labelled @ z / labelled.sum(1))
    wanted = (every @ g, (every * h_of_all).sum(1), every @ z)
    return CascadeSamples(
        cell,
        every @ z,
        found,
        alone,
        (by_decisions, by_verdicts, found.value),
        wanted,
        tuple(float(np.mean(mine - true)) for mine, true in zip(plain, wanted, strict=True)),  # type: ignore[arg-type]
    )


def _stage_sums(stage: int, counts: Array, weights: dict[str, Array], values: dict[str, Any]) -> dict[str, Any]:
    """Return the sums over the calls of a stage, of each sample. What differs between samples is multiplied last."""
    powers, factors = STAGES[stage - 1]
    fixed = {letter: values[letter] for letter in factors if letter != "h"} | {"h": np.ones_like(weights["a"])}
    columns = stage_columns(stage, weights, fixed)
    together = counts.sum(0) if counts.ndim == 3 else counts
    sums: dict[str, Any] = {}
    with_h = {1: counts * values["h"], 2: counts * values["h"] ** 2} if "h" in factors else {}
    for power in powers:
        for product in products(factors):
            name, times = f"{power}_{product}", product.count("h")
            if times == 0:
                sums[name] = together @ columns[name]
            else:
                found = with_h[times] @ columns[name]
                sums[name] = found.sum(0) if counts.ndim == 3 else found
    return sums


def _table(cell: CascadeCell) -> tuple[Array, Array, Array, Array, Array]:
    """Return screen's score, decision's score, verdict, label and share of each value of the table."""
    known = population(cell.rate, cell.judge)
    groups = np.arange(len(known.scores)) // _COARSE
    bad, good = (np.bincount(groups, each) for each in (known.bad, known.good))
    scores = sigmoid(np.array([logits(known.scores)[groups == group].mean() for group in np.unique(groups)]))
    grid = (np.arange(SCREEN_LEVELS) + 0.5) / SCREEN_LEVELS
    shapes = [np.exp(-0.5 * ((grid - centre) / 0.2) ** 2) for centre in (0.35, 0.52)]
    of_good, of_bad = (shape / shape.sum() for shape in shapes)
    axes = np.meshgrid(np.arange(SCREEN_LEVELS), np.arange(len(scores)), (0, 1), (0, 1), indexing="ij")
    at_f, at_g, y, z = (axis.ravel() for axis in axes)
    right = np.where(z > 0, cell.sensitivity, cell.specificity)
    share = np.where(z > 0, cell.rate * bad[at_g] * of_bad[at_f], (1.0 - cell.rate) * good[at_g] * of_good[at_f])
    share = share * np.where(y == z, right, 1.0 - right)
    kept = share > 1e-9
    share = share[kept] / share[kept].sum()
    return grid[at_f][kept], scores[at_g][kept], y[kept] * 1.0, z[kept] * 1.0, share


def _uncertainty(g: Array, share: Array) -> Array:
    g = np.clip(g, 1e-3, 0.999)
    u = np.sqrt(g * (1.0 - g))
    found: Array = 0.5 + 0.5 * u / (share @ u / share.sum())
    return found


def _shares(wanted: Array, share: Array, total: float) -> Array:
    """Return probabilities in proportion to *wanted*, at most 1, whose mean over the traffic is *total*."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2.0
        if share @ np.minimum(1.0, middle * wanted) < total:
            low = middle
        else:
            high = middle
    found: Array = np.minimum(1.0, high * wanted)
    return found
