"""The metrics known by name. The shared `registry` is an instance like any other."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Final

from ragtrace.core.errors import SettingsError, UnknownMetricError
from ragtrace.core.types import Metric
from ragtrace.metrics import (
    answered,
    chunks,
    citations,
    claims,
    completeness,
    consistency,
    context_contradiction,
    factual,
    g_eval,
    latency,
    noise,
    nuggets,
    quality,
    rank,
    relevancy,
    run_statistics,
    runs,
    similarity,
)
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# One module a family, each with a tuple METRICS; the order here is the order of every list of metrics.
FAMILIES: Final[tuple[ModuleType, ...]] = (
    claims,
    context_contradiction,
    consistency,
    relevancy,
    answered,
    chunks,
    rank,
    quality,
    citations,
    latency,
    similarity,
    nuggets,
    g_eval,
    completeness,
    noise,
    factual,
    runs,
    run_statistics,
)

USUAL: Final = frozenset({
    "hallucinated", "faithfulness", "answer_relevancy", "context_relevance", "answered", "consistency", "suspicious",
    "answered_without_context",
})  # fmt: skip
"""Of ragtrace's own metrics, those that are computed where none are named: few enough to be read at a glance."""
_OWN: Final = frozenset(metric.name for family in FAMILIES for metric in family.METRICS)


class Registry:
    """Metrics by name, in the order they were added.

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
        """Register *metric* under its name and return it.

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
        """The metric registered as *name*, without looking at installed packages; None if there is none."""
        return self._metrics.get(name)

    def get(self, name: str) -> Metric:
        """The metric called *name*: registered, or offered by an installed package.

        Raises:
            UnknownMetricError: if there is none; the message lists near misses and all known names.
            SettingsError: if an installed package offers it and it cannot be loaded.
        """
        found = self._metrics.get(name)
        return self._installed(name) if found is None else found

    def names(self) -> tuple[str, ...]:
        """The names of all metrics, those of installed packages last; nothing is loaded for it."""
        return tuple(dict.fromkeys((*self._metrics, *self._points())))

    def registered(self) -> tuple[Metric, ...]:
        """All metrics but those of installed packages that nobody has asked for, in the order they were added."""
        return tuple(self._metrics.values())

    def defaults(self) -> tuple[Metric, ...]:
        """Return what is computed where no metric is named: the `USUAL` ones, and registered ones of the user's own."""
        return tuple(metric for metric in self.every() if metric.name in USUAL or metric.name not in _OWN)

    def every(self) -> tuple[Metric, ...]:
        """Return what `metrics="all"` means: every registered metric that costs no judge call of its own."""
        return tuple(metric for metric in self._metrics.values() if not getattr(metric, "opt_in", False))

    def all(self) -> tuple[Metric, ...]:
        """All metrics, those of installed packages too; one that cannot be loaded is left out, with a warning."""
        for name in self._points():
            self._try(name)
        return self.registered()

    def resolve(self, metrics: Iterable[str | Metric]) -> tuple[Metric, ...]:
        """The metrics meant by names or given as objects, each once, and behind them those that belong beside them.

        Raises:
            UnknownMetricError: at the first name that is not known.
        """
        found = [self.get(metric) if isinstance(metric, str) else metric for metric in metrics]
        beside = chain.from_iterable(getattr(metric, "beside", ()) for metric in found)
        given = {metric.name: metric for metric in found}
        return tuple((given | {name: self.get(name) for name in beside if name not in given}).values())

    def _installed(self, name: str) -> Metric:
        from ragtrace.metrics.installed import load

        point = self._points().get(name)
        if point is None:
            raise UnknownMetricError(_unknown(name, self.names()))
        return self._metrics.setdefault(name, load(point))

    def _try(self, name: str) -> None:
        try:
            self.get(name)
        except SettingsError as error:
            faults.warn_once(f"metric {name}", "%s", error)

    def _points(self) -> dict[str, EntryPoint]:
        if self._group is None:
            return {}
        from ragtrace.metrics.installed import installed  # importlib.metadata is not cheap to load

        return installed(self._group)


def _unknown(name: str, known: tuple[str, ...]) -> str:
    import difflib  # only a typo needs it

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return f"no metric named {name!r}{hint} known: {', '.join(known) or 'none'}"


registry: Final = Registry(chain.from_iterable(family.METRICS for family in FAMILIES), group="ragtrace.metrics")
"""The metrics that come with ragtrace, those a user adds, and those that installed packages offer."""
