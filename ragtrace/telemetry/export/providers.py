"""Choice of the OpenTelemetry providers: the user's providers where they exist, otherwise private providers of
ragtrace.

Our own become the process's only with `set_global=True`: an application may set its own after `configure`, and what
other libraries record is not for ragtrace to send anywhere.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk.trace import SpanProcessor

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError, spelling_hint
from ragtrace.core.settings import DEFAULT, Settings
from ragtrace.core.text import encodable
from ragtrace.core.types import Signals
from ragtrace.system.faults import faults, log_safely
from ragtrace.system.forks import PerProcess
from ragtrace.system.installation import EXPORTERS, find_exporter, installed_exporters, installed_version
from ragtrace.system.threads import run_bounded
from ragtrace.telemetry.export.observed_metrics import ObservedMetrics, observed_metrics_of
from ragtrace.telemetry.export.own_meters import COLLECT_MS, OwnMeters, SharedMeters, with_new_identity
from ragtrace.telemetry.export.routes import Routes
from ragtrace.telemetry.export.telemetry import (
    EVENTS,
    SPANS,
    BoundedProcessor,
    ExportQueueCounts,
    RetryingExporter,
    Telemetry,
)
from ragtrace.telemetry.spans.fast import FastTracer, fast_tracer
from ragtrace.telemetry.spans.hold import HoldProcessor
from ragtrace.telemetry.spans.span_providers import OwnTracerProvider, drops_children

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider as AnyTracerProvider


_DISCARD_SECONDS: Final = 1.0
"""Longest wait for the end of a provider that is not used after all."""


class PreparedTelemetry(NamedTuple):
    """Telemetry that is built, and not connected with the rest of the process yet."""

    telemetry: Telemetry
    connect: Callable[[], None]
    """Function that has the spans of other instrumentations evaluated, and sets the global providers, as the settings
    say. It cannot be undone."""
    discard: Callable[[], None]
    """Function that ends what was built, for a configuration that is refused after all. Exporters that the user has
    made stay open: they may be those of the configuration that stays in force."""


@contextmanager
def _names_variables(*prefixes: str) -> Generator[None, None, None]:
    """Raise a refusal by OpenTelemetry's SDK of its environment variables as a `SettingsError` that names them.

    Args:
        prefixes: beginnings of the variables that are read meanwhile, for errors that name none.
    """
    try:
        yield
    except SettingsError:
        raise
    except Exception as error:
        given = {name: value for name, value in os.environ.items() if name.startswith("OTEL_") and value.strip()}
        named = [name for name in given if name in str(error)]
        *_, (raising, _) = traceback.walk_tb(error.__traceback__)
        if not named and str(raising.f_globals.get("__name__")).startswith("opentelemetry."):  # no exporter's own error
            named = [name for name in given if name.startswith(prefixes)]
        if not named:
            raise
        shown = " and ".join(f"{name}={given[name]!r}" for name in sorted(named))
        raise SettingsError(
            f"OpenTelemetry cannot use {shown}: {str(error).rstrip('.') or type(error).__name__}; correct or unset it"
        ) from error


@_names_variables()
def build_telemetry(
    settings: Settings,
    exporter: object,
    *,
    tracer_provider: AnyTracerProvider | None,
    meter_provider: MeterProvider | None,
    logger_provider: LoggerProvider | None,
) -> PreparedTelemetry:
    """Build the `Telemetry` object from the given providers, else from the global providers, else from new ones.

    If that fails, what was built by then is ended, and nothing in the process has changed.

    Args:
        exporter: an OpenTelemetry `SpanExporter`, `Signals`, `Routes` or the name of an exporter; None: the one of the
            settings. If it is given here or in the settings, new providers are made even where the process has its own.

    Raises:
        SettingsError: there is no exporter of that name, it was given along with the provider it would replace, a
            queue size is no number, the SDK refuses one of its variables, or no spans can be evaluated.
    """
    if exporter is not None and tracer_provider is not None:
        raise SettingsError(
            "exporter= and tracer_provider= were both given; add the exporter to your provider with "
            "provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))"
        )
    routes = exporter if isinstance(exporter, Routes) else None
    if routes is not None and logger_provider is not None:
        raise SettingsError(
            f"exporter={type(exporter).__name__}(...) and logger_provider= were both given, and the provider would get "
            "the events of all; leave it out, and give each exporter its own as ragtrace.types.Signals(logs=)"
        )
    ours = exporter is not None or settings.origins.get("exporter", DEFAULT) != DEFAULT
    of_process = {kind: _process_provider(kind) for kind in _PROCESS}
    tracers: Any = tracer_provider or (None if ours else of_process["tracer"])
    meters = meter_provider or (None if ours else of_process["meter"])
    loggers = logger_provider or (None if ours else of_process["logger"])
    # Other libraries record to the provider of the process, also where an exporter has a provider of its own.
    listened = (tracer_provider or of_process["tracer"]) if settings.evaluate_spans else None
    if listened is not None:
        _check_listenable(listened)
    given = settings.exporter if exporter is None or isinstance(exporter, str) else exporter
    given = given if routes is None else routes.fallback or _NO_EXPORTER
    make, is_users = signals_maker(given), not isinstance(given, str)
    reads = meters is None or is_users
    process_signals = signals_of_processes(make if reads else lambda: without_reader(make()))
    # Read before the exporters are made, some of which start threads.
    sizes = _queue_size("OTEL_BSP_MAX_QUEUE_SIZE", 2048), _queue_size("OTEL_BLRP_MAX_QUEUE_SIZE", 8192)
    with _names_variables("OTEL_METRIC_"):
        signals = process_signals.get()
    exporters: dict[str, RetryingExporter] = {}
    own_meters = routing = None
    plain = _resource_of(settings)
    resource = resource_for(plain, signals)
    with ExitStack() as undo:
        undo.callback(lambda: own_meters or is_users or without_reader(signals))
        if routes is not None:
            routing = routes.open(settings, plain, sizes, process_signals)
            undo.callback(routing.discard, _DISCARD_SECONDS)
        with _names_variables("OTEL_TRACES_SAMPLER"):
            own_tracers = None if tracers else OwnTracerProvider(resource if routing is None else plain)
        hold = None
        if own_tracers is not None:
            if routing is not None:
                hold = _add_own_hold_processor(own_tracers, routing.span_processor, settings)
            elif signals.spans is not None:
                export = span_processor(process_signals, settings, exporters, sizes[0])
                hold = _add_own_hold_processor(own_tracers, export, settings)
                undo.callback(_end_unused, own_tracers, exporters.get(SPANS), is_users=is_users)
            if hold is not None:
                undo.callback(hold.retire)
        own_loggers = None
        if not loggers and signals.logs is not None and routing is None:
            own_loggers = logger_provider_of(process_signals, resource, exporters, sizes[1])
            undo.callback(_end_unused, own_loggers, exporters.get(EVENTS), is_users=is_users)
        with_resource: Any = own_tracers or own_loggers
        current = None if with_resource is None else lambda: with_resource.resource
        of_metrics = current or (lambda: resource)
        if routing is not None and own_tracers is not None:  # its resource is that of the spans of all exporters
            of_metrics = partial(_resource_of_metrics, own_tracers, signals)
        if not meters and signals.metrics is not None:
            with _names_variables("OTEL_METRICS_EXEMPLAR_FILTER"):
                own_meters = OwnMeters(
                    lambda: cast("MetricReader", process_signals.get().metrics), resource, of_metrics
                )
            undo.callback(_end_unused, own_meters, None, is_users=is_users)

        named_dialects = settings.origins.get("dialects", DEFAULT) != DEFAULT
        release = installed_version()
        tracers, meters, loggers = tracers or own_tracers, meters or own_meters, loggers or own_loggers
        tracer = tracers.get_tracer(semconv.SCOPE, release)
        find_meter: Callable[[], Meter] = partial(metrics.NoOpMeter, semconv.SCOPE)
        if meters is not None:
            find_meter = partial(meters.get_meter, semconv.SCOPE, release)
        if own_tracers is None:
            fast = fast_tracer(tracer, release)
        elif routing is None or hold is None:
            fast = FastTracer(own_tracers, hold, release, private=True)
        else:
            fast = routing.tracer(own_tracers, hold, release)
        logger = None if loggers is None else loggers.get_logger(semconv.SCOPE, release)
        # Where scores are posted, a carrier would be a further trace without anything new.
        carriers = own_tracers is None or (signals.spans is not None and signals.scores is None)
        dialects, flushes = signals.dialects, _flushes(tracers, meters, loggers)
        shutdowns: list[Callable[[], object]] = [
            own.shutdown for own in (own_tracers, own_loggers, own_meters) if own is not None
        ]
        if routing is not None:
            exporters |= routing.exporters
            logger, carriers, dialects = routing.logger(release), routing.carriers, routing.dialects
            flushes.append(routing.flush_events)
            shutdowns.append(routing.end_events)
        telemetry = Telemetry(
            tracer,
            find_meter,
            logger,
            fast,
            owned=own_tracers is not None,
            drops_children=drops_children(tracers),
            carriers=carriers,
            dialects=settings.dialects if named_dialects else dialects or settings.dialects,
            flushes=flushes,
            shutdowns=shutdowns,
            exporters=exporters,
            routing=routing,
            own_meters=own_meters,
            observed=ObservedMetrics() if meters is own_meters else observed_metrics_of(meters),
            resource=current,
            score_sink=signals.scores if routing is None else None,
            service=str(resource.attributes.get(semconv.SERVICE_NAME, "")),
        )
        shared = None if own_meters is None else SharedMeters(own_meters)
        own_spans = own_tracers if signals.spans or routing or settings.evaluate_spans else None
        of_events = own_loggers if routing is None else routing.fallback_loggers
        own_providers = {"tracer": own_spans, "meter": shared, "logger": of_events}
        connect = partial(_connect, settings, listened or tracers, tracers, hold, own_providers)
        return PreparedTelemetry(telemetry, connect, undo.pop_all().close)


def _resource_of_metrics(tracers: OwnTracerProvider, signals: Signals) -> Resource:
    return resource_for(tracers.resource, signals)


def _check_listenable(provider: object) -> None:
    from ragtrace.telemetry.spans.span_listener import can_listen

    if not can_listen(provider):
        raise SettingsError(
            f"evaluate_spans= needs a tracer provider that takes span processors, got {type(provider).__name__}; "
            "use the provider of the OpenTelemetry SDK"
        )


def _connect(
    settings: Settings, listened: object, tracers: object, hold: HoldProcessor | None, providers: Mapping[str, Any]
) -> None:
    """Connect ragtrace's telemetry with the rest of the process.

    Args:
        settings: say whether spans of other instrumentations are evaluated, and whether providers become global.
        listened: provider to which other instrumentations record.
        tracers: provider to which ragtrace records.
        hold: the hold processor of ragtrace's own provider.
        providers: ragtrace's own providers by kind, or None.
    """
    if settings.evaluate_spans:
        from ragtrace.telemetry.spans.span_listener import listen

        listen(listened, own=hold if listened is tracers else None)
    if settings.set_global or settings.evaluate_spans:
        if not settings.set_global:
            providers = {kind: None if _process_provider(kind) else own for kind, own in providers.items()}
        _set_global(providers)


def _end_unused(provider: Any, exporter: RetryingExporter | None, *, is_users: bool) -> None:
    """End a provider of ragtrace that is not used after all, and its threads.

    Args:
        provider: the provider.
        exporter: its batching exporter; None: it has none, and no thread of ragtrace's.
        is_users: whether the user has made the exporters, which then stay open.
    """
    if is_users and exporter is None:
        return
    if is_users and exporter is not None:
        exporter.keep_open()
    run_bounded(provider.shutdown, monotonic() + _DISCARD_SECONDS)


def _nothing(*_: object, **__: object) -> None:
    pass


def without_reader(signals: Signals) -> Signals:
    """End the metric reader of *signals*, which nobody uses, with its thread, and return the rest of them."""
    reader: Any = signals.metrics
    if reader is not None:
        vars(reader)["collect"] = _nothing  # as its last collection, about which the SDK would complain
        run_bounded(reader.shutdown, monotonic() + _DISCARD_SECONDS)
    return replace(signals, metrics=None)


def signals_maker(exporter: object) -> Callable[[], Signals]:
    """Return a function that makes the `Signals` (exporters of spans, metrics and events) for *exporter*.

    A forked child calls the function again.

    Args:
        exporter: a name, or an object.

    Raises:
        SettingsError: *exporter* cannot export, or there is no exporter of that name.
    """
    if isinstance(exporter, str):
        if exporter == _NO_EXPORTER:
            return Signals
        if (point := find_exporter(exporter)) is None:
            known = [*(each.name for each in installed_exporters()), _NO_EXPORTER]
            raise SettingsError(
                f"no exporter named {exporter!r} (from exporter= or RAGTRACE_EXPORTER){spelling_hint(exporter, known)}"
            )
        return partial(_load(point), os.environ)
    if isinstance(exporter, Signals):
        return lambda: exporter
    if callable(getattr(exporter, "export", None)):
        return lambda: Signals(spans=cast("SpanExporter", exporter))
    raise SettingsError(
        f"exporter= must be a name, a SpanExporter or ragtrace.types.Signals, got {type(exporter).__name__}; "
        "write for instance exporter='otlp'"
    )


def signals_of_processes(make: Callable[[], Signals]) -> PerProcess[Signals]:
    """Return what *make* returns in each process; where it fails in a forked child, its parent's exporters serve."""
    made: list[Signals] = []

    def signals() -> Signals:
        if not made:
            made.append(make())
            return made[0]
        try:
            return make()
        except Exception as error:
            faults.record("exporters of a forked process", error)
            return made[0]

    return PerProcess(signals)


def _load(point: EntryPoint) -> Callable[[Mapping[str, str]], Signals]:
    try:
        return cast("Callable[[Mapping[str, str]], Signals]", point.load())
    except ModuleNotFoundError as error:
        if error.name != EXPORTERS:
            raise
        raise SettingsError(
            f"the exporter {point.name!r} is in the package {EXPORTERS}, which is not installed; copy it where the "
            "package ragtrace is, or pass an OpenTelemetry SpanExporter or ragtrace.types.Signals as exporter="
        ) from None


def _resource_of(settings: Settings) -> Resource:
    """Return the OpenTelemetry resource of this process, with the user's attributes and an instance id."""
    from opentelemetry.sdk.resources import Resource

    given = Resource.create({semconv.SERVICE_NAME: settings.service} if settings.service else {})  # and OTEL_RESOURCE_*
    # A variable that is no UTF-8 has lone surrogates in Python, which no request can hold.
    texts = {name: encodable(value) for name, value in given.attributes.items() if isinstance(value, str)}
    given = Resource({**given.attributes, **texts}, given.schema_url)
    return given if semconv.SERVICE_INSTANCE in given.attributes else with_new_identity(given)


def resource_for(given: Resource, signals: Signals) -> Resource:
    """Return the resource *given* with the attributes that an exporter adds."""
    from opentelemetry.sdk.resources import Resource

    service = str(given.attributes.get(semconv.SERVICE_NAME, ""))
    named = bool(signals.service_attribute) and not service.startswith(_UNNAMED_SERVICE)
    added = {**({signals.service_attribute: service} if named else {}), **signals.resource}
    return Resource(added).merge(given) if added else given  # what the user set goes first


def _flushes(tracers: object, meters: object, loggers: object) -> list[Callable[[int], object]]:
    flushes: list[Callable[[int], object]] = []
    for provider in (tracers, meters, loggers):
        flush: Any = getattr(provider, "force_flush", None)
        if flush is not None and flush not in flushes:
            flushes.append(partial(_flush_metrics, flush) if provider is meters else flush)
    return flushes


def _flush_metrics(flush: Callable[[float], object], timeout_millis: float) -> object:
    """Flush metrics with a long time limit, because an interrupted collection spoils the counters of the SDK."""
    return flush(max(timeout_millis, COLLECT_MS))


def _add_own_hold_processor(provider: OwnTracerProvider, export: SpanProcessor, settings: Settings) -> HoldProcessor:
    """Add a `HoldProcessor`, which delays the export of root spans, to ragtrace's tracer provider, and return it."""
    hold = HoldProcessor(export, seconds=settings.hold_seconds, most_bytes=settings.queue_bytes // 8)
    hold.is_own = True
    provider.add_own_processor(hold)
    return hold


def span_processor(
    process_signals: PerProcess[Signals],
    settings: Settings,
    exporters: dict[str, RetryingExporter],
    limit: int,
    what: str = SPANS,
) -> SpanProcessor:
    """Return the processor that exports spans to `Signals.spans`. Its batching exporter is added to *exporters*.

    Args:
        what: key of that exporter, and name of the spans in counts and log lines.
    """
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    signals = process_signals.get()
    if signals.immediate and signals.spans is not None:
        return SimpleSpanProcessor(signals.spans)
    queue = PerProcess(partial(ExportQueueCounts, what, limit, most_bytes=settings.queue_bytes // 8))
    exporters[what] = exporter = RetryingExporter(lambda: process_signals.get().spans, queue)
    with _names_variables("OTEL_BSP_"):
        return BoundedProcessor(BatchSpanProcessor(cast("Any", exporter), max_queue_size=limit), queue)


def logger_provider_of(
    process_signals: PerProcess[Signals],
    resource: Resource,
    exporters: dict[str, RetryingExporter],
    limit: int,
    what: str = EVENTS,
) -> SdkLoggerProvider:
    """Return a provider whose events go to `Signals.logs`. Its batching exporter is added to *exporters* as *what*."""
    from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, SimpleLogRecordProcessor

    signals = process_signals.get()
    logs: Any = signals.logs
    provider = SdkLoggerProvider(resource=resource, shutdown_on_exit=False)
    if signals.immediate:
        provider.add_log_record_processor(SimpleLogRecordProcessor(logs))
        return provider
    # A call has several events. Half of the places are kept for the events of calls that are being scored.
    queue = PerProcess(partial(ExportQueueCounts, what, limit, reserve=limit // 2))
    exporters[what] = exporter = RetryingExporter(lambda: process_signals.get().logs, queue)
    with _names_variables("OTEL_BLRP_"):
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


_NO_EXPORTER: Final = "none"
"""Name of the exporter that exports nothing."""
_UNNAMED_SERVICE: Final = "unknown_service"
"""Beginning of the name that OpenTelemetry gives a service without a name."""
_PROCESS: Final[Mapping[str, tuple[Callable[[], object], Callable[[Any], None]]]] = {
    "tracer": (trace.get_tracer_provider, trace.set_tracer_provider),
    "meter": (metrics.get_meter_provider, metrics.set_meter_provider),
    "logger": (_logs.get_logger_provider, _logs.set_logger_provider),
}
"""Getter and setter of OpenTelemetry's global provider, by the provider's kind."""
_PLACEHOLDERS: Final = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
_made_global: dict[str, object] = {}
"""Providers that a call of `configure` has set as OpenTelemetry's global ones, by kind."""


def _process_provider(kind: str) -> Any:
    """Return the global provider of *kind* ("tracer", "meter" or "logger") that the application has set, or None."""
    with _names_variables(f"OTEL_PYTHON_{kind.upper()}_PROVIDER"):
        provider = _PROCESS[kind][0]()
    # The API's placeholders for meters and loggers have no public names to test for.
    unset = isinstance(provider, _PLACEHOLDERS) or type(provider).__module__.startswith(
        ("opentelemetry.metrics", "opentelemetry._logs")
    )
    return None if unset or any(provider is ours for ours in _made_global.values()) else provider


def process_providers() -> tuple[object, ...]:
    """Return OpenTelemetry's providers of traces, metrics and logs that the application has set, or None for each."""
    return tuple(map(_process_provider, _PROCESS))


def _set_global(providers: Mapping[str, Any]) -> None:
    """Set the given providers as OpenTelemetry's global ones, to which other libraries record.

    A provider that is None is skipped.
    """
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
        log_safely(
            logging.WARNING,
            "set_global=True: the process has a %s provider already, which OpenTelemetry does not let us replace; what "
            "other libraries record still goes there. Call ragtrace.configure(telemetry=TelemetryOptions(set_global="
            "True)) once, before any "
            "set_tracer_provider",
            " and a ".join(kept),
        )
