"""Feedback: what a person says about one call, and the call id by which an application refers to that call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from opentelemetry.trace import SpanContext, TraceFlags

HUMAN: Final = "human"
"""Id and type of the evaluator under which feedback is reported."""
THUMBS_UP: Final = "thumbs_up"
THUMBS_DOWN: Final = "thumbs_down"
CORRECTED: Final = "corrected"
"""Label of feedback that has a correction but no score."""
_CALL_ID: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a person says about one call: a score in [0, 1], a correction of the answer, or both."""

    id: str
    """Id of the feedback, 32 hexadecimal digits; later feedback with the same id replaces this one."""
    span: SpanContext
    """Context of the root span of the call."""
    name: str
    score: float | None
    label: str | None
    comment: str | None
    correction: str | None
    user: str | None
    time_ns: int
    """Time when the feedback was given, in nanoseconds since the epoch."""


def encode_call_id(span: SpanContext) -> str:
    """Return the call id of the call whose root span is *span*, in the format of the W3C header `traceparent`."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & 0xFF:02x}"


def decode_call_id(text: str) -> SpanContext | None:
    """Return the context of the root span that the call id *text* names, or None if *text* is no call id."""
    found = _CALL_ID.fullmatch(text)
    return None if found is None else root_span(found[1], found[2], int(found[3], 16))


def root_span(trace_id: str, span_id: str, flags: int = TraceFlags.SAMPLED) -> SpanContext | None:
    """Return the context of a call's root span from its hexadecimal ids, or None if one of the ids is invalid."""
    if not re.fullmatch("[0-9a-fA-F]{32}", trace_id) or not re.fullmatch("[0-9a-fA-F]{16}", span_id):
        return None
    span = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(flags))
    return span if span.is_valid else None
