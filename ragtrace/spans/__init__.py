"""Spans of decorated functions: when they start, what is on them, in which dialects."""

from ragtrace.current import SPAN_KEY
from ragtrace.spans.writer import SPAN_KINDS, SpanWriter

__all__ = ["SPAN_KEY", "SPAN_KINDS", "SpanWriter"]
