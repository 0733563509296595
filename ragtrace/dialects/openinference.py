"""Span attributes of a step, one run of a decorated function, in the OpenInference conventions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragtrace.core import semconv
from ragtrace.core.step import Step
from ragtrace.core.types import Document
from ragtrace.dialects.otel_genai import Attributes, tool_result


def add_start(attributes: Attributes, step: Step) -> None:
    """Add the OpenInference span kind of a step to the span attributes."""
    if step.kind == "retrieve":
        attributes[semconv.OI_KIND] = semconv.OI_RERANKER if step.rerank else semconv.OI_RETRIEVER
    elif step.kind == "tool":
        attributes[semconv.OI_KIND] = semconv.OI_TOOL
        if step.name:
            attributes[semconv.OI_TOOL_NAME] = step.name
    else:
        attributes[semconv.OI_KIND] = semconv.OI_CHAIN if step.kind == "trace" else semconv.OI_LLM


def add_end(attributes: Attributes, step: Step) -> None:
    """Add session, user, model and token counts of a step to the span attributes.

    They get their OpenInference names.
    """
    if step.conversation_id:
        attributes[semconv.OI_SESSION] = step.conversation_id
    if step.user_id:
        attributes[semconv.OI_USER] = step.user_id
    if step.kind == "retrieve" and step.rerank:
        if step.request_model:
            attributes[semconv.OI_RERANKER_MODEL] = step.request_model
        if step.top_k is not None:
            attributes[semconv.OI_RERANKER_TOP_K] = step.top_k
    if step.kind != "generate":
        return
    model = step.response_model or step.request_model
    if model:
        attributes[semconv.OI_MODEL] = model
    tokens = (step.usage.input_tokens, step.usage.output_tokens)
    for key, count in zip((semconv.OI_TOKENS_PROMPT, semconv.OI_TOKENS_COMPLETION), tokens, strict=True):
        if count is not None:
            attributes[key] = count
    if tokens[0] is not None and tokens[1] is not None:
        attributes[semconv.OI_TOKENS_TOTAL] = tokens[0] + tokens[1]


def add_content(attributes: Attributes, step: Step) -> None:
    """Add query, documents and answer of a step to the span attributes.

    They get their OpenInference names.
    """
    if step.query is not None:
        attributes[semconv.OI_INPUT] = step.query
    if step.kind == "tool":
        if step.documents is not None:
            attributes[semconv.OI_OUTPUT] = tool_result(step.documents)
        return
    if step.kind != "retrieve" and step.answer is not None:
        attributes[semconv.OI_OUTPUT] = step.answer
    if step.kind != "retrieve":
        _add_documents(attributes, step.contexts_here or (), semconv.oi_document)
    elif step.rerank:
        if step.query is not None:
            attributes[semconv.OI_RERANKER_QUERY] = step.query
        _add_documents(attributes, step.reranked or (), semconv.oi_reranker_input)
        _add_documents(attributes, step.documents or (), semconv.oi_reranker_output)
    else:
        _add_documents(attributes, step.documents or (), semconv.oi_document)


def _add_documents(attributes: Attributes, documents: Sequence[Document], name: Callable[[int, str], str]) -> None:
    # The best document is set last, as the SDK drops the attributes that were set first when there are too many.
    for rank, document in reversed(tuple(enumerate(documents))):
        if document.id is not None:
            attributes[name(rank, "id")] = document.id
        if document.score is not None:
            attributes[name(rank, "score")] = document.score
        attributes[name(rank, "content")] = document.text
