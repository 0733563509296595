"""Reader of spans that follow the conventions of OpenLLMetry (Traceloop), release 0.62.4 and older ones.

Its spans of frameworks hold arguments and results as JSON in `traceloop.entity.input` and `traceloop.entity.output`.
Its spans of model calls have GenAI attributes, in older releases one for each message, `gen_ai.prompt.<index>.content`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ragtrace.capture import find_answer, find_documents
from ragtrace.capture.arguments import find_prompt
from ragtrace.capture.fields import label_of, number_of, text_of, whole_of
from ragtrace.capture.plain_json import parse_json
from ragtrace.core import semconv
from ragtrace.core.step import StepKind
from ragtrace.core.types import Document, Usage
from ragtrace.span_reading import otel_genai
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.messages import looks_like_json, read_messages, read_parts, result_documents
from ragtrace.span_reading.serialized import argument_in, flatten, given_documents, query_in, without_echo
from ragtrace.span_reading.values import is_unreadable_json, new_step, numbered, unmasked

CONVENTION: Final = "traceloop"
_MARKS: Final = (
    semconv.TRACELOOP_KIND,
    semconv.TRACELOOP_WORKFLOW,
    semconv.LLM_REQUEST_TYPE,
    semconv.TRACELOOP_STREAMING,
    semconv.traceloop_prompt(0, "role"),
    semconv.traceloop_completion(0, "role"),
    semconv.DB_SYSTEM,
)
"""Names of attributes of which every OpenLLMetry span that may be a step has at least one."""
_MODEL_CALLS: Final = frozenset(
    (semconv.OPERATION_CHAT, semconv.OPERATION_TEXT_COMPLETION, semconv.OPERATION_GENERATE_CONTENT)
)
_REQUEST_TYPES: Final = frozenset(("chat", "completion"))
_VECTOR_SEARCH: Final = "vector_db_retrieve"
_OTHER_OPERATIONS: Final = frozenset(("embeddings", "create_agent"))
_NO_STEPS: Final = ("Splitter", "NodeParser", "Embedding", "Extractor")
"""Endings of the names of LlamaIndex classes that prepare documents, and so are no steps."""
_HAYSTACK: Final = "opentelemetry.instrumentation.haystack"
_LANGCHAIN: Final = "opentelemetry.instrumentation.langchain"
_LLAMA_INDEX: Final = "opentelemetry.instrumentation.llamaindex"
_SESSION: Final = ("session_id", "conversation_id", "thread_id", "chat_id")
_USER: Final = ("user_id",)


def read(span: FinishedSpan) -> SpanReading | None:
    """Read a step of a RAG call from a span that follows OpenLLMetry's conventions.

    Return None if the span does not follow them, or describes no step.
    """
    attributes = span.attributes
    if not any(mark in attributes for mark in _MARKS):
        return None
    operation = text_of(attributes.get(semconv.OPERATION_NAME))
    request = attributes.get(semconv.LLM_REQUEST_TYPE)
    kind = text_of(attributes.get(semconv.TRACELOOP_KIND))
    if operation in _OTHER_OPERATIONS:
        return None
    if semconv.DB_SYSTEM in attributes and kind is None:
        return _read_vector_search(span)
    if operation in _MODEL_CALLS or request in _REQUEST_TYPES:
        return _read_generation(span)
    return None if kind is None else _read_entity(span, operation)


# --- Steps of frameworks ----------------------------------------------------------------------------------------------


def _read_entity(span: FinishedSpan, operation: str | None) -> SpanReading | None:
    """Read a step from the span of a framework's workflow, agent, task or tool, or return None if it is no step."""
    kind = text_of(span.attributes.get(semconv.TRACELOOP_KIND))
    name = _entity_name(span)
    if name.endswith(_NO_STEPS):
        return None
    given, returned = _value(span, semconv.TRACELOOP_INPUT), _value(span, semconv.TRACELOOP_OUTPUT)
    if kind == "tool" or operation == semconv.OPERATION_TOOL:
        return _read_tool(span, name, given, returned)
    if operation == _VECTOR_SEARCH or _are_scored_nodes(returned):
        return _read_retrieval(span, name, given, returned)
    if _has(returned, "text", "raw") and isinstance(returned["raw"], dict):
        return _read_completion(span, given, returned["raw"])
    if span.scope == _LLAMA_INDEX and _is_prompt(given):
        return None  # a method around the model call, which has a span of its own
    return _read_workflow(span, name, given, returned)


def _is_prompt(given: Any) -> bool:
    """Return whether *given* contains the messages or prompt of a LlamaIndex method that calls a model."""
    return (_has(given, "messages") and not _has(given, "query")) or _has(given, "prompt")


def _read_workflow(span: FinishedSpan, name: str, given: Any, returned: Any) -> SpanReading:
    reading = _begin(span, "trace")
    step = reading.step
    step.name = step.workflow = name
    if _has(returned, "outputs", "kwargs"):  # of LangChain
        returned = returned["outputs"]
    query = _question(given)
    step.query = query if query is None or query.strip() else None
    step.prompt = find_prompt(given)
    answer = find_answer(without_echo(returned, given, step.query))
    if answer is not None:
        step.answer, step.answer_found = unmasked(answer.text), True
        reading.calls_tools = answer.tool_calls > 0 and answer.text is None
        step.documents, step.previews = answer.documents, answer.previews
    step.documents = given_documents(given) or step.documents
    # In a batch of LangChain each request lies below the one before, whose context is still attached.
    reading.begins_call = (
        span.scope == _LANGCHAIN and text_of(span.attributes.get(semconv.TRACELOOP_KIND)) == "workflow"
    )
    _mark_cut(reading, semconv.TRACELOOP_INPUT, semconv.TRACELOOP_OUTPUT)
    return reading


def _question(given: Any) -> str | None:
    """Find the user's question in the arguments *given*: by name, else as the only positional text."""
    query = query_in(given)
    if query is None and _has(given, "args") and isinstance(given["args"], list):  # of Traceloop's own decorators
        texts = [text for each in cast("list[object]", given["args"]) if (text := query_in(each)) is not None]
        query = texts[0] if len(texts) == 1 else None
    return query


def _read_retrieval(span: FinishedSpan, name: str, given: Any, returned: Any) -> SpanReading:
    reading = _begin(span, "retrieve")
    step = reading.step
    step.name, step.query = name, query_in(given)
    step.rerank = _has(given, "nodes")
    found = None if returned is None else find_documents(returned, query=step.query)
    step.documents = found
    if found is not None and any(unmasked(each.text) is None for each in found):
        step.documents, reading.documents_without_text = None, len(found)
    _mark_cut(reading, semconv.TRACELOOP_OUTPUT)
    return reading


def _read_tool(span: FinishedSpan, name: str, given: Any, returned: Any) -> SpanReading:
    reading = _begin(span, "tool")
    step = reading.step
    step.name = label_of(span.attributes.get(semconv.TOOL_NAME)) or name
    if semconv.TRACELOOP_INPUT not in span.attributes and semconv.TRACELOOP_OUTPUT not in span.attributes:
        otel_genai.read_tool(reading, semconv.TOOL_ARGUMENTS, semconv.TOOL_RESULT)
        return reading
    step.query = unmasked(argument_in(given))
    if span.error_type is None:
        result = returned["output"] if _has(returned, "output", "kwargs") else returned
        step.documents = result_documents(result)
    _mark_cut(reading, semconv.TRACELOOP_OUTPUT)
    return reading


def _read_completion(span: FinishedSpan, given: Any, raw: dict[str, Any]) -> SpanReading | None:
    """Read a text completion of LlamaIndex, whose span has no GenAI attributes.

    Return None if there is no completion.
    """
    answer = find_answer(raw)
    if answer is None or answer.text is None:
        return None
    reading = _begin(span, "generate")
    step = reading.step
    step.answer, step.answer_found = unmasked(answer.text), True
    step.response_model, step.response_id = answer.model, answer.response_id
    step.finish_reasons, step.usage = answer.finish_reasons, Usage(answer.input_tokens, answer.output_tokens)
    step.query = query_in(given)
    _mark_cut(reading, semconv.TRACELOOP_INPUT, semconv.TRACELOOP_OUTPUT)
    return reading


# --- Model calls and vector databases ---------------------------------------------------------------------------------


def _read_generation(span: FinishedSpan) -> SpanReading | None:
    if span.scope == _HAYSTACK:
        return None  # its only text is the name of an output, "replies" (0.62.4)
    reading = _begin(span, "generate")
    attributes = span.attributes
    contents = [attributes.get(semconv.INPUT_MESSAGES), attributes.get(semconv.OUTPUT_MESSAGES)]
    given = read_messages(contents[0]) or read_messages(_numbered_messages(span, semconv.OLD_PROMPT))
    returned = read_messages(contents[1], "assistant")
    returned = returned or read_messages(_numbered_messages(span, semconv.OLD_COMPLETION), "assistant")
    instructions = read_parts(attributes.get(semconv.SYSTEM_INSTRUCTIONS))
    otel_genai.read_generation(reading, given, returned, instructions)
    reading.is_cut = any(otel_genai.is_cut(span, content) for content in contents)
    texts = [text for message in (*given, *returned) for text in message.texts]
    reading.is_cut = reading.is_cut or any(map(span.is_cut, texts))
    streaming = (attributes.get(name) for name in (semconv.TRACELOOP_STREAMING, semconv.OLD_STREAMING))
    reading.step.streamed = reading.step.streamed or any(each is True for each in streaming)
    return reading


def _numbered_messages(span: FinishedSpan, prefix: str) -> list[dict[str, Any]]:
    """Return the messages in the numbered attributes `<prefix>.<index>.<field>` of older OpenLLMetry releases."""
    messages: list[dict[str, Any]] = []
    for fields in numbered(span.attributes, prefix):
        content = fields.get("content")
        parts = parse_json(content) if isinstance(content, str) and content[:1] == "[" else content
        is_parts = isinstance(parts, list) and all(_has(part, "type") for part in cast("list[object]", parts))
        message: dict[str, Any] = {name: fields[name] for name in ("role", "finish_reason") if name in fields}
        calls = numbered(fields, "tool_calls")
        messages.append({**message, "content": parts if is_parts else content, "tool_calls": calls})
    return messages


def _read_vector_search(span: FinishedSpan) -> SpanReading | None:
    """Read a retrieval step from the span of a vector database, whose results are span events.

    Return None if there are no results.
    """
    found = [attributes for name, attributes in span.events if name == semconv.DB_RESULT_EVENT]
    if not found:
        return None
    reading = _begin(span, "retrieve")
    reading.step.name = span.name
    reading.is_cut = span.lost_events > 0
    documents: list[Document] = []
    for attributes in found:
        record = _passage(attributes)
        passages = find_documents([record])
        if passages and unmasked(passages[0].text) is not None:
            documents += passages
            reading.is_cut = reading.is_cut or span.is_cut(text_of(attributes.get(semconv.DB_RESULT_DOCUMENT)))
        else:
            reading.documents_without_text += 1
    reading.step.documents = tuple(documents) if documents else None
    reading.step.top_k = whole_of(span.attributes.get(semconv.CHROMA_RESULTS))
    return reading


def _passage(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the attributes of a search-result event to a document record.

    A distance is not used as a score, because lower is better.
    """
    text = text_of(attributes.get(semconv.DB_RESULT_DOCUMENT))
    record = {} if text is None else {"document": text}
    values = {
        "id": label_of(attributes.get(semconv.DB_RESULT_ID)),
        "score": number_of(attributes.get(semconv.DB_RESULT_SCORE)),
        "metadata": parse_json(attributes.get(semconv.DB_RESULT_METADATA)),
    }
    return {**record, **{name: value for name, value in values.items() if value is not None}}


# --- Attributes -------------------------------------------------------------------------------------------------------


def _begin(span: FinishedSpan, kind: StepKind) -> SpanReading:
    """Create a step of a RAG call from an OpenLLMetry span, with model, tokens, session and user."""
    step = new_step(span, kind)
    otel_genai.add_facts(span, step)
    step.conversation_id = step.conversation_id or _association(span, _SESSION)
    users = (label_of(span.attributes.get(name)) for name in (semconv.TRACELOOP_USER, semconv.OLD_LLM_USER))
    step.user_id = step.user_id or _association(span, _USER) or next(filter(None, users), None)
    if kind != "generate":
        step.provider = step.request_model = step.response_model = None  # "langchain" is no provider of a model
    return SpanReading(span, step, CONVENTION)


def _association(span: FinishedSpan, keys: tuple[str, ...]) -> str | None:
    values = (label_of(span.attributes.get(semconv.traceloop_association(key))) for key in keys)
    return next(filter(None, values), None)


def _entity_name(span: FinishedSpan) -> str:
    """Return the name of the workflow, class or tool that *span* describes."""
    name = label_of(span.attributes.get(semconv.TRACELOOP_NAME)) or label_of(
        span.attributes.get(semconv.TRACELOOP_WORKFLOW)
    )
    name = name or label_of(span.attributes.get(semconv.AGENT_NAME)) or span.name
    for kind in (".workflow", ".agent", ".task", ".tool"):
        name = name.removesuffix(kind)
    return name


def _value(span: FinishedSpan, name: str) -> Any:
    """Parse the JSON in the attribute *name* and flatten it. Return None if it is missing, masked or truncated."""
    text = unmasked(span.text(name))
    value = parse_json(text)
    if text is None or (value is text and (looks_like_json(text) or is_unreadable_json(text))):
        return None
    return flatten(value)


def _mark_cut(reading: SpanReading, *names: str) -> None:
    """Mark a step as truncated if one of the given span attributes was cut off."""
    span = reading.span
    reading.is_cut = reading.is_cut or any(otel_genai.is_cut(span, span.attributes.get(name)) for name in names)


def _has(value: Any, *names: str) -> bool:
    return isinstance(value, dict) and all(name in value for name in names)


def _are_scored_nodes(value: Any) -> bool:
    """Return whether *value* is a list of LlamaIndex nodes with scores, the result of a retriever or re-ranker."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return bool(items) and all(_has(item, "node", "score") for item in items)
