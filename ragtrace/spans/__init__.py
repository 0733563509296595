"""Spans of decorated functions: when they start, what is on them, in which dialects."""

from ragtrace.spans.writer import SpanWriter

__all__ = ["SpanWriter"]
