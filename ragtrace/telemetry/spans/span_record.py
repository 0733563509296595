"""What a span says, within the limits of the SDK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import Status, StatusCode

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanLimits
    from opentelemetry.util.types import Attributes

T = TypeVar("T")
UNSET = Status(StatusCode.UNSET)


@dataclass(slots=True)
class Recorded:
    """What a span says: exactly what an SDK span would, told the same things in the same order."""

    limits: SpanLimits
    name: str
    attributes: BoundedAttributes
    events: Any
    """A `BoundedList` of events; the SDK's stub does not say of what. Its lock lets threads add at the same time."""
    links: Any
    """The same of links."""
    status: Status = UNSET

    def bounded(self, attributes: Attributes, most: int | None) -> BoundedAttributes:
        """Attributes of an event or a link: copied, cleaned and cut now, as they may change later."""
        return BoundedAttributes(most, attributes, max_value_len=self.limits.max_attribute_length)


def recorded(limits: SpanLimits, name: str, attributes: Attributes) -> Recorded:
    """The record of a span that has just been told its *name* and first *attributes*."""
    return Recorded(
        limits,
        name,
        BoundedAttributes(
            limits.max_span_attributes, attributes, immutable=False, max_value_len=limits.max_span_attribute_length
        ),
        BoundedList(limits.max_events),
        BoundedList(limits.max_links),
    )


def bounded(items: Sequence[T], most: int | None, dropped: int = 0) -> Sequence[T]:
    """The last *most* of *items* (None: all), as the SDK keeps the events and links of a span: it counts the others."""
    make: Any = BoundedList
    kept = make.from_seq(most, items)
    kept.dropped += dropped
    return cast("Sequence[T]", kept)
