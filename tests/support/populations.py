"""Simulated traffic that is judged in part: the moments of many replicates of a cell at once, and what is true of it.

Every call has a score y, a screen's score f and an inclusion probability p(f). A population is a table of few values of
(y, f), so that a replicate is one multinomial draw (the calls) and one binomial draw a cell of the table (the judged).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from ragtrace.estimates.arrays import Arrays
from ragtrace.estimates.formulas import IntervalBounds, Method, Target, interval_bounds

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Kind: TypeAlias = Literal["shifted", "graded", "logistic"]
"""How y and f hang together. `shifted`: y is 0 or 1, f normal around one of two means. `graded`: the same with y in
quarters. `logistic`: y is 0 or 1 with a probability that rises with f, and so does p, smoothly."""

LEVELS = 24
Z = 1.959963984540054


@dataclass(frozen=True)
class Cell:
    """What is simulated.

    Attributes:
        rate: mean of y behind the traffic.
        p: inclusion probability of an ordinary call.
        correlation: of y and f; as near to it as the kind allows.
        judged: calls judged, expected.
        boost: suspicious calls are judged that many times as often (at most always); 1: all alike.
        suspicious: share of the calls that are.
        always: share of the calls that a rule has judged always, whatever the screen says; *p*, *boost* and *judged*
            are of the other calls.
    """

    rate: float
    p: float
    correlation: float
    judged: int
    boost: float = 1.0
    suspicious: float = 0.1
    kind: Kind = "shifted"
    always: float = 0.0


@dataclass(frozen=True)
class Replicates:
    """The moments of the replicates and what is true."""

    sums: Mapping[str, Array]
    rate: float
    traffic: Array
    sd_rate: float
    """Standard deviation of the weighted mean around the rate behind the traffic."""
    sd_traffic: float
    bad: float
    """Expected number of judged calls with y = 1 (graded: the sum of their y)."""
    good: float
    correlation: float
    """Of y and f, as reached."""


def _phi(x: Array) -> Array:
    return np.vectorize(lambda v: 0.5 * (1.0 + math.erf(v / math.sqrt(2.0))))(x)


def _shifted(ys: Array, of_y: Array, correlation: float) -> tuple[Array, Array]:
    """f levels and the table P(y, f): unit variance around y times a shift that gives the correlation."""
    mean = float((of_y * ys).sum())
    spread = math.sqrt(float((of_y * (ys - mean) ** 2).sum()))
    shift = correlation / math.sqrt(1.0 - correlation**2) / spread
    edges = np.linspace(-3.5, shift + 3.5, LEVELS + 1)
    if shift > 5.0:
        half = np.linspace(-3.0, 3.0, LEVELS // 2 + 1)
        edges = np.concatenate([half, shift + half])
    rows = []
    for y, share in zip(ys, of_y, strict=True):
        row = np.diff(_phi(edges - shift * y))
        rows.append(share * row / row.sum())
    middle = (edges[1:] + edges[:-1]) / 2
    return (middle - middle[0]) / (middle[-1] - middle[0]), np.array(rows)


def _logistic(rate: float, correlation: float) -> tuple[Array, Array]:
    """P(y = 1 | f) = 1 / (1 + exp(-(a + b f))), f a rounded normal; b from the correlation, a from the rate."""
    edges = np.linspace(-3.2, 3.2, LEVELS + 1)
    of_f = np.diff(_phi(edges))
    of_f /= of_f.sum()
    f = (edges[1:] + edges[:-1]) / 2

    def chance(slope: float) -> Array:
        low, high = -400.0, 400.0
        for _ in range(80):
            middle = (low + high) / 2
            found = 1.0 / (1.0 + np.exp(-np.clip(middle + slope * f, -300, 300)))
            low, high = (middle, high) if float((of_f * found).sum()) < rate else (low, middle)
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(low + slope * f, -300, 300))))

    def correlated(slope: float) -> float:
        c = chance(slope)
        mean = float((of_f * f).sum())
        return float((of_f * c * (f - mean)).sum()) / math.sqrt(
            rate * (1 - rate) * float((of_f * (f - mean) ** 2).sum())
        )

    low, high = 0.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if correlated(middle) < correlation else (low, middle)
    bad = chance(low if correlation else 0.0)
    return (f - f[0]) / (f[-1] - f[0]), np.array([of_f * (1 - bad), of_f * bad])


def _table(cell: Cell) -> tuple[Array, Array, Array]:
    if cell.kind == "logistic":
        f, table = _logistic(cell.rate, cell.correlation)
        return np.array([0.0, 1.0]), f, table
    ys, of_y = np.array([0.0, 1.0]), np.array([1.0 - cell.rate, cell.rate])
    if cell.kind == "graded":
        ys, worse = np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.array([0.4, 0.3, 0.2, 0.1])
        share = cell.rate / float((worse * ys[1:]).sum())
        of_y = np.concatenate([[1.0 - share], share * worse])
    return ys, *_shifted(ys, of_y, cell.correlation)


def _probabilities(cell: Cell, f: Array, of_f: Array) -> Array:
    above = of_f[::-1].cumsum()[::-1]
    if cell.boost == 1.0:
        return np.full(len(f), cell.p)
    if cell.kind == "logistic":  # rises smoothly from p to p * boost with the rank of f
        return np.asarray(np.minimum(1.0, cell.p * cell.boost ** np.maximum(0.0, 1.0 - above / (4 * cell.suspicious))))
    marked = above <= cell.suspicious * 1.3
    marked[-1] = True
    return np.where(marked, min(1.0, cell.p * cell.boost), cell.p)


def simulate(cell: Cell, seed: int, replicates: int) -> Replicates:
    """Draw *replicates* times the traffic of *cell* and the sample of it that is judged."""
    chance = np.random.default_rng(seed)
    ys, levels, table = _table(cell)
    of_f = table.sum(axis=0)
    p = _probabilities(cell, levels, of_f)
    kept = table.ravel() > 1e-15
    share = table.ravel()[kept] / table.ravel()[kept].sum()
    y, f = np.repeat(ys, len(levels))[kept], np.tile(levels, len(ys))[kept]
    w = 1.0 / np.tile(p, len(ys))[kept]
    calls = max(1, round(cell.judged / float((share / w).sum()) / (1.0 - cell.always)))
    if cell.always:
        y, f = np.tile(y, 2), np.tile(f, 2)
        w = np.concatenate([w, np.ones_like(w)])
        share = np.concatenate([share * (1.0 - cell.always), share * cell.always])
    happened = chance.multinomial(calls, share, size=replicates)
    judged = chance.binomial(happened, 1.0 / w)
    sums: dict[str, Array] = {"n": np.full(replicates, float(calls)), "f": happened @ f, "ff": happened @ (f * f)}
    products = {"": np.ones_like(y), "y": y, "f": f, "yy": y * y, "yf": y * f, "ff": f * f}
    for name, product in products.items():
        sums[f"w{name}"] = judged @ (w * product)
        sums[f"ww{name}"] = judged @ (w * w * product)
        sums[f"c{name}"] = judged @ product
    sums["www"] = judged @ (w * w * w)
    ruled = np.arange(len(y)) >= len(y) * (1.0 if not cell.always else 0.5)
    for name, product in products.items():
        sums[f"r{name}"] = judged @ (product * ruled)
    rate = float((share * y).sum())
    off = share * (y - rate) ** 2
    return Replicates(
        sums,
        rate,
        happened @ y / calls,
        math.sqrt(float((off * w).sum()) / calls),
        math.sqrt(float((off * (w - 1.0)).sum()) / calls),
        calls * float((share / w * y).sum()),
        calls * float((share / w * (1.0 - y)).sum()),
        _correlation(share, y, f),
    )


@dataclass(frozen=True)
class RuledTraffic:
    """Traffic of which an `always` rule has a part judged; the bad calls of the two parts are not alike in number.

    Attributes:
        calls: number of calls.
        always: share of the calls that the rule has judged.
        ruled_rate: rate of bad calls among them.
        rate: rate of bad calls among the others.
        p: inclusion probability of the others; 0: none of them is judged.
    """

    calls: int
    always: float
    ruled_rate: float
    rate: float
    p: float

    @property
    def ordinary(self) -> bool:
        """Whether ten or more bad calls are expected among the judged ones of each part."""
        ruled, others = self.calls * self.always, self.calls * (1.0 - self.always) * self.p
        return min(ruled * self.ruled_rate, others * self.rate) >= 10.0


def simulate_ruled(cell: RuledTraffic, seed: int, replicates: int) -> Replicates:
    """Draw *replicates* times the traffic of *cell* and the sample of it that is judged; there is no screen."""
    chance = np.random.default_rng(seed)
    ruled = chance.binomial(cell.calls, cell.always, replicates)
    bad_ruled, bad = chance.binomial(ruled, cell.ruled_rate), chance.binomial(cell.calls - ruled, cell.rate)
    judged_bad = chance.binomial(bad, cell.p)
    judged = judged_bad + chance.binomial(cell.calls - ruled - bad, cell.p)
    weight = 1.0 / cell.p if cell.p else 1.0
    none = np.zeros(replicates)
    sums: dict[str, Array] = {"n": np.full(replicates, float(cell.calls)), "f": none, "ff": none}
    for name, of_rule, of_others in (("", ruled, judged), ("y", bad_ruled, judged_bad), ("yy", bad_ruled, judged_bad)):
        sums[f"r{name}"] = of_rule.astype(np.float64)
        for letter, factor in (("c", 1.0), ("w", weight), ("ww", weight**2)):
            sums[f"{letter}{name}"] = of_rule + factor * of_others
    sums["www"] = ruled + weight**3 * judged
    sums |= {letter + name: none for letter in ("w", "ww", "c", "r") for name in ("f", "yf", "ff")}
    rate = cell.always * cell.ruled_rate + (1.0 - cell.always) * cell.rate
    found = float((judged_bad + bad_ruled).mean())
    return Replicates(
        sums, rate, (bad_ruled + bad) / cell.calls, 0.0, 0.0, found, float((judged + ruled).mean()) - found, 0.0
    )


def _correlation(share: Array, y: Array, f: Array) -> float:
    off_y, off_f = y - float((share * y).sum()), f - float((share * f).sum())
    both = float((share * off_y * off_y).sum()) * float((share * off_f * off_f).sum())
    return float((share * off_y * off_f).sum()) / math.sqrt(both)


@dataclass(frozen=True)
class Result:
    """How one method did in one cell."""

    coverage: float
    width: float
    """Mean width."""
    oracle: float
    """Width of the normal interval with the true standard deviation of the weighted mean."""
    ordinary: bool
    """Ten or more bad and ten or more good judged calls are expected."""

    @property
    def relative(self) -> float:
        """Mean width by the oracle's."""
        return self.width / self.oracle if self.oracle else 1.0


def interval(replicates: Replicates, method: Method, target: Target) -> tuple[Array, Array, Array]:
    """Value, low and high of every replicate; without a judged call [0, 1]."""
    with np.errstate(all="ignore"):
        found: IntervalBounds[Any] = interval_bounds(dict(replicates.sums), Arrays(), method, target)
    none = replicates.sums["w"] == 0.0
    return np.where(none, 0.5, found.value), np.where(none, 0.0, found.low), np.where(none, 1.0, found.high)


def tried(replicates: Replicates, method: Method = "tuned", target: Target = "rate") -> Result:
    """Coverage and width of *method* in the cell of *replicates*."""
    _, low, high = interval(replicates, method, target)
    truth = replicates.rate if target == "rate" else replicates.traffic
    covered = (low <= truth + 1e-12) & (truth <= high + 1e-12)
    sd = replicates.sd_rate if target == "rate" else replicates.sd_traffic
    ordinary = replicates.bad >= 10.0 and replicates.good >= 10.0
    return Result(float(covered.mean()), float((high - low).mean()), 2.0 * Z * sd, ordinary)
