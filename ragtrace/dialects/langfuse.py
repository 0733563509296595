"""Langfuse attributes of a RAG call's root span: name, metadata, input and output of the trace.

Langfuse takes them from any span; without them it shows those of the trace's root span, which may be a web framework's.
Source: langfuse.com/integrations/native/opentelemetry, "Property mapping".
"""

from __future__ import annotations

from ragtrace.core import semconv
from ragtrace.core.step import FINDING_KINDS, Step
from ragtrace.dialects.otel_genai import Attributes


def add_start(attributes: Attributes, step: Step) -> None:
    """Add nothing to *attributes*, because Langfuse's attributes are known only when the step has ended."""


def add_end(attributes: Attributes, step: Step) -> None:
    """Add the workflow's name to the span attributes, as the name of the Langfuse trace, and tags as its metadata."""
    if not _is_root(step):
        return
    if step.workflow:
        attributes[semconv.LANGFUSE_TRACE_NAME] = step.workflow
    if step.tags:
        attributes.update({semconv.langfuse_metadata(name): value for name, value in step.tags.items()})


def add_content(attributes: Attributes, step: Step) -> None:
    """Add query and answer of a RAG call to the span attributes, as input and output of the Langfuse trace."""
    if not _is_root(step):
        return
    if step.query is not None:
        attributes[semconv.LANGFUSE_TRACE_INPUT] = step.query
    if step.answer is not None:
        attributes[semconv.LANGFUSE_TRACE_OUTPUT] = step.answer


def _is_root(step: Step) -> bool:
    return step.kind not in FINDING_KINDS and step.parent is None
