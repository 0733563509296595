"""A metric reader that exports what light instruments have recorded along with what the SDK's have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    Metric,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ragtrace.telemetry.meters.metric_store import Book

_USUAL: Final[Mapping[str, str]] = {
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "cumulative",
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "explicit_bucket_histogram",
    "OTEL_METRICS_EXEMPLAR_FILTER": "trace_based",
}


def usual(environ: Mapping[str, str]) -> bool:
    """Whether *environ* asks for metrics as light instruments keep them; if not, the SDK's must be used."""
    return all(environ.get(name, "").strip().lower() in ("", value) for name, value in _USUAL.items())


class LightReader(PeriodicExportingMetricReader):
    """Part of the SDK's interface, for an exporter that wants cumulative metrics."""

    book: Book | None = None
    """Of the light instruments, once there are any."""
    scope = InstrumentationScope("")
    """That they belong to."""

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        added = [] if self.book is None else self.book.collect()
        data = _with(metrics_data, self.scope, added) if added else metrics_data
        super()._receive_metrics(data, timeout_millis=timeout_millis, **kwargs)  # pyright: ignore[reportUnknownMemberType]


def _with(data: MetricsData, scope: InstrumentationScope, added: list[Metric]) -> MetricsData:
    """*data* with *added* in the given instrumentation scope, where the SDK's own instruments may be already."""
    return replace(data, resource_metrics=[_with_scope(each, scope, added) for each in data.resource_metrics])


def _with_scope(data: ResourceMetrics, scope: InstrumentationScope, added: list[Metric]) -> ResourceMetrics:
    others = [each for each in data.scope_metrics if each.scope.name != scope.name]
    same = [each for each in data.scope_metrics if each.scope.name == scope.name]
    ours = same[0] if same else ScopeMetrics(scope, [], "")
    together = replace(ours, metrics=[*ours.metrics, *added])
    return replace(data, scope_metrics=[*others, together, *same[1:]])
