"""OpenTelemetry providers: the user's where there are some, else ragtrace's own, which other libraries do not see.

Our own become the process's only with `set_global=True`: an application may set its own after `configure`, and what
other libraries record is not for ragtrace to send anywhere.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import distribution
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import DEFAULT, Settings
from ragtrace.core.types import Observer, Signals
from ragtrace.system.faults import say
from ragtrace.system.threads import run_all_bounded
from ragtrace.telemetry.export.after_fork import COLLECT_MS, EVENTS, SPANS, ChildRenewal, OwnMeters, SharedMeters
from ragtrace.telemetry.export.destinations import resource_of, signals_maker
from ragtrace.telemetry.export.export_queue import BoundedProcessor, ExportQueue, RetryingExporter
from ragtrace.telemetry.export.score_poster import ScorePoster
from ragtrace.telemetry.spans.fast import FastTracer
from ragtrace.telemetry.spans.hold import HoldProcessor, keeping_held
from ragtrace.telemetry.spans.sampler_traits import drops_children
from ragtrace.telemetry.spans.user_provider import fast_tracer

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Tracer
    from opentelemetry.trace import TracerProvider as AnyTracerProvider

    from ragtrace.telemetry.fast_meters import FastMeter

_CALLS_AT_ONCE: Final = 16
_ITEMS_OF_A_CALL: Final = 32
"""Spans and events that one call produces at once, generously."""
_STORES_SHARE: Final = 0.8
"""Share of the time limit of a shutdown for score sinks and the history."""
_MOST_ATTRIBUTES: Final = 1024
_COUNT_LIMITS: Final = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")


class ScoreStore(Observer, Protocol):
    """Store of scored calls that is flushed and closed with the telemetry, such as the history."""

    @property
    def lost(self) -> Counter[str]: ...

    def flush(self, timeout: float) -> bool: ...

    def close(self, timeout: float) -> bool: ...

    def reset(self) -> None: ...

    def settled_until(self, moment: float) -> bool: ...


@dataclass(slots=True)
class Telemetry:
    """Tracer, meter and logger that ragtrace writes to, and what of their providers it flushes and shuts down."""

    tracer: Tracer
    meter: Meter | FastMeter
    logger: Logger | None
    fast: FastTracer | None = None
    """Makes fast spans; None: the SDK makes the spans."""
    owned: bool = False
    """Whether the tracer provider is ours: then nothing else ends or flushes its spans."""
    drops_children: bool = False
    """Whether the head sampler is known to drop every span whose local parent it has dropped."""
    carriers: bool = True
    """Whether carrier spans are exported."""
    dialects: tuple[str, ...] = ()
    """Attribute conventions of the spans."""
    flushes: list[Callable[[int], object]] = field(default_factory=list[Callable[[int], object]])
    """`force_flush(timeout_millis)` of every provider."""
    shutdowns: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    """`shutdown()` of our own providers."""
    child_renewal: ChildRenewal = field(default_factory=lambda: ChildRenewal(None))
    """Gives a forked child its own exporters and metrics."""
    resource: Callable[[], Resource] | None = None
    """Returns the resource of our own providers, which the SDK may renew after a fork; None: there are none."""
    posters: list[ScorePoster] = field(default_factory=list[ScorePoster])
    """Observers that post scores to backends which do not read them from spans, events or metrics."""
    histories: list[ScoreStore] = field(default_factory=list["ScoreStore"])
    """Observers that store every call in a file."""

    @property
    def exporters(self) -> Mapping[str, RetryingExporter]:
        """Exporters of our own providers of `SPANS` and `EVENTS`, where these export in batches."""
        return self.child_renewal.exporters

    @property
    def lost(self) -> int:
        """Number of spans and events that were lost so far."""
        return sum(exporter.queue.losses.total() for exporter in self.exporters.values())

    def room(self, held: int) -> int:
        """Return how many steps and calls may be processed before this method must be called again.

        Args:
            held: number of held spans, whose places in the export queue are taken.
        """
        least = _CALLS_AT_ONCE * _ITEMS_OF_A_CALL
        for what, exporter in self.exporters.items():
            least = min(least, exporter.queue.room(held if what == SPANS else 0))
        return -(-least // _ITEMS_OF_A_CALL)

    def room_for_spans(self) -> int:
        """Return how many more spans our exporter's queue has room for."""
        return self.exporters[SPANS].queue.room() if SPANS in self.exporters else 0

    def lose_spans(self, count: int) -> bool:
        """Count *count* spans that will not be ended as lost; return False if nothing counts losses."""
        if SPANS not in self.exporters:
            return False
        self.exporters[SPANS].queue.lose(count)
        return True

    def flush(self, timeout: float, *, release_held: bool = True) -> bool:
        """Flush all providers within *timeout* seconds; return False if one failed or was late, or items were lost.

        Args:
            release_held: whether held spans are exported, too, without the scores that they wait for.
        """
        deadline, lost = monotonic() + timeout, self.lost
        # Side by side: as long as spans keep coming, the SDK's flush of spans goes on, and metrics must leave, too.
        done = run_all_bounded([partial(_flush, flush, deadline, release_held) for flush in self.flushes], deadline)
        return done and self.lost == lost

    def scores_settled_until(self, moment: float) -> bool:
        """Return whether sinks and stores have delivered, or counted as lost, what they had at monotonic *moment*."""
        stored = all(history.settled_until(moment) for history in self.histories)
        return stored and all(poster.outbox.settled_until(moment) for poster in self.posters)

    def post_scores(self, timeout: float) -> bool:
        """Post and store the queued scores within *timeout* seconds; return False if some were late or lost."""
        deadline = monotonic() + timeout
        flushes = [*(each.flush for each in self.histories), *(each.outbox.flush for each in self.posters)]
        done = [flush(max(0.0, deadline - monotonic())) for flush in flushes]
        return all(done)

    def shutdown(self, timeout: float) -> bool:
        """Shut our own providers, sinks and stores down within *timeout* seconds, and count the rest as lost.

        Returns:
            False if something failed, was late or was lost.
        """
        deadline = monotonic() + timeout
        closes = [*(each.close for each in self.histories), *(each.outbox.close for each in self.posters)]
        stored = [close(max(0.0, (deadline - monotonic()) * _STORES_SHARE)) for close in closes]
        for exporter in self.exporters.values():
            exporter.stop_retrying()
        done = run_all_bounded(self.shutdowns, deadline)
        for exporter in self.exporters.values():
            exporter.queue.close()
        return done and all(stored)

    def after_fork(self) -> None:
        """Drop what the parent had under way, in a forked child."""
        for exporter in self.exporters.values():
            exporter.queue.reset()
        for history in self.histories:
            history.reset()
        for poster in self.posters:
            poster.outbox.reset()
        self.child_renewal.after_fork()


def _flush(flush: Callable[[int], object], deadline: float, release_held: bool) -> object:
    with nullcontext() if release_held else keeping_held():
        return flush(max(1, int((deadline - monotonic()) * 1000)))


def build(
    settings: Settings,
    exporter: object,
    *,
    tracer_provider: AnyTracerProvider | None,
    meter_provider: MeterProvider | None,
    logger_provider: LoggerProvider | None,
) -> Telemetry:
    """Return tracer, meter and logger of the given providers, else the process's, else new ones that export.

    Args:
        exporter: an OpenTelemetry `SpanExporter`, `Signals` or the name of an exporter; None: the one of the settings.
            If it is given here or in the settings, new providers are made even where the process has its own.

    Raises:
        SettingsError: there is no exporter of that name, it was given along with the provider it would replace, or a
            queue size is no number.
    """
    if exporter is not None and tracer_provider is not None:
        raise SettingsError(
            "exporter= and tracer_provider= were both given; add the exporter to your provider with "
            "provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))"
        )
    ours = exporter is not None or settings.origins.get("exporter", DEFAULT) != DEFAULT
    tracers: Any = tracer_provider or (None if ours else _process_provider("tracer"))
    meters = meter_provider or (None if ours else _process_provider("meter"))
    loggers = logger_provider or (None if ours else _process_provider("logger"))
    make = signals_maker(exporter, settings, os.environ)
    # Read before the exporters are made, some of which start threads.
    sizes = _queue_size("OTEL_BSP_MAX_QUEUE_SIZE", 2048), _queue_size("OTEL_BLRP_MAX_QUEUE_SIZE", 8192)
    signals = make()
    # An object of the user's cannot be made again in a forked child.
    renewal = ChildRenewal(make if exporter is None or isinstance(exporter, str) else None)
    resource = resource_of(settings, signals)
    own_tracers = None if tracers else OwnTracerProvider(resource)
    hold = None if own_tracers is None else _own_hold(own_tracers, signals, settings, renewal, sizes[0])
    own_loggers = None if loggers or signals.logs is None else _own_loggers(signals, resource, renewal, sizes[1])
    with_resource: Any = own_tracers or own_loggers
    current = None if with_resource is None else lambda: with_resource.resource
    own_meters = None
    if not meters and signals.metrics is not None:
        own_meters = renewal.meters = OwnMeters(signals.metrics, resource, current or (lambda: resource))

    named_dialects = settings.origins.get("dialects", DEFAULT) != DEFAULT
    release = _release()
    tracers, meters, loggers = tracers or own_tracers, meters or own_meters, loggers or own_loggers
    tracer = tracers.get_tracer(semconv.SCOPE, release)
    telemetry = Telemetry(
        tracer,
        metrics.NoOpMeter(semconv.SCOPE) if meters is None else meters.get_meter(semconv.SCOPE, release),
        None if loggers is None else loggers.get_logger(semconv.SCOPE, release),
        fast_tracer(tracer, release) if own_tracers is None else FastTracer(own_tracers, hold, release, private=True),
        owned=own_tracers is not None,
        drops_children=drops_children(tracers),
        # Where scores are posted, a carrier would be one more trace to look at and nothing new.
        carriers=own_tracers is None or (signals.spans is not None and signals.scores is None),
        dialects=settings.dialects if named_dialects else signals.dialects or settings.dialects,
        flushes=_flushes(tracers, meters, loggers),
        shutdowns=[own.shutdown for own in (own_tracers, own_loggers, own_meters) if own is not None],
        child_renewal=renewal,
        resource=current,
    )
    if signals.scores is not None:
        service = str(resource.attributes.get(semconv.SERVICE_NAME, ""))
        telemetry.posters.append(ScorePoster(signals.scores, service=service, evidence=settings.evidence))
    if own_meters is not None:
        renewal.when_renewed(lambda: setattr(telemetry, "meter", own_meters.get_meter(semconv.SCOPE, release)))
    if settings.set_global:
        shared = None if own_meters is None else SharedMeters(own_meters, renewal)
        _set_global({"tracer": None if signals.spans is None else own_tracers, "meter": shared, "logger": own_loggers})
    return telemetry


def _release() -> str:
    """Return the version of ragtrace; `importlib.metadata.version` parses the whole README for it, as an e-mail."""
    lines = (distribution("ragtrace-otel").read_text("METADATA") or "").splitlines()
    return next(line.removeprefix("Version: ") for line in lines if line.startswith("Version: "))


def _flushes(tracers: object, meters: object, loggers: object) -> list[Callable[[int], object]]:
    flushes: list[Callable[[int], object]] = []
    for provider in (tracers, meters, loggers):
        flush: Any = getattr(provider, "force_flush", None)
        if flush is not None and flush not in flushes:
            flushes.append(partial(_flush_metrics, flush) if provider is meters else flush)
    return flushes


def _flush_metrics(flush: Callable[[float], object], timeout_millis: float) -> object:
    """Flush metrics with the time limit `COLLECT_MS`: a collection that is broken off spoils the SDK's counters."""
    return flush(max(timeout_millis, COLLECT_MS))


class OwnTracerProvider(TracerProvider):
    """SDK tracer provider that knows its limits, and whether all of its span processors are ragtrace's."""

    def __init__(self, resource: Resource) -> None:
        self.limits = _span_limits(os.environ)  # for fast spans and for the SDK's
        self.sees_ends_only = True
        # Not shut down at exit by itself: ragtrace drains first and then shuts it down.
        super().__init__(resource=resource, shutdown_on_exit=False, span_limits=self.limits)

    def add_own_processor(self, processor: SpanProcessor) -> None:
        """Add a span processor of ragtrace, which looks at ended spans only."""
        super().add_span_processor(processor)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add a span processor of another library or the user: from now on the SDK makes the spans."""
        self.sees_ends_only = False
        super().add_span_processor(span_processor)


def _span_limits(environ: Mapping[str, str]) -> SpanLimits:
    """Return the limits of the environment (`OTEL_SPAN_*`), with more attributes than the SDK's 128 by default.

    A carrier has seven attributes a score, and OpenInference three a document: of too many the SDK drops the oldest,
    which are those that say what the span is.
    """
    if any(environ.get(name, "").strip() for name in _COUNT_LIMITS):
        return SpanLimits()
    return SpanLimits(max_span_attributes=_MOST_ATTRIBUTES)


def _own_hold(
    provider: OwnTracerProvider, signals: Signals, settings: Settings, renewal: ChildRenewal, limit: int
) -> HoldProcessor | None:
    """Have *provider* hold and export spans; return the hold, None if no spans are exported."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    if signals.spans is None:
        return None
    if signals.immediate:
        export: SpanProcessor = SimpleSpanProcessor(signals.spans)
    else:
        queue = ExportQueue(SPANS, limit, most_bytes=settings.queue_bytes // 8)
        renewal.exporters[SPANS] = exporter = RetryingExporter(signals.spans, queue, renewal.renew)
        export = BoundedProcessor(BatchSpanProcessor(cast("Any", exporter), max_queue_size=limit), queue)
    hold = HoldProcessor(export, seconds=settings.hold_seconds, most_bytes=settings.queue_bytes // 8)
    provider.add_own_processor(hold)
    return hold


def _own_loggers(signals: Signals, resource: Resource, renewal: ChildRenewal, limit: int) -> SdkLoggerProvider:
    from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, SimpleLogRecordProcessor

    logs: Any = signals.logs
    provider = SdkLoggerProvider(resource=resource, shutdown_on_exit=False)
    if signals.immediate:
        provider.add_log_record_processor(SimpleLogRecordProcessor(logs))
        return provider
    # A call has several events. Half of the places are kept for those of the calls that are being scored.
    queue = ExportQueue(EVENTS, limit, reserve=limit // 2)
    renewal.exporters[EVENTS] = exporter = RetryingExporter(logs, queue, renewal.renew)
    batches = BatchLogRecordProcessor(cast("Any", exporter), max_queue_size=limit)
    provider.add_log_record_processor(cast("Any", BoundedProcessor(batches, queue)))
    return provider


def _queue_size(variable: str, default: int) -> int:
    try:
        return int(os.environ.get(variable) or default)
    except ValueError:
        raise SettingsError(
            f"{variable} must be a number of items, got {os.environ[variable]!r}; write {default}, for example"
        ) from None


_PROCESS: Final[Mapping[str, tuple[Callable[[], object], Callable[[Any], None]]]] = {
    "tracer": (trace.get_tracer_provider, trace.set_tracer_provider),
    "meter": (metrics.get_meter_provider, metrics.set_meter_provider),
    "logger": (_logs.get_logger_provider, _logs.set_logger_provider),
}
"""Getter and setter of the process's provider, by kind."""
_PLACEHOLDERS: Final = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
_made_global: dict[str, object] = {}
"""Providers that a `configure` of this process has made the process's."""


def _process_provider(kind: str) -> Any:
    """Return the process's provider of *kind*; None if there is none, or an earlier `configure` has made it."""
    provider = _PROCESS[kind][0]()
    # The API's placeholders for meters and loggers have no public names to test for.
    unset = isinstance(provider, _PLACEHOLDERS) or type(provider).__module__.startswith(
        ("opentelemetry.metrics", "opentelemetry._logs")
    )
    return None if unset or any(provider is ours for ours in _made_global.values()) else provider


def _set_global(providers: Mapping[str, Any]) -> None:
    """Make *providers*, by kind, those of the process, for other instrumentations to write to; None: there is none."""
    kept: list[str] = []
    for kind, provider in providers.items():
        if provider is None:
            continue
        # OpenTelemetry lets each be set once in a process, so a second `configure` cannot replace the first one's.
        if kind in _made_global or _process_provider(kind) is not None:
            kept.append(kind)
            continue
        _made_global[kind] = provider
        _PROCESS[kind][1](provider)
    if kept:
        say(
            logging.WARNING,
            "set_global=True: the process has a %s provider already, which OpenTelemetry does not let us replace; what "
            "other libraries record still goes there. Call ragtrace.configure(set_global=True) once, before any "
            "set_tracer_provider",
            " and a ".join(kept),
        )
