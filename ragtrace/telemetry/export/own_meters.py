"""Meter provider for ragtrace's own metrics, of which each process has one.

A forked child must not export its parent's figures, and what the parent's metric reader had locked at the fork stays
locked. The SDK itself gives a child empty queues and new threads and, in its newest releases, a new
`service.instance.id`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ragtrace.core import semconv
from ragtrace.system.faults import faults
from ragtrace.system.forks import Home, PerProcess

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

COLLECT_MS: Final = 60_000.0
"""Time limit of a collection of metrics, long enough for any; callers have shorter time limits of their own."""


def with_new_identity(resource: Resource) -> Resource:
    """Return a copy of an OpenTelemetry resource with a new `service.instance.id`.

    By this id, backends tell a forked child from its parent.
    """
    from opentelemetry.sdk.resources import Resource as SdkResource

    return resource.merge(SdkResource({semconv.SERVICE_INSTANCE: str(uuid.uuid4())}))


def _identity(resource: Resource) -> str:
    return str(resource.attributes.get(semconv.SERVICE_INSTANCE, ""))


class _OpenMeters(NamedTuple):
    """Meter provider of one process, with its reader and its resource."""

    provider: MeterProvider
    reader: MetricReader
    collection: _SerialCollection
    resource: Resource


class OwnMeters:
    """Meter provider for ragtrace's own metrics, of which a forked child opens another at its first use.

    Args:
        reader: returns the metric reader of this process, which exports the metrics. In a child, the same reader again
            is one that the user has made: the child then shares its parent's provider.
        resource: resource of this process.
        current: returns the resource of ragtrace's other providers, which the SDK may renew after a fork.
    """

    def __init__(self, reader: Callable[[], MetricReader], resource: Resource, current: Callable[[], Resource]) -> None:
        self._reader, self._first_resource, self._current = reader, resource, current
        self._identities: set[str] = set()
        """Identities of this process and its ancestors."""
        self._latest: _OpenMeters | None = None
        """Provider that this process or its parent has opened; None before the first."""
        self._opened = PerProcess(self._open, keeps_parents=True)
        self._when_opened: list[Callable[[], object]] = []
        self._opened.get()

    def _open(self) -> _OpenMeters:
        from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        reader, parents = self._reader(), self._latest
        if parents is None:
            resource = self._first_resource
        elif reader is parents.reader:
            parents.collection.allow_here()
            return parents
        else:
            # An SDK that does not renew the resource keeps that of the first process, also in the child of a child.
            now = self._current()
            resource = with_new_identity(parents.resource) if _identity(now) in self._identities else now
        # Only the SDK's reader is known to hold no lock while it collects: any other might wait for our lock while we
        # wait for the reader's.
        collection = _SerialCollection(reader.collect, one_at_a_time=isinstance(reader, PeriodicExportingMetricReader))
        before = vars(reader).get("collect")
        vars(reader)["collect"] = collection
        try:
            provider = SdkMeterProvider([reader], resource=resource, shutdown_on_exit=False)
        except Exception:  # the reader is that of another provider, which goes on using it
            if before is None:
                del vars(reader)["collect"]
            else:
                vars(reader)["collect"] = before
            raise
        self._identities.add(_identity(resource))
        self._latest = _OpenMeters(provider, reader, collection, resource)
        return self._latest

    def on_opening(self, action: Callable[[], object]) -> None:
        """Register the callback *action*, to be called after a forked child has opened a provider of its own."""
        self._when_opened.append(action)

    @property
    def identity(self) -> str:
        """The `service.instance.id` of this process's metrics; "" in a forked child that has not used a meter."""
        opened = self._opened.peek()
        return "" if opened is None else _identity(opened.resource)

    def get_meter(self, name: str, *about: Any) -> Meter:
        """Return a meter of this process's provider, which a forked child opens now.

        Where that fails in a child, which is counted as a fault, the meter does nothing.

        Args:
            name: name of the instrumentation scope.
            about: version, schema URL and attributes of the scope, as for a provider of OpenTelemetry.
        """
        opened = self._opened.peek()
        if opened is None:
            try:
                opened = self._opened.get()
            except Exception as error:
                from opentelemetry.metrics import NoOpMeter

                faults.record("metrics of a forked process", error)
                return NoOpMeter(name)
            for action in self._when_opened:
                action()
        return opened.provider.get_meter(name, *about)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush this process's meter provider, if it has opened one."""
        opened = self._opened.peek()
        return opened is None or opened.provider.force_flush(timeout_millis) is not False

    def shutdown(self) -> None:
        """Shut this process's meter provider down, if it has opened one."""
        opened = self._opened.peek()
        if opened is not None:
            opened.provider.shutdown()


class _SerialCollection:
    """Wrapper of a metric reader's `collect` method that prevents interrupted and concurrent collections.

    The SDK breaks a collection off between two instruments, and adds what it had read by then to what it reads the next
    time: a counter is exported with twice its value. And of two at a time, the older might be exported last.

    In a forked child the SDK restarts the reader's thread before our own hook has run. Where the hooks in between take
    longer than the reader's interval, that thread would export the parent's figures under the child's new identity.
    """

    def __init__(self, collect: Callable[[float], None], *, one_at_a_time: bool) -> None:
        self._collect, self._one_at_a_time = collect, one_at_a_time
        self.allow_here()

    def allow_here(self) -> None:
        """Allow the current process to collect metrics with the reader."""
        self._turn: AbstractContextManager[object] = threading.Lock() if self._one_at_a_time else nullcontext()
        self._home = Home()

    def __call__(self, timeout_millis: float = 0.0) -> None:
        if self._home.is_here():
            with self._turn:
                self._collect(max(timeout_millis, COLLECT_MS))


class SharedMeters:
    """Meter provider that other libraries use after `TelemetryOptions(set_global=True)`.

    In a forked child, the libraries' metric instruments are created again.

    It has the interface of `opentelemetry.metrics.MeterProvider`.

    Args:
        own: makes the real meters.
    """

    def __init__(self, own: OwnMeters) -> None:
        self._own = own
        self._observable: list[_ForkAwareProxy] = []
        own.on_opening(self._create_observable)

    def get_meter(
        self, name: str, version: str | None = None, schema_url: str | None = None, attributes: Any = None
    ) -> Any:
        """Return a proxy of a meter, which creates a new meter in a forked child."""
        make = partial(self._own.get_meter, name, version, schema_url, attributes)
        return _ForkAwareProxy(make, self._observable)

    def _create_observable(self) -> None:
        for instrument in self._observable:
            instrument.current()


class _ForkAwareProxy:
    """Proxy of a meter or metric instrument, which creates the real object again on its first use in a forked child."""

    def __init__(self, make: Callable[[], Any], observable: list[_ForkAwareProxy]) -> None:
        self._real, self._observable = PerProcess(make), observable
        self.current()

    def current(self) -> Any:
        """Return the real meter or instrument of this process, creating a new one in a forked child if necessary."""
        return self._real.get()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("create_"):
            return getattr(self.current(), name)
        return partial(self._create, name)

    def _create(self, method: str, *args: Any, **kwargs: Any) -> _ForkAwareProxy:
        made = _ForkAwareProxy(lambda: getattr(self.current(), method)(*args, **kwargs), self._observable)
        if "observable" in method:  # used by the reader alone, so made anew with the reader
            self._observable.append(made)
        return made
