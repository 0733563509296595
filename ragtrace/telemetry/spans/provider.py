"""Tracer provider of ragtrace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource


_MOST_ATTRIBUTES: Final = 1024
_COUNT_LIMITS: Final = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")


class OwnTracerProvider(TracerProvider):
    """SDK tracer provider that knows its limits, and whether all of its span processors are ragtrace's."""

    def __init__(self, resource: Resource) -> None:
        self.limits = _limits(os.environ)  # the same for both ways of making spans
        self.sees_ends_only = True
        # Not shut down at exit by itself: ragtrace drains first and then shuts it down.
        super().__init__(resource=resource, shutdown_on_exit=False, span_limits=self.limits)

    def add_own_processor(self, processor: SpanProcessor) -> None:
        """Add a span processor of ragtrace, which looks at ended spans only."""
        super().add_span_processor(processor)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Add a span processor of another library or the user: from now on the SDK makes the spans."""
        self.sees_ends_only = False
        super().add_span_processor(span_processor)


def _limits(environ: Mapping[str, str]) -> SpanLimits:
    """Return the limits of the environment (`OTEL_SPAN_*`), with more attributes than the SDK's 128 by default.

    A carrier has seven attributes a score, and OpenInference three a document: of too many the SDK drops the oldest,
    which are those that say what the span is.
    """
    if any(environ.get(name, "").strip() for name in _COUNT_LIMITS):
        return SpanLimits()
    return SpanLimits(max_span_attributes=_MOST_ATTRIBUTES)
