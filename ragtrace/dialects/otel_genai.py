"""Span attributes of a step, one run of a decorated function, in the OpenTelemetry GenAI conventions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring as _text
from typing import Any

from ragtrace.core import semconv
from ragtrace.core.step import Step
from ragtrace.core.types import Document

Attributes = dict[str, "str | bool | int | float | Sequence[str]"]

OPERATIONS: Mapping[str, str] = {
    "trace": semconv.OPERATION_WORKFLOW,
    "retrieve": semconv.OPERATION_RETRIEVAL,
    "generate": semconv.OPERATION_CHAT,
    "tool": semconv.OPERATION_TOOL,
}
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Encoder of a value as compact JSON. Redaction has already removed what UTF-8 cannot encode."""


def message_records(messages: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
    """Return (role, text) pairs as records in the structure that the OpenTelemetry GenAI conventions define."""
    return [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in messages]


def document_records(documents: Sequence[Document]) -> list[dict[str, object]]:
    """Return *documents* as records in the structure of the OpenTelemetry GenAI conventions."""
    records: list[dict[str, object]] = []
    for document in documents:
        record: dict[str, object] = {}
        if document.id is not None:
            record["id"] = document.id
        if document.score is not None:
            record["score"] = document.score
        record["content"] = document.text
        records.append(record)
    return records


def provider_of(step: Step) -> str | None:
    """Return the value of the attribute `gen_ai.provider.name` for *step*, or None.

    A model call always has one, if need be that of an unknown provider.
    """
    return step.provider or (semconv.PROVIDER_UNKNOWN if step.kind == "generate" else None)


def add_start(attributes: Attributes, step: Step) -> None:
    """Add the attributes that are known when the span of a step starts.

    Samplers see them.
    """
    attributes[semconv.OPERATION_NAME] = OPERATIONS[step.kind]
    if step.kind == "trace" and step.name:
        attributes[semconv.WORKFLOW_NAME] = step.name
    if step.kind == "retrieve" and step.name:
        attributes[semconv.DATA_SOURCE_ID] = step.name
    if step.kind == "tool" and step.name:
        attributes[semconv.TOOL_NAME] = step.name
    if provider := provider_of(step):
        attributes[semconv.PROVIDER_NAME] = provider
    if step.request_model:
        attributes[semconv.REQUEST_MODEL] = step.request_model


def add_end(attributes: Attributes, step: Step) -> None:
    """Add the attributes that are known only when the span of a step ends, except the texts."""
    if step.conversation_id:
        attributes[semconv.CONVERSATION_ID] = step.conversation_id
    if step.kind == "retrieve" and step.top_k is not None:
        attributes[semconv.RETRIEVAL_TOP_K] = step.top_k
    if step.kind != "generate":
        return
    if step.streamed:
        attributes[semconv.REQUEST_STREAM] = True
    if step.response_model:
        attributes[semconv.RESPONSE_MODEL] = step.response_model
    if step.response_id:
        attributes[semconv.RESPONSE_ID] = step.response_id
    if step.finish_reasons:
        attributes[semconv.RESPONSE_FINISH_REASONS] = step.finish_reasons
    if step.timing is not None and step.timing.first_s is not None:
        attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = step.timing.first_s
    if step.usage.input_tokens is not None:
        attributes[semconv.USAGE_INPUT_TOKENS] = step.usage.input_tokens
    if step.usage.output_tokens is not None:
        attributes[semconv.USAGE_OUTPUT_TOKENS] = step.usage.output_tokens


def event_attributes(step: Step) -> dict[str, Any]:
    """Return the attributes of the OpenTelemetry event that holds the content of *step*."""
    attributes: dict[str, Any] = {}
    add_start(attributes, step)
    add_end(attributes, step)
    if step.error is not None:
        attributes[semconv.ERROR_TYPE] = step.error.type
    _add_content(attributes, step, message_records, document_records)
    return attributes


def add_content(attributes: Attributes, step: Step) -> None:
    """Add query, documents and answer of a step to the span attributes, as JSON strings.

    Backends read them on spans.

    Backends read them on spans.
    """
    _add_content(attributes, step, messages_json, documents_json)


def _add_content(
    attributes: dict[str, Any],
    step: Step,
    messages: Callable[[Sequence[tuple[str, str]]], Any],
    documents: Callable[[Sequence[Document]], Any],
) -> None:
    if step.kind == "retrieve":
        if step.query is not None:
            attributes[semconv.RETRIEVAL_QUERY] = step.query
        if step.documents is not None:
            attributes[semconv.RETRIEVAL_DOCUMENTS] = documents(step.documents)
        return
    if step.kind == "tool":
        if step.query is not None:
            attributes[semconv.TOOL_ARGUMENTS] = _json({"query": step.query})
        if step.documents is not None:
            attributes[semconv.TOOL_RESULT] = tool_result(step.documents)
        return
    # The prompt's messages where they are known, else the question alone.
    given: Sequence[tuple[str, str]] = () if step.query is None else (("user", step.query),)
    if step.kind == "generate" and step.prompt is not None:
        given = step.prompt.messages
        asked = next((text for role, text in reversed(given) if role == "user"), None)
        if step.query is not None and step.query != asked:
            attributes[semconv.QUERY] = step.query
    if given:
        attributes[semconv.INPUT_MESSAGES] = messages(given)
    if step.answer is not None:
        attributes[semconv.OUTPUT_MESSAGES] = messages((("assistant", step.answer),))
    if step.contexts_here is not None:
        attributes[semconv.CONTEXTS] = documents(step.contexts_here)


def tool_result(documents: Sequence[Document]) -> str:
    """Return the result of a tool as one text: a single plain text unchanged, several documents as JSON."""
    if len(documents) == 1 and documents[0].id is None and documents[0].score is None:
        return documents[0].text
    return documents_json(documents)


# Assembled by hand, as only texts need escaping and a JSON encoder takes several times as long for the rest.


def messages_json(messages: Sequence[tuple[str, str]]) -> str:
    """Return (role, text) pairs as JSON in the structure that the OpenTelemetry GenAI conventions define."""
    written = [f'{{"role":"{role}","parts":[{{"type":"text","content":{_text(text)}}}]}}' for role, text in messages]
    return f"[{','.join(written)}]"


def documents_json(documents: Sequence[Document]) -> str:
    """Return *documents* as JSON in the structure that the OpenTelemetry GenAI conventions define."""
    return f"[{','.join([_document_json(document) for document in documents])}]"


def _document_json(document: Document) -> str:
    if document.id is None and document.score is None:
        return f'{{"content":{_text(document.text)}}}'
    return _json(document_records((document,))[0])
