"""Contract of everything that lives in a runtime: its life cycle, and the metrics that it has values of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from ragtrace.core.step import Step
    from ragtrace.core.tags import TagValue
    from ragtrace.core.types import RagCall

Point: TypeAlias = "tuple[float, Mapping[str, str]]"
"""Value of a metric, with its attributes."""


@dataclass(frozen=True, slots=True)
class ObservableMetric:
    """Metric that is read when metrics are collected, so that nothing is counted on the application's time."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    """Unit as UCUM has it. A gauge's is not 1, to which some translations to Prometheus's names append `_ratio`."""
    about: str
    read: Callable[[], Iterable[Point]]
    """Returns the values of one moment. Where several parts have a metric of the same name, those of all are read."""
    is_of_process: bool = False
    """Whether the values are those of the whole process, whatever configurations of ragtrace it has had."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """What `ragtrace.doctor()` shows of a part: a section of its own, and what is wrong."""

    title: str
    rows: tuple[tuple[str, ...], ...] = ()
    """Rows of text, of equal length; empty: the section is left out."""
    problems: tuple[str, ...] = ()
    """What is wrong, each in whole sentences."""


class Part(Protocol):
    """Long-lived component of a runtime: the history, the alerts, the baseline learner, and so on.

    A runtime drives all of its parts in the same way and in one order. A part does nothing in the methods that it does
    not have. One that can be called is an `Observer`, too.
    """

    sees_early_scores: ClassVar[bool] = False
    """Whether this part, as an observer, sees a call twice: with the cheap evaluators' scores, later the judge's."""

    def stats(self) -> Mapping[str, Mapping[str, object]]:
        """Return what `ragtrace.stats()` shows of this part, by field of `Stats`."""
        return {}

    def observations(self) -> Iterable[ObservableMetric]:
        """Return the metrics of this part; asked once, when the metric instruments are created."""
        return ()

    def attributes(self, call: RagCall) -> Mapping[str, str]:
        """Return attributes of the metrics of a call's scores, each with few values."""
        return {}

    def status(self) -> PartStatus | None:
        """Return what `ragtrace.doctor()` shows of this part beside its metrics, or None for nothing."""
        return None

    def facts(self, root: Step) -> Mapping[str, TagValue]:
        """Return tags for a call whose *root* step has ended, and has its redacted texts; on the worker's thread.

        They are where all tags are: on the root span and the events, in the history, its pages and reports. A tag of
        the same name that the application has given stays.
        """
        return {}

    def tick(self) -> None:
        """Do periodic work, on the worker's thread, about four times a second."""
        return

    def flush(self, timeout: float) -> bool:
        """Deliver everything that was handed over before within *timeout* seconds, and return whether that succeeded.

        False as well if something was lost since the last flush.
        """
        return True

    def close(self, timeout: float) -> bool:
        """Deliver what is left within *timeout* seconds and stop; return whether nothing was lost."""
        return True

    async def aclose(self) -> None:
        """Close what belongs to the worker's event loop, as one of the last coroutines there."""
        return
