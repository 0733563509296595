"""Keys of the OpenTelemetry context for the current span and for the running decorated function."""

from __future__ import annotations

from typing import Final

from opentelemetry.context import Context, create_key
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, set_span_in_context

[SPAN_KEY] = set_span_in_context(NonRecordingSpan(INVALID_SPAN_CONTEXT), Context())
"""Key of the current span, which the API does not publish: a look-up by key is faster than by the API."""
FRAME: Final = create_key("ragtrace-frame")
"""Key of the innermost recorder in the context: whatever passes the context on passes it on."""
