"""Makes light spans where the SDK would make its own, and decides as the SDK does which of them are recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, get_current_span

from ragtrace.core import semconv
from ragtrace.system.context import SPAN_KEY
from ragtrace.telemetry.spans.fast import LightSpan, Told
from ragtrace.telemetry.spans.sampler_traits import of_sampler

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.trace.sampling import Sampler
    from opentelemetry.trace import TraceState
    from opentelemetry.util.types import AnyValue

_SIMPLE = frozenset({str, bool, int, float})
_SAMPLED = int(TraceFlags.SAMPLED)


class Provider(Protocol):
    """What light spans need of a tracer provider."""

    limits: SpanLimits

    @property
    def id_generator(self) -> IdGenerator: ...
    @property
    def sampler(self) -> Sampler: ...
    @property
    def resource(self) -> Resource:
        """Changes in a forked child."""
        ...

    @property
    def sees_ends_only(self) -> bool:
        """Whether all processors, as they are now, look at finished spans only."""
        ...


def _nowhere(_: ReadableSpan) -> None:
    """There is no exporter."""


class LightTracer:
    """Makes light spans as a provider makes its own: with its ids, sampler, limits and resource.

    Args:
        provider: our own, or a user's as `borrowed` sees it.
        processor: takes the spans that have ended; None: there is none.
        release: version of the instrumentation scope.
        private: the spans go where those of other providers do not: the root span of a call, below one of theirs, is
            exported as a root.

    Raises:
        Exception: whatever a user's own sampler raises when it is asked to describe itself.
    """

    def __init__(
        self, provider: Provider, processor: SpanProcessor | None, release: str, *, private: bool = False
    ) -> None:
        self._provider, self._private = provider, private
        self.emit: Callable[[ReadableSpan], None] = _nowhere if processor is None else processor.on_end
        self.limits = provider.limits
        self.scope = InstrumentationScope(semconv.SCOPE, release)
        ids, self._sampler = provider.id_generator, provider.sampler
        self.span_id, self._trace_id = ids.generate_span_id, ids.generate_trace_id
        known = of_sampler(self._sampler)
        self._keeps_roots, self._drops_roots, self._inherits, self.drops_children, self.blind = known
        # Older SDKs do not know this flag, and other bits that came from afar are not passed on.
        random_flag: int = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)
        self._known_flags = TraceFlags.SAMPLED | random_flag
        self._random = random_flag if getattr(ids, "is_trace_id_random", bool)() else 0
        self._root_flags = TraceFlags(TraceFlags.SAMPLED | self._random)
        self._unsampled = TraceFlags(self._random)

    @property
    def resource(self) -> Resource:
        """The provider's, which changes in a forked child."""
        return self._provider.resource

    def takes(self, attributes: Mapping[str, AnyValue]) -> bool:
        """Whether a span takes *attributes* just as they are: few enough, of any length, and nothing to clean."""
        most = self.limits.max_span_attributes
        if self.limits.max_span_attribute_length is not None or (most is not None and len(attributes) > most):
            return False
        return _SIMPLE.issuperset(map(type, attributes.values()))

    def trusted(self) -> bool:
        """Whether no processor wants to see spans start: somebody may have added one."""
        return self._provider.sees_ends_only

    def start_span(self, context: Context, kind: SpanKind, told: Told) -> Span:
        """Start a span as a child of what is current in *context*.

        Args:
            told: gives the span's name and what is known of it already; called when somebody wants to know.
        """
        around = context.get(SPAN_KEY)
        if around is None:
            if self._keeps_roots:
                return LightSpan(self, (self._trace_id(), self._root_flags, None), None, kind, told)
            if self._drops_roots:
                return NonRecordingSpan(SpanContext(self._trace_id(), self.span_id(), False, self._unsampled))
        elif type(around) is LightSpan and self._inherits and around.trace[1] & _SAMPLED:
            return LightSpan(self, around.trace, around, kind, told)
        parent = get_current_span(context).get_span_context()
        if not parent.is_valid:
            if self._keeps_roots:
                return LightSpan(self, (self._trace_id(), self._root_flags, None), None, kind, told)
            if self._drops_roots:
                return NonRecordingSpan(SpanContext(self._trace_id(), self.span_id(), False, self._unsampled))
            return self._sampled(context, kind, told, None)
        if self._keeps_roots or (self._inherits and not parent.is_remote):
            flags = parent.trace_flags
            if flags & ~self._known_flags:
                flags = TraceFlags(flags & self._known_flags)
            if flags & TraceFlags.SAMPLED:
                return LightSpan(self, (parent.trace_id, flags, parent.trace_state), parent, kind, told)
            return NonRecordingSpan(SpanContext(parent.trace_id, self.span_id(), False, flags, parent.trace_state))
        return self._sampled(context, kind, told, parent)

    def begin_call(self, span: Span, context: Context) -> None:
        """Export *span*, the root of a call, as a root if the span around it in *context* is another provider's.

        A span of which only the identity is known, a remote one above all, may be ours and stays its parent.
        """
        if not self._private or type(span) is not LightSpan:
            return
        around = context.get(SPAN_KEY)
        if around is None or type(around) is LightSpan or type(around) is NonRecordingSpan:
            return
        if getattr(around, "resource", None) is not self._provider.resource:
            span.stand_alone()

    def _sampled(self, context: Context, kind: SpanKind, told: Told, parent: SpanContext | None) -> Span:
        """Ask the sampler, as the SDK does; one that does not look at name and attributes is not shown them."""
        name, attributes = ("", None) if self.blind else told()
        trace_id = self._trace_id() if parent is None else parent.trace_id
        result: Any = self._sampler.should_sample(context, trace_id, name, kind, attributes, ())
        flags = self._random if parent is None else parent.trace_flags & self._known_flags & ~TraceFlags.SAMPLED
        if result.decision.is_sampled():
            flags |= TraceFlags.SAMPLED
        state: TraceState | Any = result.trace_state
        if not result.decision.is_recording():
            return NonRecordingSpan(SpanContext(trace_id, self.span_id(), False, TraceFlags(flags), state))
        # A sampler may change the attributes it was shown.
        known = told if self.blind else lambda: (name, result.attributes)
        return LightSpan(self, (trace_id, TraceFlags(flags), state), parent, kind, known)
