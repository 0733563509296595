"""Values of observable metrics in one meter provider, over all configurations of ragtrace that use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Observation

from ragtrace.core.part import ObservableMetric, Point
from ragtrace.system.forks import Home, PerProcess

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

ObservedCallback: TypeAlias = "Callable[[CallbackOptions], Iterable[Observation]]"
"""Callback of an observable instrument of OpenTelemetry."""
_Attributes: TypeAlias = "frozenset[tuple[str, str]]"


class _Values:
    """What one process has of the metrics: those of the configurations in use, and the sums of those that ended."""

    def __init__(self) -> None:
        self.home = Home()
        self.lock = threading.RLock()  # re-entrant: a signal handler may shut down while this thread collects metrics
        self.owners: dict[object, dict[str, list[ObservableMetric]]] = {}
        """Metrics by name, of each configuration whose runtime has not ended; the newest is the last."""
        self.ended: dict[str, dict[_Attributes, float]] = {}
        """Values of counters at the end of the configurations before, by name."""


class ObservedMetrics:
    """Observable metrics of all configurations of ragtrace that use one meter provider. Safe from any thread.

    The provider keeps the first callback of an instrument for ever, and a provider of the application's outlives a
    configuration of ragtrace. So counters go on from one to the next, as they do for instruments that record, and calls
    that the former configuration still scores in the background are counted, too. A gauge has the values of the newest.
    A forked child begins at 0.
    """

    def __init__(self) -> None:
        self._values = PerProcess(_Values)

    def add(self, owner: object, found: Iterable[ObservableMetric], meter: Meter) -> None:
        """Create the instruments of the metrics of a configuration.

        Several of its parts may have values of one metric.

        Args:
            owner: stands for the configuration, until `end` is called with it.
            found: the metrics.
            meter: makes the instruments, or knows those that it has made.
        """
        by_name: dict[str, list[ObservableMetric]] = {}
        for metric in found:
            by_name.setdefault(metric.name, []).append(metric)
        values = self._values.get()
        with values.lock:
            values.owners[owner] = by_name
        for name, (first, *_) in by_name.items():
            make = meter.create_observable_counter if first.kind == "counter" else meter.create_observable_gauge
            make(name, [self._callback(name)], first.unit, first.about)

    def end(self, owner: object) -> None:
        """Keep the final counts of a configuration, and let go of everything else of it."""
        values = self._values.get()
        with values.lock:
            for name, found in values.owners.pop(owner, {}).items():
                if found[0].kind == "counter" and not found[0].is_of_process:
                    sums = values.ended.setdefault(name, {})
                    _add(sums, (point for metric in found for point in metric.read()))

    def _callback(self, name: str) -> ObservedCallback:
        return lambda _: [Observation(value, dict(attributes)) for attributes, value in self._read(name).items()]

    def _read(self, name: str) -> Mapping[_Attributes, float]:
        values = self._values.get()
        if not values.home.is_here():  # in a child whose hooks of the fork have not all run
            return {}
        with values.lock:  # so that a configuration that ends meanwhile is counted once
            newest = list(values.owners.values())[-1].get(name, []) if values.owners else []
            of_all = [metric for by_name in values.owners.values() for metric in by_name.get(name, [])]
            counts_on = name in values.ended or any(each.kind == "counter" for each in of_all)
            if not counts_on or any(each.is_of_process for each in of_all):
                return _add({}, (point for metric in newest for point in metric.read()))
            return _add(dict(values.ended.get(name, {})), (point for metric in of_all for point in metric.read()))


def _add(sums: dict[_Attributes, float], points: Iterable[Point]) -> dict[_Attributes, float]:
    for value, attributes in points:
        key = frozenset(attributes.items())
        sums[key] = sums.get(key, 0) + value
    return sums


_of_provider: WeakKeyDictionary[object, ObservedMetrics] = WeakKeyDictionary()
_lock = threading.Lock()


def observed_metrics_of(provider: object) -> ObservedMetrics:
    """Return the observable metrics of a meter provider, the same for every configuration that uses it."""
    try:
        with _lock:
            return _of_provider.setdefault(provider, ObservedMetrics())
    except TypeError:  # a provider that cannot be referred to weakly, or has no hash
        return ObservedMetrics()
