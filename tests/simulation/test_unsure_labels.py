"""Corrected rates cover where reviewers are unsure about some calls, also if more often about bad ones.

Each of 1,000 replicates draws the calls, the judge's verdicts, the picks (half of them evenly over the verdicts) and
what reviewers could not decide. Seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest

from ragtrace.estimates import CalibrationKey, Estimate, JudgeCalibration, Moments, estimate_mean, judged_moments
from ragtrace.estimates.calibration import label_sums
from ragtrace.estimates.corrected import LabelledCall, corrected_rate

REPLICATES = 1000
SEED = 161803
CALLS = 1200
SENSITIVITY, SPECIFICITY = 0.8, 0.9
BEFORE = [
    (0.13302441726240863, 0.09218308308037274, 0.18779036022271828),
    (0.1374816934287551, 0.09242683867580644, 0.19849368178968055),
    (0.12236814512758722, 0.027517423181224993, 0.20601813243822395),
]
"""Value, low and high by judge and labels, by the labels alone and of other traffic, as if no label could be unsure."""
BEFORE_BOUNDS = (0.170387267725292, 0.08079383614039537)
Ends: TypeAlias = tuple[float, float]


class Unsure(NamedTuple):
    """Shares of the calls that reviewers are unsure about: bad ones that the judge finds and misses, and good ones."""

    found: float
    missed: float
    good: float


@dataclass(frozen=True)
class Sample:
    """Labelled calls of a traffic, and the judge's moments of that traffic."""

    labels: list[LabelledCall]
    judged: Moments

    @property
    def decided(self) -> list[LabelledCall]:
        return [each for each in self.labels if each.label is not None]

    @property
    def unsure_share(self) -> float:
        """Share of the calls that the unsure ones stand for."""
        decided, everything = (
            sum(1.0 / each.labelling_probability for each in some) for some in (self.decided, self.labels)
        )
        return 1.0 - decided / everything

    def calibration(self, *, unsure: bool = True) -> JudgeCalibration:
        """What a calibration file holds of the labels, with the unsure ones or without."""
        left = [(each.score, 1.0 / each.labelling_probability) for each in self.labels if each.label is None]
        known = [
            (each.label, each.score, 1.0 / each.labelling_probability)
            for each in self.decided
            if each.label is not None
        ]
        sums = label_sums(known, left if unsure else ())
        return JudgeCalibration(CalibrationKey("hallucinated", "1", "judge", "1"), 0.0, len(known), False, None, sums)


def moments(marked: int, calls: int) -> Moments:
    """The judge's moments of *calls* calls that were all judged, of which it found *marked* bad."""
    one, zero = (judged_moments(score, 1.0, seen=1.0).values() for score in (1.0, 0.0))
    return Moments(*(marked * a + (calls - marked) * b for a, b in zip(one, zero, strict=True)))


def verdicts(random: Any, bad: Any) -> Any:
    return random.random(len(bad)) < np.where(bad, SENSITIVITY, 1.0 - SPECIFICITY)


def samples(rate: float, labels: int, unsure: Unsure) -> Iterator[Sample]:
    """Draw the replicates of a traffic of which the share *rate* is bad."""
    random = np.random.default_rng(SEED)
    for _ in range(REPLICATES):
        bad = random.random(CALLS) < rate
        marked = verdicts(random, bad)
        alike = 0.5 / CALLS + 0.25 / np.where(marked, max(1, marked.sum()), CALLS - marked.sum())
        chosen = np.minimum(1.0, alike * labels)
        picked = np.flatnonzero(random.random(CALLS) < chosen)
        undecided = random.random(CALLS) < np.where(bad, np.where(marked, unsure.found, unsure.missed), unsure.good)
        yield Sample(
            [
                LabelledCall(None if undecided[at] else float(bad[at]), float(marked[at]), 1.0, float(chosen[at]))
                for at in picked
            ],
            moments(int(marked.sum()), CALLS),
        )


def ends(found: Estimate) -> Ends:
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    return found.low, found.high


def coverage(rate: float, found: Iterable[Ends]) -> float:
    return float(np.mean([low <= rate <= high for low, high in found]))


@pytest.mark.parametrize("unsure", [Unsure(0.3, 0.3, 0.0), Unsure(0.3, 0.3, 0.03), Unsure(0.0, 0.0, 0.2)], ids=str)
@pytest.mark.parametrize(("rate", "labels"), [(0.1, 150), (0.3, 60), (0.3, 150)])
def test_intervals_contain_what_unsure_labels_may_be(rate: float, labels: int, unsure: Unsure) -> None:
    """In 94 % of the replicates at least, with the judge and by the labels alone, and they grow by the unsure share."""
    corrected, alone, growth = list[Ends](), list[Ends](), list[float]()
    for sample in samples(rate, labels, unsure):
        found, decided = (corrected_rate(some, sample.judged) for some in (sample.labels, sample.decided))
        assert found.value == decided.value
        assert found.n == decided.n
        (low, high), (decided_low, decided_high) = ends(found), ends(decided)
        assert low <= decided_low <= decided_high <= high
        corrected.append((low, high))
        alone.append(ends(corrected_rate(sample.labels)))
        growth.append(high - low - (decided_high - decided_low) - sample.unsure_share)
    assert coverage(rate, corrected) >= 0.94
    assert coverage(rate, alone) >= 0.94
    assert np.mean(growth) <= 0.02


def test_leaving_unsure_calls_out_would_not_cover() -> None:
    """Where reviewers are unsure about 30 % of the bad calls, the decided labels show too low a rate."""
    found = [ends(corrected_rate(each.decided, each.judged)) for each in samples(0.3, 150, Unsure(0.3, 0.3, 0.0))]
    assert coverage(0.3, found) < 0.85
    judge = estimate_mean(moments(round(CALLS * (0.3 * SENSITIVITY + 0.7 * (1.0 - SPECIFICITY))), CALLS))
    missed = samples(0.2, 300, Unsure(0.0, 0.8, 0.05))
    assert coverage(0.3, [ends(each.calibration(unsure=False).correct(judge)) for each in missed]) < 0.6


@pytest.mark.parametrize("unsure", [Unsure(0.1, 0.6, 0.0), Unsure(0.0, 0.8, 0.05)], ids=str)
@pytest.mark.parametrize("other", [0.05, 0.1, 0.3])
def test_rates_of_other_traffic_cover(other: float, unsure: Unsure) -> None:
    """Reviewers are unsure most often where the judge errs, which makes it look better than it is."""
    random = np.random.default_rng(SEED)
    found = list[Ends]()
    for sample in samples(0.2, 300, unsure):
        marked = verdicts(random, random.random(CALLS) < other)
        found.append(ends(sample.calibration().correct(estimate_mean(moments(int(marked.sum()), CALLS)))))
    assert coverage(other, found) >= 0.94


def test_alerts_on_corrected_rates_allow_for_unsure_labels() -> None:
    """The judge's mean score at the bound, whatever unsure calls are, is not beyond the bound of the alert."""
    for sample, _ in zip(samples(0.2, 300, Unsure(0.1, 0.6, 0.05)), range(100), strict=False):
        known, decided = sample.calibration(), sample.calibration(unsure=False)
        assert known.judge_bound(0.05, above=True) >= decided.judge_bound(0.05, above=True)
        assert known.judge_bound(0.05, above=False) <= decided.judge_bound(0.05, above=False)


def test_without_unsure_labels_nothing_changes() -> None:
    """The figures are those of an estimate that knows no unsure labels."""
    sample = next(iter(samples(0.1, 150, Unsure(0.0, 0.0, 0.0))))
    assert sample.decided == sample.labels
    found = [corrected_rate(sample.labels, sample.judged), corrected_rate(sample.labels)]
    found.append(sample.calibration().correct(estimate_mean(moments(200, CALLS))))
    for each, figures in zip(found, BEFORE, strict=True):
        assert (each.value, *ends(each)) == pytest.approx(figures, rel=1e-12)
    above, below = (sample.calibration().judge_bound(0.05, above=above) for above in (True, False))
    assert (above, below) == pytest.approx(BEFORE_BOUNDS, rel=1e-12)
