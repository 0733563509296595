"""Spans whose texts can all be encoded as UTF-8, which protocol buffers require.

Of an attribute that cannot be encoded, OpenTelemetry's encoder loses the attribute; of such a name, the whole batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ragtrace.core.text import encodable

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.util.types import Attributes

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def encodable_span(span: ReadableSpan) -> ReadableSpan:
    """Return *span*, or a copy in which U+FFFD replaces the lone surrogates of its texts."""
    return _copy(span) if any(not text.isascii() and _SURROGATE.search(text) for text in _texts(span)) else span


def _texts(span: ReadableSpan) -> Iterator[str]:
    parts: list[Any] = [span, *span.events, *span.links]
    yield from (span.name, span.status.description or "", *(event.name for event in span.events))
    for part in parts:
        attributes: Mapping[str, Any] = part.attributes or {}
        for key, value in attributes.items():
            yield key
            values: Sequence[Any] = cast("Any", value) if isinstance(value, (tuple, list)) else (value,)
            yield from (each for each in values if isinstance(each, str))


def _copy(span: ReadableSpan) -> ReadableSpan:
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import Link, Status

    return ReadableSpan(
        encodable(span.name),
        span.get_span_context(),
        span.parent,
        span.resource,
        _encodable_values(span.attributes),
        [Event(encodable(event.name), _encodable_values(event.attributes), event.timestamp) for event in span.events],
        [Link(link.context, _encodable_values(link.attributes)) for link in span.links],
        span.kind,
        status=Status(span.status.status_code, encodable(span.status.description or "") or None),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _encodable_values(attributes: Attributes) -> dict[str, Any]:
    return {encodable(key): _encodable_value(value) for key, value in (attributes or {}).items()}


def _encodable_value(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    return [_encodable_value(each) for each in cast("Any", value)] if isinstance(value, (tuple, list)) else value
