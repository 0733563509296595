"""Observer that turns the evaluations of finished calls into moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ragtrace.core.types import Evaluation, Metric, RagCall, Score
from ragtrace.estimates.moments import of_judged, of_seen
from ragtrace.estimates.running import RunningMoments, Series

NEVER_RULE: Final = "never_rule"
"""Reason of a sampling decision: such calls are never judged, so no estimate covers them."""
ALWAYS_RULE: Final = "always_rule"
"""Reason of a sampling decision: such calls are always judged, so they are a stratum of their own."""
_SCALE: Final = (0.0, 1.0)


class Scorer(Protocol):
    """Evaluator with its id and the metrics that it gives."""

    @property
    def id(self) -> str: ...
    @property
    def metrics(self) -> tuple[Metric, ...]: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """Assignment of the metrics with range [0, 1], which are estimated, to the screen and the judge of this process."""

    screen: str | None = None
    """Id of the evaluator that sees every call."""
    screened: frozenset[str] = frozenset()
    """Metrics of the screen."""
    judge: str | None = None
    """Id of the evaluator that sees a sample of the calls."""
    judged: frozenset[str] = frozenset()
    """Metrics of the judge."""

    @classmethod
    def of(cls, screen: Scorer | None, judge: Scorer | None) -> Plan:
        """Return the plan for these evaluators; None: there is none."""
        metrics = [
            frozenset(
                metric.name for metric in (evaluator.metrics if evaluator else ()) if tuple(metric.range) == _SCALE
            )
            for evaluator in (screen, judge)
        ]
        return cls(screen.id if screen else None, metrics[0], judge.id if judge else None, metrics[1])

    def evaluator(self, metric: str) -> str | None:
        """Return the id of the evaluator whose scores of *metric* are estimated; None: the metric is not estimated."""
        if metric in self.judged:
            return self.judge
        return self.screen if metric in self.screened else None


class Observer:
    """Observer of finished calls that adds each to the running moments.

    A metric of the judge is estimated from the judge's scores, and the screen's score of the same metric, if there is
    one, is its f; any other is estimated from the screen's scores, all of which are known (p = 1, f = 0). Calls that
    match a `never` rule are left out. Where a screen has the metric, n counts the calls that the screen has scored; a
    judged call that it could not score counts with the mean f of all others, which shifts no estimate.
    """

    def __init__(self, plan: Plan, running: RunningMoments) -> None:
        self.plan, self.running = plan, running

    def observe(self, call: RagCall, evaluations: Sequence[Evaluation], decision: str | None) -> None:
        """Add *call* to the moments of all its metrics.

        Args:
            call: the call.
            evaluations: its evaluations.
            decision: reason of the sampling decision; None: it was decided earlier (then the judge's evaluation is
                there), or never (then the judge's scores are not known, and the call is not counted).
        """
        by_evaluator = {evaluation.evaluator: evaluation for evaluation in evaluations}
        screen, judge = by_evaluator.get(self.plan.screen or ""), by_evaluator.get(self.plan.judge or "")
        model = call.model or ""
        for metric in self.plan.screened - self.plan.judged:
            y = _score(screen, metric)
            if y is not None:
                series = Series(metric, self.plan.screen or "", call.workflow, model)
                self.running.add(series, of_judged(y, 1.0, seen=1.0))
        if decision == NEVER_RULE or (decision is None and judge is None):
            return
        for metric in self.plan.judged:
            series = Series(metric, self.plan.judge or "", call.workflow, model)
            f = _score(screen, metric) if metric in self.plan.screened else 0.0
            y = _score(judge, metric)
            if judge is not None and y is not None:
                known, ruled = f is not None, decision == ALWAYS_RULE
                stand_in = self.running.mean_screen(series) if f is None else f
                moments = of_judged(y, judge.probability, stand_in, seen=float(known), ruled=ruled and known)
                self.running.add(series, moments)
            elif f is not None:
                self.running.add(series, of_seen(f))


def _score(evaluation: Evaluation | None, metric: str) -> float | None:
    result = None if evaluation is None else evaluation.results.get(metric)
    # A score may overstep its range by rounding.
    return min(1.0, max(0.0, result.value)) if isinstance(result, Score) else None
