"""What a forked child needs of its own: connections, metrics and an identity.

The parent's connections must not be used by two processes, its figures must not be exported twice, and what its metric
reader had locked stays locked. The SDK itself gives a child empty queues and new threads and, in its newest releases, a
new `service.instance.id`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

from ragtrace import semconv
from ragtrace.errors import guarded
from ragtrace.meters import Book, LightMeter

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

    from ragtrace.delivery import PatientExporter
    from ragtrace.meters import Instrumented
    from ragtrace.model import Signals


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
        self._open(reader)

    def _open(self, reader: MetricReader) -> None:
        from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        self._reader = reader
        # Only the SDK's own reader is known to hold no lock of its own when it collects: any other might wait for ours
        # while we wait for its.
        in_turn = threading.Lock() if isinstance(reader, PeriodicExportingMetricReader) else nullcontext()
        vars(reader)["collect"] = partial(_collect, reader.collect, in_turn)
        self._provider: MeterProvider | None = SdkMeterProvider(
            [reader], resource=self._resource, shutdown_on_exit=False
        )

    def get_meter(self, name: str, release: str) -> Instrumented:
        """A meter of the provider that this process has now; a light one if its reader knows how to export it."""
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from ragtrace.meters.reader import LightReader

        if self._provider is None:
            raise RuntimeError("the meter provider is the parent's; a forked child must be renewed first")
        meter = self._provider.get_meter(name, release)
        if not isinstance(self._reader, LightReader):
            return meter
        book = Book()
        self._reader.book, self._reader.scope = book, InstrumentationScope(name, release)
        return LightMeter(meter, book)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the provider of this process, if it has got one."""
        return self._provider is None or self._provider.force_flush(timeout_millis) is not False

    def shutdown(self) -> None:
        """Shut the provider of this process down, if it has got one."""
        if self._provider is not None:
            self._provider.shutdown()

    def abandon(self) -> None:
        """In a forked child: let the parent's provider be."""
        # The SDK restarts the reader's thread in the child: it would send the parent's figures once more.
        vars(self._reader)["collect"] = _nothing
        self._provider = None

    def renew(self, reader: MetricReader) -> None:
        """In a forked child: start anew with *reader*."""
        now = self._current()
        if now.attributes.get(semconv.SERVICE_INSTANCE) == self._resource.attributes.get(semconv.SERVICE_INSTANCE):
            now = with_new_identity(self._resource)
        self._resource = now
        self._open(reader)


def with_new_identity(resource: Resource) -> Resource:
    """*resource* with a new `service.instance.id`: under one, the counters of two processes overwrite each other."""
    from opentelemetry.sdk.resources import Resource as SdkResource

    return resource.merge(SdkResource({semconv.SERVICE_INSTANCE: str(uuid.uuid4())}))


def _nothing(*_: object, **__: object) -> None:
    """Stands for a collection of metrics."""


def _collect(
    collect: Callable[[float], None], in_turn: AbstractContextManager[object], timeout_millis: float = 0.0
) -> None:
    """A collection of metrics that is neither broken off nor, where *in_turn* is a lock, overtaken.

    The SDK breaks one off between two instruments, and adds what it had read by then to what it reads the next time: a
    counter is exported with twice its value. And of two at a time, the older might be exported last.
    """
    with in_turn:
        collect(max(timeout_millis, COLLECT_MS))


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
        remake: Callable[[], Signals],
        spans: PatientExporter | None,
        events: PatientExporter | None,
        meters: OwnMeters | None,
    ) -> None:
        """Say what a child must have anew. Without it the exporters are the user's own objects, which it must share.

        Args:
            remake: makes the exporters as they were made in the parent.
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
        if self._meters is not None:
            self._meters.abandon()

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
