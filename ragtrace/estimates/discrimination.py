"""How well a judge's scores separate bad from good calls, on labelled calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.agreement import Interval

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

_RESAMPLES: Final = 500
_SEED: Final = 20_261_125


class Discrimination(NamedTuple):
    """Quality of a judge's scores on labelled calls, with 95 % intervals.

    A figure is None if all labels are the same.
    """

    n: int
    bad: int
    auroc: Interval | None
    """Probability that a bad call has a worse score than a good one, ties counted half."""
    average_precision: Interval | None
    """Area under the curve of precision and recall of bad calls; a judge without any knowledge has the share of bad."""
    best_f1: Interval | None
    """F1 of the bad calls at the cut that is best on these very calls; on others the same cut does less well."""


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

    Source: Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13 (percentile intervals, of 500
    resamples of whole groups).
    """
    z, s = _checked(labels, scores)
    if not 0.0 < z.sum() < len(z):
        return Discrimination(len(z), int(z.sum()), None, None, None)
    samples = _resamples(len(z), groups)

    def interval(measure: Callable[[Array, Array], float]) -> Interval:
        found = np.array([measure(z[rows], s[rows]) for rows in samples])
        low, high = np.nanquantile(found, (0.025, 0.975))
        return Interval(measure(z, s), float(low), float(high))

    return Discrimination(len(z), int(z.sum()), interval(auroc), interval(average_precision), interval(best_f1))


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


def average_precision(labels: Array, scores: Array) -> float:
    """Return the area under the curve of precision and recall of bad calls, as average precision; NaN if none is bad.

    Calls of the same score are flagged together, so that the order of a file changes nothing.

    Args:
        labels: 1 for bad calls, 0 for good ones.
        scores: scores; high is bad.
    """
    found, flagged, bad = _by_cut(labels, scores)
    if not bad:
        return float("nan")
    return float((np.diff(found, prepend=0.0) / bad) @ (found / flagged))


def best_f1(labels: Array, scores: Array) -> float:
    """Return the largest F1 of the bad calls over all cuts of the scores; NaN if none is bad.

    Args:
        labels: 1 for bad calls, 0 for good ones.
        scores: scores; high is bad.
    """
    found, flagged, bad = _by_cut(labels, scores)
    return float((2.0 * found / (flagged + bad)).max()) if bad else float("nan")


def _by_cut(labels: Array, scores: Array) -> tuple[Array, Array, float]:
    """Return the bad calls found and the calls flagged at each cut, from the worst score down, and all bad calls."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    found = np.cumsum(labels[order])[last]
    return found, last + 1.0, float(labels.sum())
