"""Metrics of a process at one moment, as plain data that can be written to a file and added up.

Metrics and labels have the names that the collector's exporters give them, so that one set of rules and dashboards
serves with and without a collector. Source: OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[tuple[str, str], ...]
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "1": ""}


def metric_name(name: str, unit: str, kind: Kind) -> str:
    """Return the Prometheus name of a metric's family, without the `_total` of a counter's samples."""
    suffix = "ratio" if (unit, kind) == ("1", "gauge") else "" if unit.startswith("{") else _UNITS.get(unit, unit)
    plain = label_name(name)
    return f"{plain}_{label_name(suffix)}" if suffix and not plain.endswith(f"_{suffix}") else plain


def sample_names(name: str, unit: str, kind: Kind) -> tuple[str, ...]:
    """Return the names of a family's samples, as queries use them."""
    endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}[kind]
    return tuple(f"{metric_name(name, unit, kind)}{ending}" for ending in endings)


def label_name(name: str) -> str:
    """Return an OpenTelemetry attribute name as a Prometheus label: letters, digits and underscores alone."""
    plain = re.sub(r"[^0-9A-Za-z_]+", "_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain


@dataclass(frozen=True, slots=True)
class Exemplar:
    """Trace of a call that fell into a bucket of a histogram, or was counted."""

    value: float
    at: float
    """Seconds since the epoch."""
    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one combination of labels."""

    values: tuple[float, ...]
    """For a histogram the count of every bucket (not cumulative) and then the sum; else one number."""
    exemplars: Mapping[int, Exemplar] = field(default_factory=dict[int, Exemplar])
    """By the number of the bucket; for a counter, 0."""

    def __add__(self, other: Series) -> Series:
        newest = dict(self.exemplars)
        for bucket, exemplar in other.exemplars.items():
            if bucket not in newest or newest[bucket].at < exemplar.at:
                newest[bucket] = exemplar
        return Series(tuple(a + b for a, b in zip(self.values, other.values, strict=True)), newest)


@dataclass(frozen=True, slots=True)
class Family:
    """Metric with all its series."""

    name: str
    kind: Kind
    help: str
    bounds: tuple[float, ...] = ()
    series: Mapping[Labels, Series] = field(default_factory=dict[Labels, Series])

    def __add__(self, other: Family) -> Family:
        if (self.kind, self.bounds) != (other.kind, other.bounds):
            return self  # from another release: buckets that do not match cannot be added up
        series = dict(self.series)
        for labels, more in other.series.items():
            series[labels] = series[labels] + more if labels in series else more
        return replace(self, series=series)


Snapshot: TypeAlias = "dict[str, Family]"
"""Families by name."""


def total(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Return the sum of *snapshots*; of families that do not match, the first in order."""
    found: Snapshot = {}
    for snapshot in snapshots:
        for name, family in snapshot.items():
            found[name] = found[name] + family if name in found else family
    return found


def with_exemplars(now: Snapshot, before: Snapshot) -> Snapshot:
    """Return *now* with the exemplars of *before* where it has none: the SDK hands each one out once."""
    found: Snapshot = {}
    for name, family in now.items():
        old = before[name].series if name in before else dict[Labels, Series]()
        series = {
            labels: replace(each, exemplars={**old[labels].exemplars, **each.exemplars}) if labels in old else each
            for labels, each in family.series.items()
        }
        found[name] = replace(family, series=series)
    return found


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """Return the counts of a process that has ended, without its gauges and exemplars."""
    return {
        name: replace(family, series={labels: Series(each.values) for labels, each in family.series.items()})
        for name, family in snapshot.items()
        if family.kind != "gauge"
    }


def read_metrics(data: MetricsData | None) -> tuple[Snapshot, dict[str, str]]:
    """Return the collected metrics as a snapshot, and the attributes of their resource."""
    found: Snapshot = {}
    resource: dict[str, str] = {}
    for of_resource in data.resource_metrics if data else ():
        resource |= {key: str(value) for key, value in of_resource.resource.attributes.items()}
        for scope in of_resource.scope_metrics:
            for family in filter(None, map(_family, scope.metrics)):
                found[family.name] = found[family.name] + family if family.name in found else family
    return found, resource


def _family(metric: Metric) -> Family | None:
    from opentelemetry.sdk.metrics.export import ExponentialHistogram, Histogram, Sum

    data, bounds = metric.data, tuple[float, ...]()
    if isinstance(data, ExponentialHistogram):
        return None  # none of ours is one, and a page of OpenMetrics cannot hold it
    kind: Kind = "counter" if isinstance(data, Sum) and data.is_monotonic else "gauge"
    if isinstance(data, Histogram):
        kind, bounds = "histogram", tuple(data.data_points[0].explicit_bounds) if data.data_points else ()
    name = metric_name(metric.name, metric.unit or "", kind)
    return Family(name, kind, metric.description or "", bounds, dict(map(_series, data.data_points)))


def _series(point: Any) -> tuple[Labels, Series]:
    attributes: Mapping[str, object] = point.attributes or {}
    labels = tuple(sorted((label_name(key), str(value)) for key, value in attributes.items()))
    if not hasattr(point, "bucket_counts"):
        return labels, Series((float(point.value),), _exemplars(point, ()))
    return labels, Series(
        (*map(float, point.bucket_counts), float(point.sum)), _exemplars(point, point.explicit_bounds)
    )


def _exemplars(point: Any, bounds: Iterable[float]) -> dict[int, Exemplar]:
    """Return the newest exemplar of every bucket that has one."""
    found: dict[int, Exemplar] = {}
    for each in sorted(point.exemplars or (), key=lambda one: int(one.time_unix_nano)):
        if each.trace_id and each.span_id:
            bucket = sum(each.value > bound for bound in bounds)
            ids = f"{each.trace_id:032x}", f"{each.span_id:016x}"
            found[bucket] = Exemplar(float(each.value), each.time_unix_nano / 1e9, *ids)
    return found


def to_json(snapshot: Snapshot) -> list[Any]:
    """Return *snapshot* as lists, numbers and texts, which JSON can hold."""
    return [
        [f.name, f.kind, f.help, f.bounds, [[labels, s.values, _rows(s)] for labels, s in f.series.items()]]
        for f in snapshot.values()
    ]


def _rows(series: Series) -> list[Any]:
    return [[bucket, *astuple(exemplar)] for bucket, exemplar in series.exemplars.items()]


def from_json(families: Any) -> Snapshot:
    """Return the snapshot from *families*, the output of `to_json`.

    Raises:
        TypeError, ValueError: *families* has another form.
    """
    found: Snapshot = {}
    for name, kind, description, bounds, listed in families:
        series = {
            tuple((str(key), str(value)) for key, value in labels): Series(
                tuple(map(float, values)), {bucket: Exemplar(*rest) for bucket, *rest in exemplars}
            )
            for labels, values, exemplars in listed
        }
        found[name] = Family(name, kind, description, tuple(bounds), series)
    return found
