"""The parts of a runtime in their order, which are driven in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ragtrace.core.part import ObservableMetric, Part, PartStatus
from ragtrace.core.types import Observer
from ragtrace.estimates import ByTag
from ragtrace.pipeline.shutdown import ShutdownBudget
from ragtrace.pipeline.source import Source
from ragtrace.system.faults import FAILURES, faults, guarded

if TYPE_CHECKING:
    from ragtrace.core.step import Step
    from ragtrace.core.tags import TagValue
    from ragtrace.core.types import RagCall

P = TypeVar("P", bound=Part)


class Parts:
    """Ordered parts of a runtime. A part that fails is counted as a fault, and does not stop the others.

    Args:
        parts: the parts. What one hands over is delivered by a later one, so the last is the export of telemetry.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = tuple(parts)
        self._attribute_givers = [
            part.attributes for part in self._parts if type(part).attributes is not Part.attributes
        ]
        self._by_type = {type(part): part for part in self._parts}

    def find(self, kind: type[P]) -> P | None:
        """Return the part of the class *kind*, or None if there is none; of several, the last."""
        return cast("P | None", self._by_type.get(cast("Any", kind)))

    def get(self, kind: type[P]) -> P:
        """Return the part of the class *kind*, which every runtime has that `configure` makes.

        Raises:
            LookupError: this one has none.
        """
        found = self.find(kind)
        if found is None:
            raise LookupError(f"this runtime has no {kind.__name__}")
        return found

    @property
    def observers(self) -> list[Observer]:
        """Observers of calls among the parts. What delivers last sees a call first: an alert is about a stored call."""
        return [cast("Observer", part) for part in reversed(self._parts) if callable(part)]

    @property
    def tagged(self) -> ByTag | None:
        """Part that has sums of scores by tag, or None if there is none."""
        return next((part for part in self._parts if isinstance(part, ByTag)), None)

    @property
    def sources(self) -> list[Source]:
        """Parts that find finished calls."""
        return [part for part in self._parts if isinstance(part, Source)]

    @property
    def fact_givers(self) -> list[Callable[[Step], Mapping[str, TagValue]]]:
        """Functions of the parts that give calls tags."""
        return [part.facts for part in self._parts if type(part).facts is not Part.facts]

    def attributes(self, call: RagCall) -> Mapping[str, str]:
        """Return the attributes that the parts give the metrics of a call's scores."""
        found: dict[str, str] = {}
        for give in self._attribute_givers:
            found |= give(call)
        return found

    def statuses(self) -> list[PartStatus]:
        """Return what the parts tell `ragtrace.doctor()`."""
        found: list[PartStatus] = []
        for part in self._parts:
            with guarded(f"status of {type(part).__name__}"):
                if (status := part.status()) is not None:
                    found.append(status)
        return found

    def observations(self) -> Iterator[ObservableMetric]:
        """Yield the metrics of all parts."""
        for part in self._parts:
            yield from part.observations()

    def stats(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what the parts tell `ragtrace.stats()`, by field; those that tell of the same field are joined."""
        found: dict[str, dict[str, Any]] = {}
        for part in self._parts:
            for name, values in part.stats().items():
                found.setdefault(name, {}).update(values)
        return found

    def tick(self) -> None:
        """Have every part do its periodic work."""
        for part in self._parts:
            try:
                part.tick()
            except FAILURES as error:  # noqa: PERF203 - one failure must not take the others along
                faults.record("background tick", error)

    def flush(self, budget: ShutdownBudget) -> bool:
        """Have every part deliver what was handed over, and return whether all succeeded."""
        late = [part for part in self._parts if not self._succeeds(part, budget, closes=False)]
        return not late

    def close(self, budget: ShutdownBudget) -> frozenset[Part]:
        """Close every part, and return the parts that lost something."""
        return frozenset(part for part in self._parts if not self._succeeds(part, budget, closes=True))

    async def aclose(self) -> None:
        """Close what the parts have on the worker's event loop."""
        for part in self._parts:
            with guarded("end of the background worker"):
                await part.aclose()

    def _succeeds(self, part: Part, budget: ShutdownBudget, *, closes: bool) -> bool:
        """Flush or close a part, for half of the time that is left; the last one gets all of it."""
        left = budget.seconds_left()
        timeout = left if part is self._parts[-1] else left / 2
        try:
            return part.close(timeout) if closes else part.flush(timeout)
        except Exception as error:
            faults.record(f"{'close' if closes else 'flush'} of {type(part).__name__}", error)
            return False
