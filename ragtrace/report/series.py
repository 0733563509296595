"""Scores and sampling weights from a history as arrays, one set for each metric and evaluator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragtrace.core.types import UNCALIBRATED
from ragtrace.estimates import Estimate, Moments, estimate_mean, missing_estimate
from ragtrace.estimates.moments import ALWAYS_RULE, NEVER_RULE
from ragtrace.history.reading import CallColumns
from ragtrace.metrics import registry
from ragtrace.report.model import ScoreSpread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ragtrace.history.segments import Floats, Ints

    Mask: TypeAlias = NDArray[np.bool_]

_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_BINS: Final = 20


@dataclass(frozen=True, slots=True)
class ScoreSeries:
    """Scores of one metric by one evaluator, with sampling weights, as arrays with one element per call."""

    metric: str
    evaluator: str
    higher_is_better: bool
    score: Floats
    """Score of the call; NaN if this evaluator did not score the call."""
    weight: Floats
    """Sampling weight, which is 1 / probability; 0 if this evaluator did not score the call."""
    eligible: Mask
    """Whether the call could have been judged."""
    screen_score: Floats
    """Score of the call by the screen, clipped to [0, 1]; 0 if the metric is not screened."""
    always_judged: Mask
    """Whether a sampling rule has all calls of this kind judged, and the screen scored the call."""
    estimated: bool
    unit: bool
    """Whether the scores lie in [0, 1]."""
    added: bool = False
    """Whether all these scores were given to stored calls, later than those of the judge of the live calls."""
    is_raw: bool = False
    """Whether they are raw probabilities of a decision model, whose mean is not a rate."""

    @property
    def key(self) -> tuple[str, str]:
        """Name of the metric and id of the evaluator."""
        return self.metric, self.evaluator

    def count_judged(self, group: Ints, count: int) -> list[int]:
        """Return the number of scored calls in each of *count* groups of calls.

        Args:
            group: index of each call's group; -1: the call is in none.
        """
        scored: list[int] = np.bincount(group[(group >= 0) & (self.weight > 0)], minlength=count).tolist()
        return scored

    def estimates(self, group: Ints, count: int) -> list[Estimate]:
        """Return the estimated mean score of the calls in each of *count* groups.

        Raw probabilities have none, with the reason `uncalibrated`.

        Args:
            group: index of each call's group; -1: the call is in none.
        """
        sums = self.moments(group, count)
        if self.is_raw:
            none = replace(
                missing_estimate(UNCALIBRATED, "tuned", "rate", metric=self.metric), evaluator=self.evaluator
            )
            return [replace(none, n=round(moments.n)) for moments in sums]
        return [estimate_mean(moments, metric=self.metric, evaluator=self.evaluator) for moments in sums]

    def moments(self, group: Ints, count: int) -> list[Moments]:
        """Return the `Moments` (weighted sums of scores) of the calls in each of *count* groups.

        Args:
            group: index of each call's group; -1: the call is in none.
        """
        chosen = group >= 0
        counted = chosen & self.eligible
        of, f = group[counted].astype(np.intp), self.screen_score[counted]
        sums: list[NDArray[Any]] = [np.bincount(of, minlength=count)]
        sums += [np.bincount(of, weights=term, minlength=count) for term in (f, f * f)]
        # Usually few calls are judged, and the others add 0 to all other sums.
        judged = np.flatnonzero(chosen & (self.weight > 0.0))  # numbers, which pick few of many faster than a mask
        of = group[judged].astype(np.intp)
        w, f, r = self.weight[judged], self.screen_score[judged], self.always_judged[judged]
        y = np.nan_to_num(np.clip(self.score[judged], 0.0, 1.0))

        def total(*factors: Floats) -> NDArray[Any]:
            return np.bincount(of, weights=math.prod(factors[1:], start=factors[0]), minlength=count)

        def totals(power: Floats) -> list[NDArray[Any]]:
            if not f.any():  # as of an evaluator without a screen: adding a million zeros takes its time
                zeros = np.zeros(count)
                return [total(power), total(power, y), zeros, total(power, y, y), zeros, zeros]
            products = (), (y,), (f,), (y, y), (y, f), (f, f)
            return [total(power, *product) for product in products]

        if (w == 1.0).all():  # as of an evaluator that sees every call: all powers of the weight are the same
            sums += [*(totals(w) * 3), total(w)]
        else:
            sums += [*totals(w), *totals(w * w), *totals(np.ones(len(w))), total(w * w * w)]
        of, y, f = of[r], y[r], f[r]  # of these, usually none
        sums.append(np.bincount(of, minlength=count))
        sums += [np.bincount(of, weights=term, minlength=count) for term in (y, f, y * y, y * f, f * f)]
        return [Moments(*column) for column in np.array(sums).T.tolist()]

    def estimate(self, chosen: Mask) -> Estimate:
        """Return the estimated mean score of the *chosen* calls."""
        return self.estimates(np.where(chosen, 0, -1), 1)[0]

    def split(self, before: Mask, after: Mask) -> tuple[Estimate, Estimate]:
        """Return the estimated mean scores of two groups of calls, given by the masks *before* and *after*.

        A call that is in both groups counts as *after*.
        """
        first, second = self.estimates(np.where(after, 1, np.where(before, 0, -1)), 2)
        return first, second

    def spread(self, chosen: Mask) -> ScoreSpread | None:
        """Return the distribution of the selected calls' scores, or None if no call has a score."""
        picked = chosen & (self.weight > 0)
        y, w = self.score[picked], self.weight[picked]
        if not len(y):
            return None
        order = np.argsort(y, kind="stable")
        y, w = y[order], w[order]
        reached = (np.cumsum(w) - w / 2) / w.sum()
        places = np.minimum(np.searchsorted(reached, _QUANTILES), len(y) - 1)
        low, first, median, third, high = y[places].tolist()
        shares: tuple[float, ...] = ()
        if self.unit:
            counts, _ = np.histogram(np.clip(y, 0, 1), bins=_BINS, range=(0.0, 1.0), weights=w)
            shares = tuple(float(share) for share in counts / w.sum())
        return ScoreSpread(len(y), low, first, median, third, high, float((y * w).sum() / w.sum()), shares)


def score_series(columns: CallColumns) -> list[ScoreSeries]:
    """Return a `ScoreSeries` for every metric and evaluator that has a score in the history."""
    found: dict[tuple[str, str], bool] = {}
    numbers = np.flatnonzero(np.bincount(columns.scored_series)).tolist()
    numbers.sort(key=lambda number: int((columns.scored_series == number).argmax()))  # by the first score
    for number in numbers:
        series = columns.series[number]
        found[series.metric, columns.evaluators[series.evaluator]] = series.higher_is_better
    series_of = (_series(columns, metric, evaluator, better) for (metric, evaluator), better in found.items())
    weights: dict[str, Floats] = {}
    listed: list[ScoreSeries] = []
    for each in series_of:  # an evaluator's metrics usually have the same weights, of 8 MB for a million calls
        known = weights.setdefault(each.evaluator, each.weight)
        listed.append(replace(each, weight=known) if np.array_equal(known, each.weight) else each)
    return listed


def _series(columns: CallColumns, metric: str, evaluator: str, higher_is_better: bool) -> ScoreSeries:
    y, probability = _scores(columns, metric, evaluator), _probabilities(columns, evaluator)
    scored = ~np.isnan(y) & (probability > 0)
    weight = np.divide(1.0, probability, out=np.zeros(len(columns)), where=scored)
    y[~scored] = np.nan
    f: Floats = np.broadcast_to(np.float64(0.0), len(columns))
    counted, ruled = np.zeros(len(columns), dtype=bool), np.zeros(len(columns), dtype=bool)
    always, never = _sampled_calls(columns, ALWAYS_RULE), _sampled_calls(columns, NEVER_RULE)
    could_be_judged = (~_sampled_calls(columns, "", NEVER_RULE) | (probability > 0)) & ~never
    ours, added = np.zeros(len(columns), dtype=bool), np.zeros(len(columns), dtype=bool)
    unit = any(metric in (*source.screened, *source.judged) for source in columns.sources.values())
    unit = unit or (has_unit_range(metric) and bool(((y[scored] >= 0.0) & (y[scored] <= 1.0)).all()))
    for number, source in columns.sources.items():
        here = columns.source == number
        if source.estimated_by(metric) != evaluator:
            if unit and evaluator not in (source.screen, source.judge):  # these calls were judged when stored
                added |= here & scored
            continue
        ours |= here
        if metric not in source.judged:
            counted[here & scored] = True
            continue
        f = f if f.flags.writeable else f.copy()
        screened = _scores(columns, metric, source.screen) if metric in source.screened else np.zeros(len(columns))
        could = here & could_be_judged
        weight[here & ~could] = 0.0
        known = could & ~np.isnan(screened)
        counted[known] = True
        ruled[known & scored & always & (probability == 1.0)] = True
        f[known] = np.clip(screened[known], 0.0, 1.0)
        # A call that the screen could not score gets the mean screen score of all others, which shifts no estimate.
        f[could & np.isnan(screened)] = float(f[known].mean()) if known.any() else 0.0
    counted[added] = True
    only_added = bool(added.any() and not ours.any())
    ours |= added
    estimated = bool(ours.any())
    if estimated:  # Leave out scores from times at which estimates rested on another evaluator.
        weight[~ours], y[~ours] = 0.0, np.nan
    raw = (metric, evaluator) in columns.raw_scores
    return ScoreSeries(
        metric, evaluator, higher_is_better, y, weight, counted, f, ruled, estimated, unit, only_added, raw
    )  # fmt: skip


def scores_and_chances(columns: CallColumns, metric: str, evaluator: str) -> tuple[Floats, Floats]:
    """Return an evaluator's score of each call, NaN where there is none, and the probability that it saw the call."""
    return _scores(columns, metric, evaluator), _probabilities(columns, evaluator)


def has_unit_range(metric: str) -> bool:
    """Return whether a metric's scores lie in [0, 1].

    The result is True for metrics that are not ragtrace's own.
    """
    return metric not in registry.names() or registry.get(metric).range == (0.0, 1.0)


def _scores(columns: CallColumns, metric: str, evaluator: str) -> Floats:
    numbers = [
        number
        for number, series in columns.series.items()
        if series.metric == metric and columns.evaluators.get(series.evaluator) == evaluator
    ]
    rows = np.flatnonzero(_is_one_of(columns.scored_series, numbers))
    scores = np.full(len(columns), np.nan)
    scores[columns.scored_call[rows]] = columns.score[rows]
    return scores


def _probabilities(columns: CallColumns, evaluator: str) -> Floats:
    """Return the probability with which each call was sampled for *evaluator*, with 0 for calls not sampled."""
    numbers = [number for number, identity in columns.evaluators.items() if identity == evaluator]
    rows = np.flatnonzero(_is_one_of(columns.evaluator, numbers))
    probabilities = np.zeros(len(columns))
    probabilities[columns.evaluation_call[rows]] = columns.probability[rows]
    return probabilities


def _sampled_calls(columns: CallColumns, *reasons: str) -> Mask:
    """Return a mask of the calls whose sampling decision has one of *reasons*."""
    return _is_one_of(columns.why, [code for code, reason in enumerate(columns.decisions) if reason in reasons])


def _is_one_of(codes: Ints, wanted: Sequence[int]) -> Mask:
    """Return a mask of the *codes*, small numbers from 0 on, that are *wanted*; `numpy.isin` takes several times it."""
    table = np.zeros(max(int(codes.max(initial=0)), *wanted, 0) + 1, dtype=bool)
    table[list(wanted)] = True
    return table[codes]
