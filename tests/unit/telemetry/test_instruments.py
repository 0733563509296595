"""Observable metrics of the parts of a runtime."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.part import ObservableMetric
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.testing import Captured
from tests.support.watched import WAIT_S, ask


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[float, dict[str, str]]]]:
    """Values of all metrics with their attributes, by name of the metric."""
    data: Any = reader.get_metrics_data()
    metrics = [
        metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]
    return {
        metric.name: [(getattr(point, "value", 0.0), dict(point.attributes)) for point in metric.data.data_points]
        for metric in metrics
    }


def test_several_parts_have_values_of_one_metric() -> None:
    """Two score sinks, for instance, each with attributes of its own."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    found = [
        ObservableMetric("sent", "counter", "{score}", "about", lambda: [(1, {"sink": "one"})]),
        ObservableMetric("sent", "counter", "{score}", "about", lambda: [(2, {"sink": "other"})]),
    ]
    Instruments(lambda: provider.get_meter("test"), lambda: found).open()
    assert points(reader)["sent"] == [(1, {"sink": "one"}), (2, {"sink": "other"})]
    provider.shutdown()


def test_metrics_of_a_feature_end_with_the_configuration_that_had_it() -> None:
    """In a provider of the application, which outlives it: no alert that is configured no more has a state."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    telemetry = ragtrace.TelemetryOptions(meter_provider=provider)
    found: list[set[str]] = []
    for alerts in ([ragtrace.Alert("consistency", below=0.5)], []):
        ragtrace.configure(exporter=Captured().signals, telemetry=telemetry, alerts=alerts)
        assert ragtrace.flush(WAIT_S)
        found.append({name for name, values in points(reader).items() if values})
    provider.shutdown()
    assert semconv.METRIC_QUEUE_SIZE in found[0] & found[1]
    assert semconv.METRIC_ALERT_STATE in found[0] - found[1]


def test_counts_go_on_from_one_configuration_to_the_next() -> None:
    """In a provider of the application: of its first configuration alone the SDK would ask for values."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    telemetry = ragtrace.TelemetryOptions(meter_provider=provider)
    offered: list[float] = []
    for calls in (1, 2, 3):
        ragtrace.configure(exporter=Captured().signals, telemetry=telemetry)
        for _ in range(calls):
            ask("where?")
        assert ragtrace.flush(WAIT_S)
        rows = points(reader)[semconv.METRIC_CALLS]
        offered += [count for count, of in rows if of[semconv.OUTCOME] == "offered"]
    assert offered == [1, 3, 6]
    ragtrace.shutdown(WAIT_S)
    assert points(reader)[semconv.METRIC_CALLS] == rows
    assert semconv.METRIC_QUEUE_SIZE not in {name for name, values in points(reader).items() if values}
    provider.shutdown()


class MoodyMeters(MeterProvider):
    """A user's own, which makes no meter any more."""

    refuses = False

    def get_meter(self, *args: Any, **kwargs: Any) -> Meter:
        if self.refuses:
            raise ValueError("refused")
        return super().get_meter(*args, **kwargs)


def test_a_configuration_that_fails_leaves_no_metrics() -> None:
    """Those of the one in force stay, in a provider that both have."""
    reader = InMemoryMetricReader()
    provider = MoodyMeters([reader], shutdown_on_exit=False)
    telemetry = ragtrace.TelemetryOptions(meter_provider=provider)
    alerts = [ragtrace.Alert("consistency", below=0.5)]
    ragtrace.configure(exporter=Captured().signals, telemetry=telemetry, alerts=alerts)
    before = points(reader)
    provider.refuses = True
    with pytest.raises(ValueError, match="refused"):
        ragtrace.configure(service="other", exporter=Captured().signals, telemetry=telemetry)
    assert before[semconv.METRIC_ALERT_STATE]
    assert points(reader) == before
    provider.shutdown()
