"""Page of metrics: OpenMetrics with exemplars for Prometheus, plain text for a person."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as ClientExemplar

from ragtrace_exporters.openmetrics.snapshot import Family, Labels, Series, Snapshot, label_name

_OPEN: Final = "application/openmetrics-text"


def is_openmetrics(accept: str) -> bool:
    """Return whether a request with this `Accept` header gets OpenMetrics."""
    return choose_encoder(accept)[1].startswith(_OPEN)


def render(snapshot: Snapshot, resource: Mapping[str, str], accept: str) -> tuple[bytes, str]:
    """Return the page and its content type."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry()
    registry.register(_Collected(snapshot, resource))
    return encode(registry), content_type


def key(name: str, labels: Labels) -> str:
    """Return the identity of a series: name and labels."""
    return json.dumps([name, *map(list, labels)], separators=(",", ":"))


def with_zero_starts(snapshot: Snapshot, shown: set[str]) -> tuple[Snapshot, set[str]]:
    """Return *snapshot* with 0 for each counted series that was never shown, and the keys of those series.

    Prometheus takes the first sample of a counter as its start: without the 0, the counts before the first scrape would
    be missing from every increase.
    """
    found: Snapshot = {}
    new: set[str] = set()
    for name, family in snapshot.items():
        series = dict(family.series)
        for labels, each in family.series.items() if family.kind != "gauge" else ():
            if key(name, labels) not in shown:
                new.add(key(name, labels))
                series[labels] = Series((0.0,) * len(each.values))
        found[name] = replace(family, series=series)
    return found, new


class _Collected(Collector):
    """Collector that gives the client library a snapshot."""

    def __init__(self, snapshot: Snapshot, resource: Mapping[str, str]) -> None:
        self._snapshot, self._resource = snapshot, resource

    def collect(self) -> Iterable[Metric]:
        info = Metric("target", "Target metadata", "info")
        info.add_sample("target_info", {label_name(key): value for key, value in self._resource.items()}, 1)
        yield info
        yield from map(_metric, self._snapshot.values())


def _metric(family: Family) -> Metric:
    # A series may lack a label that another one has, which the client's own classes of metrics do not allow for.
    made = Metric(family.name, family.help or family.name, family.kind)
    for labels, series in family.series.items():
        own, name = dict(labels), family.name
        exemplars = {
            bucket: ClientExemplar({"trace_id": at.trace_id, "span_id": at.span_id}, at.value, round(at.at, 3))
            for bucket, at in series.exemplars.items()
        }
        if family.kind == "gauge":
            made.add_sample(name, own, series.values[0])
        elif family.kind == "counter":
            made.add_sample(f"{name}_total", own, series.values[0], exemplar=exemplars.get(0))
        else:
            *counts, total = series.values
            for bucket, bound in enumerate((*family.bounds, float("inf"))):
                le = {"le": "+Inf" if bound == float("inf") else repr(float(bound))}
                so_far = sum(counts[: bucket + 1], 0.0)
                made.add_sample(f"{name}_bucket", {**own, **le}, so_far, exemplar=exemplars.get(bucket))
            made.add_sample(f"{name}_count", own, sum(counts, 0.0))
            made.add_sample(f"{name}_sum", own, total)
    return made
