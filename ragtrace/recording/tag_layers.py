"""Tags that are around a call: of `ragtrace.tags` blocks, one layer a block, and of OpenTelemetry's baggage.

The layers are in a context variable of their own, and not in OpenTelemetry's context: some instrumentations attach a
context and never detach it, or restore an earlier one late, and a call of the next request would have the tags of the
last one. Tasks, `asyncio.to_thread` and thread pools of web frameworks copy the variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from ragtrace.capture.tags import joined_tags, kept_tags

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ragtrace.core.tags import TagValue


class TagLayer:
    """Tags inside one block: its own, and those of the layer around it that it does not replace."""

    __slots__ = ("block", "outer", "tags")

    def __init__(self, block: object, own: Mapping[str, TagValue], outer: TagLayer | None) -> None:
        self.block, self.outer = block, outer
        self.tags: Mapping[str, TagValue] = own
        if outer is not None:
            self.tags = joined_tags(outer.tags, own, "blocks in blocks")


current_layer: Final = ContextVar[TagLayer | None]("ragtrace-tags", default=None)
"""Innermost layer of the current context. Reading it is all that a call without tags costs."""


def enter_layer(block: object, own: Mapping[str, TagValue]) -> None:
    """Put a layer of *block* with its *own* tags around the calls that begin from now on in the current context."""
    current_layer.set(TagLayer(block, own, current_layer.get()))


def leave_layer(block: object) -> None:
    """Remove the innermost layer of *block* from the current context, and what was entered inside it and not left.

    Without one, nothing is removed: the block ends in another context than it began in.
    """
    layer = current_layer.get()
    while layer is not None and layer.block is not block:
        layer = layer.outer
    if layer is not None:
        current_layer.set(layer.outer)


def baggage_tags(names: Sequence[str], context: Context) -> dict[str, TagValue]:
    """Return the tags that OpenTelemetry's baggage in *context* has under one of *names*.

    Entries under other names are no tags. What is no value of a tag is left out, and counted. Never
    raises.
    """
    from opentelemetry.baggage import get_all  # only where baggage is read

    baggage = get_all(context)
    return kept_tags({name: baggage[name] for name in names if name in baggage}, "baggage") if baggage else {}
