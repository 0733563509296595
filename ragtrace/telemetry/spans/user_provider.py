"""A user's tracer provider as fast spans need it, read from outside and left alone where anything is unknown.

The SDK keeps limits and processors in private attributes. They are found by their types: a release that keeps them
elsewhere, or calls processors in new ways, only has the effect that the SDK makes the spans.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, SynchronousMultiSpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.spans.fast import FastTracer

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_SDK_COUNTS_SPANS: Final = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"
"""If this variable is true, the SDK counts the spans that it makes."""
_AT_THE_END: Final = frozenset({"on_end", "shutdown", "force_flush"})
_BEFORE_THE_END: Final = frozenset(name for name in vars(SpanProcessor) if not name.startswith("__")) - _AT_THE_END
"""Methods of a span processor that get a span which has not ended."""
_ENDS_ONLY: Final = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
"""Processors whose methods in `_BEFORE_THE_END` do nothing."""


class UserProvider:
    """A user's tracer provider of which everything that fast spans need is known.

    Args:
        tracer: one of its tracers.
        limits: its span limits.
        processors: attributes of its span processor, where the tuple of the user's processors stands under *name*; the
            SDK replaces the tuple when a processor is added.
    """

    def __init__(self, tracer: Tracer, limits: SpanLimits, processors: Mapping[str, Any], name: str) -> None:
        self._tracer, self._processors, self._name = tracer, processors, name
        self.limits, self.id_generator, self.sampler = limits, tracer.id_generator, tracer.sampler
        # A provider may have its tracers switched off, at any time.
        self._enabled: Callable[[], bool] = getattr(tracer, "_is_enabled", lambda: True)
        self._checked: object = None
        self._ends_only = False

    @property
    def processor(self) -> SpanProcessor:
        """Processor that passes ended spans on to all of the user's processors."""
        return self._tracer.span_processor

    @property
    def resource(self) -> Resource:
        """Resource of the provider; it changes in a forked child."""
        return self._tracer.resource

    @property
    def sees_ends_only(self) -> bool:
        """Whether all processors, as they are now, look at ended spans only."""
        now = self._processors[self._name]
        if now is not self._checked:
            self._ends_only = False
            with guarded("looking at span processors"):
                self._ends_only = all(map(sees_ends_only, now))
            self._checked = now
        return self._ends_only and self._enabled()


def user_provider(tracer: object) -> UserProvider | None:
    """Return the provider behind *tracer*; None if it is not the SDK's or anything about it is not as expected."""
    if type(tracer) is not Tracer or os.environ.get(_SDK_COUNTS_SPANS, "").strip().lower() == "true":
        return None
    if type(tracer.span_processor) is not SynchronousMultiSpanProcessor:
        return None
    kept, processors = vars(tracer), vars(tracer.span_processor)
    limits, name = _only_name(kept, SpanLimits), _only_name(processors, tuple)
    if limits is None or name is None:
        return None
    return UserProvider(tracer, kept[limits], processors, name)


def fast_tracer(tracer: object, release: str) -> FastTracer | None:
    """Return a fast tracer for the user's provider behind *tracer*; None where the SDK must make the spans.

    Args:
        release: version of the instrumentation scope.
    """
    try:
        provider = user_provider(tracer)
        return None if provider is None else FastTracer(provider, provider.processor, release)
    except Exception as error:
        faults.record("looking at a tracer provider", error)
        return None


def sees_ends_only(processor: object) -> bool:
    """Return whether *processor* looks at ended spans only: it says so itself, or does nothing earlier."""
    said = getattr(processor, "sees_ends_only", None)
    if said is not None:
        return said is True
    kind = type(processor)
    return _BEFORE_THE_END.isdisjoint(getattr(processor, "__dict__", ())) and all(
        any(getattr(kind, name, None) is vars(known).get(name) for known in _ENDS_ONLY if name in vars(known))
        for name in _BEFORE_THE_END
    )


def _only_name(attributes: Mapping[str, object], kind: type) -> str | None:
    """Return the name of the only value of *kind* in *attributes*; None if there is none, or more than one."""
    names = [name for name, value in attributes.items() if type(value) is kind]
    return names[0] if len(names) == 1 else None
