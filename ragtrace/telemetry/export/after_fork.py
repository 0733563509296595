"""Replacement of exporters, meter provider and service instance id in a forked child, before the child exports
anything.

Two processes must not use the parent's connections or export its figures, and what the parent's metric reader had
locked at the fork stays locked. The SDK itself gives a child empty queues and new threads and, in its newest releases,
a new `service.instance.id`.

Queues of scores, alerts and history entries (`ragtrace.telemetry.export.outbox.Outbox`) have no part in this: the
components that own the queues empty them right after the fork.
"""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ragtrace.core import semconv
from ragtrace.system.faults import guarded

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

    from ragtrace.core.types import Signals
    from ragtrace.telemetry.export.telemetry import RetryingExporter
    from ragtrace.telemetry.fast_meters import FastMeter, MetricStore

SPANS: Final = "spans"
EVENTS: Final = "events"
COLLECT_MS: Final = 60_000.0
"""Time limit of a collection of metrics, long enough for any; callers have shorter time limits of their own."""


class ChildRenewal:
    """Replacement of the exporters and the meter provider that a forked child has inherited from its parent process.

    They are replaced when the child first exports anything. Most children export nothing, and never pay for it.

    Args:
        make: makes the exporters as they were made in the parent; None: they are the user's own objects, which a child
            must share.
    """

    def __init__(self, make: Callable[[], Signals] | None) -> None:
        self._make = make
        self.due = False
        """Whether this process is a forked child that still has the parent's exporters."""
        self.exporters: dict[str, RetryingExporter] = {}
        """Batching exporters of ragtrace's own providers, by signal: `SPANS` and `EVENTS`."""
        self.meters: OwnMeters | None = None
        """Meter provider of ragtrace; None if metrics go to the user's provider, or nowhere."""
        self._lock = threading.RLock()
        self._when_done: list[Callable[[], None]] = []

    def on_renewal(self, action: Callable[[], None]) -> None:
        """Register the callback *action*, to be called after a forked child has got its own exporters and metrics."""
        self._when_done.append(action)

    def after_fork(self) -> None:
        """Note that this process is a forked child, whose exporters and metrics must be renewed."""
        self._lock = threading.RLock()
        self.due = True
        with guarded("connections of a forked process"):
            _keep_parents_connections_open()
        if self.meters is not None:
            (self.meters.share_parents if self._make is None else self.meters.drop_parents)()

    def renew(self) -> None:
        """In a forked child, replace the exporters and the meter provider inherited from the parent process."""
        if not self.due:
            return
        with self._lock:
            if self.due:
                with guarded("exporters of a forked process"):
                    if self._make is not None:
                        self._renew(self._make())
                self.due = False

    def _renew(self, signals: Signals) -> None:
        for what, exporter in ((SPANS, signals.spans), (EVENTS, signals.logs)):
            if what in self.exporters:
                self.exporters[what].replace(exporter)
        if self.meters is not None and signals.metrics is not None:
            self.meters.renew(signals.metrics)
        for action in self._when_done:
            action()


def _keep_parents_connections_open() -> None:
    """Keep urllib3 from closing the parent's idle connections when a forked child ends.

    urllib3 closes its pools at exit, and waits for the lock of each: a thread of the parent may have held it at the
    fork, as our exporters' do at each request, and then the child would never end.
    """
    # The only way to reach these objects.
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        known = finalizer.peek()
        if known is not None and getattr(known[1], "__module__", "") == "urllib3.connectionpool":
            finalizer.atexit = False


def with_new_identity(resource: Resource) -> Resource:
    """Return a copy of an OpenTelemetry resource with a new `service.instance.id`.

    By this id, backends tell a forked child from its parent.
    """
    from opentelemetry.sdk.resources import Resource as SdkResource

    return resource.merge(SdkResource({semconv.SERVICE_INSTANCE: str(uuid.uuid4())}))


def _identity(resource: Resource) -> str:
    return str(resource.attributes.get(semconv.SERVICE_INSTANCE, ""))


class OwnMeters:
    """Meter provider for ragtrace's own metrics, which a forked child replaces by a new one.

    Args:
        reader: exports the metrics.
        resource: resource of this process.
        current: returns the resource of ragtrace's other providers, which the SDK may renew after a fork.
    """

    def __init__(self, reader: MetricReader, resource: Resource, current: Callable[[], Resource]) -> None:
        self._resource, self._current = resource, current
        self._identities = {_identity(resource)}
        """Identities of this process and its ancestors."""
        self._store: MetricStore | None = None
        self._open(reader)

    def _open(self, reader: MetricReader) -> None:
        from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        # Only the SDK's reader is known to hold no lock while it collects: any other might wait for our lock while we
        # wait for the reader's.
        self._reader = reader
        self._collection = _SerialCollection(
            reader.collect, one_at_a_time=isinstance(reader, PeriodicExportingMetricReader)
        )
        vars(reader)["collect"] = self._collection
        self._provider: MeterProvider | None = SdkMeterProvider(
            [reader], resource=self._resource, shutdown_on_exit=False
        )

    def get_meter(self, name: str, release: str) -> Meter | FastMeter:
        """Return a meter for ragtrace's own metrics.

        It is a `FastMeter` if the metric reader can export the metrics of one.

        Raises:
            RuntimeError: in a forked child that has not been renewed.
        """
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from ragtrace.telemetry.fast_meters import FastMeter, FastMetricReader, MetricStore

        if self._provider is None:
            raise RuntimeError(
                "this forked process still has its parent's meter provider; call ragtrace.configure() in the child"
            )
        meter = self._provider.get_meter(name, release)
        if not isinstance(self._reader, FastMetricReader):
            return meter
        self._store = self._reader.store = MetricStore()
        self._reader.scope = InstrumentationScope(name, release)
        return FastMeter(meter, self._store)

    def shared_meter(self, name: str, version: str | None, schema_url: str | None, attributes: Any) -> Any:
        """Return a meter of this process's meter provider, for another library to use.

        In a forked child that could not be renewed, which is counted as a fault, the meter does nothing.
        """
        if self._provider is None:
            from opentelemetry.metrics import NoOpMeter

            return NoOpMeter(name)
        return self._provider.get_meter(name, version, schema_url, attributes)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush this process's meter provider, if it has one."""
        return self._provider is None or self._provider.force_flush(timeout_millis) is not False

    def shutdown(self) -> None:
        """Shut this process's meter provider down, if it has one."""
        if self._provider is not None:
            self._provider.shutdown()

    def drop_parents(self) -> None:
        """Drop the parent's meter provider in a forked child, before the child creates its own."""
        self._provider = None

    def share_parents(self) -> None:
        """Go on using the parent's meter provider in a forked child, after setting all metrics to zero."""
        if self._store is not None:
            self._store.reset()
        self._collection.resume()

    def renew(self, reader: MetricReader) -> None:
        """Create a new meter provider in a forked child, with *reader* as its metric reader."""
        now = self._current()
        # An SDK that does not renew the resource keeps that of the first process, also in the child of a child.
        self._resource = with_new_identity(self._resource) if _identity(now) in self._identities else now
        self._identities.add(_identity(self._resource))
        self._open(reader)


class _SerialCollection:
    """Wrapper of a metric reader's `collect` method that prevents interrupted and concurrent collections.

    The SDK breaks a collection off between two instruments, and adds what it had read by then to what it reads the next
    time: a counter is exported with twice its value. And of two at a time, the older might be exported last.

    In a forked child the SDK restarts the reader's thread before our own hook has run. Where the hooks in between take
    longer than the reader's interval, that thread would export the parent's figures under the child's new identity.
    """

    def __init__(self, collect: Callable[[float], None], *, one_at_a_time: bool) -> None:
        self._collect, self._one_at_a_time = collect, one_at_a_time
        self.resume()

    def resume(self) -> None:
        """Allow the current process to collect metrics with the reader."""
        self._turn: AbstractContextManager[object] = threading.Lock() if self._one_at_a_time else nullcontext()
        self._pid = os.getpid()

    def __call__(self, timeout_millis: float = 0.0) -> None:
        if self._pid == os.getpid():
            with self._turn:
                self._collect(max(timeout_millis, COLLECT_MS))


class SharedMeters:
    """Meter provider that other libraries use after `TelemetryOptions(set_global=True)`.

    In a forked child, the libraries' metric instruments are created again.

    It has the interface of `opentelemetry.metrics.MeterProvider`.

    Args:
        own: makes the real meters.
        renewal: gives a forked child its own exporters when an instrument is first used there.
    """

    def __init__(self, own: OwnMeters, renewal: ChildRenewal) -> None:
        self._own, self._renew = own, renewal.renew
        self._observable: list[_ForkAwareProxy] = []
        renewal.on_renewal(self._renew_observable)

    def get_meter(
        self, name: str, version: str | None = None, schema_url: str | None = None, attributes: Any = None
    ) -> Any:
        """Return a proxy of a meter, which creates a new meter in a forked child."""
        make = partial(self._own.shared_meter, name, version, schema_url, attributes)
        return _ForkAwareProxy(make, self._renew, self._observable)

    def _renew_observable(self) -> None:
        for instrument in self._observable:
            instrument.current()


class _ForkAwareProxy:
    """Proxy of a meter or metric instrument, which creates the real object again on its first use in a forked child."""

    def __init__(self, make: Callable[[], Any], renew: Callable[[], None], observable: list[_ForkAwareProxy]) -> None:
        self._make, self._renew, self._observable = make, renew, observable
        self._pid = 0
        self.current()

    def current(self) -> Any:
        """Return the real meter or instrument of this process, creating a new one in a forked child if necessary."""
        if self._pid != os.getpid():
            self._renew()
            self._pid, self._real = os.getpid(), self._make()
        return self._real

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("create_"):
            return getattr(self.current(), name)
        return partial(self._create, name)

    def _create(self, method: str, *args: Any, **kwargs: Any) -> _ForkAwareProxy:
        made = _ForkAwareProxy(lambda: getattr(self.current(), method)(*args, **kwargs), self._renew, self._observable)
        if "observable" in method:  # used by the reader alone, so made anew with the reader
            self._observable.append(made)
        return made
