"""Tracer providers of ragtrace and of users, with their span limits, processors and samplers.

The SDK keeps limits and processors of a user's provider in private attributes. They are found by their types: a release
that keeps them elsewhere, or calls processors in new ways, only has the effect that the SDK makes the spans.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, SynchronousMultiSpanProcessor, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler

from ragtrace.system.faults import faults, guarded

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_SDK_COUNTS_SPANS: Final = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"
"""Environment variable with which the SDK counts the spans that it makes, if true."""
_AT_THE_END: Final = frozenset({"on_end", "shutdown", "force_flush"})
_BEFORE_THE_END: Final = frozenset(name for name in vars(SpanProcessor) if not name.startswith("__")) - _AT_THE_END
"""Names of the methods of a span processor that get a span before its end."""
_ENDS_ONLY: Final = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
"""Processor classes whose methods in `_BEFORE_THE_END` do nothing."""
_MOST_ATTRIBUTES: Final = 1024
_COUNT_LIMITS: Final = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
_OFF: Final = "AlwaysOffSampler"
_INHERITS: Final = ",localParentSampled:AlwaysOnSampler,localParentNotSampled:AlwaysOffSampler}"
"""End of the description of a `ParentBased` sampler that decides for a child as for the local parent."""
_IDS_ONLY: Final = re.compile(
    r"(?:ParentBased|(?:root|(?:remote|local)Parent(?:Not)?Sampled):|AlwaysO(?:n|ff)Sampler|TraceIdRatioBased\{[^{}]*\}|[{},])+"
)
"""Pattern of the descriptions of the SDK's samplers and their combinations that decide by ids alone."""
_RATIO: Final = re.compile(r"TraceIdRatioBased\{[^{}]*\}")
"""Pattern of the description of the sampler that decides by the trace id, and so equally for all spans of a trace."""


class OwnTracerProvider(TracerProvider):
    """Tracer provider of ragtrace, with its own span limits.

    It also knows whether all of its span processors are ragtrace's.
    """

    def __init__(self, resource: Resource) -> None:
        # A carrier has seven attributes for each score, and OpenInference three for each document. Beyond the limit of
        # 128, the SDK would drop the oldest attributes, which say what the span is.
        configured = any(os.environ.get(name, "").strip() for name in _COUNT_LIMITS)
        self.limits = SpanLimits() if configured else SpanLimits(max_span_attributes=_MOST_ATTRIBUTES)
        self.sees_ends_only = True
        # Not shut down at exit by itself: ragtrace drains first and then shuts it down.
        super().__init__(resource=resource, shutdown_on_exit=False, span_limits=self.limits)

    def add_own_processor(self, processor: SpanProcessor) -> None:
        """Add a span processor of ragtrace, which must ignore spans until they end."""
        super().add_span_processor(processor)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add a span processor of the user or another library.

        From then on the SDK's spans are used instead of fast ones.
        """
        self.sees_ends_only = False
        super().add_span_processor(span_processor)


class UserProvider:
    """View of the user's tracer provider, with its limits, sampler, id generator and span processors.

    Args:
        tracer: one of its tracers.
        limits: its span limits.
        processors: attributes of its span processor, where the tuple of the user's processors stands under *name*; the
            SDK replaces the tuple when a processor is added.
    """

    def __init__(self, tracer: Tracer, limits: SpanLimits, processors: Mapping[str, Any], name: str) -> None:
        self._tracer, self._processors, self._name = tracer, processors, name
        self.limits, self.id_generator, self.sampler = limits, tracer.id_generator, tracer.sampler
        # A provider may have its tracers switched off, at any time. No public method says so: that a tracer makes a
        # span that is not recorded is seen only by starting one, which costs what the fast spans save.
        self._enabled: Callable[[], bool] = getattr(tracer, "_is_enabled", lambda: True)
        self._checked: object = None
        self._ends_only = False

    @property
    def processor(self) -> SpanProcessor:
        """Span processor that forwards ended spans to all of the user's span processors."""
        return self._tracer.span_processor

    @property
    def resource(self) -> Resource:
        """Resource of the tracer provider, which changes in a forked child."""
        return self._tracer.resource

    @property
    def sees_ends_only(self) -> bool:
        """Whether all of the user's current span processors ignore spans until they end."""
        now = self._processors[self._name]
        if now is not self._checked:
            self._ends_only = False
            with guarded("looking at span processors"):
                self._ends_only = all(map(sees_ends_only, now))
            self._checked = now
        return self._ends_only and self._enabled()


def user_provider(tracer: object) -> UserProvider | None:
    """Return the user's tracer provider behind *tracer*, or None if it is not built like the SDK's."""
    if type(tracer) is not Tracer or os.environ.get(_SDK_COUNTS_SPANS, "").strip().lower() == "true":
        return None
    if type(tracer.span_processor) is not SynchronousMultiSpanProcessor:
        return None
    # The SDK has no public name for a tracer's limits, nor for the processors behind the one that forwards to them.
    # Both are found by their types, not by names that a release may change. Where there is not exactly one of a type,
    # the answer is None, and the SDK makes the spans.
    kept, processors = vars(tracer), vars(tracer.span_processor)
    limits, name = _only_name(kept, SpanLimits), _only_name(processors, tuple)
    if limits is None or name is None:
        return None
    return UserProvider(tracer, kept[limits], processors, name)


def sees_ends_only(processor: object) -> bool:
    """Return whether the span processor *processor* ignores spans until they end."""
    # A processor says so, or its methods for spans that have not ended do nothing.
    said = getattr(processor, "sees_ends_only", None)
    if said is not None:
        return said is True
    kind = type(processor)
    return _BEFORE_THE_END.isdisjoint(getattr(processor, "__dict__", ())) and all(
        any(getattr(kind, name, None) is vars(known).get(name) for known in _ENDS_ONLY if name in vars(known))
        for name in _BEFORE_THE_END
    )


def _only_name(attributes: Mapping[str, object], kind: type) -> str | None:
    """Return the name of the only attribute with a value of type *kind*.

    Return None if there is not exactly one.
    """
    names = [name for name, value in attributes.items() if type(value) is kind]
    return names[0] if len(names) == 1 else None


class SamplerTraits(NamedTuple):
    """Known properties of a head sampler. All of them are False for a sampler that is not the SDK's."""

    keeps_roots: bool
    """Whether the sampler is the SDK's default, which keeps every span whose parent was not dropped."""
    drops_roots: bool
    inherits: bool
    """Whether the sampler decides for a child as for the local parent."""
    drops_children: bool
    """Whether the sampler drops every span whose local parent was dropped."""
    ids_only: bool
    """Whether the sampler decides by ids alone, and reads neither name nor attributes."""


def sampler_traits(sampler: object) -> SamplerTraits:
    """Return the known properties of the head sampler *sampler*.

    All of them are False unless it consists of the SDK's samplers.
    """
    if not _is_the_sdks(sampler):  # decided by the type: a user's subclass inherits the description, not the behaviour
        return SamplerTraits(False, False, False, False, False)
    default: Any = DEFAULT_ON
    describe: Any = getattr(sampler, "get_description", str)
    description = str(describe())
    inherits = description.startswith("ParentBased{") and description.endswith(_INHERITS)
    off = description == _OFF
    return SamplerTraits(
        keeps_roots=description == default.get_description(),
        drops_roots=off or (inherits and description.startswith(f"ParentBased{{root:{_OFF},")),
        inherits=inherits,
        drops_children=inherits or off or _RATIO.fullmatch(description) is not None,
        ids_only=_IDS_ONLY.fullmatch(description) is not None,
    )


def drops_children(provider: object) -> bool:
    """Return whether the head sampler of *provider* is known to drop every span whose local parent it has dropped."""
    try:
        return sampler_traits(getattr(provider, "sampler", None)).drops_children
    except Exception as error:  # a user's sampler may raise
        faults.record("description of a sampler", error)
        return False


def _is_the_sdks(sampler: object) -> bool:
    """Return whether the head sampler *sampler*, and every sampler that it delegates to, belongs to the SDK."""
    if type(sampler).__module__ != Sampler.__module__:
        return False
    # The samplers that `ParentBased` delegates to have no public names. All values are looked at, whatever their names.
    return all(_is_the_sdks(value) for value in vars(sampler).values() if isinstance(value, Sampler))
