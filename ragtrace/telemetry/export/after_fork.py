"""What a forked child needs of its own: connections, metrics and an identity.

The parent's connections must not be used by two processes, its figures must not be exported twice, and what its metric
reader had locked stays locked. The SDK itself gives a child empty queues and new threads and, in its newest releases, a
new `service.instance.id`.
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
    from ragtrace.telemetry.export.export_queue import PatientExporter
    from ragtrace.telemetry.fast_meters import FastMeter, MetricStore


COLLECT_MS: Final = 60_000.0
"""What a collection of metrics is allowed: it is not to be broken off. Who waits for it keeps to their own time."""


class OwnMeters:
    """Our own meter provider, for which a forked child puts a new one.

    Args:
        reader: exports its metrics.
        resource: of this process.
        current: the resource of our other providers, which the SDK may renew after a fork.
    """

    def __init__(self, reader: MetricReader, resource: Resource, current: Callable[[], Resource]) -> None:
        self._resource, self._current = resource, current
        self._identities = {_identity(resource)}
        """Of this process and those that it descends from."""
        self._store: MetricStore | None = None
        self._open(reader)

    def _open(self, reader: MetricReader) -> None:
        from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        # Only the SDK's own reader is known to hold no lock of its own when it collects: any other might wait for ours
        # while we wait for its.
        self._reader = reader
        self._collection = _Collection(reader.collect, in_turn=isinstance(reader, PeriodicExportingMetricReader))
        vars(reader)["collect"] = self._collection
        self._provider: MeterProvider | None = SdkMeterProvider(
            [reader], resource=self._resource, shutdown_on_exit=False
        )

    def get_meter(self, name: str, release: str) -> Meter | FastMeter:
        """A meter of the provider that this process has now; a light one if its reader knows how to export it."""
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from ragtrace.telemetry.fast_meters import FastMeter, FastMetricReader, MetricStore

        if self._provider is None:
            raise RuntimeError("the meter provider is the parent's; a forked child must be renewed first")
        meter = self._provider.get_meter(name, release)
        if not isinstance(self._reader, FastMetricReader):
            return meter
        self._store = self._reader.store = MetricStore()
        self._reader.scope = InstrumentationScope(name, release)
        return FastMeter(meter, self._store)

    def shared_meter(self, name: str, version: str | None, schema_url: str | None, attributes: Any) -> Any:
        """Return a meter for another library, of the provider that this process has now.

        In a forked child that could not be renewed, which is counted as a fault, the meter does nothing.
        """
        if self._provider is None:
            from opentelemetry.metrics import NoOpMeter

            return NoOpMeter(name)
        return self._provider.get_meter(name, version, schema_url, attributes)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the provider of this process, if it has got one."""
        return self._provider is None or self._provider.force_flush(timeout_millis) is not False

    def shutdown(self) -> None:
        """Shut the provider of this process down, if it has got one."""
        if self._provider is not None:
            self._provider.shutdown()

    def abandon(self) -> None:
        """In a forked child that will be renewed: let the parent's provider be."""
        self._provider = None

    def carry_on(self) -> None:
        """In a forked child that has to share the parent's provider: collect here too, now that its books are empty."""
        if self._store is not None:
            self._store.reset()
        self._collection.resume()

    def renew(self, reader: MetricReader) -> None:
        """In a forked child: start anew with *reader*."""
        now = self._current()
        # Where the SDK does not renew it, it is that of the first process for ever: also for the child of a child.
        self._resource = with_new_identity(self._resource) if _identity(now) in self._identities else now
        self._identities.add(_identity(self._resource))
        self._open(reader)


class SharedMeters:
    """Meter provider for other libraries (`set_global=True`): their instruments move to a forked child's own provider.

    It has the interface of `opentelemetry.metrics.MeterProvider`.

    Args:
        own: makes the real meters.
        renewal: gives a forked child its own exporters when an instrument is first used there.
    """

    def __init__(self, own: OwnMeters, renewal: Renewal) -> None:
        self._own, self._renew = own, renewal.renew
        self._observable: list[_Moving] = []
        renewal.then(self._make_observable_again)

    def get_meter(
        self, name: str, version: str | None = None, schema_url: str | None = None, attributes: Any = None
    ) -> Any:
        """Part of OpenTelemetry's interface."""
        make = partial(self._own.shared_meter, name, version, schema_url, attributes)
        return _Moving(make, self._renew, self._observable)

    def _make_observable_again(self) -> None:
        for instrument in self._observable:
            instrument.real()


class _Moving:
    """A meter or an instrument that is made again on its first use in a forked child."""

    def __init__(self, make: Callable[[], Any], renew: Callable[[], None], observable: list[_Moving]) -> None:
        self._make, self._renew, self._observable = make, renew, observable
        self._pid = 0
        self.real()

    def real(self) -> Any:
        """Return the meter or instrument of this process."""
        if self._pid != os.getpid():
            self._renew()
            self._pid, self._real = os.getpid(), self._make()
        return self._real

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("create_"):
            return getattr(self.real(), name)
        return partial(self._create, name)

    def _create(self, method: str, *args: Any, **kwargs: Any) -> _Moving:
        made = _Moving(lambda: getattr(self.real(), method)(*args, **kwargs), self._renew, self._observable)
        if "observable" in method:  # only the reader uses it, so it is made again along with the reader
            self._observable.append(made)
        return made


def _identity(resource: Resource) -> str:
    return str(resource.attributes.get(semconv.SERVICE_INSTANCE, ""))


def with_new_identity(resource: Resource) -> Resource:
    """*resource* with a new `service.instance.id`: under one, the counters of two processes overwrite each other."""
    from opentelemetry.sdk.resources import Resource as SdkResource

    return resource.merge(SdkResource({semconv.SERVICE_INSTANCE: str(uuid.uuid4())}))


def leave_connections() -> None:
    """In a forked child: leave the parent's idle connections to the parent, at the end of the child too.

    urllib3 closes its pools at exit, and waits for the lock of each: a thread of the parent may have held it at the
    fork, as our exporters' do at each request, and then the child would never end.
    """
    # The objects themselves are known to nobody else.
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        known = finalizer.peek()
        if known is not None and getattr(known[1], "__module__", "") == "urllib3.connectionpool":
            finalizer.atexit = False


class _Collection:
    """A reader's collection of metrics: never broken off, not overtaken if *in_turn*, and of one process only.

    The SDK breaks one off between two instruments, and adds what it had read by then to what it reads the next time: a
    counter is exported with twice its value. And of two at a time, the older might be exported last.

    In a forked child the SDK restarts the reader's thread, before our own hook has run. Where the hooks in between take
    longer than the reader's interval, that thread would export the parent's figures under the child's new identity.
    """

    def __init__(self, collect: Callable[[float], None], *, in_turn: bool) -> None:
        self._collect, self._in_turn = collect, in_turn
        self.resume()

    def resume(self) -> None:
        """Collect in this process."""
        self._turn: AbstractContextManager[object] = threading.Lock() if self._in_turn else nullcontext()
        self._pid = os.getpid()

    def __call__(self, timeout_millis: float = 0.0) -> None:
        """In the place of the reader's own `collect`."""
        if self._pid == os.getpid():
            with self._turn:
                self._collect(max(timeout_millis, COLLECT_MS))


class Renewal:
    """Renews exporters and metrics in a forked child, when it first needs them: most children never do."""

    def __init__(self) -> None:
        self.due = False
        self._lock = threading.RLock()
        self._remake: Callable[[], Signals] | None = None
        self._exporters: tuple[PatientExporter | None, PatientExporter | None] = (None, None)
        self._meters: OwnMeters | None = None
        self._when_done: list[Callable[[], None]] = []

    def prepare(
        self,
        remake: Callable[[], Signals] | None,
        spans: PatientExporter | None,
        events: PatientExporter | None,
        meters: OwnMeters | None,
    ) -> None:
        """Say what a child must have anew.

        Args:
            remake: makes the exporters as they were made in the parent; None: they are the user's own objects, which
                a child must share.
            spans: our exporter of spans, if there is one.
            events: our exporter of events, if there is one.
            meters: our meter provider, if there is one.
        """
        self._remake, self._exporters, self._meters = remake, (spans, events), meters

    def then(self, action: Callable[[], None]) -> None:
        """Call *action* when a child has been given its own."""
        self._when_done.append(action)

    def after_fork(self) -> None:
        """Note that this process is a child."""
        self._lock = threading.RLock()
        self.due = True
        with guarded("connections of a forked process"):
            leave_connections()
        if self._meters is not None:
            (self._meters.carry_on if self._remake is None else self._meters.abandon)()

    def renew(self) -> None:
        """Make everything anew, if that is due."""
        if not self.due:
            return
        with self._lock:
            if self.due:
                with guarded("exporters of a forked process"):
                    self._renew()
                self.due = False

    def _renew(self) -> None:
        spans, events = self._exporters
        if self._remake is None:
            return
        signals = self._remake()
        if spans is not None:
            spans.adopt(signals.spans)
        if events is not None:
            events.adopt(signals.logs)
        if self._meters is not None and signals.metrics is not None:
            self._meters.renew(signals.metrics)
        for action in self._when_done:
            action()
