"""Starts the span of a step, and later writes what was captured onto it and ends it.

Starting is all that must happen while the application waits. Writing (JSON, many attributes) can be done at any time
afterwards and by any thread: the span is ended with the time at which the step ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    SpanKind,
    Status,
    StatusCode,
    Tracer,
)

from ragtrace.core import semconv
from ragtrace.dialects import langfuse, openinference
from ragtrace.dialects import otel_genai as otel
from ragtrace.telemetry.spans.attribute_limits import keep_first

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.trace import Span

    from ragtrace.core.step import Step
    from ragtrace.telemetry.spans.tracer import LightTracer


SPAN_KINDS: Final = {"trace": SpanKind.INTERNAL, "retrieve": SpanKind.CLIENT, "generate": SpanKind.CLIENT}
_DIALECTS = {"otel": otel, "openinference": openinference, "langfuse": langfuse}


class SpanWriter:
    """Writes steps as spans in the given dialects, with content where the content-capture mode allows it."""

    def __init__(
        self,
        tracer: Tracer,
        logger: Logger | None,
        light: LightTracer | None,
        *,
        dialects: tuple[str, ...],
        capture: str,
        drops_children: bool = False,
    ) -> None:
        self._tracer, self._logger, self._light = tracer, logger, light
        self.drops_children = drops_children
        """Whether a span is dropped where its local parent was."""
        self._dialects = [_DIALECTS[name] for name in dialects]
        self._on_span = capture in ("SPAN_ONLY", "SPAN_AND_EVENT")
        self._on_event = capture in ("EVENT_ONLY", "SPAN_AND_EVENT")
        self.shows_content = self._on_span or self._on_event
        """Whether any content may leave the process; the message of an exception may be content."""

    @property
    def light(self) -> LightTracer | None:
        """Makes the spans, whose names and attributes need not be known when they start; None: the SDK makes them."""
        light = self._light
        return light if light is not None and light.trusted() else None

    def start_ordinary(self, step: Step, context: Context) -> Span:
        """Start the span of *step* under *context*: an SDK span, with all that is known already."""
        name, attributes = self.told(step)
        return self._tracer.start_span(name, context=context, kind=SPAN_KINDS[step.kind], attributes=attributes)

    def told(self, step: Step) -> tuple[str, otel.Attributes]:
        """Name and attributes as they are known when the step begins."""
        if not step.ended:
            step.complete()  # somebody wants to know while it runs: then its arguments cannot wait
        attributes: otel.Attributes = {}
        for dialect in self._dialects:
            dialect.add_start(attributes, step)
        return _name(step), attributes

    def finish(self, step: Step, *, status: str = "") -> None:
        """Write what was captured and end the span, once. *status*: of the scores, which are looked for on a root."""
        span = step.span
        if span is None or step.written:
            return
        step.written = True
        try:
            if span.is_recording():
                self._write(span, step, status)
        finally:
            span.end(end_time=step.end_ns)

    def _write(self, span: Span, step: Step, status: str) -> None:
        attributes = self._attributes(step, status)
        if self._on_event:
            self._emit_content(step)
        finish = getattr(span, "finish", None)
        if finish is not None and step.error is None and finish(attributes, step.end_ns):
            return
        span.set_attributes(attributes)
        _write_error(span, step)
        keep_first(span, lambda: self.told(step)[1])

    def _attributes(self, step: Step, status: str) -> otel.Attributes:
        attributes: otel.Attributes = {}
        for dialect in self._dialects:
            dialect.add_end(attributes, step)
            if self._on_span:
                dialect.add_content(attributes, step)
        _add_own(attributes, step)
        if status:
            # Overwritten when the span is held; where nothing holds it, "not scored" must not look like "good".
            attributes[semconv.EVAL_STATUS] = status
        return attributes

    def _emit_content(self, step: Step) -> None:
        if self._logger is None or step.context is None:
            return
        attributes = {semconv.OPERATION_NAME: otel.OPERATIONS[step.kind], **otel.content(step)}
        self._logger.emit(
            timestamp=step.end_ns,
            context=step.context,
            event_name=semconv.EVENT_DETAILS,
            attributes=attributes,  # type: ignore[arg-type]  # structured values are allowed on events
        )


def _name(step: Step) -> str:
    target = step.request_model if step.kind == "generate" else step.name
    return semconv.span_name(otel.OPERATIONS[step.kind], target or "")


def _add_own(attributes: otel.Attributes, step: Step) -> None:
    if step.kind == "retrieve":
        attributes[semconv.RERANK] = step.rerank
        if step.documents is not None:
            attributes[semconv.DOCUMENT_COUNT] = len(step.documents)
    if step.streamed:
        attributes[semconv.ABANDONED] = step.abandoned
    if step.cut_chars:
        attributes[semconv.CUT_CHARS] = step.cut_chars


def _write_error(span: Span, step: Step) -> None:
    error = step.error
    if error is None:
        return
    span.set_attribute(semconv.ERROR_TYPE, error.type)
    event = {semconv.EXCEPTION_TYPE: error.type, semconv.EXCEPTION_STACKTRACE: error.stacktrace}
    if error.message is not None:
        event[semconv.EXCEPTION_MESSAGE] = error.message
    span.add_event(semconv.EVENT_EXCEPTION, event, timestamp=step.end_ns)
    span.set_status(Status(StatusCode.ERROR, error.message))
