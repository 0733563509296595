"""Reader of spans that follow released or draft OpenTelemetry GenAI conventions, including ragtrace's own spans.

Content that an instrumentation put into a log event only is not on the span: the texts of such a step stay None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, cast

from ragtrace.capture import field_names
from ragtrace.capture.answers import find_answer
from ragtrace.capture.arguments import find_query
from ragtrace.capture.documents import find_documents
from ragtrace.capture.fields import getter, items_of, label_of, number_of, text_of, whole_of
from ragtrace.capture.plain_json import parse_json
from ragtrace.core import semconv
from ragtrace.core.step import Step, StepKind
from ragtrace.core.types import Document, Usage, documents_from
from ragtrace.span_reading.finished_span import Attributes, FinishedSpan, SpanReading
from ragtrace.span_reading.messages import (
    ReadMessage,
    documents_of_results,
    last_user_text,
    looks_like_json,
    prompt_of,
    read_documents,
    read_messages,
    read_parts,
    result_documents,
    results_since_user,
)
from ragtrace.span_reading.values import is_unreadable_json, new_step, parse_literal, unmasked, usage_of

CONVENTION: Final = "otel_genai"
_KINDS: Final[Mapping[str, StepKind]] = {
    semconv.OPERATION_WORKFLOW: "trace",
    semconv.OPERATION_AGENT: "trace",
    semconv.OPERATION_RETRIEVAL: "retrieve",
    semconv.OPERATION_TOOL: "tool",
    semconv.OPERATION_CHAT: "generate",
    semconv.OPERATION_TEXT_COMPLETION: "generate",
    semconv.OPERATION_GENERATE_CONTENT: "generate",
}
_NAMES: Final[Mapping[StepKind, tuple[str, ...]]] = {
    "trace": (semconv.WORKFLOW_NAME, semconv.AGENT_NAME),
    "retrieve": (semconv.DATA_SOURCE_ID,),
    "tool": (semconv.TOOL_NAME,),
    "generate": (),
}
_QUESTION_VARIABLES: Final = (
    "question", "query", "query_str", "user_query", "user_question", "user_input", "search_query", "input",
)  # fmt: skip
_CONTEXT_VARIABLES: Final = frozenset((*field_names.JOINED, *field_names.ANSWER_DOCUMENTS)) - field_names.REFERENCES
"""Names of a prompt template's variables that hold the documents."""
_REPR: Final = re.compile(r"\{'\w+': |Response\w+\(\w+=")
_MOST_FINISH_REASONS: Final = 128


def read(span: FinishedSpan) -> SpanReading | None:
    """Read a step of a RAG call from a span that follows the OpenTelemetry GenAI conventions.

    Return None if the span does not follow them, or describes no step.
    """
    kind = _kind(span.attributes)
    if kind is None:
        return None
    step = new_step(span, kind)
    reading = SpanReading(span, step, CONVENTION)
    add_facts(span, step)
    if kind == "retrieve":
        _read_retrieval(reading)
    elif kind == "tool":
        read_tool(reading, semconv.TOOL_ARGUMENTS, semconv.TOOL_RESULT)
    else:
        contents = _Contents(span)
        reading.is_cut = contents.is_cut
        if kind == "generate":
            read_generation(reading, contents.given, contents.returned, contents.instructions)
        else:
            read_workflow(reading, contents.given, contents.returned, contents.instructions)
        _read_contexts(reading)
    return reading


def _kind(attributes: Attributes) -> StepKind | None:
    operation = attributes.get(semconv.OPERATION_NAME)
    if isinstance(operation, str):
        return _KINDS.get(operation)
    if attributes.get(semconv.MCP_METHOD) == semconv.MCP_CALL_TOOL:
        return "tool"
    # Before release 1.27 of the conventions, the operation had no attribute.
    is_old = semconv.OLD_SYSTEM in attributes and semconv.RESPONSE_FINISH_REASONS in attributes
    return "generate" if is_old else None


# --- What is no content -----------------------------------------------------------------------------------------------


def add_facts(span: FinishedSpan, step: Step) -> None:
    """Set names, model, tokens and times of *step* from the attributes of *span*."""
    attributes = span.attributes
    step.name = _label(attributes, *_NAMES[step.kind]) or ""
    if step.kind == "trace":
        step.workflow = step.name
    provider = _label(attributes, semconv.PROVIDER_NAME, semconv.OLD_SYSTEM)
    step.provider = None if provider == semconv.PROVIDER_UNKNOWN else provider
    step.request_model = _label(attributes, semconv.REQUEST_MODEL)
    step.response_model = _label(attributes, semconv.RESPONSE_MODEL)
    step.response_id = _label(attributes, semconv.RESPONSE_ID)
    step.conversation_id = _label(attributes, semconv.CONVERSATION_ID, semconv.OI_SESSION)
    step.user_id = _label(attributes, semconv.OI_USER, semconv.ENDUSER_ID)
    step.top_k = _whole_number(attributes.get(semconv.RETRIEVAL_TOP_K))
    step.finish_reasons = _labels(attributes.get(semconv.RESPONSE_FINISH_REASONS))
    new = usage_of(span, semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS)
    old = usage_of(span, semconv.OLD_USAGE_INPUT_TOKENS, semconv.OLD_USAGE_OUTPUT_TOKENS)
    step.usage = Usage(
        old.input_tokens if new.input_tokens is None else new.input_tokens,
        old.output_tokens if new.output_tokens is None else new.output_tokens,
    )
    first_s = number_of(attributes.get(semconv.RESPONSE_TIME_TO_FIRST_CHUNK))
    if first_s is not None and first_s >= 0 and step.timing is not None:
        step.timing = replace(step.timing, first_s=first_s)
    # ragtrace itself says of every streamed step whether its reader left early.
    abandoned = attributes.get(semconv.ABANDONED)
    step.streamed = attributes.get(semconv.REQUEST_STREAM) is True or first_s is not None or abandoned is not None
    step.abandoned = abandoned is True
    step.cut_chars = _whole_number(attributes.get(semconv.CUT_CHARS)) or 0


def _label(attributes: Attributes, *names: str) -> str | None:
    return next((label for name in names if (label := label_of(attributes.get(name)))), None)


def _labels(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else items_of(value, _MOST_FINISH_REASONS) or ()
    return tuple(label for item in items if (label := label_of(item)))


def _whole_number(value: object) -> int | None:
    """Return *value* as an integer if it is a non-negative whole number (an int or a float), else None."""
    return whole_of(int(value)) if isinstance(value, float) and value.is_integer() else whole_of(value)


# --- Retrievals and tools ---------------------------------------------------------------------------------------------


def _read_retrieval(reading: SpanReading) -> None:
    span, step = reading.span, reading.step
    step.query = _text(span, semconv.RETRIEVAL_QUERY)
    step.rerank = span.attributes.get(semconv.RERANK) is True
    found = _content(span, semconv.RETRIEVAL_DOCUMENTS)
    step.documents, reading.documents_without_text = read_documents(found)
    reading.is_cut = span.is_cut(step.query) or is_cut(span, found)


def read_tool(reading: SpanReading, arguments_name: str, result_name: str) -> None:
    """Set the query and the documents of a tool call, from the attributes with its arguments and its result."""
    span, step = reading.span, reading.step
    arguments = parse_json(_content(span, arguments_name))
    if isinstance(arguments, str):
        is_json = looks_like_json(arguments) or is_unreadable_json(arguments)
        step.query = None if is_json else unmasked(arguments)
    elif (query := None if getter(arguments) is None else find_query(arguments)) is not None:
        step.query = unmasked(query)
    result = _content(span, result_name)
    # The result of a failed call is the message of an error.
    step.documents = None if span.error_type is not None else result_documents(result)
    reading.is_cut = is_cut(span, result)


def _read_contexts(reading: SpanReading) -> None:
    """Read the documents that the span of a workflow or generation lists as its contexts into the step."""
    found = _content(reading.span, semconv.CONTEXTS)
    # Older releases of ragtrace wrote them under the name that is defined for retrievals.
    found = _content(reading.span, semconv.RETRIEVAL_DOCUMENTS) if found is None else found
    documents, missing = read_documents(found)
    reading.is_cut = reading.is_cut or is_cut(reading.span, found)
    if documents is not None:
        reading.step.documents = documents
    reading.documents_without_text += missing


# --- Generations and workflows ----------------------------------------------------------------------------------------


class _Contents:
    """Input and output messages of a model call or agent, from the attributes or events of a span."""

    def __init__(self, span: FinishedSpan) -> None:
        given, returned = _content(span, semconv.INPUT_MESSAGES), _content(span, semconv.OUTPUT_MESSAGES)
        self.is_cut = is_cut(span, given) or is_cut(span, returned)
        self.given = read_messages(given)
        self.returned = read_messages(returned, "assistant")
        self.instructions = read_parts(_content(span, semconv.SYSTEM_INSTRUCTIONS))
        if not self.given:
            self.given = read_old_prompt(span)
        if not self.returned:
            self.returned = read_old_answer(span)


def read_generation(
    reading: SpanReading, given: Sequence[ReadMessage], returned: Sequence[ReadMessage], instructions: str | None
) -> None:
    """Set the query, prompt, documents and answer of a model call from its messages.

    Args:
        given: messages of the prompt.
        returned: messages that the model returned, one or more.
        instructions: system instructions beside the messages.
    """
    step, attributes = reading.step, reading.span.attributes
    step.prompt = prompt_of(given, instructions)
    variables = _variables(attributes)
    asked = (text_of(variables.get(name)) for name in _QUESTION_VARIABLES)
    step.query = _text(reading.span, semconv.QUERY)
    if step.query is None:
        step.query = next((text for text in asked if text), None) or last_user_text(given)
    if (_whole_number(attributes.get(semconv.REQUEST_CHOICES)) or 1) > 1:
        returned = returned[:1]  # each message is an alternative
    texts = [text for message in returned if (text := _reply_text(message)) is not None]
    step.answer = "".join(texts) if texts else None
    reading.calls_tools = any(message.calls_tools for message in returned)
    if reading.calls_tools and not step.answer:
        step.answer = None
    if not step.finish_reasons:
        step.finish_reasons = tuple(message.finish_reason for message in returned if message.finish_reason)
    if reading.span.scope == semconv.SCOPE:
        return  # ragtrace says itself which documents a generation was given
    results = results_since_user(given)
    results += [result for message in returned for result in message.server_results]
    step.prompt_documents = _merged(_documents_of_variables(variables), documents_of_results(results))


def read_workflow(
    reading: SpanReading, given: Sequence[ReadMessage], returned: Sequence[ReadMessage], instructions: str | None
) -> None:
    """Set the query, prompt and answer of a workflow or agent from its messages.

    Args:
        given: messages with which it was started, the question last.
        returned: messages that it returned, the answer last.
        instructions: system instructions beside the messages.
    """
    step = reading.step
    asked = last_user_text(given)
    is_own = reading.span.scope == semconv.SCOPE
    step.query = asked if asked is None or is_own else plain_query(asked)
    if step.query == asked:
        step.prompt = prompt_of(given, instructions)
    message = next((each for each in reversed(returned) if each.texts or each.calls_tools), None)
    if message is None:
        return
    text = message.text("") if is_own else _reply_text(message)
    reading.calls_tools = message.calls_tools
    step.answer = text if text is None or is_own else plain_answer(text)


def _reply_text(message: ReadMessage) -> str | None:
    """Return the text of a model's message, or None if it has none.

    opentelemetry-instrumentation-openai-agents-v2 0.1.0 writes the Python `repr` of a response in place of its text.
    """
    text = message.text("")
    if text is None or not _REPR.match(text):
        return text
    found = find_answer(parse_literal(text))
    message.calls_tools = message.calls_tools or (found is not None and found.tool_calls > 0)
    return None if found is None else found.text


def plain_query(text: str) -> str | None:
    """Extract the user's question from *text*, which is the question itself or a workflow state in JSON.

    LangChain starts a stream with a blank input, and says the question later.
    """
    parsed = parse_json(text)
    is_text = isinstance(parsed, str) and not (parsed is text and is_unreadable_json(text))
    asked = text if is_text else find_query(_no_text(parsed))
    return None if asked is None or not asked.strip() else asked


def plain_answer(text: str) -> str | None:
    """Extract the answer from *text*, which is the answer itself or a workflow state in JSON."""
    parsed = parse_json(text)
    if isinstance(parsed, str) and not looks_like_json(text):
        return text
    found = find_answer(_no_text(parsed))
    return None if found is None else found.text


def _no_text(value: object) -> object:
    return None if isinstance(value, str) else value


def _variables(attributes: Attributes) -> dict[str, object]:
    """Return the variables of a prompt template by name, without masked ones."""
    start = len(semconv.PROMPT_VARIABLE)
    found = {name[start:]: value for name, value in attributes.items() if name.startswith(semconv.PROMPT_VARIABLE)}
    return {name: value for name, value in found.items() if not isinstance(value, str) or unmasked(value) is not None}


def _documents_of_variables(variables: Mapping[str, object]) -> tuple[Document, ...] | None:
    for name, value in variables.items():
        if name in _CONTEXT_VARIABLES and (found := find_documents({name: parse_json(value)})) is not None:
            return found
    return None


def _merged(*found: tuple[Document, ...] | None) -> tuple[Document, ...] | None:
    documents = [each for each in found if each is not None]
    return documents_from(chain(*documents), *documents) if documents else None


# --- Content of older releases ----------------------------------------------------------------------------------------


def read_old_prompt(span: FinishedSpan) -> list[ReadMessage]:
    """Read the prompt messages of a span that follows older GenAI conventions, from events or from a single text."""
    bodies = [
        {"role": role, **_body(attributes)}
        for name, attributes in span.events
        if (role := semconv.OLD_MESSAGE_EVENTS.get(name)) is not None
    ]
    return read_messages(bodies) or _old_texts(span, semconv.OLD_EVENT_PROMPT, semconv.OLD_PROMPT, "user")


def read_old_answer(span: FinishedSpan) -> list[ReadMessage]:
    """Read the model's messages from a span that follows older GenAI conventions, from events or from a single text."""
    bodies = [
        _message_of_choice(_body(attributes)) for name, attributes in span.events if name == semconv.OLD_EVENT_CHOICE
    ]
    found = read_messages(bodies, "assistant")
    return found or _old_texts(span, semconv.OLD_EVENT_COMPLETION, semconv.OLD_COMPLETION, "assistant")


def _body(attributes: Attributes) -> dict[str, Any]:
    """Return the fields of a message event: its attributes, or the record that one attribute holds as JSON text."""
    get = getter(parse_json(attributes.get(semconv.OLD_EVENT_CONTENT))) or attributes.get
    names = ("role", "content", "message", "tool_calls", "finish_reason")
    return {name: parse_json(value) for name in names if (value := get(name)) is not None}


def _message_of_choice(body: dict[str, Any]) -> dict[str, Any]:
    """Return the chat message in *body*, the fields of a GenAI choice event."""
    message = body.pop("message", None)
    if isinstance(message, dict):
        body |= cast("dict[str, Any]", message)
    elif message is not None:
        body["content"] = message
    return {"role": "assistant", **body}


def _old_texts(span: FinishedSpan, event: str, name: str, role: str) -> list[ReadMessage]:
    values = [attributes.get(name) for each, attributes in span.events if each == event]
    value = values[-1] if values else span.attributes.get(name)
    if isinstance(value, str) and not looks_like_json(value):
        return [ReadMessage(role, [value])] if unmasked(value) is not None else []
    return read_messages(value, role)


# --- Attributes -------------------------------------------------------------------------------------------------------


def _content(span: FinishedSpan, name: str) -> object:
    """Return an attribute of a span, or else of the span's event with the inference details."""
    value = span.attributes.get(name)
    if value is None and span.events:
        details = (attributes for event, attributes in reversed(span.events) if event == semconv.EVENT_DETAILS)
        value = next((found for each in details if (found := each.get(name)) is not None), None)
    return value


def _text(span: FinishedSpan, name: str) -> str | None:
    value = span.text(name)
    return None if value is None else unmasked(value)


def is_cut(span: FinishedSpan, value: object) -> bool:
    """Return whether *value* was truncated at the provider's length limit, or is JSON text that breaks off."""
    if not isinstance(value, str):
        return False
    return span.is_cut(value) or (looks_like_json(value) and isinstance(parse_json(value), str))
