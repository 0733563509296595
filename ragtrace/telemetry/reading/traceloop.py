"""Reader of spans in the conventions of OpenLLMetry (Traceloop)."""

from __future__ import annotations

from ragtrace.telemetry.reading.finished_span import FinishedSpan, SpanReading


def read(span: FinishedSpan) -> SpanReading | None:
    """Return the step that *span* describes; None if the span is not in the conventions of OpenLLMetry (Traceloop)."""
    return None
