"""The exporters of a `Route` together: they take the place of the one exporter of a configuration.

| What | Goes |
|---|---|
| spans, carriers | through one `HoldProcessor`, then each to the queue of its destination, by `SpanRoutes` |
| events | to the logger of their destination: by the route of the call, which is in the context, else by the span |
| scores for a backend's API | to the poster of their destination (`posters.py`) |
| metrics | to the default's metric reader |

Every destination has queues and threads of its own, and nobody waits for room in them: while one backend hangs, the
calls of all others would wait behind its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from opentelemetry._logs import Logger, LogRecord
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import get_current_span

from ragtrace.core import semconv
from ragtrace.core.part import PartStatus
from ragtrace.recording.recorder import recording_context
from ragtrace.system.context import ROUTE_KEY
from ragtrace.system.faults import faults
from ragtrace.tagging.routing.destination import Destination, in_parallel
from ragtrace.tagging.routing.posters import LateTags, PosterGroup, RoutedPoster
from ragtrace.tagging.routing.span_routes import DEFAULT, RoutedTracer, SpanRoutes, count_unrouted
from ragtrace.telemetry.export.routes import Routing

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource

    from ragtrace.core.settings import Settings
    from ragtrace.core.types import Signals
    from ragtrace.system.forks import PerProcess
    from ragtrace.telemetry.export.telemetry import Telemetry
    from ragtrace.telemetry.spans.fast import FastTracer
    from ragtrace.telemetry.spans.hold import HoldProcessor
    from ragtrace.telemetry.spans.span_providers import OwnTracerProvider

_SHUTDOWN_SECONDS: Final = 30.0
"""Longest time for the end of all exporters, which the shutdown of the runtime bounds further."""
_DISCARD_SECONDS: Final = 1.0


def open_routing(
    tag: str,
    exporters: Mapping[str, object],
    default: object,
    settings: Settings,
    resource: Resource,
    sizes: tuple[int, int],
    fallback: PerProcess[Signals],
) -> RoutedExport:
    """Make the destinations of a route.

    Raises:
        SettingsError: an exporter cannot be made. The others are ended then.
    """
    made: dict[str, Destination] = {}
    with ExitStack() as undo:
        for value, exporter in exporters.items():
            made[value] = Destination(value, exporter, settings, resource, sizes)
            undo.callback(made[value].discard, _DISCARD_SECONDS)
        if default is not None:
            made[DEFAULT] = Destination("default", default, settings, resource, sizes, fallback)
            undo.callback(made[DEFAULT].discard, _DISCARD_SECONDS)
        routing = RoutedExport(tag, made)
        undo.pop_all()
    return routing


class RoutedExport(Routing):
    """Destinations of a route, with what chooses among them.

    Args:
        tag: name of the tag.
        destinations: by the values of the tag; that of all other calls under "", if there is one.
    """

    def __init__(self, tag: str, destinations: Mapping[str, Destination]) -> None:
        self._tag, self._destinations = tag, destinations
        self.routes = SpanRoutes(tag, [value for value in destinations if value != DEFAULT])
        self.router = self.routes
        self.span_processor = RoutedSpans(self.routes, destinations)
        self.exporters = {what: each for one in destinations.values() for what, each in one.exporters.items()}
        named = [name for one in destinations.values() for name in one.signals.dialects]
        self.dialects = tuple(dict.fromkeys(named))
        self.carriers = any(one.takes_carriers for one in destinations.values())
        fallback = destinations.get(DEFAULT)
        self.fallback_loggers = None if fallback is None else fallback.loggers

    def tracer(self, provider: OwnTracerProvider, hold: HoldProcessor, release: str) -> FastTracer:
        """Return the tracer of fast spans."""
        return RoutedTracer(self.routes, provider, hold, release, private=True)

    def logger(self, release: str) -> Logger | None:
        """Return the logger that passes each event on to its destination, or None if none takes events."""
        if all(one.loggers is None for one in self._destinations.values()):
            return None
        return RoutedLogger(self.routes, self._destinations, release)

    def flush_events(self, timeout_millis: int) -> bool:
        """Export all waiting events, of all destinations at a time."""
        actions = [one.flush_events for one in self._destinations.values()]
        return in_parallel(actions, timeout_millis, deadline=monotonic() + timeout_millis / 1000)

    def end_events(self) -> bool:
        """Shut the exporters of events down, all at a time."""
        actions = [one.end_events for one in self._destinations.values()]
        return in_parallel(actions, deadline=monotonic() + _SHUTDOWN_SECONDS)

    def discard(self, seconds: float) -> None:
        """End exporters that are not used after all, except those that the user has made."""
        actions = [one.discard for one in self._destinations.values()]
        in_parallel(actions, seconds, deadline=monotonic() + seconds)

    def add_posters(self, telemetry: Telemetry, *, evidence: bool) -> None:
        """Add to the telemetry of a runtime what posts scores, each those of its calls."""
        telemetry.poster_parts.append(LateTags(self.routes))
        posters = [
            RoutedPoster(self.routes, value, one.name, one.signals.scores, telemetry.service, evidence=evidence)
            for value, one in self._destinations.items()
            if one.signals.scores is not None
        ]
        if posters:
            telemetry.posters.extend(posters)
            telemetry.poster_parts.append(PosterGroup(self.routes, posters, DEFAULT in self._destinations))

    def status(self) -> PartStatus:
        """Return each value with its exporter, and what waits there and was lost."""
        rows = [one.row() for one in self._destinations.values()]
        if DEFAULT not in self._destinations:
            rows.append(("default", "none: dropped and counted", "", ""))
        return PartStatus(f"Exporters by {self._tag}", tuple(rows))


class RoutedSpans(SpanProcessor):
    """Span processor behind the `HoldProcessor` that passes each ended span on to its destination, and to no other."""

    def __init__(self, routes: SpanRoutes, destinations: Mapping[str, Destination]) -> None:
        self._routes, self._destinations = routes, destinations

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Note a span that the SDK has made: a carrier, or one of another instrumentation."""
        try:
            context = recording_context() if parent_context is None else parent_context
            self._routes.started(span.get_span_context(), span.parent, context)
        except Exception as error:  # the span goes to the default
            faults.record("route of a span", error)

    def on_end(self, span: ReadableSpan) -> None:
        """Pass an ended span on to its destination."""
        context = span.context
        if context is None:
            return
        value = self._routes.take(context.span_id)
        if not context.trace_flags.sampled:
            return
        destination = self._destinations.get(value)
        if destination is None:
            count_unrouted("spans")
            return
        try:
            destination.export(span)
        except Exception as error:  # on a thread of the application's, which goes on
            faults.record("route of a span", error)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export all waiting spans, of all destinations at a time."""
        actions = [one.flush_spans for one in self._destinations.values()]
        return in_parallel(actions, timeout_millis, deadline=monotonic() + timeout_millis / 1000)

    def shutdown(self) -> None:
        """Shut all exporters of spans down, all at a time."""
        actions = [one.end_spans for one in self._destinations.values()]
        in_parallel(actions, deadline=monotonic() + _SHUTDOWN_SECONDS)


class RoutedLogger(Logger):
    """Logger that passes each event on to the logger of its destination, and to no other."""

    def __init__(self, routes: SpanRoutes, destinations: Mapping[str, Destination], release: str) -> None:
        super().__init__(semconv.SCOPE, release)
        self._routes = routes
        self._loggers: dict[str, Logger | None] = {
            value: None if one.loggers is None else one.loggers.get_logger(semconv.SCOPE, release)
            for value, one in destinations.items()
        }

    def _value(self, context: Context | None) -> str:
        if context is None:
            return DEFAULT
        route = context.get(ROUTE_KEY)
        if isinstance(route, str):
            return self._routes.value_of_route(route)
        return self._routes.value_of_span(get_current_span(context).get_span_context().span_id)

    def emit(self, record: LogRecord | None = None, **fields: Any) -> None:
        """Pass an event on to its destination."""
        value = self._value(fields.get("context"))
        if value not in self._loggers:
            count_unrouted("events")
        elif (logger := self._loggers[value]) is not None:
            logger.emit(**fields) if record is None else logger.emit(record)

    def enabled(self, **fields: Any) -> bool:
        """Return whether the destination of an event takes it; one without a destination is taken, and counted."""
        value = self._value(fields.get("context"))
        logger = self._loggers.get(value)
        if logger is None:
            return value not in self._loggers
        enabled: Callable[..., bool] | None = getattr(logger, "enabled", None)
        return enabled is None or bool(enabled(**fields))
