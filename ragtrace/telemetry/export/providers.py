"""OpenTelemetry providers: the user's where there are some, else our own, which other libraries do not see.

Ours become the process's only with `set_global=True`: an application may set its own after `configure`, and what other
libraries record is not for us to send anywhere.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, cast

from opentelemetry import _logs, metrics, trace

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import DEFAULT, Settings
from ragtrace.core.types import Observer, Signals
from ragtrace.system.faults import say
from ragtrace.system.threads import run_all_bounded
from ragtrace.telemetry.export.after_fork import COLLECT_MS, OwnMeters, Renewal, SharedMeters
from ragtrace.telemetry.export.destinations import dialects_of, maker, resource_of
from ragtrace.telemetry.export.export_queue import Backlog, BoundedEvents, BoundedSpans, PatientExporter
from ragtrace.telemetry.export.score_poster import ScorePoster
from ragtrace.telemetry.spans.hold import HoldProcessor, keeping_held

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.sdk._logs import LogRecordProcessor
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer, TracerProvider

    from ragtrace.telemetry.fast_meters import FastMeter
    from ragtrace.telemetry.spans.fast import FastTracer

_MOST_AT_A_TIME: Final = 16
_MOST_OF_A_CALL: Final = 32
"""Spans and events that come of one call at once, generously."""
_POSTERS_SHARE: Final = 0.8
"""Of the time for a shutdown."""
SPANS: Final = "spans"
EVENTS: Final = "events"


class ScoreStore(Observer, Protocol):
    """Store of scored calls that is flushed and closed with the telemetry, such as the history."""

    @property
    def lost(self) -> Counter[str]: ...

    def flush(self, timeout: float) -> bool: ...

    def close(self, timeout: float) -> bool: ...

    def reset(self) -> None: ...


@dataclass(slots=True)
class Telemetry:
    """What ragtrace writes to, and what of it is ours to flush and shut down."""

    tracer: Tracer
    meter: Meter | FastMeter
    logger: Logger | None
    hold: HoldProcessor | None = None
    """Of our own provider, if it exports anything."""
    fast: FastTracer | None = None
    """Makes fast spans; None: the SDK makes the spans."""
    owned: bool = False
    """Whether the tracer provider is ours: then nothing but us ends or flushes its spans."""
    drops_children: bool = False
    """Whether the tracer provider is known to drop every span whose local parent it has dropped."""
    carriers: bool = True
    """Whether a carrier span would get anywhere."""
    flushes: list[Callable[[int], object]] = field(default_factory=list[Callable[[int], object]])
    """`force_flush(timeout_millis)` of every provider, in order."""
    shutdowns: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    """`shutdown()` of our own providers."""

    exporters: dict[str, PatientExporter] = field(default_factory=dict[str, PatientExporter])
    """Of our own providers of spans and events, if they batch."""
    renewal: Renewal = field(default_factory=Renewal)
    """What a forked child needs."""
    resource: Callable[[], Resource] | None = None
    """The resource of our own providers, which the SDK may renew after a fork; None: there are none."""
    posters: list[ScorePoster] = field(default_factory=list[ScorePoster])
    """Post scores to backends that do not read them from spans, events or metrics; observers of every call."""
    histories: list[ScoreStore] = field(default_factory=list["ScoreStore"])
    """Keep every call in a file; observers of every call."""
    dialects: tuple[str, ...] = ()
    """Attribute conventions of the spans."""

    @property
    def lost(self) -> int:
        """Spans and events that were not delivered so far."""
        return sum(exporter.backlog.lost for exporter in self.exporters.values())

    def room(self, held: int) -> int:
        """How many steps and calls may be handled before this must be asked again.

        Args:
            held: spans that will come, and have their places in the queues before our exporters.
        """
        least = _MOST_AT_A_TIME * _MOST_OF_A_CALL
        for what, exporter in self.exporters.items():
            least = min(least, exporter.backlog.room(held if what == SPANS else 0))
        return -(-least // _MOST_OF_A_CALL)

    def lose_spans(self, count: int) -> bool:
        """These spans will not be ended any more; False if nobody counts what is lost."""
        if SPANS not in self.exporters:
            return False
        self.exporters[SPANS].backlog.forgo(count)
        return True

    def flush(self, timeout: float) -> bool:
        """Flush all providers within *timeout* seconds; False if one failed or was late, or anything was lost."""
        deadline, lost = monotonic() + timeout, self.lost
        # Side by side: as long as spans keep coming, the SDK's flush of spans goes on, and the books are to leave too.
        done = run_all_bounded([partial(_flush, flush, deadline) for flush in self.flushes], deadline)
        return done and self.lost == lost

    def deliver(self, timeout: float) -> bool:
        """The same for what is on its way to the backend, not for what is still held for its scores."""
        deadline, lost = monotonic() + timeout, self.lost
        done = run_all_bounded([partial(_flush_past_holds, flush, deadline) for flush in self.flushes], deadline)
        return done and self.lost == lost

    def post_scores(self, timeout: float) -> bool:
        """Post and keep what is queued within *timeout* seconds; False if anything was late, or not taken."""
        deadline = monotonic() + timeout
        flushes = [*(each.flush for each in self.histories), *(each.outbox.flush for each in self.posters)]
        done = [flush(max(0.0, deadline - monotonic())) for flush in flushes]
        return all(done)

    def shutdown(self, timeout: float) -> bool:
        """Shut our own providers down within *timeout* seconds; what was not delivered by then is counted as lost."""
        deadline = monotonic() + timeout
        kept = [history.close(max(0.0, (deadline - monotonic()) * _POSTERS_SHARE)) for history in self.histories]
        posted = [poster.outbox.close(max(0.0, (deadline - monotonic()) * _POSTERS_SHARE)) for poster in self.posters]
        for exporter in self.exporters.values():
            exporter.hurry()
        done = run_all_bounded(self.shutdowns, deadline)
        for exporter in self.exporters.values():
            exporter.backlog.give_up()
        return done and all(posted) and all(kept)

    def after_fork(self) -> None:
        """In a forked child: forget what the parent had under way."""
        for exporter in self.exporters.values():
            exporter.backlog.reset()
        for history in self.histories:
            history.reset()
        for poster in self.posters:
            poster.outbox.reset()
        self.renewal.after_fork()


def _flush(flush: Callable[[int], object], deadline: float) -> object:
    return flush(max(1, int((deadline - monotonic()) * 1000)))


def _flush_past_holds(flush: Callable[[int], object], deadline: float) -> object:
    with keeping_held():
        return _flush(flush, deadline)


def build(
    settings: Settings,
    exporter: object,
    *,
    tracer_provider: TracerProvider | None,
    meter_provider: MeterProvider | None,
    logger_provider: LoggerProvider | None,
) -> Telemetry:
    """Tracer, meter and logger from the given providers, else the process's, else new ones that export to *exporter*.

    Args:
        exporter: None for the one named in the settings; an OpenTelemetry `SpanExporter`; or `Signals`. If it is given,
            new providers are made even where the process has its own. So they are if the settings name one.

    Raises:
        SettingsError: if there is no exporter of that name, or it was given along with the provider it would replace.
    """
    if exporter is not None and tracer_provider is not None:
        raise SettingsError(
            "exporter= and tracer_provider= were both given; add the exporter to your provider with "
            "provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))"
        )
    from ragtrace.telemetry.spans.sampler_traits import drops_children
    from ragtrace.telemetry.spans.user_provider import fast_tracer

    ours = exporter is not None or settings.origins.get("exporter", DEFAULT) != DEFAULT
    # An object of the user's cannot be made again in a forked child.
    remakes = exporter is None or isinstance(exporter, str)
    make = maker(exporter, settings, os.environ)
    signals = make()
    resource = resource_of(settings, signals)
    release = version("ragtrace-otel")
    telemetry = Telemetry(trace.NoOpTracer(), metrics.NoOpMeter(semconv.SCOPE), None)
    telemetry.dialects = dialects_of(settings, signals)
    if signals.scores is not None:
        service = str(resource.attributes.get(semconv.SERVICE_NAME, ""))
        telemetry.posters.append(ScorePoster(signals.scores, service=service, evidence=settings.evidence))
    tracers = tracer_provider or (None if ours else _global_tracers())
    users_loggers = logger_provider or (None if ours else _global_loggers())
    with _stopped_if_refused(signals if remakes else Signals()):
        making = tracers or _own_tracers(signals, resource, settings, telemetry)
        own_loggers = None if users_loggers else _own_loggers(signals, resource, telemetry)
    telemetry.tracer = making.get_tracer(semconv.SCOPE, release)
    telemetry.drops_children = drops_children(making)
    if tracers is not None:
        telemetry.fast = fast_tracer(telemetry.tracer, release)
    loggers = users_loggers or own_loggers
    if loggers is not None:
        telemetry.logger = loggers.get_logger(semconv.SCOPE, release)
    users_meters = meter_provider or (None if ours else _global_meters())
    own_meters = None if users_meters else _own_meters(signals, resource, telemetry)
    meters = users_meters or own_meters
    if meters is not None:
        telemetry.meter = meters.get_meter(semconv.SCOPE, release)
    spans, events = (telemetry.exporters.get(what) for what in (SPANS, EVENTS))
    telemetry.renewal.prepare(make if remakes else None, spans, events, own_meters)
    if own_meters is not None:
        telemetry.renewal.then(partial(_renew_meter, telemetry, own_meters))
    for provider in (tracers, meters, loggers):
        flush = getattr(provider, "force_flush", None)
        if flush is not None and flush not in telemetry.flushes:
            telemetry.flushes.append(partial(_unhurried, flush) if provider is meters else flush)
    if settings.set_global:
        shared = None if own_meters is None else SharedMeters(own_meters, telemetry.renewal)
        _set_global(None if tracers or signals.spans is None else making, shared, own_loggers)
    return telemetry


@contextmanager
def _stopped_if_refused(signals: Signals) -> Generator[None, None, None]:
    """Stop the metric reader of *signals*, whose thread runs already, if the settings turn out to be wrong."""
    try:
        yield
    except SettingsError:
        if signals.metrics is not None:
            signals.metrics.shutdown()  # pyright: ignore[reportUnknownMemberType]
        raise


def _unhurried(flush: Callable[[float], object], timeout_millis: float) -> object:
    """Flush metrics, of the user's provider perhaps: in a hurry the SDK would spoil its counters (`COLLECT_MS`)."""
    return flush(max(timeout_millis, COLLECT_MS))


def _renew_meter(telemetry: Telemetry, meters: OwnMeters) -> None:
    telemetry.meter = meters.get_meter(semconv.SCOPE, version("ragtrace-otel"))


def _own_tracers(signals: Signals, resource: Resource, settings: Settings, telemetry: Telemetry) -> TracerProvider:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    from ragtrace.telemetry.spans.fast import FastTracer
    from ragtrace.telemetry.spans.provider import OwnTracerProvider

    provider = OwnTracerProvider(resource)
    # Where scores are posted, a carrier would be one more trace to look at and nothing new.
    telemetry.owned, telemetry.carriers = True, signals.spans is not None and signals.scores is None
    if signals.spans is not None:
        spans = signals.spans
        export = SimpleSpanProcessor(spans) if signals.immediate else _batched_spans(spans, settings, telemetry)
        telemetry.hold = HoldProcessor(export, seconds=settings.hold_seconds, most_bytes=settings.queue_bytes // 8)
        provider.add_own_processor(telemetry.hold)
    telemetry.fast = FastTracer(provider, telemetry.hold, version("ragtrace-otel"), private=True)
    telemetry.resource = lambda: provider.resource
    telemetry.flushes.append(provider.force_flush)
    telemetry.shutdowns.append(provider.shutdown)
    return provider


def _batched_spans(exporter: SpanExporter, settings: Settings, telemetry: Telemetry) -> SpanProcessor:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    limit = _queue_size("OTEL_BSP_MAX_QUEUE_SIZE", 2048)
    backlog = Backlog(SPANS, limit, most_bytes=settings.queue_bytes // 8)
    patient = telemetry.exporters[SPANS] = PatientExporter(exporter, backlog, telemetry.renewal.renew)
    processor = BatchSpanProcessor(cast("SpanExporter", patient), max_queue_size=backlog.limit)
    return BoundedSpans(processor, backlog)


def _own_meters(signals: Signals, resource: Resource, telemetry: Telemetry) -> OwnMeters | None:
    if signals.metrics is None:
        return None
    provider = OwnMeters(signals.metrics, resource, telemetry.resource or (lambda: resource))
    telemetry.shutdowns.append(provider.shutdown)
    return provider


def _own_loggers(signals: Signals, resource: Resource, telemetry: Telemetry) -> LoggerProvider | None:
    if signals.logs is None:
        return None
    from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

    exporter = cast("LogRecordExporter", signals.logs)
    provider = SdkLoggerProvider(resource=resource, shutdown_on_exit=False)
    process = SimpleLogRecordProcessor(exporter) if signals.immediate else _batched_events(exporter, telemetry)
    provider.add_log_record_processor(process)
    telemetry.resource = telemetry.resource or (lambda: provider.resource)
    telemetry.shutdowns.append(provider.shutdown)
    return provider


def _batched_events(exporter: LogRecordExporter, telemetry: Telemetry) -> LogRecordProcessor:
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    # A call has several events. Half of the places are kept for those of the calls that are being scored.
    limit = _queue_size("OTEL_BLRP_MAX_QUEUE_SIZE", 8192)
    backlog = Backlog(EVENTS, limit, reserve=limit // 2)
    patient = telemetry.exporters[EVENTS] = PatientExporter(exporter, backlog, telemetry.renewal.renew)
    processor = BatchLogRecordProcessor(cast("LogRecordExporter", patient), max_queue_size=limit)
    return cast("LogRecordProcessor", BoundedEvents(processor, backlog))


def _queue_size(variable: str, default: int) -> int:
    try:
        return int(os.environ.get(variable) or default)
    except ValueError:
        raise SettingsError(
            f"{variable} must be a number of items, got {os.environ[variable]!r}; write {default}, for example"
        ) from None


_made_global: list[tuple[str, object]] = []


def _set_global(tracers: object, meters: object, loggers: object) -> None:
    """Make our providers those of the process, for other instrumentations to write to; None: we have none."""
    kept: list[str] = []
    for name, provider, current, set_provider in (
        ("tracer", tracers, _global_tracers, trace.set_tracer_provider),
        ("meter", meters, _global_meters, metrics.set_meter_provider),
        ("logger", loggers, _global_loggers, _logs.set_logger_provider),
    ):
        if provider is None:
            continue
        # OpenTelemetry lets each be set once in a process, so a second `configure` cannot replace the first one's.
        if current() is not None or any(known == name for known, _ in _made_global):
            kept.append(name)
            continue
        _made_global.append((name, provider))
        cast("Callable[[object], None]", set_provider)(provider)
    if kept:
        say(
            logging.WARNING,
            "set_global=True: the process has a %s provider already, which OpenTelemetry does not let us replace; what "
            "other libraries record still goes there. Call ragtrace.configure(set_global=True) once, before any "
            "set_tracer_provider",
            " and a ".join(kept),
        )


def _global_tracers() -> TracerProvider | None:
    provider = trace.get_tracer_provider()
    unset = isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider))
    return None if unset or _is_ours(provider) else provider


def _global_meters() -> MeterProvider | None:
    provider = metrics.get_meter_provider()
    return None if _is_placeholder(provider) or _is_ours(provider) else provider


def _global_loggers() -> LoggerProvider | None:
    provider = _logs.get_logger_provider()
    return None if _is_placeholder(provider) or _is_ours(provider) else provider


def _is_ours(provider: object) -> bool:
    """Whether an earlier `configure` made it the process's."""
    return any(provider is ours for _, ours in _made_global)


def _is_placeholder(provider: object) -> bool:
    """Whether it is the API's own stand-in, which has no public name to test for."""
    return type(provider).__module__.startswith(("opentelemetry.metrics", "opentelemetry._logs"))
