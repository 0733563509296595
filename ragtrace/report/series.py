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
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class ScoreSeries:
    """Scores of one metric by one evaluator, with sampling weights.

    What only a scored call has is an array with one element per scored call, as a judge usually scores few of a million
    calls; the other arrays have one element per call.
    """

    metric: str
    evaluator: str
    higher_is_better: bool
    scored_call: Ints
    """Positions of the calls that this evaluator scored, ascending."""
    scores: Floats
    """Score of each scored call."""
    weights: Floats
    """Sampling weight of each scored call, which is 1 / probability; 0 if the score does not count."""
    always_judged: Mask
    """Whether a sampling rule has all calls of its kind judged, and the screen scored it, of each scored call."""
    eligible: Mask
    """Whether the call could have been judged."""
    screen_score: Floats
    """Score of the call by the screen, clipped to [0, 1]; 0 if the metric is not screened."""
    estimated: bool
    unit: bool
    """Whether the scores lie in [0, 1]."""
    added: bool = False
    """Whether all these scores were given to stored calls, later than those of the judge of the live calls."""
    is_raw: bool = False
    """Whether they are raw probabilities of a decision model, whose mean is not a rate."""
    versions: tuple[tuple[str, Ints], ...] = ()
    """Versions of the metric, each with the positions of the calls that it scored; empty if there is one version."""

    @property
    def key(self) -> tuple[str, str]:
        """Name of the metric and id of the evaluator."""
        return self.metric, self.evaluator

    def score_by_call(self) -> Floats:
        """Return the score of each call; NaN if this evaluator did not score the call."""
        return _by_call(self.scored_call, self.scores, len(self.eligible), np.nan)

    def weight_by_call(self) -> Floats:
        """Return the sampling weight of each call; 0 if this evaluator did not score the call."""
        return _by_call(self.scored_call, self.weights, len(self.eligible), 0.0)

    def is_judged(self) -> Mask:
        """Return a mask of the calls whose score counts."""
        found = np.zeros(len(self.eligible), dtype=bool)
        found[self.judged_calls()] = True
        return found

    def judged_calls(self) -> Ints:
        """Return the positions of the calls whose score counts, ascending."""
        return self.scored_call if self.weights.all() else self.scored_call[self.weights > 0]

    def among(self, positions: NDArray[np.int64]) -> ScoreSeries:
        """Return the series of the calls at the given ascending *positions*, which are its calls 0, 1, 2 ..."""
        place = np.full(len(self.eligible), -1, np.int32)
        place[positions] = np.arange(len(positions), dtype=np.int32)
        mine = np.flatnonzero(place[self.scored_call] >= 0)
        return replace(
            self, scored_call=place[self.scored_call[mine]], scores=self.scores[mine], weights=self.weights[mine],
            always_judged=self.always_judged[mine], eligible=self.eligible[positions],
            screen_score=self.screen_score[positions], versions=(),
        )  # fmt: skip

    def count_judged(self, group: Ints, count: int) -> list[int]:
        """Return the number of scored calls in each of *count* groups of calls.

        Args:
            group: index of each call's group; -1: the call is in none.
        """
        of = group[self.judged_calls()]
        scored: list[int] = np.bincount(of[of >= 0], minlength=count).tolist()
        return scored

    def quartiles(self, group: Ints, count: int) -> list[tuple[float, float, float] | None]:
        """Return the quartiles of the scores in each of *count* groups of calls; None where no call has a score.

        Args:
            group: index of each call's group; -1: the call is in none.
        """
        rows = np.flatnonzero((self.weights > 0) & (group[self.scored_call] >= 0))
        of = group[self.scored_call[rows]]
        rows = rows[np.argsort(of, kind="stable")]
        ends = np.cumsum(np.bincount(of, minlength=count))[:-1]
        return [
            _quartiles(self.scores[part], self.weights[part]) if len(part) else None for part in np.split(rows, ends)
        ]

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
        # Groups are counted from 1: all other calls are in group 0, whose sums are not used. To sum them as well takes
        # less time than to pick the calls of the groups out of a million.
        of_call = np.add(group, 1, dtype=np.intp)
        judged = self.judged_calls()
        of = of_call[judged]
        if not self.eligible.all():
            of_call[~self.eligible] = 0
        sums: list[NDArray[Any]] = [np.bincount(of_call, minlength=count + 1)[1:]]
        f = self.screen_score
        if f.any():
            sums += [np.bincount(of_call, weights=term, minlength=count + 1)[1:] for term in (f, f * f)]
        else:
            sums += [np.zeros(count)] * 2
        rows = np.flatnonzero(of)
        of, judged = of[rows] - 1, judged[rows]
        if not self.weights.all():
            rows = np.flatnonzero(self.weights)[rows]
        w, f, r = self.weights[rows], self.screen_score[judged], self.always_judged[rows]
        y = np.nan_to_num(np.clip(self.scores[rows], 0.0, 1.0))

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
        rows = np.flatnonzero(chosen[self.scored_call] & (self.weights > 0))
        y, w = self.scores[rows], self.weights[rows]
        if not len(y):
            return None
        mean = float((y * w).sum() / w.sum())
        low, first, median, third, high = _weighted_quantiles(y, w, _QUANTILES)
        shares: tuple[float, ...] = ()
        if self.unit:
            counts, _ = np.histogram(np.clip(y, 0, 1), bins=_BINS, range=(0.0, 1.0), weights=w)
            shares = tuple(float(share) for share in counts / w.sum())
        return ScoreSpread(len(y), low, first, median, third, high, mean, shares)


def _weighted_quantiles(y: Floats, w: Floats, shares: Sequence[float]) -> list[float]:
    """Return the quantiles of the scores *y*, each of which counts *w* times, at the given *shares*; *y* is reordered.

    Args:
        y: (n,) scores, n >= 1.
        w: (n,) weights above 0.
        shares: quantiles from 0 to 1, such as 0.5 for the median.
    """
    same = bool((w == w[0]).all())
    if not same:
        order = np.argsort(y, kind="stable")
        y, w = y[order], w[order]
    reached = (np.cumsum(w) - w / 2) / w.sum()
    places = np.minimum(np.searchsorted(reached, shares), len(y) - 1)
    if same:  # as usual: to sort a million scores for a few of them takes longer than all else here
        y.partition(np.unique(places))
    found: list[float] = y[places].tolist()
    return found


def _quartiles(y: Floats, w: Floats) -> tuple[float, float, float]:
    first, median, third = _weighted_quantiles(y, w, (0.25, 0.5, 0.75))
    return first, median, third


def score_series(columns: CallColumns) -> list[ScoreSeries]:
    """Return the scores of every metric by every evaluator, with sampling weights."""
    found: dict[tuple[str, str], bool] = {}
    first: dict[int, int] = {}
    for number in columns.series:
        of_series = columns.scored_series == number
        if of_series.any():
            first[number] = int(of_series.argmax())
    for number in sorted(first, key=lambda number: first[number]):  # by the first score
        series = columns.series[number]
        found[series.metric, columns.evaluators[series.evaluator]] = series.higher_is_better
    reader = _SeriesReader(columns)
    return [reader.read(metric, evaluator, better) for (metric, evaluator), better in found.items()]


def read_series(columns: CallColumns, metric: str, evaluator: str, *, higher_is_better: bool) -> ScoreSeries:
    """Return the scores of one metric by one evaluator, with sampling weights; there may be none."""
    return _SeriesReader(columns).read(metric, evaluator, higher_is_better)


class _SeriesReader:
    """Reader of score series from columns, which reads once what several series need."""

    def __init__(self, columns: CallColumns) -> None:
        self._columns = columns
        self._always, self._never = _sampled_calls(columns, ALWAYS_RULE), _sampled_calls(columns, NEVER_RULE)
        self._decided = ~_sampled_calls(columns, "", NEVER_RULE)
        self._scores: dict[tuple[str, str], tuple[Ints, Floats]] = {}
        self._probabilities: dict[str, tuple[Ints, Floats]] = {}
        self._weights: dict[str, Floats] = {}

    def scores_of(self, metric: str, evaluator: str) -> tuple[Ints, Floats]:
        """Return the calls that an evaluator scored, ascending, and its score of each."""
        columns, key = self._columns, (metric, evaluator)
        if key not in self._scores:
            numbers = self._stored(metric, evaluator)
            self._scores[key] = _rows_of(numbers, columns.scored_series, columns.scored_call, columns.score)
        return self._scores[key]

    def probabilities_of(self, evaluator: str) -> tuple[Ints, Floats]:
        """Return the calls that an evaluator saw, ascending, and the probability with which it saw each."""
        columns = self._columns
        if evaluator not in self._probabilities:
            numbers = [number for number, identity in columns.evaluators.items() if identity == evaluator]
            self._probabilities[evaluator] = _rows_of(
                numbers, columns.evaluator, columns.evaluation_call, columns.probability
            )
        return self._probabilities[evaluator]

    def _could_be_judged(self, evaluator: str) -> Mask:
        calls, probability = self.probabilities_of(evaluator)
        seen = np.zeros(len(self._columns), dtype=bool)
        seen[calls[probability > 0]] = True
        return (self._decided | seen) & ~self._never

    def read(self, metric: str, evaluator: str, higher_is_better: bool) -> ScoreSeries:
        columns = self._columns
        evaluated, probability = self.probabilities_of(evaluator)
        scored, y = self.scores_of(metric, evaluator)
        if np.array_equal(scored, evaluated):
            scored = evaluated  # which the evaluator's other metrics share
        else:
            probability = _by_call(evaluated, probability, len(columns), 0.0)[scored]
        if not (probability > 0).all():
            seen = probability > 0
            scored, y, probability = scored[seen], y[seen], probability[seen]
        weight = np.divide(1.0, probability)
        f: Floats = np.broadcast_to(np.float64(0.0), len(columns))
        counted, ruled = np.zeros(len(columns), dtype=bool), np.zeros(len(scored), dtype=bool)
        ours, added = np.zeros(len(columns), dtype=bool), np.zeros(len(columns), dtype=bool)
        unit = any(metric in (*source.screened, *source.judged) for source in columns.sources.values())
        unit = unit or (has_unit_range(metric) and bool(((y >= 0.0) & (y <= 1.0)).all()))
        for number, source in columns.sources.items():
            here = columns.source == number
            if not here.any():
                continue
            if source.estimated_by(metric) != evaluator:
                if unit and evaluator not in (source.screen, source.judge):  # these calls were judged when stored
                    late = scored[here[scored]]
                    added[late] = True
                continue
            ours |= here
            if metric not in source.judged:
                counted[scored[here[scored]]] = True
                continue
            could = here & self._could_be_judged(evaluator)
            weight[(here & ~could)[scored]] = 0.0
            if metric not in source.screened:
                known = could
            else:
                screened_call, screened = self.scores_of(metric, source.screen)
                known = np.zeros(len(columns), dtype=bool)
                known[screened_call] = True
                known &= could
                if known.all() and bool(((screened >= 0.0) & (screened <= 1.0)).all()):
                    f = screened  # all calls are of this source, so nothing is written to it
                else:
                    f = f if f.flags.writeable else f.copy()
                    screened = _by_call(screened_call, screened, len(columns), np.nan)
                    f[known] = np.clip(screened[known], 0.0, 1.0)
                    # A call that the screen could not score gets the mean screen score of all others, which shifts no
                    # estimate.
                    f[could & ~known] = float(f[known].mean()) if known.any() else 0.0
            counted |= known
            ruled |= (known & self._always)[scored] & (probability == 1.0)
        counted |= added
        only_added = bool(added.any() and not ours.any())
        ours |= added
        estimated = bool(ours.any())
        if estimated and not ours.all():  # Leave out scores from times at which estimates rested on another evaluator.
            mine = ours[scored]
            scored, y, weight, ruled = scored[mine], y[mine], weight[mine], ruled[mine]
        known_weight = self._weights.setdefault(evaluator, weight)  # usually that of the evaluator's other metrics
        weight = known_weight if np.array_equal(known_weight, weight) else weight
        raw = (metric, evaluator) in columns.raw_scores
        return ScoreSeries(
            metric, evaluator, higher_is_better, scored, y, weight, ruled, counted, f, estimated, unit, only_added, raw,
            self._versions(metric, evaluator),
        )  # fmt: skip

    def _versions(self, metric: str, evaluator: str) -> tuple[tuple[str, Ints], ...]:
        """Return the versions of a metric with the calls that each scored, or none if all scores are of one."""
        columns = self._columns
        calls: dict[str, list[Ints]] = {}
        stored = self._stored(metric, evaluator)
        if len({columns.series[number].version for number in stored}) < 2:
            return ()  # as usual: nothing is looked for among a million scores
        for number in stored:
            found = columns.scored_call[columns.scored_series == number]
            if len(found):
                calls.setdefault(columns.series[number].version, []).append(found)
        return tuple((version, np.concatenate(calls[version])) for version in sorted(calls)) if len(calls) > 1 else ()

    def _stored(self, metric: str, evaluator: str) -> list[int]:
        """Return the numbers in the file of a metric's series by an evaluator: one for each version of the metric."""
        columns = self._columns
        return [
            number
            for number, series in columns.series.items()
            if series.metric == metric and columns.evaluators.get(series.evaluator) == evaluator
        ]


def scores_and_chances(columns: CallColumns, metric: str, evaluator: str) -> tuple[Floats, Floats]:
    """Return an evaluator's score of each call, NaN where there is none, and the probability that it saw the call."""
    reader = _SeriesReader(columns)
    scores, chances = reader.scores_of(metric, evaluator), reader.probabilities_of(evaluator)
    return _by_call(*scores, len(columns), np.nan), _by_call(*chances, len(columns), 0.0)


def has_unit_range(metric: str) -> bool:
    """Return whether a metric's scores lie in [0, 1].

    The result is True for metrics that are not ragtrace's own.
    """
    return metric not in registry.names() or registry.get(metric).range == (0.0, 1.0)


def _by_call(calls: Ints, values: Floats, count: int, missing: float) -> Floats:
    """Return an array with the *values* of some of *count* calls, and *missing* for all others."""
    if len(calls) == count:
        return values
    found = np.full(count, missing)
    found[calls] = values
    return found


def _rows_of(numbers: Sequence[int], codes: Ints, calls: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Return call and value of the rows whose code is one of *numbers*, of each call the last one."""
    rows = np.flatnonzero(_is_one_of(codes, numbers))
    found = calls[rows]
    if len(numbers) > 1:  # as of two versions of a metric
        is_last = np.append(found[1:] != found[:-1], np.ones(min(1, len(found)), dtype=bool))
        rows, found = rows[is_last], found[is_last]
    return found, values[rows]


def _sampled_calls(columns: CallColumns, *reasons: str) -> Mask:
    """Return a mask of the calls whose sampling decision has one of *reasons*."""
    return _is_one_of(columns.why, [code for code, reason in enumerate(columns.decisions) if reason in reasons])


def _is_one_of(codes: Ints, wanted: Sequence[int]) -> Mask:
    """Return a mask of the *codes*, small numbers from 0 on, that are *wanted*; `numpy.isin` takes several times it."""
    if len(wanted) < _FEW:
        mask = np.zeros(len(codes), dtype=bool)
        for code in wanted:
            mask |= codes == code
        return mask
    table = np.zeros(max(int(codes.max(initial=0)), *wanted, 0) + 1, dtype=bool)
    table[list(wanted)] = True
    return table[codes]
