"""Spans with more attributes than their provider allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from opentelemetry.util.types import Attributes


def keep_first(span: Span, first: Callable[[], Attributes]) -> None:
    """See that what was set *first* is still on *span*, and count what is not there.

    Of one too many the SDK drops, without a word, the one that was set first: what says of which kind the span is.
    """
    readable: Any = span
    dropped = getattr(readable, "dropped_attributes", 0)
    if not dropped:
        return
    span.set_attributes(first() or {})
    faults.warn_once(
        "attributes beyond the limit of a span",
        "a span (%s) has more attributes than its provider allows, and lost %d of them; every further one is counted "
        "in ragtrace.stats().faults. Raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, or give your provider other span_limits",
        *(readable.name, dropped),
        count=dropped,
    )
