"""Light instruments: record into a `Book` what the SDK's instruments would record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ragtrace.telemetry.meters.metric_store import Attributes, Book, HistogramPoint, Series, SumPoint

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackT, Meter
    from opentelemetry.sdk.metrics.export import Metric


class HistogramLike(Protocol):
    """Part of a histogram of OpenTelemetry."""

    def record(self, amount: float, attributes: Attributes, context: Context | None = None) -> None:
        """One measurement."""
        ...


class CounterLike(Protocol):
    """Part of a counter of OpenTelemetry."""

    def add(self, amount: float, attributes: Attributes, context: Context | None = None) -> None:
        """One increment."""
        ...


class Instrumented(Protocol):
    """The part of a meter of OpenTelemetry that ragtrace uses."""

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] | None = None,
    ) -> HistogramLike: ...
    def create_counter(self, name: str, unit: str = "", description: str = "") -> CounterLike: ...
    def create_observable_counter(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> object: ...
    def create_observable_gauge(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> object: ...


class LightHistogram:
    """A histogram with bounds of its own."""

    def __init__(self, series: Series[HistogramPoint]) -> None:
        self._series = series

    def record(self, amount: float, attributes: Attributes, context: Context | None = None) -> None:
        """One measurement; *context* names the span of its exemplar."""
        self._series.add(amount, attributes, context)


class LightCounter:
    """A counter that only goes up."""

    def __init__(self, series: Series[SumPoint]) -> None:
        self._series = series

    def add(self, amount: float, attributes: Attributes, context: Context | None = None) -> None:
        """One increment; *context* names the span of its exemplar."""
        self._series.add(amount, attributes, context)


class LightMeter:
    """Makes light histograms and counters; what is observed when metrics are collected is left to the SDK's *meter*.

    Args:
        book: keeps what is recorded, for a `ragtrace.telemetry.meters.reader.LightReader` to export.
    """

    def __init__(self, meter: Meter, book: Book) -> None:
        self._book = book
        self.create_observable_counter: Any = meter.create_observable_counter
        self.create_observable_gauge: Any = meter.create_observable_gauge

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] | None = None,
    ) -> LightHistogram:
        """As in the API, with bounds that must be given."""
        if explicit_bucket_boundaries_advisory is None:
            raise ValueError(f"the light histogram {name} needs its bounds")
        series = Series(partial(HistogramPoint, tuple(explicit_bucket_boundaries_advisory)), self._book)
        self._book.pages.append(partial(_histogram, name, unit, description, series))
        return LightHistogram(series)

    def create_counter(self, name: str, unit: str = "", description: str = "") -> LightCounter:
        """As in the API."""
        series = Series(SumPoint, self._book)
        self._book.pages.append(partial(_sum, name, unit, description, series))
        return LightCounter(series)


def _histogram(name: str, unit: str, description: str, series: Series[HistogramPoint], now: int) -> Metric | None:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Histogram, Metric

    points: Any = series.collect(now)
    return Metric(name, description, unit, Histogram(points, AggregationTemporality.CUMULATIVE)) if points else None


def _sum(name: str, unit: str, description: str, series: Series[SumPoint], now: int) -> Metric | None:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Metric, Sum

    points: Any = series.collect(now)
    cumulative = AggregationTemporality.CUMULATIVE
    return Metric(name, description, unit, Sum(points, cumulative, is_monotonic=True)) if points else None
