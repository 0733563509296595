"""The identity under which a forked child exports its metrics."""

from __future__ import annotations

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from ragtrace.telemetry.export.after_fork import OwnMeters

INSTANCE = "service.instance.id"


def test_every_generation_has_another() -> None:
    """Each the child of the one before, and the SDK goes on naming the first, as older ones do."""
    first, seen = Resource({INSTANCE: "first"}), {"first"}
    meters = OwnMeters(InMemoryMetricReader(), first, lambda: first)
    for _ in range(3):
        reader = InMemoryMetricReader()
        meters.drop_parents()
        meters.renew(reader)
        meters.get_meter("ours", "1").create_counter("things").add(1, {})
        seen.add(_instance(reader))
    assert len(seen) == 4


def _instance(reader: InMemoryMetricReader) -> str:
    data = reader.get_metrics_data()
    assert data is not None
    return str(data.resource_metrics[0].resource.attributes[INSTANCE])


def test_a_child_that_could_not_be_renewed_gives_other_libraries_a_meter_that_does_nothing() -> None:
    """Their instruments are used on the application's threads, where nothing of ours may raise."""
    resource = Resource({INSTANCE: "first"})
    meters = OwnMeters(InMemoryMetricReader(), resource, lambda: resource)
    meters.drop_parents()
    meters.shared_meter("theirs", None, None, None).create_counter("requests").add(1)
