"""Attributes of a step in the OpenTelemetry GenAI conventions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring as _text

from ragtrace.core import semconv
from ragtrace.core.step import Step
from ragtrace.core.types import Document

Attributes = dict[str, "str | bool | int | float | Sequence[str]"]

OPERATIONS: Mapping[str, str] = {
    "trace": semconv.OPERATION_WORKFLOW,
    "retrieve": semconv.OPERATION_RETRIEVAL,
    "generate": semconv.OPERATION_CHAT,
}


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Compact JSON; texts have been cleaned by redaction, so that it can be encoded."""


def message_records(messages: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
    """Messages of one text part each, as the conventions structure them."""
    return [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in messages]


def _given(step: Step) -> Sequence[tuple[str, str]]:
    """The messages that the model was given as far as they are known, else the question."""
    if step.kind == "generate" and step.prompt is not None:
        return step.prompt.messages
    return () if step.query is None else (("user", step.query),)


def document_records(documents: Sequence[Document]) -> list[dict[str, object]]:
    """Documents as the conventions structure them; id and score only where they are known."""
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


def add_start(attributes: Attributes, step: Step) -> None:
    """What is known when the step begins: this is what a sampler sees."""
    attributes[semconv.OPERATION_NAME] = OPERATIONS[step.kind]
    if step.kind == "trace" and step.name:
        attributes[semconv.WORKFLOW_NAME] = step.name
    if step.kind == "retrieve" and step.name:
        attributes[semconv.DATA_SOURCE_ID] = step.name
    if step.provider:
        attributes[semconv.PROVIDER_NAME] = step.provider
    if step.request_model:
        attributes[semconv.REQUEST_MODEL] = step.request_model


def add_end(attributes: Attributes, step: Step) -> None:
    """What is known when it is over, content apart."""
    if step.conversation_id:
        attributes[semconv.CONVERSATION_ID] = step.conversation_id
    if step.kind == "retrieve" and step.top_k is not None:
        attributes[semconv.RETRIEVAL_TOP_K] = step.top_k
    if step.kind == "generate":
        _add_response(attributes, step)


def _add_response(attributes: Attributes, step: Step) -> None:
    attributes[semconv.REQUEST_STREAM] = step.streamed
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


def content(step: Step) -> dict[str, object]:
    """Query, documents and answer, structured: as an event carries them."""
    attributes: dict[str, object] = {}
    if step.kind == "retrieve":
        if step.query is not None:
            attributes[semconv.RETRIEVAL_QUERY] = step.query
        if step.documents is not None:
            attributes[semconv.RETRIEVAL_DOCUMENTS] = document_records(step.documents)
        return attributes
    if given := _given(step):
        attributes[semconv.INPUT_MESSAGES] = message_records(given)
    if step.answer is not None:
        attributes[semconv.OUTPUT_MESSAGES] = message_records((("assistant", step.answer),))
    if step.contexts_here is not None:
        attributes[semconv.RETRIEVAL_DOCUMENTS] = document_records(step.contexts_here)
    return attributes


def add_content(attributes: Attributes, step: Step) -> None:
    """The same for a span: JSON strings, since backends read nothing else there."""
    if step.kind == "retrieve":
        if step.query is not None:
            attributes[semconv.RETRIEVAL_QUERY] = step.query
        if step.documents is not None:
            attributes[semconv.RETRIEVAL_DOCUMENTS] = documents_json(step.documents)
        return
    if step.prompt is not None and step.kind == "generate":
        attributes[semconv.INPUT_MESSAGES] = messages_json(step.prompt.messages)
    elif step.query is not None:
        attributes[semconv.INPUT_MESSAGES] = f"[{_message_json('user', step.query)}]"
    if step.answer is not None:
        attributes[semconv.OUTPUT_MESSAGES] = f"[{_message_json('assistant', step.answer)}]"
    if step.contexts_here is not None:
        attributes[semconv.RETRIEVAL_DOCUMENTS] = documents_json(step.contexts_here)


# Put together by hand: only texts need escaping, and an encoder takes several times as long to look at what is around.


def messages_json(messages: Sequence[tuple[str, str]]) -> str:
    """`message_records` as JSON."""
    return f"[{','.join([_message_json(role, text) for role, text in messages])}]"


def _message_json(role: str, text: str) -> str:
    return f'{{"role":"{role}","parts":[{{"type":"text","content":{_text(text)}}}]}}'


def documents_json(documents: Sequence[Document]) -> str:
    """`document_records` as JSON."""
    return f"[{','.join([_document_json(document) for document in documents])}]"


def _document_json(document: Document) -> str:
    if document.id is None and document.score is None:
        return f'{{"content":{_text(document.text)}}}'
    return _json(document_records((document,))[0])
