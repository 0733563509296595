"""Completion hook for opentelemetry-util-genai: receives the messages of model calls that are not recorded on spans.

The hook is found by the entry point `ragtrace` of the group `opentelemetry_genai_completion_hook`, and chosen by
`OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK=ragtrace`. opentelemetry-util-genai 1.3b0 calls `on_completion` for model
calls, agents and workflows in every content-capture mode, with the span, before the span ends; not for retrievals and
tools. The messages are used for scoring alone: they are on no span that leaves the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragtrace.core import semconv
from ragtrace.span_reading.intake import takes_spans
from ragtrace.span_reading.span_contents import span_contents

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class CompletionHook:
    """Hook that stores the messages of a model call until its span is read."""

    def on_completion(
        self,
        *,
        inputs: list[Any],
        outputs: list[Any],
        system_instruction: list[Any],
        tool_definitions: list[Any] | None = None,
        span: Span | None = None,
        log_record: object = None,
    ) -> None:
        """Store the messages of *span* if the span is sampled and spans are evaluated in this process."""
        if span is None or not takes_spans() or not span.is_recording():
            return
        context = span.get_span_context()
        if not context.trace_flags.sampled:
            return
        named = (
            (semconv.INPUT_MESSAGES, inputs),
            (semconv.OUTPUT_MESSAGES, outputs),
            (semconv.SYSTEM_INSTRUCTIONS, system_instruction),
        )
        contents = {name: tuple(messages) for name, messages in named if messages}
        if contents:
            span_contents.keep(context, contents)
