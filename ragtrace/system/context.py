"""Keys of the OpenTelemetry context: the current span, the running decorated function, the route of telemetry."""

from __future__ import annotations

from typing import Final

from opentelemetry.context import Context, create_key
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, set_span_in_context

[SPAN_KEY] = set_span_in_context(NonRecordingSpan(INVALID_SPAN_CONTEXT), Context())
"""Key of the current span, taken from a context as the API keeps it private: a look-up by key is faster."""
RECORDER_KEY: Final = create_key("ragtrace-frame")
"""Key of the `StepRecorder` of the innermost step in the context, or of a `DroppedTrace` where the head sampler dropped
the trace. Whatever passes the context on passes it on."""
ROUTE_KEY: Final = create_key("ragtrace-route")
"""Key of the `RagCall.route` of the call whose scores are being sent, in a context that is nobody's current one."""
