"""Cascade in a history: decision judge, chat judge and people, each of whom saw a sample of what the one before saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ragtrace.estimates.cascade import CascadeCall, cascade_rate
from ragtrace.estimates.score_curve import FEWEST_FOR_RATE
from ragtrace.report.series import ScoreSeries, scores_and_chances

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from ragtrace.estimates import Estimate
    from ragtrace.estimates.corrected import LabelledCall
    from ragtrace.history.reading import CallColumns
    from ragtrace.history.segments import Floats

_COVERED: Final = 0.9
"""Least share of the calls that the decision judge's stage stands for. A judge that scored those of a part of the time
alone, such as one of an earlier version, is no sample of all calls, and its rate would be that of its time."""
_PROXY: Final = "consistency"
"""Metric of every call that stands for the decision judge's score where that judge saw a sample of the calls."""


class CascadeEstimate(NamedTuple):
    """Rate of bad calls by all stages of a cascade, with the decision judge of its first stage."""

    estimate: Estimate
    decision_judge: str
    """As id@version."""


def cascade_estimate(
    columns: CallColumns,
    series: ScoreSeries,
    chosen: NDArray[np.bool_],
    labelled: Mapping[int, LabelledCall],
    questions: Mapping[int, Hashable],
) -> CascadeEstimate | None:
    """Estimate the rate of bad calls by decision judge, chat judge and labels together, with a 95 % interval.

    Each stage counts with the probability that was recorded when the call entered it: of the decision judge and of the
    chat judge with their evaluations, of people with the pick.

    Args:
        columns: calls of the history.
        series: scores by the chat judge, as badness.
        chosen: calls whose rate is wanted.
        labelled: labelled calls by position, as badness; unsure ones have the label None.
        questions: question of each labelled call, by position.

    Returns:
        The estimate; None if no decision judge has scored the calls for the metric, if the one with the most scores
        saw no sample of all of them, or if too few labels are of calls that both judges saw.
    """
    known = [name for metric, name in columns.raw_scores if metric == series.metric and name != series.evaluator]
    if not known or series.is_raw:
        return None
    found = {name: scores_and_chances(columns, series.metric, name) for name in known}
    judge = max(sorted(found), key=lambda name: int((~np.isnan(found[name][0])).sum()))
    score, chance = found[judge]
    decided = np.clip(1.0 - score if series.higher_is_better else score, 0.0, 1.0)
    universe = chosen & series.eligible
    first = universe & ~np.isnan(decided) & (chance > 0.0)
    weight = 1.0 / chance[first]
    if weight.sum() + 3.0 * np.sqrt(((weight - 1.0) * weight).sum()) < _COVERED * universe.sum():
        return None
    second, score_of, weight_of = first & series.is_judged(), series.score_by_call(), series.weight_by_call()
    mine = {at: each for at, each in labelled.items() if second[at]}
    if sum(each.label is not None for each in mine.values()) < FEWEST_FOR_RATE:
        return None
    proxy = _proxy(columns, universe) if (chance[first] < 1.0).any() else np.zeros(len(columns))

    def estimate(unsure: float | None) -> Estimate:
        calls = [
            CascadeCall(
                float(proxy[at]),
                float(decided[at]) if first[at] else None,
                float(np.clip(score_of[at], 0.0, 1.0)) if second[at] else None,
                (unsure if mine[at].label is None else mine[at].label) if at in mine else None,
                float(chance[at]) if first[at] else 1.0,
                1.0 / float(weight_of[at]) if second[at] else 1.0,
                mine[at].labelling_probability if at in mine else 1.0,
                questions.get(at, at),
            )
            for at in np.flatnonzero(universe).tolist()
        ]
        return replace(cascade_rate(calls, metric=series.metric), evaluator=series.evaluator)

    best = estimate(None)
    if any(each.label is None for each in mine.values()):
        # Whether reviewers can tell depends on what a call is: the interval holds whatever the unsure calls are.
        lowest, highest = estimate(0.0), estimate(1.0)
        ends = [end for each in (best, lowest, highest) for end in (each.low, each.high) if end is not None]
        best = replace(best, low=min(ends), high=max(ends))
    return CascadeEstimate(best, judge)


def _proxy(columns: CallColumns, universe: NDArray[np.bool_]) -> Floats:
    """Return the lexical screen's badness of each call, the mean where it is not known, and 0 without such a screen."""
    names = {columns.evaluators[each.evaluator] for each in columns.series.values() if each.metric == _PROXY}
    scores = [scores_and_chances(columns, _PROXY, name)[0] for name in sorted(names)]
    if not scores:
        return np.zeros(len(columns))
    badness = 1.0 - np.clip(max(scores, key=lambda each: int((~np.isnan(each)).sum())), 0.0, 1.0)
    seen = universe & ~np.isnan(badness)
    return np.where(np.isnan(badness), float(badness[seen].mean()) if seen.any() else 0.0, badness)
