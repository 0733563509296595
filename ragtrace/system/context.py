"""Keys of the OpenTelemetry context: the one of its current span, and the one of the running decorated function."""

from __future__ import annotations

from typing import Final

from opentelemetry.context import create_key
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, set_span_in_context


def _span_key() -> str:
    """Return the key under which an OpenTelemetry context keeps its current span.

    The API does not publish it; a look-up by key is faster.
    """
    probe = NonRecordingSpan(INVALID_SPAN_CONTEXT)
    return next(key for key, value in set_span_in_context(probe).items() if value is probe)


SPAN_KEY: Final = _span_key()
FRAME: Final = create_key("ragtrace-frame")
"""Key of the innermost recorder in the context: whatever passes the context on passes it on."""
