"""From the evaluations of a call to its moments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from ragtrace.core.types import Evaluation, Metric, RagCall, Score
from ragtrace.estimates.moments import of_judged, of_seen
from ragtrace.estimates.running import RunningMoments, Series

NEVER_RULE: Final = "never_rule"
"""Reason of a decision: calls of that kind are never judged, so no estimate speaks of them."""
ALWAYS_RULE: Final = "always_rule"
"""Reason of a decision: a rule always has such calls judged, so they are a stratum of their own."""
MODEL: Final = "model"
_SCALE: Final = (0.0, 1.0)


class Scorer(Protocol):
    """An evaluator: who it is and which metrics it gives."""

    @property
    def id(self) -> str: ...
    @property
    def metrics(self) -> tuple[Metric, ...]: ...


def _no_metrics() -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True, slots=True)
class Plan:
    """Who scores what in this process; a metric is estimated if its range is [0, 1]."""

    screen: str | None = None
    """Id of the evaluator that sees every call."""
    screened: frozenset[str] = field(default_factory=_no_metrics)
    """The metrics it gives."""
    judge: str | None = None
    """Id of the evaluator that sees a sample."""
    judged: frozenset[str] = field(default_factory=_no_metrics)

    @classmethod
    def of(cls, screen: Scorer | None, judge: Scorer | None) -> Plan:
        """From the evaluators themselves; None: there is none."""
        return cls(
            None if screen is None else screen.id,
            frozenset() if screen is None else _estimated(screen.metrics),
            None if judge is None else judge.id,
            frozenset() if judge is None else _estimated(judge.metrics),
        )

    def evaluator(self, metric: str) -> str | None:
        """Id of the evaluator whose scores of *metric* are estimated; None if the metric is not."""
        if metric in self.judged:
            return self.judge
        return self.screen if metric in self.screened else None


def _estimated(metrics: Iterable[Metric]) -> frozenset[str]:
    return frozenset(metric.name for metric in metrics if tuple(metric.range) == _SCALE)


class Observer:
    """Adds every finished call to the running moments.

    A metric that the judge gives is estimated from the judge's scores, and the screen's score of the same metric, if
    there is one, is its f; any other is estimated from the screen's scores, all of which are known (p = 1, f = 0).
    Calls to which a `never` rule applies are left out. Where a screen has the metric, n counts the calls it has scored;
    a judged call that it could not score counts with the mean f of all others, which shifts no estimate.
    """

    def __init__(self, plan: Plan, running: RunningMoments) -> None:
        self.plan, self.running = plan, running

    def observe(self, call: RagCall, evaluations: Sequence[Evaluation], decision: str | None) -> None:
        """Count *call*.

        Args:
            evaluations: what the evaluators made of it.
            decision: why the judge was to see it or not; None: it was decided before (then the judge's evaluation is
                there), or it never came to that (then nothing is known of the judge, and the call is not counted).
        """
        by_evaluator = {evaluation.evaluator: evaluation for evaluation in evaluations}
        screen = by_evaluator.get(self.plan.screen or "")
        judge = by_evaluator.get(self.plan.judge or "")
        labels = ((MODEL, call.model),) if call.model else ()
        for metric in self.plan.screened - self.plan.judged:
            self._screened(Series(metric, self.plan.screen or "", call.workflow, labels), _score(screen, metric))
        if decision == NEVER_RULE or (decision is None and judge is None):
            return
        for metric in self.plan.judged:
            series = Series(metric, self.plan.judge or "", call.workflow, labels)
            self._judged(series, screen, judge, ruled=decision == ALWAYS_RULE)

    def _screened(self, series: Series, y: float | None) -> None:
        if y is not None:
            self.running.add(series, of_judged(y, 1.0, seen=1.0))

    def _judged(self, series: Series, screen: Evaluation | None, judge: Evaluation | None, *, ruled: bool) -> None:
        has_screen = series.metric in self.plan.screened
        f = _score(screen, series.metric) if has_screen else 0.0
        y = _score(judge, series.metric)
        if judge is not None and y is not None:
            known = f is not None
            stand_in = self.running.mean_screen(series) if f is None else f
            moments = of_judged(y, judge.probability, stand_in, seen=float(known), ruled=ruled and known)
            self.running.add(series, moments)
        elif f is not None:
            self.running.add(series, of_seen(f))


def _score(evaluation: Evaluation | None, metric: str) -> float | None:
    result = None if evaluation is None else evaluation.results.get(metric)
    # A score may overstep its range by rounding.
    return min(1.0, max(0.0, result.value)) if isinstance(result, Score) else None
