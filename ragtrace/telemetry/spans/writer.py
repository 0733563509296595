"""Writing of steps (calls of decorated functions) as spans, started on the request thread and completed later.

Only the start must happen while the application waits. Writing (JSON, many attributes) may happen at any time
afterwards and on any thread: the span gets the end time of the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from ragtrace.core import semconv
from ragtrace.core.contents import may_leave
from ragtrace.core.limited_json import length_limit, shorten_json
from ragtrace.core.reasoning import may_have_reasoning, split_reasoning
from ragtrace.core.tags import tag_attributes
from ragtrace.core.types import DocumentsInPart
from ragtrace.dialects import langfuse, openinference
from ragtrace.dialects import otel_genai as otel
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.trace import Span

    from ragtrace.core.step import Step
    from ragtrace.telemetry.spans.fast import FastTracer

SPAN_KINDS: Final = {
    "trace": SpanKind.INTERNAL, "retrieve": SpanKind.CLIENT, "generate": SpanKind.CLIENT, "tool": SpanKind.INTERNAL,
}  # fmt: skip
_DIALECTS = {"otel": otel, "openinference": openinference, "langfuse": langfuse}


class SpanWriter:
    """Writer of steps as spans, in the given attribute conventions and with content if content capture is on.

    Args:
        tracer: makes the spans where *fast* cannot.
        logger: takes content events; None if there is no logger provider.
        fast: makes the spans where all span processors look at ended spans only; None: the SDK makes them.
        dialects: names of attribute conventions.
        capture: content-capture mode of the settings.
        drops_children: whether the head sampler drops a span whose local parent it dropped.
    """

    def __init__(
        self,
        tracer: Tracer,
        logger: Logger | None,
        fast: FastTracer | None,
        *,
        dialects: tuple[str, ...],
        capture: str,
        drops_children: bool = False,
    ) -> None:
        self._tracer, self._logger = tracer, logger
        self.fast_tracer = fast
        """Tracer for spans that start without name and attributes, to save time, while it is `usable`; None if the SDK
        creates all spans."""
        self.drops_children = drops_children
        """Whether the head sampler drops every span whose local parent was dropped."""
        self._dialects = [_DIALECTS[name] for name in dialects]
        self._on_span, self._on_event = may_leave(capture, "spans"), may_leave(capture, "events")
        self.shows_content = self._on_span
        """Whether content, such as the message of an exception, may be on spans."""
        self.shows_reranked = self._on_span and "openinference" in dialects
        """Whether spans show the input documents of a re-ranking."""

    def start_sdk_span(self, step: Step, context: Context, start_ns: int | None = None) -> Span:
        """Start a span of the SDK for *step* in *context*, with its name and start attributes.

        Args:
            start_ns: when the step began, in nanoseconds since the epoch; None: now.
        """
        name, attributes = self.start_attributes(step)
        kind = SPAN_KINDS[step.kind]
        return self._tracer.start_span(name, context=context, kind=kind, attributes=attributes, start_time=start_ns)

    def start_attributes(self, step: Step) -> tuple[str, otel.Attributes]:
        """Return the span name and the attributes that are known when *step* starts."""
        attributes: otel.Attributes = {}
        for dialect in self._dialects:
            dialect.add_start(attributes, step)
        operation, target = otel.OPERATIONS[step.kind], step.request_model if step.kind == "generate" else step.name
        return f"{operation} {target}" if target else operation, attributes

    def finish(self, step: Step, *, status: str = "") -> None:
        """Write the captured values of *step* onto its span and end the span.

        A second call does nothing.

        Args:
            status: score status of a call, for its root span; "" for other spans.
        """
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
        if self._on_event and self._logger is not None and step.context is not None:
            self._logger.emit(
                timestamp=step.end_ns,
                context=step.context,
                severity_number=SeverityNumber.DEBUG,
                event_name=semconv.EVENT_DETAILS if step.kind == "generate" else semconv.EVENT_STEP_DETAILS,
                attributes=otel.event_attributes(step),
            )
        finish, error = getattr(span, "finish", None), step.error
        if finish is not None and error is None and finish(attributes, step.end_ns):
            return
        so_far = fit_to_limit(attributes, span)
        if step.provider and so_far.get(semconv.PROVIDER_NAME) == semconv.PROVIDER_UNKNOWN:
            attributes[semconv.PROVIDER_NAME] = step.provider  # learned after the span's start
        span.set_attributes(attributes)
        if error is not None:
            span.set_attribute(semconv.ERROR_TYPE, error.type)
            event = {semconv.EXCEPTION_TYPE: error.type, semconv.EXCEPTION_STACKTRACE: error.stacktrace}
            if error.message is not None:
                event[semconv.EXCEPTION_MESSAGE] = error.message
            span.add_event(semconv.EVENT_EXCEPTION, event, timestamp=step.end_ns)
            span.set_status(Status(StatusCode.ERROR, error.message))
        if getattr(span, "dropped_attributes", 0):
            restore_attributes(span, self.start_attributes(step)[1])

    def _attributes(self, step: Step, status: str) -> otel.Attributes:
        attributes: otel.Attributes = {}
        for dialect in self._dialects:
            dialect.add_end(attributes, step)
            if self._on_span:
                dialect.add_content(attributes, step)
        if step.kind == "retrieve":
            attributes[semconv.RERANK] = step.rerank
            if step.documents is not None:
                attributes[semconv.DOCUMENT_COUNT] = len(step.documents)
        if type(step.documents) is DocumentsInPart:
            attributes[semconv.DOCUMENTS_IN_PART] = True
        if step.streamed:
            attributes[semconv.ABANDONED] = step.abandoned
        if step.cut_chars:
            attributes[semconv.CUT_CHARS] = step.cut_chars
        if step.tags and step.parent is None:  # those that other steps gave the call come with its scores
            attributes.update(tag_attributes(step.tags))
        answer = step.answer
        if answer and may_have_reasoning(answer) and (reasoning := split_reasoning(answer).reasoning):
            attributes[semconv.REASONING_CHARS] = len(reasoning)
        if status:
            # Overwritten on a held span; on any other, a call that was not scored must not look like a good one.
            attributes[semconv.EVAL_STATUS] = status
        return attributes


def fit_to_limit(attributes: dict[str, Any], span: Span) -> Mapping[str, object]:
    """Shorten JSON among *attributes* to the length limit of *span*, and return the attributes that the span has.

    The SDK cuts every text there, so that no backend could read the JSON.
    """
    so_far: Mapping[str, object] = getattr(span, "attributes", None) or {}
    limit = length_limit(so_far)
    if limit is None:  # nearly always, and the application waits
        return so_far
    left_out = 0
    for name, value in attributes.items():
        if not isinstance(value, str) or len(value) <= limit:
            continue
        if (shortened := shorten_json(value, limit)) is not None:
            attributes[name], cut_chars = shortened
            left_out += cut_chars
    if left_out:
        attributes[semconv.LIMITED_CHARS] = left_out
    return so_far


def restore_attributes(span: Span, first: Mapping[str, str | bool | int | float | Sequence[str]]) -> None:
    """Restore the first attributes of a span after the SDK has dropped some.

    The dropped attributes are counted.

    Of too many attributes the SDK silently drops the oldest: those that say of which kind the span is.
    """
    readable: Any = span
    dropped = getattr(readable, "dropped_attributes", 0)
    if not dropped:
        return
    span.set_attributes(first)
    faults.warn_once(
        "attributes beyond the limit of a span",
        "a span (%s) has more attributes than its provider allows, and lost %d of them; every further one is counted "
        "in ragtrace.stats().faults. Raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, or give your provider other span_limits",
        *(readable.name, dropped),
        count=dropped,
    )
