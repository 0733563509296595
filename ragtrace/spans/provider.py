"""Our own tracer provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource


class OwnTracerProvider(TracerProvider):
    """The SDK's provider, which also knows its limits, and whether all of its processors are ours."""

    def __init__(self, resource: Resource) -> None:
        self.limits = SpanLimits()  # reads OTEL_SPAN_*; the same for both ways of making spans
        self.sees_ends_only = True
        # Not shut down at exit by itself: ragtrace drains first and then shuts it down.
        super().__init__(resource=resource, shutdown_on_exit=False, span_limits=self.limits)

    def adopt(self, processor: SpanProcessor) -> None:
        """Add our own processor."""
        super().add_span_processor(processor)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add somebody else's: from now on the SDK makes the spans."""
        self.sees_ends_only = False
        super().add_span_processor(span_processor)
