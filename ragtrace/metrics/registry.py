"""Registry of metrics by name, and its shared instance `registry`, which holds the metrics that come with ragtrace."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Final

from ragtrace.core.errors import SettingsError, UnknownMetricError, spelling_hint
from ragtrace.core.types import Metric
from ragtrace.metrics import (
    chunks,
    citations,
    completeness,
    g_eval_metrics,
    latency,
    nuggets,
    quality,
    reference_claims,
    relevancy,
    repeated_runs,
    similarity,
    support,
)
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# One module for each family, with a tuple METRICS; all lists of metrics are in this order.
FAMILIES: Final[tuple[ModuleType, ...]] = (
    support,
    relevancy,
    chunks,
    quality,
    citations,
    latency,
    similarity,
    nuggets,
    g_eval_metrics,
    completeness,
    reference_claims,
    repeated_runs,
)

USUAL: Final = frozenset({
    "hallucinated", "faithfulness", "answer_relevancy", "context_relevance", "answered", "consistency", "suspicious",
    "answered_without_context",
})  # fmt: skip
"""Names of the built-in metrics that are computed by default: few enough to be read at a glance."""
_OWN: Final = frozenset(metric.name for family in FAMILIES for metric in family.METRICS)


class Registry:
    """Collection of metrics by name, in the order in which they were added.

    Examples:
        >>> metrics = ragtrace.metrics.Registry([ragtrace.metrics.precision_at(3)])
        >>> metrics.add(ragtrace.metrics.average_precision_at(3)).name
        'average_precision_at_3'
        >>> metrics.names()
        ('precision_at_3', 'average_precision_at_3')

    Args:
        metrics: what it holds from the start.
        group: entry-point group in which installed packages offer more; None: it is not looked at.
    """

    def __init__(self, metrics: Iterable[Metric] = (), *, group: str | None = None) -> None:
        self._metrics: dict[str, Metric] = {}
        self._group = group
        for metric in metrics:
            self.add(metric)

    def add(self, metric: Metric, *, replace: bool = False) -> Metric:
        """Register *metric* under its name, and return the metric.

        Args:
            replace: take the place of a metric of that name.

        Raises:
            ValueError: if another metric has that name, and *replace* is not set.
        """
        if replace:
            self._metrics[metric.name] = metric
        if self._metrics.setdefault(metric.name, metric) is not metric:
            raise ValueError(f"metric {metric.name!r} is already registered; pass another name=")
        return metric

    def find(self, name: str) -> Metric | None:
        """Return the metric registered as *name*, or None, without searching installed packages."""
        return self._metrics.get(name)

    def get(self, name: str) -> Metric:
        """Return the metric called *name*, registered or offered by an installed package.

        Raises:
            UnknownMetricError: if there is none; the message lists near misses and all known names.
            SettingsError: if an installed package offers it and it cannot be loaded.
        """
        found = self._metrics.get(name)
        if found is not None:
            return found
        point = self._entry_points().get(name)
        if point is None:
            raise UnknownMetricError(f"no metric named {name!r}{spelling_hint(name, self.names())}")
        return self._metrics.setdefault(name, _load(point))

    def names(self) -> tuple[str, ...]:
        """Return the names of all metrics: first the registered ones, then those that installed packages offer.

        The packages are not imported for it.
        """
        return tuple(dict.fromkeys((*self._metrics, *self._entry_points())))

    def registered(self) -> tuple[Metric, ...]:
        """Return the registered metrics, including those already loaded from installed packages."""
        return tuple(self._metrics.values())

    def defaults(self) -> tuple[Metric, ...]:
        """Return the metrics that are computed by default: the usual ones of ragtrace, and those that a user added."""
        return tuple(metric for metric in self.every() if metric.name in USUAL or metric.name not in _OWN)

    def every(self) -> tuple[Metric, ...]:
        """Return the metrics that `metrics="all"` selects: those that cost no judge requests of their own."""
        return tuple(metric for metric in self._metrics.values() if not getattr(metric, "opt_in", False))

    def all(self) -> tuple[Metric, ...]:
        """Return all metrics, including those that installed packages offer.

        A metric that cannot be loaded is skipped, with a warning.
        """
        for name in self._entry_points():
            try:
                self.get(name)
            except SettingsError as error:  # noqa: PERF203 - the other metrics are still loaded
                faults.warn_once(f"metric {name}", "%s", error)
        return self.registered()

    def resolve(self, metrics: Iterable[str | Metric]) -> tuple[Metric, ...]:
        """Return the given metrics as objects, without duplicates, and the metrics that always accompany them.

        *metrics* may be names and objects.

        Raises:
            UnknownMetricError: at the first name that is not known.
        """
        found = [self.get(metric) if isinstance(metric, str) else metric for metric in metrics]
        beside = chain.from_iterable(getattr(metric, "beside", ()) for metric in found)
        given = {metric.name: metric for metric in found}
        return tuple((given | {name: self.get(name) for name in beside if name not in given}).values())

    def _entry_points(self) -> dict[str, EntryPoint]:
        """Return the entry points by which installed packages offer metrics, by metric name.

        Of two with one name, the one found first.
        """
        if self._group is None:
            return {}
        from importlib.metadata import entry_points  # not cheap to load

        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self._group):
            found.setdefault(point.name, point)
        return found


def _load(point: EntryPoint) -> Metric:
    """Load a metric of an installed package from its entry point.

    Raises:
        SettingsError: *point* cannot be imported, is no metric, or is a metric of another name.
    """
    origin = f"metric {point.name!r} (entry point {point.value!r} of the group {point.group!r})"
    try:
        metric: object = point.load()
    except Exception as error:  # of any kind: the import runs the package's code
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


registry: Final = Registry(chain.from_iterable(family.METRICS for family in FAMILIES), group="ragtrace.metrics")
"""Shared registry of the built-in metrics, of metrics that users add, and of metrics that installed packages offer.

Examples:
    >>> sorted(ragtrace.metrics.registry.get("faithfulness").needs)
    ['answer_label', 'claims']
    >>> "hallucinated" in ragtrace.metrics.registry.names()
    True
"""
