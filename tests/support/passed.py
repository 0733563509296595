"""Reads the one span that a decorated function left."""

from __future__ import annotations

import json

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

import ragtrace
from ragtrace.testing import Captured

WORDS = ("The ", "tower ", "is ", "330 ", "metres ", "high.")


def span_of(captured: Captured) -> ReadableSpan:
    assert ragtrace.flush()
    assert len(captured.spans) == 1, [span.name for span in captured.spans]
    return captured.spans[0]


def seen(captured: Captured) -> tuple[str | None, bool | None, StatusCode]:
    """Answer, whether it was abandoned, and status of the one span."""
    span = span_of(captured)
    attributes = span.attributes or {}
    messages = attributes.get("gen_ai.output.messages")
    text = None if messages is None else json.loads(str(messages))[0]["parts"][0]["content"]
    abandoned = attributes.get("ragtrace.abandoned")
    return text, abandoned if isinstance(abandoned, bool) else None, span.status.status_code
