"""Metrics of other installed packages: entry points of the group `ragtrace.metrics`, each named as its metric.

Nothing of a package is imported before its metric is asked for, or all metrics are listed.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Metric

ENTRY_POINTS: Final = "ragtrace.metrics"


def installed(group: str) -> dict[str, EntryPoint]:
    """The entry points of *group* by name; of two with one name, the one found first."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, point)
    return found


def load(point: EntryPoint) -> Metric:
    """The metric behind *point*.

    Raises:
        SettingsError: it cannot be imported, is no metric, or is one of another name.
    """
    origin = f"metric {point.name!r} (entry point {point.value!r} of the group {point.group!r})"
    try:
        metric: object = point.load()
    except Exception as error:  # whatever a package does when it is imported
        raise SettingsError(
            f"{origin} cannot be loaded: {type(error).__name__}: {error}; mend or remove the package that provides it"
        ) from error
    if not isinstance(metric, Metric) or isinstance(metric, type):
        raise SettingsError(
            f"{origin} is a {type(metric).__name__}, not a metric; it must name an object with name, version, "
            "higher_is_better, range, needs and a call, such as ragtrace.metric(...) makes"
        )
    if metric.name != point.name:
        raise SettingsError(f"{origin} is a metric called {metric.name!r}; give the entry point that name")
    return metric
