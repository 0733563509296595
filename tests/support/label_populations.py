"""Simulated traffic with a screen, a judge on a sample and human labels on a sample of that, many replicates at once.

A population is a table of few values of (z, y, f), so that a replicate is one multinomial draw (the calls), one
binomial draw a cell of the table (the judged) and another (the labelled).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ragtrace.estimates.arrays import Arrays
from ragtrace.estimates.corrected import corrected_bounds, sum_labelled
from ragtrace.estimates.formulas import IntervalBounds, interval_bounds
from ragtrace.estimates.moments import NAMES

LEVELS = 8
"""Values of the screen's score."""


@dataclass(frozen=True)
class LabelCell:
    """What is simulated.

    Attributes:
        rate: true rate of bad calls.
        sensitivity: share of the bad calls that the judge finds bad.
        specificity: share of the good calls that the judge finds good.
        labels: expected number of labels.
        judged: expected number of judged calls.
        p: probability of being judged of an ordinary call; suspicious ones are judged three times as often.
        flagged: share of the labels that are drawn among the calls that the judge finds bad; None: all alike.
        screen: distance of the screen's scores of bad calls from those of good ones, in standard deviations.
    """

    rate: float
    sensitivity: float
    specificity: float
    labels: int
    judged: int = 2000
    p: float = 0.2
    flagged: float | None = None
    screen: float = 1.0

    @property
    def correlation(self) -> float:
        """Correlation of the judge's verdict and the label."""
        marked = self.rate * self.sensitivity + (1 - self.rate) * (1 - self.specificity)
        both = self.rate * self.sensitivity - self.rate * marked
        return float(both / np.sqrt(self.rate * (1 - self.rate) * marked * (1 - marked)))


@dataclass(frozen=True)
class LabelReplicates:
    """Estimates in each replicate, and the labels that are expected.

    Attributes:
        bad: expected number of bad labels.
        good: expected number of good labels.
        without_bad: share of the replicates without a bad label.
    """

    corrected: IntervalBounds[Any]
    alone: IntervalBounds[Any]
    judge: IntervalBounds[Any]
    bad: float
    good: float
    without_bad: float


@dataclass(frozen=True)
class LabelResult:
    """Coverage and mean width of three intervals in one cell: corrected, of the labels alone, and of the judge."""

    cell: LabelCell
    corrected: float
    alone: float
    judge: float
    corrected_width: float
    alone_width: float
    judge_width: float
    bad: float
    good: float
    without_bad: float

    @property
    def ordinary(self) -> bool:
        """Whether ten bad and ten good labels are expected."""
        return self.bad >= 10 and self.good >= 10

    @property
    def relative(self) -> float:
        """Width of the corrected interval, relative to that of the labels alone."""
        return self.corrected_width / self.alone_width

    def __str__(self) -> str:
        c = self.cell
        return (
            f"rate {c.rate:g} sensitivity {c.sensitivity:g} specificity {c.specificity:g} labels {c.labels} of "
            f"{c.judged} judged at {c.p:g}, flagged {c.flagged}: {self.bad:.1f} bad, covers {self.corrected:.3f}, "
            f"alone {self.alone:.3f}, width {self.relative:.3f} of it"
        )


def measure(cell: LabelCell, replicates: int, seed: int) -> LabelResult:
    """Simulate *cell* and measure how often the intervals cover its rate, and how wide they are."""
    drawn = simulate(cell, replicates, seed)

    def covers(bounds: IntervalBounds[Any]) -> float:
        return float(np.mean((bounds.low <= cell.rate) & (cell.rate <= bounds.high)))

    def width(bounds: IntervalBounds[Any]) -> float:
        return float(np.mean(bounds.high - bounds.low))

    return LabelResult(
        cell,
        covers(drawn.corrected),
        covers(drawn.alone),
        covers(drawn.judge),
        width(drawn.corrected),
        width(drawn.alone),
        width(drawn.judge),
        drawn.bad,
        drawn.good,
        drawn.without_bad,
    )


def simulate(cell: LabelCell, replicates: int, seed: int) -> LabelReplicates:
    """Draw *replicates* samples of the population of *cell* and estimate each."""
    random = np.random.default_rng(seed)
    grid = (np.arange(LEVELS) + 0.5) / LEVELS
    shapes = [np.exp(-0.5 * ((grid - centre) / 0.2) ** 2) for centre in (0.35, 0.35 + 0.2 * cell.screen)]
    shapes = [shape / shape.sum() for shape in shapes]
    z, y, level = (axis.ravel() for axis in np.meshgrid((0.0, 1.0), (0.0, 1.0), np.arange(LEVELS), indexing="ij"))
    f = grid[level.astype(int)]
    right = np.where(z > 0, cell.sensitivity, cell.specificity)
    share = np.where(z > 0, cell.rate, 1 - cell.rate) * np.where(y == z, right, 1 - right)
    share = share * np.array(shapes)[z.astype(int), level.astype(int)]
    p1 = np.where(f > 0.6, np.minimum(3 * cell.p, 1.0), cell.p)
    calls = round(cell.judged / float(share @ p1))
    marked_judged = calls * float(share @ (p1 * y))
    plain_judged = calls * float(share @ (p1 * (1 - y)))
    if cell.flagged is None:
        p2 = np.full_like(f, min(1.0, cell.labels / (marked_judged + plain_judged)))
    else:
        of_marked = min(1.0, cell.flagged * cell.labels / marked_judged)
        rest = cell.labels - of_marked * marked_judged
        p2 = np.where(y > 0, of_marked, min(1.0, rest / plain_judged))
    traffic = random.multinomial(calls, share / share.sum(), size=replicates)
    judged = random.binomial(traffic, p1)
    labelled = random.binomial(judged, p2)
    empty = labelled.sum(1) == 0
    labelled[empty, 0] = 1
    v = 1 / p1
    moment: dict[str, Any] = {name: np.zeros(replicates) for name in NAMES}
    products = {"": f * 0 + 1, "y": y, "f": f, "yy": y * y, "yf": y * f, "ff": f * f}
    for name, value in products.items():
        for power, weight in (("c", 1.0), ("w", v), ("ww", v * v)):
            moment[power + name] = judged @ (weight * value)
    moment["www"] = judged @ v**3
    moment |= {"n": traffic.sum(1) * 1.0, "f": traffic @ f, "ff": traffic @ (f * f)}
    first = interval_bounds(moment, Arrays(), "tuned", "rate")
    sums = sum_labelled(
        labels=z,
        judge_scores=y,
        screen_scores=f,
        judging_probabilities=p1,
        labelling_probabilities=p2,
        add_up=lambda term: labelled @ term,
    )
    found = corrected_bounds(sums, first)
    expected = calls * share * p1 * p2
    return LabelReplicates(
        found.corrected,
        found.alone,
        first,
        float(expected @ z),
        float(expected @ (1 - z)),
        float(np.mean(labelled @ z == 0)),
    )
