"""Metrics of the engine itself: outcomes of calls, its queue, its judges' circuit breakers, failures and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ragtrace.core import semconv
from ragtrace.core.ledger import Ledger
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.types import BREAKER_STATES
from ragtrace.evaluation.judge_client import JudgeStatus
from ragtrace.system.faults import faults


class EngineMetrics(Part):
    """Part of a runtime that has the metrics of what every runtime has.

    Args:
        ledger: the counts of calls, by outcome.
        queued: returns the number of calls that wait to be scored.
        judge_statuses: returns the status of each judge with a circuit breaker, by evaluator id.
        losses: returns the number of lost telemetry items, by signal and reason.
    """

    def __init__(
        self,
        ledger: Ledger,
        queued: Callable[[], int],
        judge_statuses: Callable[[], Mapping[str, JudgeStatus]],
        losses: Callable[[], Mapping[tuple[str, str], int]],
    ) -> None:
        self._ledger, self._queued, self._judge_statuses, self._losses = ledger, queued, judge_statuses, losses

    def observations(self) -> Iterator[ObservableMetric]:
        """Return these metrics."""
        s = semconv
        yield ObservableMetric(
            s.METRIC_CALLS, "counter", "{call}", "Calls offered to evaluators, by outcome", self._calls
        )
        about = "Calls waiting to be scored"
        yield ObservableMetric(s.METRIC_QUEUE_SIZE, "gauge", "{call}", about, lambda: [(self._queued(), {})])
        about = "Circuit breaker of a judge: 1 for the state it is in"
        yield ObservableMetric(s.METRIC_JUDGE_STATE, "gauge", "{state}", about, self._breakers)
        about = "Failures of ragtrace itself, by kind"
        yield ObservableMetric(s.METRIC_FAULTS, "counter", "{fault}", about, self._faults, is_of_process=True)
        about = "Spans, events and kept calls that were lost"
        yield ObservableMetric(s.METRIC_LOST, "counter", "{item}", about, self._lost)

    def _calls(self) -> Iterator[Point]:
        for row in self._ledger.rows():
            of = {semconv.EVALUATOR_ID: row.evaluator, semconv.WORKFLOW_NAME: row.workflow}
            reason = {semconv.REASON: row.reason} if row.reason else {}
            yield row.calls, {**of, semconv.OUTCOME: row.outcome, **reason}

    def _breakers(self) -> Iterator[Point]:
        for evaluator, status in self._judge_statuses().items():
            for state in BREAKER_STATES:
                yield int(state == status.state), {semconv.EVALUATOR_ID: evaluator, semconv.JUDGE_STATE: state}

    def _faults(self) -> Iterator[Point]:
        return ((count, {semconv.FAULT_KIND: kind}) for kind, count in faults.counts().items())

    def _lost(self) -> Iterator[Point]:
        for (signal, reason), count in self._losses().items():
            yield count, {semconv.SIGNAL: signal, semconv.REASON: reason}
