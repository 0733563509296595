"""The installed version of ragtrace, and the exporters that are installed, also where metadata of packages are missing.

Vendored source, a frozen program (PyInstaller) and a stripped serverless layer have the modules of a distribution, but
not its metadata, in which versions and entry points are. So ragtrace's own exporters are listed here; those of other
distributions are entry points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Final

DISTRIBUTION: Final = "ragtrace-otel"
UNKNOWN: Final = "unknown"
_GROUP: Final = "ragtrace.exporters"
EXPORTERS: Final = "ragtrace_exporters"
"""Package of ragtrace's own exporters."""
_NAMES: Final = (
    "otlp", "console", "datadog", "grafana_cloud", "honeycomb", "jaeger", "langfuse", "langsmith", "logfire", "mlflow",
    "newrelic", "opik", "phoenix", "prometheus", "signoz", "weave",
)  # fmt: skip
_BUILT_IN: Final[Mapping[str, str]] = {
    **{name: f"{EXPORTERS}.{name}:{name}" for name in _NAMES},
    "console-full": f"{EXPORTERS}.console:console_full",
}
"""Module and function of each of ragtrace's own exporters."""


def installed_version(name: str = DISTRIBUTION) -> str:
    """Return the version of the installed distribution *name*, or "unknown" if its metadata are missing."""
    return next(_metadata(name, "Version: "), UNKNOWN)


def documentation_url() -> str | None:
    """Return the address of the documentation that the metadata of the installed ragtrace name, or None."""
    return next(_metadata(DISTRIBUTION, "Project-URL: Documentation, "), None)


def _metadata(name: str, field: str) -> Iterator[str]:
    """Yield the values of the metadata of the distribution *name* on the lines that begin with *field*."""
    # `importlib.metadata.version` would parse the whole README, as if it were an e-mail.
    try:
        lines = (distribution(name).read_text("METADATA") or "").partition("\n\n")[0].splitlines()
    except PackageNotFoundError:
        return
    yield from (line.removeprefix(field) for line in lines if line.startswith(field))


def built_in_exporters() -> list[EntryPoint]:
    """Return an entry point for each exporter of ragtrace_exporters."""
    return [EntryPoint(name, value, _GROUP) for name, value in _BUILT_IN.items()]


def installed_exporters() -> list[EntryPoint]:
    """Return the entry points of all exporters, those of other distributions included, sorted by name."""
    points = list(entry_points(group=_GROUP))
    names = {point.name for point in points}
    points += [point for point in built_in_exporters() if point.name not in names]
    return sorted(points, key=lambda point: point.name)


def find_exporter(name: str) -> EntryPoint | None:
    """Return the entry point of the exporter *name*, or None if there is none of that name.

    ragtrace's own exporters go before those of other distributions.
    """
    # Reading the entry points of every installed package takes 20 ms or more.
    return next(filter(lambda point: point.name == name, _built_in_then_others()), None)


def _built_in_then_others() -> Iterator[EntryPoint]:
    yield from built_in_exporters()
    yield from entry_points(group=_GROUP)
