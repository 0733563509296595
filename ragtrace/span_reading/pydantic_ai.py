"""Reader of spans of Pydantic AI, which follow the OpenTelemetry GenAI conventions and have attributes of their own.

The formats 1 to 6 of its instrumentation (`InstrumentationSettings(version=...)`) are read; checked with 2.68.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from ragtrace.capture import field_names
from ragtrace.capture.fields import getter, items_of, label_of, whole_of
from ragtrace.capture.plain_json import parse_json
from ragtrace.core import semconv
from ragtrace.core.types import Usage
from ragtrace.span_reading import otel_genai
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.messages import (
    ReadMessage,
    last_user_text,
    prompt_of,
    read_messages,
    read_parts,
)
from ragtrace.span_reading.values import new_step, unmasked, usage_of

CONVENTION: Final = "pydantic_ai"
_MAX_EVENTS: Final = 1_000


def read(span: FinishedSpan) -> SpanReading | None:
    """Read a step of a RAG call from a span of Pydantic AI.

    Return None if the span does not follow the conventions of Pydantic AI, or describes no step.
    """
    attributes = span.attributes
    is_run = semconv.PYDANTIC_MESSAGES in attributes or semconv.PYDANTIC_MESSAGE_EVENTS in attributes
    if not is_run and span.scope not in semconv.PYDANTIC_SCOPES:
        return None
    operation = attributes.get(semconv.OPERATION_NAME)
    if is_run or operation == semconv.OPERATION_AGENT:
        return _read_run(span)
    if operation == semconv.OPERATION_TOOL or (operation is None and semconv.TOOL_NAME in attributes):
        return _read_tool(span)
    reading = otel_genai.read(span)
    if reading is None:
        return None
    reading.convention = CONVENTION
    if semconv.PYDANTIC_EVENTS in attributes:
        given, returned = _messages_of_events(attributes[semconv.PYDANTIC_EVENTS])
        otel_genai.read_generation(reading, given, returned, None)
    return reading


def _read_run(span: FinishedSpan) -> SpanReading:
    """Read a workflow step from the span of an agent's run: the question, the result and the earlier conversation."""
    attributes, step = span.attributes, new_step(span, "trace")
    reading = SpanReading(span, step, CONVENTION)
    otel_genai.add_facts(span, step)
    step.name = step.workflow = step.name or label_of(attributes.get(semconv.PYDANTIC_AGENT_NAME)) or ""
    step.request_model = step.request_model or label_of(attributes.get(semconv.PYDANTIC_MODEL_NAME))
    if step.usage == Usage():
        step.usage = usage_of(span, semconv.PYDANTIC_INPUT_TOKENS, semconv.PYDANTIC_OUTPUT_TOKENS)
    said = attributes.get(semconv.PYDANTIC_MESSAGES)
    messages = read_messages(said)
    if not messages:
        given, returned = _messages_of_events(attributes.get(semconv.PYDANTIC_MESSAGE_EVENTS))
        messages = given + returned
    asked = _question(messages, whole_of(attributes.get(semconv.PYDANTIC_NEW_MESSAGES)) or 0)
    step.query = last_user_text(messages) if asked is None else messages[asked].text("\n")
    instructions = read_parts(attributes.get(semconv.SYSTEM_INSTRUCTIONS))
    step.prompt = prompt_of(messages if asked is None else messages[: asked + 1], instructions)
    result = attributes.get(semconv.PYDANTIC_RESULT)
    if isinstance(result, str):
        step.answer = None if unmasked(result) is None else otel_genai.plain_answer(result)
    elif messages and messages[-1].role in field_names.ASSISTANT and not messages[-1].calls_tools:
        step.answer = messages[-1].text("")
    reading.is_cut = any(otel_genai.is_cut(span, value) for value in (said, result))
    return reading


def _question(messages: Sequence[ReadMessage], earlier: int) -> int | None:
    """Return the index of the user message that started the agent's run, or None if there is none.

    Later messages of the user may be results of tools, and requests to try again.

    Args:
        earlier: number of requests and responses of earlier runs, which the conversation begins with.
    """
    # Of requests and responses in turn, a response is exactly one message; a request may be several.
    responses = (at for at, message in enumerate(messages) if message.role in field_names.ASSISTANT)
    start = max(islice(responses, earlier // 2), default=-1) + 1
    new = range(start, len(messages))
    return next((at for at in new if messages[at].role in field_names.USER and messages[at].texts), None)


def _read_tool(span: FinishedSpan) -> SpanReading | None:
    """Read a step from the span of a tool call, or return None for a function that only shapes the agent's output."""
    attributes = span.attributes
    about = (span.name, attributes.get(semconv.PYDANTIC_LOG_MESSAGE))
    if any(isinstance(each, str) and each.startswith("running output function") for each in about):
        return None
    step = new_step(span, "tool")
    reading = SpanReading(span, step, CONVENTION)
    otel_genai.add_facts(span, step)
    is_old = semconv.PYDANTIC_TOOL_RESULT in attributes or semconv.PYDANTIC_TOOL_ARGUMENTS in attributes
    names = (semconv.PYDANTIC_TOOL_ARGUMENTS, semconv.PYDANTIC_TOOL_RESULT)
    otel_genai.read_tool(reading, *(names if is_old else (semconv.TOOL_ARGUMENTS, semconv.TOOL_RESULT)))
    if semconv.PYDANTIC_TOOL_RETRY in attributes or semconv.PYDANTIC_TOOL_FAILURE in attributes:
        step.documents = None  # the result is what the model is asked to do better
    return reading


def _messages_of_events(value: object) -> tuple[list[ReadMessage], list[ReadMessage]]:
    """Return the input and the output messages of a model call, from the event list of Pydantic AI's format 1."""
    given: list[object] = []
    returned: list[object] = []
    for event in items_of(parse_json(value), _MAX_EVENTS) or ():
        get = getter(event)
        if get is None:
            continue
        if get("event.name") == semconv.OLD_EVENT_CHOICE:
            returned.append(get("message"))
        elif (role := semconv.OLD_MESSAGE_EVENTS.get(label_of(get("event.name")) or "")) is not None:
            given.append({"role": role, "content": get("content"), "tool_calls": get("tool_calls")})
    return read_messages(given), read_messages(returned, "assistant")
