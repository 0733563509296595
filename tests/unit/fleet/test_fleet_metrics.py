"""Metrics of a fleet: what a worker and a gateway export, and what they leave out when it is not known."""

from __future__ import annotations

from time import time
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ragtrace.core import semconv
from ragtrace.fleet.broker import QueueDepths
from ragtrace.fleet.fleet_metrics import FleetMetrics
from ragtrace.system.faults import faults


class Budget:
    """A reader of the budget that gives what it is made with, or raises it."""

    def __init__(self, left: dict[str, float] | Exception) -> None:
        self._left = left
        self.readings = 0

    def remaining(self) -> dict[str, float]:
        """The share that is left."""
        self.readings += 1
        if isinstance(self._left, Exception):
            raise self._left
        return self._left


def exported(metrics: FleetMetrics, times: int = 1) -> dict[str, dict[tuple[Any, ...], float]]:
    """Values by metric and attributes, as a reader collects them."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics.add_to(provider.get_meter("test"))
    for _ in range(times):
        data = reader.get_metrics_data()
    provider.shutdown()
    found = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
    return {
        metric.name: {tuple((point.attributes or {}).values()): point.value for point in metric.data.data_points}
        for metric in found
    }


def worker(
    depths: QueueDepths | None, published: float | None = None, budget: Any = None, claims: Any = None
) -> FleetMetrics:
    """Metrics of one worker."""
    return FleetMetrics(lambda: depths, last_begun_published=lambda: published, claims=claims, budget=budget, workers=1)


def test_a_worker_exports_queue_budget_and_claims() -> None:
    """All metrics of the fleet, with the age of the call that it has begun last."""
    metrics = worker(QueueDepths(7, 2), time() - 100, Budget({"requests": 0.5, "usd": 0.25}), {"claimed": 3, "done": 1})
    found = exported(metrics)
    assert 100 <= found.pop(semconv.METRIC_FLEET_QUEUE_AGE)[()] < 200
    assert found == {
        semconv.METRIC_FLEET_QUEUE: {(): 7},
        semconv.METRIC_FLEET_DEAD_LETTERS: {(): 2},
        semconv.METRIC_FLEET_WORKERS: {(): 1},
        semconv.METRIC_FLEET_CLAIMS: {("claimed",): 3, ("done",): 1},
        semconv.METRIC_FLEET_BUDGET: {("requests",): 0.5, ("usd",): 0.25},
    }


def test_a_gateway_exports_the_queues_only() -> None:
    """It has no workers, and so no age, claims or budget."""
    found = exported(FleetMetrics(lambda: QueueDepths(7, 2)))
    assert set(found) == {semconv.METRIC_FLEET_QUEUE, semconv.METRIC_FLEET_DEAD_LETTERS}


def test_what_is_not_known_is_not_exported() -> None:
    """While the broker cannot be reached there is no depth and no age, and no number stands for them."""
    assert set(exported(worker(None, time()))) == {semconv.METRIC_FLEET_WORKERS}


def test_an_empty_queue_has_no_old_call() -> None:
    """The last call that a worker began long ago says nothing about a queue that is empty now."""
    assert exported(worker(QueueDepths(0, 0), time() - 3_600))[semconv.METRIC_FLEET_QUEUE_AGE] == {(): 0.0}


def test_a_budget_that_cannot_be_read_is_a_fault() -> None:
    """It is left out, counted, and not asked for again at once."""
    budget = Budget(ConnectionError("away"))
    before = faults.counts().get("judge budget: reading what is left", 0)
    assert semconv.METRIC_FLEET_BUDGET not in exported(worker(QueueDepths(0, 0), budget=budget), times=3)
    assert budget.readings == 1
    assert faults.counts()["judge budget: reading what is left"] == before + 1
    faults.clear()
