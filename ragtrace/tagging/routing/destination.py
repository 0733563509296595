"""One exporter of a route, with its own queues, threads, counts and resource."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from ragtrace.core import semconv
from ragtrace.core.types import Signals
from ragtrace.system.threads import run_all_bounded
from ragtrace.telemetry.export.providers import (
    logger_provider_of,
    resource_for,
    signals_maker,
    signals_of_processes,
    span_processor,
    without_reader,
)
from ragtrace.telemetry.export.telemetry import EVENTS, SPANS, RetryingExporter

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk.resources import Resource

    from ragtrace.core.settings import Settings
    from ragtrace.system.forks import PerProcess


class Destination:
    """One exporter of a route: spans, events and scores of the calls with one value, or of all others.

    Args:
        name: the value, or "default".
        exporter: what the user gave: an object or a name.
        settings: settings of the configuration.
        resource: resource of the application.
        sizes: places in the queues of spans and of events.
        made: what was made of the exporter; None: it is made here.
    """

    def __init__(
        self,
        name: str,
        exporter: object,
        settings: Settings,
        resource: Resource,
        sizes: tuple[int, int],
        made: PerProcess[Signals] | None = None,
    ) -> None:
        self.name, self._is_users = name, not isinstance(exporter, str)
        self.shown = exporter if isinstance(exporter, str) else _described(exporter)
        """Name or type of the exporter, for `ragtrace.doctor()`."""
        make = signals_maker(exporter)
        # Each is exported in batches on a thread of its own, also where it asks for none: one that hangs would else
        # hold up the thread that scores the calls of all.
        own = made or signals_of_processes(make if self._is_users else lambda: without_reader(make()))
        signals = replace(own.get(), immediate=False)
        batched = signals_of_processes(lambda: replace(own.get(), immediate=False))
        self.signals = signals
        self.exporters: dict[str, RetryingExporter] = {}
        self._spans: SpanProcessor | None = None
        self.loggers: LoggerProvider | None = None
        own_resource = resource_for(resource, signals)
        self._adds_resource = own_resource is not resource
        self._resources = resource, own_resource
        """Resource of the application, and the same with what the exporter adds."""
        # Where scores are posted, a carrier would be a further trace without anything new.
        self.takes_carriers = signals.spans is not None and signals.scores is None
        try:
            if signals.spans is not None:
                what = f"{SPANS} of {name}"
                self._spans = span_processor(batched, settings, self.exporters, sizes[0], what)
            if signals.logs is not None:
                what = f"{EVENTS} of {name}"
                self.loggers = logger_provider_of(batched, own_resource, self.exporters, sizes[1], what)
        except BaseException:
            self.discard(0.0)
            raise

    def export(self, span: ReadableSpan) -> None:
        """Queue an ended span to be exported."""
        if self._spans is None or (not self.takes_carriers and _is_carrier(span)):
            return
        self._spans.on_end(self._with_resource(span) if self._adds_resource else span)

    def _with_resource(self, span: ReadableSpan) -> ReadableSpan:
        """Return a copy of *span* with the resource that the exporter adds to, of which no other may see anything."""
        given, merged = self._resources
        if span.resource is not given:  # the SDK renews it in a forked child
            merged = resource_for(span.resource, self.signals)
            self._resources = span.resource, merged
        copy = ReadableSpan(
            name=span.name,
            context=span.context,
            parent=span.parent,
            resource=merged,
            attributes=span.attributes,
            events=span.events,
            links=span.links,
            kind=span.kind,
            status=span.status,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )
        if (texts := getattr(span, "judged_texts", None)) is not None:
            cast("Any", copy).judged_texts = texts
        return copy

    def flush_spans(self, timeout_millis: int) -> bool:
        """Export all waiting spans."""
        return self._spans is None or self._spans.force_flush(timeout_millis) is not False

    def end_spans(self) -> None:
        """Shut the exporter of spans down."""
        if self._spans is not None:
            self._spans.shutdown()

    def flush_events(self, timeout_millis: int) -> bool:
        """Export all waiting events."""
        return self.loggers is None or self.loggers.force_flush(timeout_millis) is not False

    def end_events(self) -> None:
        """Shut the exporter of events down."""
        if self.loggers is not None:
            self.loggers.shutdown()

    def discard(self, seconds: float) -> None:
        """End the queues of a configuration that is refused, and the exporter, unless the user has made it."""
        for exporter in self.exporters.values():
            if self._is_users:
                exporter.keep_open()
        run_all_bounded([self.end_spans, self.end_events], monotonic() + seconds)

    def row(self) -> tuple[str, ...]:
        """Return value, exporter, and how many spans and events wait and were lost, for `ragtrace.doctor()`."""
        waiting = sum(exporter.queue.size for exporter in self.exporters.values())
        lost = sum(exporter.queue.losses.total() for exporter in self.exporters.values())
        return self.name, self.shown, f"{waiting} waiting", f"{lost} lost"


def in_parallel(actions: list[Any], *args: object, deadline: float) -> bool:
    """Call *actions* with *args* at a time, each on a thread of its own, and return whether all succeeded in time."""
    return run_all_bounded([partial(action, *args) for action in actions], deadline)


def _is_carrier(span: ReadableSpan) -> bool:
    attributes = span.attributes or {}
    scope = span.instrumentation_scope
    return (
        scope is not None
        and scope.name == semconv.SCOPE
        and attributes.get(semconv.OPERATION_NAME) == semconv.OPERATION_EVALUATION
    )


def _described(exporter: object) -> str:
    if not isinstance(exporter, Signals):
        return type(exporter).__name__
    parts = (exporter.spans, exporter.metrics, exporter.logs, exporter.scores)
    return f"Signals of {', '.join(type(part).__name__ for part in parts if part is not None) or 'nothing'}"
