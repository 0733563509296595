"""The columns of a history turned into what the estimates need: one track a metric and evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.estimates import Estimate, Moments, from_moments
from ragtrace.history.reading import Columns
from ragtrace.report.model import Box

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragtrace.history.reading import Floats, Ints

_NEVER: Final = "never_rule"
"""Reason of a decision: calls of that kind are never judged, so no estimate speaks of them."""
_ALWAYS: Final = "always_rule"
"""Reason of a decision: calls of that kind are always judged."""
_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_BINS: Final = 20


@dataclass(frozen=True, slots=True)
class Track:
    """The scores of one metric by one evaluator, and what the screen said of the same calls; one place a call."""

    metric: str
    evaluator: str
    higher_is_better: bool
    y: Floats
    """NaN: not scored by it."""
    weight: Floats
    """1 / p; 0 where it is not scored."""
    counted: Floats
    """1: the call could have been judged; else 0."""
    f: Floats
    ruled: Floats
    """1: a rule always has calls like this one judged, and the screen has scored it; else 0."""
    estimated: bool
    unit: bool
    """Whether its scores are in [0, 1]."""

    def sums(self, group: Ints, count: int) -> list[Moments]:
        """The moments of *count* groups; *group*: that of each call, or -1."""
        chosen = group >= 0
        group = group[chosen]
        w, n, f, r = self.weight[chosen], self.counted[chosen], self.f[chosen], self.ruled[chosen]
        c = (w > 0.0).astype(np.float64)
        y = np.nan_to_num(np.clip(self.y[chosen], 0.0, 1.0))
        terms: list[Floats] = [n, n * f, n * f * f]
        for power in (w, w * w, c):
            terms += [power, power * y, power * f, power * y * y, power * y * f, power * f * f]
        terms.append(w * w * w)
        terms += [r, r * y, r * f, r * y * y, r * y * f, r * f * f]
        rows = np.array([np.bincount(group, weights=term, minlength=count) for term in terms])
        return [Moments(*column) for column in rows.T.tolist()]

    def judged(self, group: Ints, count: int) -> list[int]:
        """How many calls of each group it has scored."""
        scored: Ints = np.bincount(group[(group >= 0) & (self.weight > 0)], minlength=count)
        return [int(number) for number in scored]

    def estimates(self, group: Ints, count: int, workflow: str | None = None) -> list[Estimate]:
        """The estimate of each group."""
        return [
            from_moments(moments, metric=self.metric, workflow=workflow, evaluator=self.evaluator)
            for moments in self.sums(group, count)
        ]

    def box(self, chosen: NDArray[np.bool_]) -> Box | None:
        """How the scores of the *chosen* calls are spread; None if there is none."""
        picked = chosen & (self.weight > 0)
        y, w = self.y[picked], self.weight[picked]
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
        return Box(len(y), low, first, median, third, high, float((y * w).sum() / w.sum()), shares)


def tracks(columns: Columns) -> list[Track]:
    """One track for every metric and evaluator of which there is a score, or could have been one."""
    found: dict[tuple[str, str], bool] = {}
    for number in dict.fromkeys(columns.scored_series.tolist()):
        series = columns.series[number]
        found[series.metric, columns.evaluators[series.evaluator]] = series.higher_is_better
    return [_track(columns, metric, evaluator, better) for (metric, evaluator), better in found.items()]


def _track(columns: Columns, metric: str, evaluator: str, higher_is_better: bool) -> Track:
    y, probability = _scores(columns, metric, evaluator), _probabilities(columns, evaluator)
    scored = ~np.isnan(y) & (probability > 0)
    weight = np.where(scored, 1.0 / np.where(scored, probability, 1.0), 0.0)
    y = np.where(scored, y, np.nan)
    counted, f, ruled = np.zeros(len(columns)), np.zeros(len(columns)), np.zeros(len(columns))
    always = np.isin(columns.why, [code for code, reason in enumerate(columns.decisions) if reason == _ALWAYS])
    ours = np.zeros(len(columns), dtype=bool)
    for number, source in columns.sources.items():
        if source.estimated_by(metric) != evaluator:
            continue
        here = columns.source == number
        ours |= here
        if metric not in source.judged:
            counted[here & scored] = 1.0
            continue
        screened = _scores(columns, metric, source.screen) if metric in source.screened else np.zeros(len(columns))
        could = here & _reached(columns, probability)
        weight[here & ~could] = 0.0
        known = could & ~np.isnan(screened)
        counted[known] = 1.0
        ruled[known & scored & always & (probability == 1.0)] = 1.0
        f[known] = np.clip(screened[known], 0.0, 1.0)
        # A judged call that the screen could not score counts with the mean of all others, which shifts no estimate.
        f[could & np.isnan(screened)] = float(f[known].mean()) if known.any() else 0.0
    estimated = bool(ours.any())
    if estimated:  # scores of the same evaluator where another's were estimated are not of this series
        weight, y = np.where(ours, weight, 0.0), np.where(ours, y, np.nan)
    unit = any(metric in (*source.screened, *source.judged) for source in columns.sources.values())
    return Track(metric, evaluator, higher_is_better, y, weight, counted, f, ruled, estimated, unit)


def _scores(columns: Columns, metric: str, evaluator: str) -> Floats:
    numbers = [
        number
        for number, series in columns.series.items()
        if series.metric == metric and columns.evaluators.get(series.evaluator) == evaluator
    ]
    rows = np.isin(columns.scored_series, numbers)
    scores = np.full(len(columns), np.nan)
    scores[columns.scored_call[rows]] = columns.score[rows]
    return scores


def _probabilities(columns: Columns, evaluator: str) -> Floats:
    """With which each call was looked at; 0: it was not."""
    numbers = [number for number, identity in columns.evaluators.items() if identity == evaluator]
    rows = np.isin(columns.evaluator, numbers)
    probabilities = np.zeros(len(columns))
    probabilities[columns.evaluation_call[rows]] = columns.probability[rows]
    return probabilities


def _reached(columns: Columns, probability: Floats) -> NDArray[np.bool_]:
    """Whether the judge could have seen the call: it was decided so or not so, or it has seen it."""
    undecided = [code for code, reason in enumerate(columns.decisions) if reason in ("", _NEVER)]
    never = [code for code, reason in enumerate(columns.decisions) if reason == _NEVER]
    return (~np.isin(columns.why, undecided) | (probability > 0)) & ~np.isin(columns.why, never)


def groups(codes: Ints, chosen: NDArray[np.bool_]) -> Ints:
    """*codes* where *chosen*, else -1."""
    return np.where(chosen, codes, -1)


def parts_of(columns: Columns, edges: Sequence[float]) -> Ints:
    """The part of the time that each call is in; *edges* are sorted; -1: in none."""
    found = np.searchsorted(np.asarray(edges), columns.at, side="right") - 1
    return np.where((found >= 0) & (found < len(edges) - 1), found, -1)


def mask(columns: Columns, codes: Ints, wanted: Iterable[int]) -> NDArray[np.bool_]:
    """The calls whose code is *wanted*."""
    return np.isin(codes, list(wanted)) if len(columns) else np.zeros(0, dtype=bool)
