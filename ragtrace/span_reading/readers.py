"""Choice of the reader for a finished span, by the attribute convention that the span follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ragtrace.core import semconv
from ragtrace.span_reading import haystack, openinference, otel_genai, pydantic_ai, traceloop
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.span_tags import tags_of
from ragtrace.system.faults import faults

Reader = Callable[[FinishedSpan], SpanReading | None]
_READERS: Final[tuple[Reader, ...]] = (
    pydantic_ai.read,  # before OpenInference, whose attributes are added to its spans and leave out some results
    openinference.read,
    traceloop.read,
    haystack.read,
    otel_genai.read,
)
"""Readers in the order of use: a convention that builds on another one comes before it."""


def read_span(span: FinishedSpan) -> SpanReading | None:
    """Read a step of a RAG call from a finished span, whatever convention it follows.

    Return None if the span describes no step, such as one that asks a decision model: routing and guarding generate no
    answer and find no documents, whatever texts the span shows. Never raises.
    """
    if _asks_decision_model(span):
        return None
    for read in _READERS:
        try:
            reading = read(span)
            if reading is not None and (tags := tags_of(span)) is not None:
                reading.step.tags = tags
        except Exception as error:  # attributes may hold anything
            faults.record("reading a span", error)
            return None
        if reading is not None:
            return reading
    return None


def _asks_decision_model(span: FinishedSpan) -> bool:
    """Return whether *span* asks a decision model, by the marks of OpenInference or Strands, or by its provider.

    Before OpenInference had a kind for it, its instrumentation of TypeSafe marked such a span as a model call.
    """
    attributes = span.attributes
    kind = attributes.get(semconv.OI_KIND)
    if (isinstance(kind, str) and kind.upper() == semconv.OI_DECISION) or semconv.OI_DECISION_MODEL in attributes:
        return True
    if attributes.get(semconv.OPERATION_NAME) == semconv.OPERATION_DECISION:
        return True
    vendors = attributes.get(semconv.OI_PROVIDER), attributes.get(semconv.OI_SYSTEM)
    return semconv.OI_DECISION_VENDOR in vendors
