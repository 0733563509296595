"""A user's tracer provider as light spans need it: looked at from outside, let alone where anything is unknown.

The SDK keeps limits and processors to itself. They are found by their types, so that a release that keeps them
elsewhere, or tells processors more than today's, only means that the SDK makes the spans.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, SynchronousMultiSpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.spans.tracer import LightTracer

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_COUNTED: Final = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"
"""Set to true, the SDK counts the spans that it makes."""
_AT_THE_END: Final = frozenset({"on_end", "shutdown", "force_flush"})
_EARLIER: Final = frozenset(name for name in vars(SpanProcessor) if not name.startswith("__")) - _AT_THE_END
"""Methods of a processor that see a span which is not over."""
_EXPORTING: Final = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
"""Do nothing there."""


class Borrowed:
    """A user's provider of which everything is known.

    Args:
        tracer: one of its tracers.
        limits: of its spans.
        processors: where its processor keeps the tuple of the user's, under *name*: adding one puts another there.
    """

    def __init__(self, tracer: Tracer, limits: SpanLimits, processors: Mapping[str, Any], name: str) -> None:
        self._tracer, self._processors, self._name = tracer, processors, name
        self.limits, self.id_generator, self.sampler = limits, tracer.id_generator, tracer.sampler
        # A provider may be told to switch tracers off, later too.
        self._enabled: Callable[[], bool] = getattr(tracer, "_is_enabled", _always)
        self._looked_at: object = None
        self._ends_only = False

    @property
    def processor(self) -> SpanProcessor:
        """Takes what has ended to all of the user's processors."""
        return self._tracer.span_processor

    @property
    def resource(self) -> Resource:
        """The provider's, which changes in a forked child."""
        return self._tracer.resource

    @property
    def sees_ends_only(self) -> bool:
        """Whether all processors, as they are now, look at finished spans only."""
        now = self._processors[self._name]
        if now is not self._looked_at:
            self._ends_only = False
            with guarded("looking at span processors"):
                self._ends_only = all(map(sees_ends_only, now))
            self._looked_at = now
        return self._ends_only and self._enabled()


def borrowed(tracer: object) -> Borrowed | None:
    """The provider behind *tracer*; None if it is not the SDK's, or anything about it is not as expected."""
    if type(tracer) is not Tracer or os.environ.get(_COUNTED, "").strip().lower() == "true":
        return None
    if type(tracer.span_processor) is not SynchronousMultiSpanProcessor:
        return None
    kept, processors = vars(tracer), vars(tracer.span_processor)
    limits, name = _found(kept, SpanLimits), _found(processors, tuple)
    if limits is None or name is None:
        return None
    return Borrowed(tracer, kept[limits], processors, name)


def light_in(tracer: object, release: str) -> LightTracer | None:
    """What makes light spans in the user's provider behind *tracer*; None where the SDK must make them.

    Args:
        release: version of the instrumentation scope.
    """
    try:
        provider = borrowed(tracer)
        return None if provider is None else LightTracer(provider, provider.processor, release)
    except Exception as error:
        faults.record("looking at a tracer provider", error)
        return None


def sees_ends_only(processor: object) -> bool:
    """Whether *processor* only looks at spans that have ended: it says so itself, or does nothing earlier."""
    said = getattr(processor, "sees_ends_only", None)
    if said is not None:
        return said is True
    kind = type(processor)
    return _EARLIER.isdisjoint(getattr(processor, "__dict__", ())) and all(
        any(getattr(kind, name, None) is vars(known).get(name) for known in _EXPORTING if name in vars(known))
        for name in _EARLIER
    )


def _found(attributes: Mapping[str, object], kind: type) -> str | None:
    """Under which name *attributes* keep their only value of *kind*; None if there is none, or more than one."""
    names = [name for name, value in attributes.items() if type(value) is kind]
    return names[0] if len(names) == 1 else None


def _always() -> bool:
    return True
