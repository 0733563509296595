"""Span processor that queues spans for evaluation, for tracer providers without a `HoldProcessor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from ragtrace.system.faults import guarded
from ragtrace.telemetry.spans.hold import HoldProcessor, hold_processors
from ragtrace.telemetry.spans.intake import SpanIntake

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span


class SpanListener(SpanProcessor):
    """Span processor that queues started and ended spans, from which RAG calls are assembled in the background."""

    sees_ends_only = True
    """Whether ragtrace need not report the start of its own spans to this processor."""

    def __init__(self) -> None:
        self.intake = SpanIntake()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Queue the started *span*."""
        with guarded("start of a span"):
            self.intake.started(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the ended *span*."""
        with guarded("end of a span"):
            self.intake.ended(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing is exported here."""
        return True


_listeners: WeakKeyDictionary[Any, SpanListener] = WeakKeyDictionary()


def can_listen(provider: object) -> bool:
    """Return whether `listen` can have the spans of *provider* evaluated."""
    return bool(_holds_of(None)) or provider in _listeners or _adder(provider) is not None


def _holds_of(own: HoldProcessor | None) -> list[HoldProcessor]:
    """Return the hold processors that may see the spans of other libraries: those of users, and *own*.

    A former configuration has one of its own until it has ended, which sees the spans of its own provider alone.
    """
    return [hold for hold in hold_processors() if not hold.is_own or hold is own]


def _adder(provider: object) -> Any:
    """Return the method by which a tracer provider takes a span processor, or None."""
    return getattr(provider, "add_own_processor", None) or getattr(provider, "add_span_processor", None)


def listen(provider: object, *, own: HoldProcessor | None = None) -> bool:
    """Let ragtrace score the RAG calls in the spans of *provider*.

    Return False if the provider takes no span processors.

    The hold processors of the process evaluate them from then on; where there is none, a listener is added once.

    Args:
        provider: the tracer provider to which other instrumentations record.
        own: the hold processor of *provider*, if that is ragtrace's own.
    """
    holds = _holds_of(own)
    for hold in holds:
        hold.intake = hold.intake or SpanIntake()
    if holds or provider in _listeners:
        return True
    add = _adder(provider)
    if add is None:
        return False
    listener = SpanListener()
    add(listener)
    _listeners[provider] = listener  # last: a provider that refuses it has none
    return True
