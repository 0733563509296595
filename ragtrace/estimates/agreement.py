"""Agreement of a judge with human labels, and of reviewers with each other."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.formulas import Floats, wilson_interval

_NOTHING: Final = 1e-12
PARTS: Final = 5
"""Number of parts into which the questions are divided for cross-fitting."""
_MIDDLE: Final = 0.5


class Interval(NamedTuple):
    """Estimated number with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        # Adding 0.0 turns -0.0 into 0.0.
        value, low, high = (f"{round(each, 3) + 0.0:.3f}" for each in self)
        return f"{value} [{low}, {high}]"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of a judge's verdicts with human labels.

    A figure that the labels do not determine is None.
    """

    n: int
    """Number of labelled calls."""
    agree: Interval
    """Share of the calls in which label and verdict are the same."""
    kappa: Interval | None
    """Cohen's kappa, the agreement beyond chance: 1 is perfect, 0 is chance. None: labels and verdicts never vary."""
    sensitivity: Interval | None
    """Share of the bad calls that the judge finds bad; None: no call is labelled bad."""
    specificity: Interval | None
    """Share of the good calls that the judge finds good; None: no call is labelled good."""
    constant: float
    """Share of the calls that the better constant verdict gets right; a judge below this share is worse than none."""


def agreement(labels: Sequence[bool], verdicts: Sequence[bool], weights: Sequence[float] | None = None) -> Agreement:
    """Compare a judge's *verdicts* with human *labels* of the same calls, where True means bad in both.

    Args:
        labels: the human labels.
        verdicts: the judge's verdicts.
        weights: inverse of the probability with which each call was chosen; None: all alike.

    Raises:
        SettingsError: there are no labels, the lengths differ, or a weight is not positive.

    Source: Cohen 1960, Educational and Psychological Measurement 20:37 (kappa); Fleiss, Cohen and Everitt 1969,
    Psychological Bulletin 72:323 (its variance); Wilson 1927 (intervals, on the effective number of calls).
    """
    weights = [1.0] * len(labels) if weights is None else weights
    if not labels or not len(labels) == len(verdicts) == len(weights):
        raise SettingsError(
            f"labels, verdicts and weights must be equally many and at least one, got {len(labels)}, {len(verdicts)} "
            f"and {len(weights)}"
        )
    if not all(0.0 < weight < math.inf for weight in weights):
        raise SettingsError("weights must be positive and finite, got other numbers; pass 1 / probability")
    calls = [(bool(label), bool(found), w) for label, found, w in zip(labels, verdicts, weights, strict=True)]
    bad = sum(weight for label, _, weight in calls if label)
    total = sum(weights)
    return Agreement(
        n=len(calls),
        agree=_share([(label == verdict, weight) for label, verdict, weight in calls]),
        kappa=_kappa(calls),
        sensitivity=_share([(verdict, weight) for label, verdict, weight in calls if label]) if bad else None,
        specificity=_share([(not verdict, weight) for label, verdict, weight in calls if not label])
        if bad < total
        else None,
        constant=max(bad, total - bad) / total,
    )


def _share(cases: Sequence[tuple[bool, float]]) -> Interval:
    """Return the weighted share of the cases that are true, with a Wilson interval on the effective number of cases."""
    total = sum(weight for _, weight in cases)
    share = min(1.0, sum(weight for case, weight in cases if case) / total)
    return share_interval(share, total * total / sum(weight * weight for _, weight in cases))


def share_interval(share: float, number: float) -> Interval:
    """Return the Wilson score interval of a *share* of *number* cases, without a small-sample correction."""
    return Interval(share, *wilson_interval(share, number, Floats(), small=0.0, continuity=0.0))


def _kappa(calls: Sequence[tuple[bool, bool, float]]) -> Interval | None:
    """Return Cohen's kappa with its interval, or None if labels and verdicts all have the same value.

    The interval is a Wilson interval of the share of agreement, for the number of calls at which this share would have
    the variance that kappa has: so perfect agreement in a few calls has an interval, too.
    """
    total = sum(weight for *_, weight in calls)
    cell: Counter[tuple[bool, bool]] = Counter()
    for label, verdict, weight in calls:
        cell[label, verdict] += weight / total  # type: ignore[assignment]
    both = (False, True)
    row = {kind: cell[kind, False] + cell[kind, True] for kind in both}
    column = {kind: cell[False, kind] + cell[True, kind] for kind in both}
    observed, chance = cell[False, False] + cell[True, True], sum(row[kind] * column[kind] for kind in both)
    if 1.0 - chance < _NOTHING:
        return None
    kappa = (observed - chance) / (1.0 - chance)
    kappa = kappa if abs(kappa) > _NOTHING else 0.0
    spread = sum(cell[kind, kind] * (1.0 - (row[kind] + column[kind]) * (1.0 - kappa)) ** 2 for kind in both)
    spread += (1.0 - kappa) ** 2 * sum(cell[kind, not kind] * (column[kind] + row[not kind]) ** 2 for kind in both)
    spread -= (kappa - chance * (1.0 - kappa)) ** 2
    number = total * total / sum(weight * weight for *_, weight in calls)
    binomial = observed * (1.0 - observed)
    ratio = binomial / spread if min(binomial, spread) > _NOTHING else 1.0
    found = share_interval(min(1.0, max(0.0, observed)), number * ratio)
    low, high = ((end - chance) / (1.0 - chance) for end in (found.low, found.high))
    return Interval(kappa, max(-1.0, low), min(1.0, high))


def krippendorff_alpha(units: Iterable[Sequence[Hashable | None]]) -> float | None:
    """Return Krippendorff's alpha of several reviewers' nominal labels: 1 is perfect agreement, 0 agreement by chance.

    Args:
        units: for each call the labels that it got; None and absent labels count as missing.

    Returns:
        Alpha; None where no call has two labels, or all labels are the same.

    Source: Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section C (nominal data with missing ones).
    """
    totals: Counter[Hashable] = Counter()
    disagreement = 0.0
    for unit in units:
        counts = Counter(label for label in unit if label is not None)
        number = counts.total()
        if number < 2:
            continue
        totals.update(counts)
        disagreement += (number * number - sum(count * count for count in counts.values())) / (number - 1)
    number = totals.total()
    expected = number * number - sum(count * count for count in totals.values())
    if not expected:
        return None
    return 1.0 - disagreement * (number - 1) / expected


@dataclass(frozen=True, slots=True)
class Threshold:
    """Recommended threshold between good and bad calls, with its error on calls that were not used to choose it."""

    value: float
    """Badness in [0, 1] from which a call counts as bad."""
    error: Agreement
    """Agreement with the labels, where each label is compared at the threshold learned from other questions."""


def recommend_threshold(
    labels: Sequence[bool],
    badness: Sequence[float],
    weights: Sequence[float],
    questions: Sequence[Hashable],
    most_false_alarms: float | None = None,
) -> Threshold | None:
    """Recommend the score threshold from which a call should count as bad, with its cross-fitted error.

    Args:
        labels: the human labels; True is bad.
        badness: the judge's scores of the same calls, higher is worse.
        weights: inverse of the probability with which each call was chosen.
        questions: what is alike for calls with the same question: they are in one of the parts into which cross-fitting
            divides the calls, lest a question of the one part decide about itself in another.
        most_false_alarms: largest wanted share of good calls that count as bad; None: the best mean of sensitivity and
            specificity (balanced accuracy).

    Returns:
        The threshold; None where fewer than two questions have a bad call, or fewer than two a good one.
    """
    calls = list(zip(labels, badness, weights, questions, strict=True))
    # Least number of questions with a bad call, and of questions with a good call, for a threshold to be learned.
    if any(len({question for label, _, _, question in calls if label is kind}) < 2 for kind in (True, False)):
        return None
    part_of = dict(zip(questions, parts_of_questions(labels, questions), strict=True))
    chosen = [
        _best_threshold([call for call in calls if part_of[call[3]] != part], most_false_alarms)
        for part in range(PARTS)
    ]
    verdicts = [score >= chosen[part_of[question]] for _, score, _, question in calls]
    value = _best_threshold(calls, most_false_alarms)
    return Threshold(value, agreement(labels, verdicts, weights))


def parts_of_questions(labels: Sequence[bool], questions: Sequence[Hashable]) -> list[int]:
    """Divide labelled calls into `PARTS` parts for cross-fitting, and return the part of each call, from 0.

    Calls with the same question are in one part, and each part gets its share of the bad calls.

    Args:
        labels: the human labels; True is bad.
        questions: what is alike for calls with the same question.
    """
    bad_questions = {question for label, question in zip(labels, questions, strict=True) if label}
    order = list(dict.fromkeys(questions))
    random.Random(0).shuffle(order)
    order.sort(key=lambda question: question in bad_questions)  # a stable sort: each part gets a share of the bad calls
    part_of = {question: number % PARTS for number, question in enumerate(order)}
    return [part_of[question] for question in questions]


def _best_threshold(calls: Sequence[tuple[bool, float, float, Hashable]], most_false_alarms: float | None) -> float:
    """Return the threshold that best separates good from bad labelled calls.

    Of several such thresholds, the one nearest to 0.5 is returned.
    """
    bad = sum(weight for label, _, weight, _ in calls if label)
    good = sum(weight for label, _, weight, _ in calls if not label)
    scores = sorted({score for _, score, _, _ in calls})
    thresholds = [(low + high) / 2.0 for low, high in pairwise(scores)]
    # The outer thresholds count every call as bad, or none: a judge may be worse than a constant verdict.
    thresholds += [scores[0], scores[-1] + _NOTHING]
    found: list[tuple[float, float, float]] = []
    for threshold in thresholds:
        marked = [(label, weight) for label, score, weight, _ in calls if score >= threshold]
        caught = sum(weight for label, weight in marked if label) / bad if bad else 0.0
        alarms = sum(weight for label, weight in marked if not label) / good if good else 0.0
        if most_false_alarms is None or alarms <= most_false_alarms:
            quality = caught - alarms if most_false_alarms is None else caught
            found.append((-round(quality, 9), abs(threshold - _MIDDLE), threshold))
    return min(found)[2]
