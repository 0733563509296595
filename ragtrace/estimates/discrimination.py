"""How well a judge's scores separate bad from good calls and how well they are calibrated, on labelled calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.agreement import Agreement, Interval, agreement

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

BAD: Final = 0.5
_RESAMPLES: Final = 500
_SEED: Final = 20_261_125
_BINS: Final = 10
_FEWEST_IN_BIN: Final = 25


class Discrimination(NamedTuple):
    """Quality of a judge's scores on labelled calls, with 95 % intervals.

    AUROC, Brier score and calibration error are of the scores as they are, without calibration.
    """

    n: int
    bad: int
    auroc: Interval | None
    """Probability that a bad call has a worse score than a good one, ties counted half; None: one label alone."""
    brier: Interval
    """Mean squared difference of score and label."""
    calibration_error: Interval
    """Expected calibration error in up to ten bins of at least 25 calls, less its upward bias (basic bootstrap)."""
    agreement: Agreement
    """Agreement of verdicts (bad from 0.5) with the labels."""


def discrimination(
    labels: Sequence[bool], scores: Sequence[float], groups: Sequence[Hashable] | None = None
) -> Discrimination:
    """Return how well a judge's *scores* predict human *labels* of the same calls.

    Args:
        labels: the human labels; True is bad.
        scores: the judge's scores, in [0, 1]; high is bad.
        groups: what is alike for calls that are not independent, such as those with the same question; None: all are.

    Raises:
        SettingsError: there are no labels, the lengths differ, or a score is not in [0, 1].

    Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapters 8 and 13 (the intervals, of 500
    resamples of whole groups).
    """
    z, s = _checked(labels, scores)
    samples = _resamples(len(z), groups)

    def interval(measure: Callable[[Array, Array], float], *, basic: bool = False) -> Interval:
        value = measure(z, s)
        found = np.array([measure(z[rows], s[rows]) for rows in samples])
        low, high = np.nanquantile(found, (0.025, 0.975))
        if not basic:
            return Interval(value, float(low), float(high))
        # The estimate of a calibration error is too high, and its resamples are by as much again.
        centre = max(0.0, 2.0 * value - float(np.nanmean(found)))
        return Interval(centre, max(0.0, min(centre, 2.0 * value - float(high))), max(centre, 2.0 * value - float(low)))

    both = 0.0 < z.sum() < len(z)
    return Discrimination(
        len(z),
        int(z.sum()),
        interval(auroc) if both else None,
        interval(lambda label, score: float(np.mean((score - label) ** 2))),
        interval(calibration_error, basic=True),
        agreement([bool(label) for label in labels], (s >= BAD).tolist()),
    )


def auroc_difference(
    labels: Sequence[bool],
    scores: Sequence[float],
    others: Sequence[float],
    groups: Sequence[Hashable] | None = None,
) -> Interval | None:
    """Return by how much the AUROC of *scores* is above that of *others*, with its 95 % interval, on the same calls.

    Both are computed in the same resamples, as judges mostly err on the same calls.

    Args:
        labels: the human labels; True is bad.
        scores: scores by one judge, in [0, 1]; high is bad.
        others: scores of the same calls by another judge.
        groups: as for `discrimination`.

    Returns:
        The difference; None if all labels are the same.
    """
    z, s = _checked(labels, scores)
    other = _checked(labels, others)[1]
    if not 0.0 < z.sum() < len(z):
        return None
    found = [auroc(z[rows], s[rows]) - auroc(z[rows], other[rows]) for rows in _resamples(len(z), groups)]
    low, high = np.nanquantile(np.array(found), (0.025, 0.975))
    return Interval(auroc(z, s) - auroc(z, other), float(low), float(high))


def _checked(labels: Sequence[bool], scores: Sequence[float]) -> tuple[Array, Array]:
    z, s = np.array(labels, dtype=np.float64), np.array(scores, dtype=np.float64)
    if not len(z) or len(z) != len(s) or not ((s >= 0.0) & (s <= 1.0)).all():
        raise SettingsError(f"labels and scores in [0, 1] must be equally many, got {len(z)} and {len(s)}")
    return z, s


def _resamples(count: int, groups: Sequence[Hashable] | None) -> list[NDArray[np.int64]]:
    """Return the positions of the calls in each resample, which draws whole groups with replacement."""
    members: dict[Hashable, list[int]] = {}
    for at, group in enumerate(range(count) if groups is None else groups):
        members.setdefault(group, []).append(at)
    parts: list[NDArray[np.int64]] = [np.array(each, dtype=np.int64) for each in members.values()]
    random = np.random.default_rng(_SEED)
    if len(parts) == count:
        return list(random.integers(0, count, size=(_RESAMPLES, count)))
    drawn = random.integers(0, len(parts), size=(_RESAMPLES, len(parts)))
    return [np.concatenate([parts[int(at)] for at in row.tolist()]) for row in drawn]


def auroc(labels: Array, scores: Array) -> float:
    """Return the area under the receiver operating characteristic; NaN if all labels are the same.

    Args:
        labels: 1 for bad calls, 0 for good ones.
        scores: scores; high is bad.
    """
    bad = float(labels.sum())
    good = len(labels) - bad
    if not bad or not good:
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[place]
    return float((ranks @ labels - bad * (bad + 1.0) / 2.0) / (bad * good))


def calibration_error(labels: Array, scores: Array) -> float:
    """Return the mean distance of mean score and share of bad calls, over bins of calls of similar score.

    Args:
        labels: 1 for bad calls, 0 for good ones.
        scores: scores, in [0, 1].
    """
    order = np.argsort(scores, kind="stable")
    bins = np.array_split(order, min(_BINS, max(1, len(order) // _FEWEST_IN_BIN)))
    return float(sum(abs(float((scores[rows] - labels[rows]).sum())) for rows in bins) / len(order))
