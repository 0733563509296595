"""Light instruments export what the SDK's instruments would, point by point."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from ragtrace.telemetry.fast_meters import MOST_SERIES, FastMeter, FastMetricReader, MetricStore, fast_meters_supported

BOUNDS = (0.125, 0.5, 1.0)
SPAN = set_span_in_context(NonRecordingSpan(SpanContext(7, 9, False, TraceFlags(TraceFlags.SAMPLED))))
UNSAMPLED = set_span_in_context(NonRecordingSpan(SpanContext(7, 9, False, TraceFlags(0))))
VALUES = [eighths / 8 for eighths in range(25)]  # sums of which are exact in any order
LABELS = [{}, *({key: value} for key in "ab" for value in ("x", "größe")), {"a": "x", "b": "y"}, {"b": "y", "a": "x"}]
SEEDS = range(100)


def records(seed: int) -> tuple[list[Any], list[Any]]:
    """Measurements before a collection and after it."""
    chance = random.Random(seed)
    choices = (VALUES, LABELS, [None, SPAN, UNSAMPLED])
    before, after = ([tuple(map(chance.choice, choices)) for _ in range(chance.randrange(20))] for _ in range(2))
    return before, after


class Kept(MetricExporter):
    """Keeps what was exported last."""

    last: MetricsData | None = None

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Part of the SDK's interface."""
        self.last = metrics_data
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Part of the SDK's interface."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Part of the SDK's interface."""

    def metrics(self) -> dict[str, Any]:
        """Each metric, without the times at which series began and were read."""
        assert self.last is not None
        metrics = {
            metric.name: metric
            for resource in self.last.resource_metrics
            for scope in resource.scope_metrics
            if scope.scope.name == "ours"
            for metric in scope.metrics
        }
        return {name: replace(metric, data=_timeless(metric.data)) for name, metric in metrics.items()}


def _timeless(data: Any) -> Any:
    points = [
        replace(
            point,
            start_time_unix_nano=0,
            time_unix_nano=0,
            exemplars=[replace(exemplar, time_unix_nano=0) for exemplar in point.exemplars],
        )
        for point in data.data_points
    ]
    return replace(data, data_points=sorted(points, key=lambda point: sorted(point.attributes.items())))


def _nothing(_: CallbackOptions) -> list[Observation]:
    return []


class Rig:
    """A meter provider with a histogram, a counter and a gauge that is observed."""

    def __init__(self, *, light: bool) -> None:
        self.kept = Kept()
        reader = (FastMetricReader if light else PeriodicExportingMetricReader)(
            self.kept, export_interval_millis=float("inf")
        )
        self.provider = MeterProvider([reader], shutdown_on_exit=False)
        meter: Any = self.provider.get_meter("ours", "1")
        if isinstance(reader, FastMetricReader):
            self.store = reader.store = MetricStore()
            reader.scope = InstrumentationScope("ours", "1")
            meter = FastMeter(meter, reader.store)
        self.histogram = meter.create_histogram("sizes", "s", "Sizes", explicit_bucket_boundaries_advisory=BOUNDS)
        self.counter = meter.create_counter("things", "{thing}", "Things")
        meter.create_observable_gauge("seen", [_nothing], "1", "Seen")
        self.provider.get_meter("somebody else").create_counter("theirs").add(1)

    def collect(self) -> dict[str, Any]:
        """What is exported now."""
        assert self.provider.force_flush()
        return self.kept.metrics()

    def close(self) -> None:
        """Let go of the reader's thread."""
        self.provider.shutdown()


@pytest.mark.parametrize("seed", SEEDS)
def test_histograms_are_those_of_the_sdk(seed: int) -> None:
    """Counts, sums, bounds, extremes and exemplars, over two collections."""
    both = Rig(light=True), Rig(light=False)
    for part in records(seed):
        for value, attributes, context in part:
            for rig in both:
                rig.histogram.record(value, attributes, context)
        light, sdk = (rig.collect() for rig in both)
        assert light.get("sizes") == sdk.get("sizes")
    for rig in both:
        rig.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_counters_are_those_of_the_sdk(seed: int) -> None:
    """Sums over two collections; which measurement becomes the exemplar is left to chance there."""
    both = Rig(light=True), Rig(light=False)
    for part in records(seed):
        for value, attributes, context in part:
            for rig in both:
                rig.counter.add(value, attributes, context)
        light, sdk = (_without_exemplars(rig.collect().get("things")) for rig in both)
        assert light == sdk
    for rig in both:
        rig.close()


def _without_exemplars(metric: Any) -> Any:
    if metric is None:
        return None
    points = [replace(point, exemplars=[]) for point in metric.data.data_points]
    return replace(metric, data=replace(metric.data, data_points=points))


@pytest.fixture
def light() -> Any:
    """A rig with light instruments."""
    rig = Rig(light=True)
    yield rig
    rig.close()


def test_a_counter_names_a_span(light: Rig) -> None:
    """As the histogram does: from the dashboard to the trace."""
    light.counter.add(1, {}, SPAN)
    (point,) = light.collect()["things"].data.data_points
    assert [(exemplar.trace_id, exemplar.span_id) for exemplar in point.exemplars] == [(7, 9)]


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_what_is_no_measurement_is_left_out(light: Rig, value: float) -> None:
    """One NaN would make a sum NaN for ever."""
    light.histogram.record(value, {})
    assert "sizes" not in light.collect()


def test_too_many_series_are_counted_together(light: Rig) -> None:
    """A label without bound must not fill the memory, and nothing is lost."""
    for number in range(MOST_SERIES + 10):
        light.histogram.record(0.2, {"name": str(number)})
    points = light.collect()["sizes"].data.data_points
    together = [point.count for point in points if point.attributes == {"otel.metric.overflow": True}]
    assert (len(points), together) == (MOST_SERIES + 1, [10])


def test_a_child_starts_empty(light: Rig) -> None:
    """Its parent exports what the parent has recorded."""
    light.histogram.record(0.2, {})
    light.store.lock.acquire()
    light.store.reset()
    light.histogram.record(0.3, {})
    (point,) = light.collect()["sizes"].data.data_points
    assert (point.count, point.sum) == (1, 0.3)


def test_other_peoples_metrics_stay_theirs(light: Rig) -> None:
    """Ours are put into our own instrumentation scope only."""
    light.histogram.record(0.2, {})
    light.collect()
    assert light.kept.last is not None
    scopes = light.kept.last.resource_metrics[0].scope_metrics
    names = {scope.scope.name: [metric.name for metric in scope.metrics] for scope in scopes}
    assert names["somebody else"] == ["theirs"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "CUMULATIVE"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram"}, False),
        ({"OTEL_METRICS_EXEMPLAR_FILTER": "always_off"}, False),
    ],
)
def test_what_is_asked_for_otherwise_is_left_to_the_sdk(environ: Mapping[str, str], expected: bool) -> None:
    """Deltas, exponential histograms, other exemplars."""
    assert fast_meters_supported(environ) is expected
