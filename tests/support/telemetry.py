"""Decoded OTLP: what a backend would see, as plain frozen data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

Attributes: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Scope:
    name: str
    version: str


@dataclass(frozen=True)
class SpanEvent:
    name: str
    time_ns: int
    attributes: Attributes


@dataclass(frozen=True)
class Link:
    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(frozen=True)
class Span:
    """Ids are lower-case hexadecimal; `parent_span_id` is "" for a root; `status` is UNSET, OK or ERROR."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_span_id: str
    trace_state: str
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    links: tuple[Link, ...]
    status: str
    status_message: str
    start_ns: int
    end_ns: int
    scope: Scope
    resource: Attributes
    dropped_attributes: int = 0

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True)
class LogRecord:
    """`trace_flags` is the W3C byte: 1 is sampled."""

    event_name: str
    body: Any
    attributes: Attributes
    trace_id: str
    span_id: str
    trace_flags: int
    severity: int
    time_ns: int
    scope: Scope
    resource: Attributes


@dataclass(frozen=True)
class Exemplar:
    value: float
    trace_id: str
    span_id: str
    time_ns: int
    attributes: Attributes


@dataclass(frozen=True)
class Point:
    """One data point: `value` of a sum or gauge; `count`, `sum`, `bounds` and `counts` of a histogram."""

    attributes: Attributes
    start_ns: int
    time_ns: int
    value: float | None = None
    count: int | None = None
    sum: float | None = None
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    exemplars: tuple[Exemplar, ...] = ()


@dataclass(frozen=True)
class Metric:
    """`type` is gauge, sum, histogram, exponential_histogram or summary; `temporality` is DELTA, CUMULATIVE or ""."""

    name: str
    unit: str
    description: str
    type: str
    monotonic: bool
    temporality: str
    points: tuple[Point, ...]
    scope: Scope
    resource: Attributes = field(default_factory=dict)


def spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    """Every span of *request*."""
    for resource in request.resource_spans:
        for scoped in resource.scope_spans:
            for span in scoped.spans:
                yield _span(span, _scope(scoped.scope), _attributes(resource.resource.attributes))


def logs(request: ExportLogsServiceRequest) -> Iterator[LogRecord]:
    """Every log record of *request*."""
    for resource in request.resource_logs:
        for scoped in resource.scope_logs:
            for record in scoped.log_records:
                yield LogRecord(
                    event_name=record.event_name,
                    body=_value(record.body),
                    attributes=_attributes(record.attributes),
                    trace_id=record.trace_id.hex(),
                    span_id=record.span_id.hex(),
                    trace_flags=record.flags & 0xFF,
                    severity=int(record.severity_number),
                    time_ns=record.time_unix_nano,
                    scope=_scope(scoped.scope),
                    resource=_attributes(resource.resource.attributes),
                )


def metrics(request: ExportMetricsServiceRequest) -> Iterator[Metric]:
    """Every metric of *request*, with the points of this request."""
    for resource in request.resource_metrics:
        for scoped in resource.scope_metrics:
            for metric in scoped.metrics:
                kind = metric.WhichOneof("data") or "gauge"
                data = getattr(metric, kind)
                yield Metric(
                    name=metric.name,
                    unit=metric.unit,
                    description=metric.description,
                    type=kind,
                    monotonic=getattr(data, "is_monotonic", False),
                    temporality=("", "DELTA", "CUMULATIVE")[getattr(data, "aggregation_temporality", 0)],
                    points=tuple(_point(point) for point in data.data_points),
                    scope=_scope(scoped.scope),
                    resource=_attributes(resource.resource.attributes),
                )


def _span(span: trace_pb2.Span, scope: Scope, resource: Attributes) -> Span:
    return Span(
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        trace_state=span.trace_state,
        attributes=_attributes(span.attributes),
        events=tuple(SpanEvent(e.name, e.time_unix_nano, _attributes(e.attributes)) for e in span.events),
        links=tuple(Link(k.trace_id.hex(), k.span_id.hex(), _attributes(k.attributes)) for k in span.links),
        status=trace_pb2.Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        status_message=span.status.message,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        scope=scope,
        resource=resource,
        dropped_attributes=span.dropped_attributes_count,
    )


def _point(point: Any) -> Point:
    kind = point.WhichOneof("value") if hasattr(point, "as_double") else None
    return Point(
        attributes=_attributes(point.attributes),
        start_ns=point.start_time_unix_nano,
        time_ns=point.time_unix_nano,
        value=getattr(point, kind) if kind else None,
        count=getattr(point, "count", None),
        sum=getattr(point, "sum", None),
        bounds=tuple(getattr(point, "explicit_bounds", ())),
        counts=tuple(getattr(point, "bucket_counts", ())),
        exemplars=tuple(_exemplar(exemplar) for exemplar in getattr(point, "exemplars", ())),
    )


def _exemplar(exemplar: Any) -> Exemplar:
    return Exemplar(
        value=getattr(exemplar, exemplar.WhichOneof("value") or "as_double"),
        trace_id=exemplar.trace_id.hex(),
        span_id=exemplar.span_id.hex(),
        time_ns=exemplar.time_unix_nano,
        attributes=_attributes(exemplar.filtered_attributes),
    )


def _scope(scope: Any) -> Scope:
    return Scope(scope.name, scope.version)


def _attributes(pairs: Iterable[Any]) -> Attributes:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, kind)
