"""The destination of telemetry: exporters by the name or object in `exporter=`, and the resource of their spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint, distribution, entry_points
from typing import TYPE_CHECKING, cast

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import Settings, choose
from ragtrace.core.types import Signals
from ragtrace.telemetry.export.after_fork import with_new_identity

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

ENTRY_POINTS = "ragtrace.exporters"


def signals_maker(exporter: object, settings: Settings, environ: Mapping[str, str]) -> Callable[[], Signals]:
    """Return a function that makes the signals for *exporter*; a forked child calls it again.

    Raises:
        SettingsError: *exporter* cannot export, or there is no exporter of that name.
    """
    if exporter is None or isinstance(exporter, str):
        return _named(settings.exporter, environ)
    if isinstance(exporter, Signals):
        return lambda: exporter
    if callable(getattr(exporter, "export", None)):
        return lambda: Signals(spans=cast("SpanExporter", exporter))
    raise SettingsError(
        f"exporter= must be a name, a SpanExporter or ragtrace.Signals, got {type(exporter).__name__}; "
        "write for instance exporter='otlp'"
    )


def _named(name: str, environ: Mapping[str, str]) -> Callable[[], Signals]:
    if name == "none":
        return Signals
    # Reading the entry points of every installed package takes 20 ms or more.
    found = _by_name(distribution("ragtrace-otel").entry_points.select(group=ENTRY_POINTS))
    if name not in found:
        found = _by_name(entry_points(group=ENTRY_POINTS))
    choose(name, [*sorted(found), "none"], "exporter", "exporter= or RAGTRACE_EXPORTER")
    load = cast("Callable[[Mapping[str, str]], Signals]", found[name].load())
    return partial(load, environ)


def _by_name(points: Iterable[EntryPoint]) -> dict[str, EntryPoint]:
    return {point.name: point for point in points}


def resource_of(settings: Settings, signals: Signals) -> Resource:
    """Return the resource of this process: the user's attributes, then the preset's, and a `service.instance.id`."""
    from opentelemetry.sdk.resources import Resource

    attributes: dict[str, str] = {}
    if settings.service:
        attributes[semconv.SERVICE_NAME] = settings.service
    given = Resource.create(attributes)  # reads OTEL_RESOURCE_ATTRIBUTES
    given = Resource(signals.resource).merge(given)  # what the user set goes first
    if semconv.SERVICE_INSTANCE in given.attributes:
        return given
    return with_new_identity(given)
