"""The metrics known by name. The shared `registry` is an instance like any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ragtrace.errors import UnknownMetricError
from ragtrace.metrics.answered import answered
from ragtrace.metrics.claims import faithfulness, hallucination
from ragtrace.metrics.consistency import consistency
from ragtrace.metrics.latency import duration_s, time_per_output_token_s, time_to_first_token_s
from ragtrace.model import Metric


class Registry:
    """Metrics by name, in the order they were added."""

    def __init__(self, metrics: Iterable[Metric] = ()) -> None:
        self._metrics: dict[str, Metric] = {}
        for metric in metrics:
            self.add(metric)

    def add(self, metric: Metric) -> Metric:
        """Register *metric* under its name and return it.

        Raises:
            ValueError: if another metric has that name.
        """
        if self._metrics.setdefault(metric.name, metric) is not metric:
            raise ValueError(f"metric {metric.name!r} is already registered; pass another name=")
        return metric

    def get(self, name: str) -> Metric:
        """The metric called *name*.

        Raises:
            UnknownMetricError: if there is none; the message lists near misses and all known names.
        """
        found = self._metrics.get(name)
        if found is None:
            raise UnknownMetricError(_unknown(name, self.names()))
        return found

    def names(self) -> tuple[str, ...]:
        """The names of all metrics, in the order they were added."""
        return tuple(self._metrics)

    def all(self) -> tuple[Metric, ...]:
        """All metrics, in the order they were added."""
        return tuple(self._metrics.values())

    def resolve(self, metrics: Iterable[str | Metric]) -> tuple[Metric, ...]:
        """The metrics meant by names or given as objects, each once.

        Raises:
            UnknownMetricError: at the first name that is not known.
        """
        found = (self.get(metric) if isinstance(metric, str) else metric for metric in metrics)
        return tuple({metric.name: metric for metric in found}.values())


def _unknown(name: str, known: tuple[str, ...]) -> str:
    import difflib  # only a typo needs it

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return f"no metric named {name!r}{hint} known: {', '.join(known) or 'none'}"


registry: Final = Registry(
    (
        faithfulness,
        hallucination,
        consistency,
        answered,
        time_to_first_token_s,
        time_per_output_token_s,
        duration_s,
    )
)
"""The metrics that come with ragtrace, and those a user adds."""
