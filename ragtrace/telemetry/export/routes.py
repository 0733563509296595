"""Seam between the providers and a choice of exporters: what takes the place of the one exporter of a configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor

    from ragtrace.core.part import PartStatus
    from ragtrace.core.settings import Settings
    from ragtrace.core.step import CallRouter
    from ragtrace.core.types import Signals
    from ragtrace.system.forks import PerProcess
    from ragtrace.telemetry.export.telemetry import RetryingExporter, Telemetry
    from ragtrace.telemetry.spans.fast import FastTracer
    from ragtrace.telemetry.spans.hold import HoldProcessor
    from ragtrace.telemetry.spans.span_providers import OwnTracerProvider


class Routes(ABC):
    """Base class of what `configure(exporter=)` takes in place of one exporter."""

    @property
    @abstractmethod
    def fallback(self) -> object:
        """Exporter of the metrics, and of what is no call's: an object, a name, or None if there is none."""

    @abstractmethod
    def open(
        self, settings: Settings, resource: Resource, sizes: tuple[int, int], fallback: PerProcess[Signals]
    ) -> Routing:
        """Make the exporters, with a queue each.

        Args:
            settings: settings of the configuration.
            resource: resource of the application, without attributes of any exporter.
            sizes: places in each queue of spans and of events.
            fallback: what was made of the exporter `fallback`.

        Raises:
            SettingsError: an exporter cannot be made. Those that were made are ended.
        """


class Routing(ABC):
    """Several exporters in one configuration, each with its own queue, which take the telemetry of their calls."""

    router: CallRouter
    """Sets the route of each call when it begins."""
    span_processor: SpanProcessor
    """Passes every ended span on to its exporter."""
    exporters: Mapping[str, RetryingExporter]
    """Batching exporters, by what they export: "spans of acme"."""
    dialects: tuple[str, ...]
    """Attribute conventions that the backends read."""
    carriers: bool
    """Whether any backend reads scores from carriers."""
    fallback_loggers: LoggerProvider | None
    """Provider of the events that are no call's; None: they go nowhere."""

    @abstractmethod
    def tracer(self, provider: OwnTracerProvider, hold: HoldProcessor, release: str) -> FastTracer:
        """Return the tracer of fast spans."""

    @abstractmethod
    def logger(self, release: str) -> Logger | None:
        """Return the logger that passes each event on to its exporter, or None if none takes events."""

    @abstractmethod
    def flush_events(self, timeout_millis: int) -> object:
        """Export all waiting events, of all exporters at a time."""

    @abstractmethod
    def end_events(self) -> object:
        """Shut the exporters of events down, all at a time."""

    @abstractmethod
    def discard(self, seconds: float) -> None:
        """End exporters that are not used after all, except those that the user has made."""

    @abstractmethod
    def add_posters(self, telemetry: Telemetry, *, evidence: bool) -> None:
        """Add to the telemetry of a runtime what posts scores, each those of its calls."""

    @abstractmethod
    def status(self) -> PartStatus:
        """Return what `ragtrace.doctor()` shows of the exporters."""
