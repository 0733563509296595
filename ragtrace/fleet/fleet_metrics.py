"""OpenTelemetry metrics of a fleet: queues, workers, claims, and the remaining budget of the judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.metrics import Observation

from ragtrace.core import semconv
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter

    from ragtrace.fleet.broker import QueueDepths
    from ragtrace.fleet.budget import BudgetReader

_BUDGET_SECONDS: Final = 5.0
"""Number of seconds for which a reading of the budget is reused, as several readers may export the same metrics."""


class FleetMetrics:
    """Source of the OpenTelemetry metrics that a worker or a gateway exports about its fleet.

    Args:
        depths: returns the depths of the queues; None while the broker cannot be reached.
        last_begun_published: returns the time (seconds since the epoch) at which the call was published that this
            worker has begun last, about the oldest of the queue; None: it has begun none.
        claims: number of calls that this worker has claimed, by outcome: claimed, held, done, unknown.
        budget: reads what is left of the judge's budget; None: it is not in Redis, or there is none.
        workers: number of workers in this process.
    """

    def __init__(
        self,
        depths: Callable[[], QueueDepths | None],
        *,
        last_begun_published: Callable[[], float | None] = lambda: None,
        claims: Mapping[str, int] | None = None,
        budget: BudgetReader | None = None,
        workers: int = 0,
    ) -> None:
        self._depths, self._last_begun_published, self._budget = depths, last_begun_published, budget
        self._workers = workers
        self._claims: Mapping[str, int] = {} if claims is None else claims
        self._left: Mapping[str, float] = {}
        self._read_at = float("-inf")

    def add_to(self, meter: Meter) -> None:
        """Create the observable instruments of the fleet's metrics with *meter*."""
        s = semconv

        def observed(read: Callable[[], Iterable[Observation]]) -> Any:
            def observe(_: CallbackOptions) -> Iterable[Observation]:
                return read()

            return [observe]

        gauge = meter.create_observable_gauge
        about = "Calls in the queue of the fleet that no worker has received"
        gauge(s.METRIC_FLEET_QUEUE, observed(lambda: self._observe_depth("calls")), "{call}", about)
        about = "Calls in the queue of dead letters"
        gauge(s.METRIC_FLEET_DEAD_LETTERS, observed(lambda: self._observe_depth("dead_letters")), "{call}", about)
        if self._workers:
            about = "Time that the call had waited which the worker has begun last; 0: the queue is empty"
            gauge(s.METRIC_FLEET_QUEUE_AGE, observed(self._observe_age), "s", about)
            about = "Workers that run"
            gauge(s.METRIC_FLEET_WORKERS, observed(lambda: [Observation(self._workers)]), "{worker}", about)
            about = "Calls by what came of claiming them: claimed, held, done before, unknown as no store answered"
            meter.create_observable_counter(s.METRIC_FLEET_CLAIMS, observed(self._observe_claims), "{call}", about)
        if self._workers and self._budget is not None:
            about = "Share of the judge's budget, of a minute or a day, that is not spent"
            gauge(s.METRIC_FLEET_BUDGET, observed(self._observe_budget), "{share}", about)

    def _observe_depth(self, queue: str) -> Iterable[Observation]:
        depths = self._depths()
        return [] if depths is None else [Observation(getattr(depths, queue))]

    def _observe_age(self) -> Iterable[Observation]:
        depths, published = self._depths(), self._last_begun_published()
        if depths is not None and not depths.calls:
            return [Observation(0.0)]
        return [] if depths is None or published is None else [Observation(max(0.0, time() - published))]

    def _observe_claims(self) -> Iterable[Observation]:
        return [Observation(count, {semconv.OUTCOME: outcome}) for outcome, count in list(self._claims.items())]

    def _observe_budget(self) -> Iterable[Observation]:
        now = monotonic()
        if self._budget is not None and now - self._read_at >= _BUDGET_SECONDS:
            self._read_at, self._left = now, {}
            try:
                self._left = self._budget.remaining()
            except Exception as error:
                faults.record("judge budget: reading what is left", error)
        return [Observation(left, {semconv.FLEET_BUDGET_KIND: kind}) for kind, left in self._left.items()]
