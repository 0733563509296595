"""Reader of the spans of Haystack's own tracer, as opentelemetry-haystack 2.0 and the tracer of Haystack 2 write them.

The inputs and outputs of a component are JSON, or a Python `repr` where JSON cannot hold one of them, such as a
callback. Checked with Haystack 2.31 and 3.4.
"""

from __future__ import annotations

from typing import Any, Final

from ragtrace.capture.answers import find_answer
from ragtrace.capture.arguments import find_query
from ragtrace.capture.documents import MAX_DOCUMENTS
from ragtrace.capture.fields import getter, items_of, label_of, number_of, text_of, values_of, whole_of
from ragtrace.capture.plain_json import parse_json
from ragtrace.core import semconv
from ragtrace.core.step import StepKind
from ragtrace.core.types import Document, DocumentsInPart, Usage
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.messages import (
    documents_of_results,
    last_user_text,
    looks_like_json,
    prompt_of,
    read_messages,
    results_since_user,
)
from ragtrace.span_reading.values import new_step, parse_literal, unmasked

CONVENTION: Final = "haystack"
_QUESTIONS: Final = (
    "question", "user_query", "user_question", "user_input", "query", "query_str", "search_query", "messages",
    "message", "text", "input", "prompt",
)  # fmt: skip
"""Names of component inputs that hold the question, the clearest first."""
_RETRIEVERS: Final = ("Retriever", "WebSearch")
_RANKERS: Final = ("Ranker", "Reranker")
_GENERATORS: Final = ("Generator",)
_MOST_COMPONENTS: Final = 100


def read(span: FinishedSpan) -> SpanReading | None:
    """Read a step of a RAG call from a span of Haystack's tracer.

    Return None if the span does not follow the tracer's conventions, or describes no step.
    """
    if span.name not in semconv.HAYSTACK_SPANS:
        return None
    attributes = span.attributes
    kind = label_of(attributes.get(semconv.HAYSTACK_COMPONENT_TYPE))
    if kind is not None:
        return _read_component(span, kind)
    return _read_pipeline(span) if span.name in semconv.HAYSTACK_PIPELINE_SPANS else None


def _new(span: FinishedSpan, kind: StepKind) -> SpanReading:
    names = (
        semconv.HAYSTACK_PIPELINE_INPUT, semconv.HAYSTACK_PIPELINE_OUTPUT, semconv.HAYSTACK_COMPONENT_INPUT,
        semconv.HAYSTACK_COMPONENT_OUTPUT,
    )  # fmt: skip
    is_cut = any(span.is_cut(span.text(name)) for name in names)
    return SpanReading(span, new_step(span, kind), CONVENTION, is_cut=is_cut)


def _content(span: FinishedSpan, name: str) -> Any:
    """Parse the JSON text or Python `repr` in the attribute *name*. Return None if a text is neither."""
    value = parse_json(span.attributes.get(name))
    if isinstance(value, str):
        value = parse_literal(value) if value[:2] == "{'" else None
    return value


# --- Components -------------------------------------------------------------------------------------------------------


def _read_component(span: FinishedSpan, kind: str) -> SpanReading | None:
    """Read a step from the span of a Haystack component, or return None if the component is no step of a RAG call."""
    given = _content(span, semconv.HAYSTACK_COMPONENT_INPUT)
    returned = _content(span, semconv.HAYSTACK_COMPONENT_OUTPUT)
    get, found = getter(given), getter(returned)
    if kind.endswith(_GENERATORS):
        return _read_generation(_new(span, "generate"), given, returned)
    if not kind.endswith((*_RETRIEVERS, *_RANKERS)):
        return None
    reading = _new(span, "retrieve")
    step = reading.step
    step.name = label_of(span.attributes.get(semconv.HAYSTACK_COMPONENT_NAME)) or kind
    step.rerank = kind.endswith(_RANKERS)
    if get is not None:
        step.query = text_of(get("query"))
        step.top_k = whole_of(get("top_k"))
    records = None if found is None else items_of(found("documents"), MAX_DOCUMENTS + 1)
    if records is not None:
        kept = records[:MAX_DOCUMENTS]
        documents = [document for record in kept if (document := _document(record)) is not None]
        reading.documents_without_text = len(kept) - len(documents)
        if documents or not records:
            step.documents = tuple(documents) if len(records) == len(kept) else DocumentsInPart(documents)
    return reading


def _document(record: object) -> Document | None:
    """Return the document that *record* describes, without its metadata, or None if it has no text."""
    get = getter(record)
    text = text_of(record) if get is None else text_of(get("content"))
    if text is None or unmasked(text) is None:
        return None
    return Document(text) if get is None else Document(text, label_of(get("id")), number_of(get("score")))


def _read_generation(reading: SpanReading, given: object, returned: object) -> SpanReading:
    """Read a model call's prompt and reply from the span of a Haystack generator."""
    step = reading.step
    get = getter(given)
    messages = read_messages(None if get is None else get("messages"))
    step.query, step.prompt = last_user_text(messages), prompt_of(messages)
    step.prompt_documents = documents_of_results(results_since_user(messages))
    found = getter(returned)
    replies = [] if found is None else items_of(found("replies"), 1) or []
    for reply in replies:
        record: object = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
        for message in read_messages([record], "assistant"):
            step.answer, reading.calls_tools = message.text(""), message.calls_tools
        facts = find_answer(record)
        if facts is not None:
            step.response_model, step.response_id = facts.model, facts.response_id
            step.finish_reasons = facts.finish_reasons
            step.usage = Usage(facts.input_tokens, facts.output_tokens)
    return reading


# --- Pipelines --------------------------------------------------------------------------------------------------------


def _read_pipeline(span: FinishedSpan) -> SpanReading:
    """Read a workflow step, the root of a RAG call, from the span of a Haystack pipeline's run."""
    reading = _new(span, "trace")
    step = reading.step
    step.query = question_among_inputs(_content(span, semconv.HAYSTACK_PIPELINE_INPUT))
    found = find_answer(_content(span, semconv.HAYSTACK_PIPELINE_OUTPUT))
    if found is not None and found.text is not None:
        step.answer = unmasked(found.text)
    return reading


def question_among_inputs(data: object) -> str | None:
    """Return the question among the inputs of a pipeline's components, or None if there are several different ones."""
    inputs = [get for each in (data, *values_of(data, _MOST_COMPONENTS)) if (get := getter(each)) is not None]
    for name in _QUESTIONS:
        values = [value for get in inputs if (value := get(name)) is not None and getter(value) is None]
        texts = {text for value in values if (text := find_query(value)) is not None and text.strip()}
        if texts:
            text = texts.pop()
            return None if texts or looks_like_json(text) else unmasked(text)
    return None
