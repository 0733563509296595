"""Reader of spans that follow the OpenInference semantic conventions.

The specification leaves much open, so the reader follows what its instrumentations write: those of LangChain 0.1.80,
LlamaIndex 4.6.1, Haystack 0.1.46, OpenAI 0.1.66, OpenAI Agents 2.6.0 and Pydantic AI 0.1.30.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from ragtrace.capture import find_answer, find_documents
from ragtrace.capture.answers import Answer
from ragtrace.capture.arguments import find_prompt
from ragtrace.capture.fields import items_of, label_of, number_of, text_of, whole_of
from ragtrace.capture.plain_json import is_too_large, parse_json
from ragtrace.core import semconv
from ragtrace.core.step import Message, Prompt, StepKind
from ragtrace.core.types import Document, Timing, Usage, documents_from
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.messages import result_documents
from ragtrace.span_reading.serialized import argument_in, flatten, given_documents, query_in, without_echo
from ragtrace.span_reading.values import begins_like_json, is_unreadable_json, new_step, numbered, unmasked, usage_of

CONVENTION: Final = "openinference"
_LLAMA_INDEX: Final = semconv.oi_scope("llama_index")
_AGENTS: Final = semconv.oi_scope("openai_agents")
_JSON: Final = "application/json"
_FAKE_ID: Final = "__fake_id__"
"""Response id that the Agents SDK writes where there is no response of the newer API."""
_TOOLS_CALLED: Final = frozenset(("tool_calls", "tool_use", "function_call"))
_MOST_ITEMS: Final = 1_000
_FINAL_RESULT: Final = "final_result"
"""Name of the tool through which models give a structured answer in Pydantic AI."""


def read(span: FinishedSpan) -> SpanReading | None:
    """Read a step of a RAG call from a span that follows the OpenInference conventions.

    Return None if the span does not follow them, or describes no step.
    """
    kind = text_of(span.attributes.get(semconv.OI_KIND))
    reader = None if kind is None else _READERS.get(kind.upper())
    if reader is None or _has_other_convention(span):
        return None
    return reader(span)


def _has_other_convention(span: FinishedSpan) -> bool:
    """Return whether *span* also has attributes in the conventions of ragtrace or Pydantic AI.

    Their own attributes say more than those that OpenInference's span processor adds to the spans of Pydantic AI.
    """
    own = span.scope == semconv.SCOPE and semconv.OPERATION_NAME in span.attributes
    return own or span.scope in semconv.PYDANTIC_SCOPES


# --- Workflows, chains and agents -------------------------------------------------------------------------------------


def _read_workflow(span: FinishedSpan) -> SpanReading | None:
    reading = _begin(span, "trace")
    step = reading.step
    names = (semconv.WORKFLOW_NAME, semconv.OI_AGENT_NAME)
    step.name = step.workflow = next((name for key in names if (name := _label(span, key))), span.name)
    given, returned = _input(reading), _output(reading)
    step.query = query_in(given)
    step.prompt = find_prompt(given)
    answer = find_answer(without_echo(returned, given, step.query))
    if answer is not None and answer.text == "" and span.scope == _LLAMA_INDEX:
        answer = None  # a stream, which is read after the span has got the output
    if answer is not None:
        step.answer, step.answer_found = unmasked(answer.text), True
        reading.calls_tools = answer.tool_calls > 0 and answer.text is None
        step.documents, step.previews = answer.documents, answer.previews
    step.documents = given_documents(given) or step.documents
    shown = _numbered_documents(reading, semconv.OI_DOCUMENTS)
    step.documents = step.documents if shown is None else shown
    return reading


# --- Retrievers and re-rankers ----------------------------------------------------------------------------------------


def _read_retrieval(span: FinishedSpan) -> SpanReading | None:
    reading = _begin(span, "retrieve")
    step, attributes = reading.step, span.attributes
    step.rerank = text_of(attributes.get(semconv.OI_KIND)) == semconv.OI_RERANKER
    step.name = _label(span, semconv.DATA_SOURCE_ID) or _label(span, semconv.OI_TOOL_NAME) or span.name
    query = unmasked(span.text(semconv.OI_RERANKER_QUERY))
    given = _input(reading) if query is None else None
    step.query = query_in(given) if query is None else query
    reading.is_cut = reading.is_cut or span.is_cut(query)
    for value in (attributes.get(semconv.OI_RERANKER_TOP_K), attributes.get(semconv.RETRIEVAL_TOP_K)):
        step.top_k = whole_of(value) if step.top_k is None else step.top_k
    if step.top_k is None and isinstance(given, dict):
        step.top_k = whole_of(cast("dict[str, Any]", given).get("top_k"))
    lists = (semconv.OI_RERANKER_OUTPUT, semconv.OI_DOCUMENTS) if step.rerank else (semconv.OI_DOCUMENTS,)
    for prefix in lists:
        if step.documents is None and not reading.documents_without_text:
            step.documents = _numbered_documents(reading, prefix)
    if step.rerank:
        step.reranked = _numbered_documents(SpanReading(span, step, CONVENTION), semconv.OI_RERANKER_INPUT)
    if step.documents is None and not reading.documents_without_text:
        step.documents = _returned_documents(reading)
    elif step.documents is not None:
        step.documents = _with_ids(span, step.documents)
    if span.scope == _LLAMA_INDEX and reading.documents_without_text and "._" in span.name:
        return None  # `_retrieve` inside `retrieve`, which shows the texts
    return reading


def _numbered_documents(reading: SpanReading, prefix: str) -> tuple[Document, ...] | None:
    """Return the documents in the numbered span attributes `<prefix>.<index>.document.*`.

    Documents without a text are left out, and counted in *reading*. Return None if there are no such attributes, or no
    document has a text.
    """
    span = reading.span
    records: list[dict[str, Any]] = []
    listed = numbered(span.attributes, prefix)
    for fields in listed:
        text = unmasked(text_of(fields.get(semconv.OI_DOCUMENT_CONTENT)))
        if text is None:
            reading.documents_without_text += 1
            continue
        reading.is_cut = reading.is_cut or span.is_cut(text)
        record: dict[str, Any] = {"content": text, "id": label_of(fields.get(semconv.OI_DOCUMENT_ID))}
        record["score"] = number_of(fields.get(semconv.OI_DOCUMENT_SCORE))
        metadata = parse_json(fields.get(semconv.OI_DOCUMENT_METADATA))
        records.append({**record, "metadata": metadata} if isinstance(metadata, dict) else record)
    if listed and not any(key.startswith(f"{prefix}.0.") for key in span.attributes):
        reading.is_cut = True  # beyond the limit of attributes, the SDK keeps the last ones
    if listed and (whole_of(span.attributes.get(semconv.DOCUMENT_COUNT)) or 0) > len(listed):
        reading.is_cut = True  # ragtrace's own span, on which the best documents are set last
    if records:
        return find_documents(records)
    return () if not listed and span.attributes.get(semconv.DOCUMENT_COUNT) == 0 else None


def _returned_documents(reading: SpanReading) -> tuple[Document, ...] | None:
    """Return the documents in the output of a retriever whose span has no attributes for single documents.

    All instrumentations show in this way that nothing was found.
    """
    count = whole_of(reading.span.attributes.get(semconv.DOCUMENT_COUNT))
    if count:
        reading.documents_without_text = count
    parsed = parse_json(unmasked(reading.span.text(semconv.OI_OUTPUT)))
    if parsed is None:
        return None
    if isinstance(parsed, str):  # only a tool that serves as a retriever returns a text
        return _tool_documents(reading) if semconv.OI_TOOL_NAME in reading.span.attributes else None
    found = find_documents(flatten(parsed), query=reading.step.query)
    if found is None:
        several: object = cast("dict[str, Any]", parsed).get("documents") if isinstance(parsed, dict) else parsed
        reading.documents_without_text = len(cast("list[object]", several)) if isinstance(several, list) else 0
    return found


def _with_ids(span: FinishedSpan, documents: tuple[Document, ...]) -> tuple[Document, ...]:
    """Return retrieved documents with their ids, taken from the output attribute of LangChain's instrumentation."""
    found = find_documents(flatten(parse_json(span.text(semconv.OI_OUTPUT))))
    same = found is not None and [each.text for each in found] == [each.text for each in documents]
    return documents if found is None or not same else found


# --- Tools ------------------------------------------------------------------------------------------------------------


def _read_tool(span: FinishedSpan) -> SpanReading | None:
    name = _label(span, semconv.OI_TOOL_NAME)
    if name is None and span.scope == _AGENTS:
        return None  # a handoff to another agent
    reading = _begin(span, "tool")
    step = reading.step
    step.name = name or span.name
    step.query = argument_in(_input(reading))
    step.documents = _tool_documents(reading)
    return reading


def _tool_documents(reading: SpanReading) -> tuple[Document, ...] | None:
    """Convert the result of a tool to documents: the passages of a list, else the whole result as one document."""
    value = reading.span.attributes.get(semconv.OI_OUTPUT)
    text = str(value) if isinstance(value, (int, float)) else unmasked(text_of(value))
    if text is None:
        return None
    is_json = reading.span.attributes.get(semconv.OI_OUTPUT_TYPE) == _JSON
    is_broken = is_json and begins_like_json(text) and isinstance(parse_json(text), str)
    reading.is_cut = reading.is_cut or is_broken or reading.span.is_cut(text)
    return None if is_broken else passages_in(text)


def passages_in(text: str) -> tuple[Document, ...] | None:
    """Convert *text*, the result of a tool, to documents. Return None if it shows only the string form of objects."""
    return result_documents(flatten(parse_json(text)), text)


# --- Models -----------------------------------------------------------------------------------------------------------


class _ChatMessage(NamedTuple):
    """Chat message in the OpenInference attributes of a model call's span."""

    role: str | None
    text: str | None
    is_masked: bool
    calls: Sequence[Mapping[str, Any]]
    """Attributes of each tool call in the message."""


def _read_generation(span: FinishedSpan) -> SpanReading | None:
    given = _messages(span, semconv.OI_INPUT_MESSAGES)
    written = _messages(span, semconv.OI_OUTPUT_MESSAGES)
    if not given and not written and _is_no_call(span):
        return None
    reading = _begin(span, "generate")
    step = reading.step
    step.prompt = _prompt(reading, given)
    if step.prompt is not None:
        users = [message.text for message in step.prompt.messages if message.role == "user"]
        step.query = users[-1] if users else None
    elif not given:
        step.query = query_in(_input(reading))
    shown = _parsed(span, semconv.OI_OUTPUT)
    if len(listed := items_of(shown, 2) or []) == 1:  # spans of the Agents SDK, also where the SDK calls the older API
        shown = listed[0] if _is_response(listed[0]) else shown
    facts = None if isinstance(shown, str) else find_answer(shown)
    _read_facts(reading, Answer() if facts is None else facts, _response_id_in(shown))
    if written:
        _read_written(reading, written, facts)
    else:
        _read_completion(reading, facts)
    listed_documents = _numbered_documents(reading, semconv.OI_DOCUMENTS)
    step.documents = step.documents if listed_documents is None else listed_documents
    return reading


def _is_response(item: object) -> bool:
    """Return whether *item* is a response object of OpenAI's Responses API."""
    return isinstance(item, dict) and cast("dict[str, Any]", item).get("object") == "response"


def _is_no_call(span: FinishedSpan) -> bool:
    """Return whether a model-call *span* only prepares a prompt, or wraps the span of the actual model call."""
    attributes = span.attributes
    if semconv.OI_TOKENS_PROMPT in attributes or _prompt_texts(span):
        return False
    return span.scope == _LLAMA_INDEX or (
        semconv.OI_PROMPT_TEMPLATE in attributes and semconv.OI_MODEL not in attributes
    )


def _messages(span: FinishedSpan, prefix: str) -> list[_ChatMessage]:
    found: list[_ChatMessage] = []
    for fields in numbered(span.attributes, prefix):
        parts = numbered(fields, semconv.OI_MESSAGE_CONTENTS)
        kinds = ("text", "input_text", "output_text", None)
        texts = [text_of(p.get(semconv.OI_CONTENT_TEXT)) for p in parts if p.get(semconv.OI_CONTENT_TYPE) in kinds]
        if (content := text_of(fields.get(semconv.OI_MESSAGE_CONTENT))) is not None:
            texts = [content]
        said = [text for text in texts if unmasked(text) is not None]
        calls: list[Mapping[str, Any]] = list(numbered(fields, semconv.OI_MESSAGE_TOOL_CALLS))
        if semconv.OI_MESSAGE_FUNCTION in fields:
            calls.append({semconv.OI_CALLED_FUNCTION: fields[semconv.OI_MESSAGE_FUNCTION]})
        is_masked = any(text is not None and unmasked(text) is None for text in texts)
        text = "\n".join(filter(None, said)) if said else None
        found.append(_ChatMessage(text_of(fields.get(semconv.OI_MESSAGE_ROLE)), text, is_masked, calls))
    return found


def _prompt(reading: SpanReading, given: list[_ChatMessage]) -> Prompt | None:
    """Return the prompt of a model call as messages, or None if the messages are missing or masked."""
    span = reading.span
    if not given:
        texts = [text for text in _prompt_texts(span) if unmasked(text) is not None]
        reading.is_cut = reading.is_cut or any(map(span.is_cut, texts))
        return Prompt((Message("user", texts[0]),)) if len(texts) == 1 else None
    if any(message.is_masked for message in given):
        return None
    reading.is_cut = reading.is_cut or any(span.is_cut(message.text) for message in given)
    return find_prompt([{"role": each.role, "content": each.text} for each in given if each.role is not None])


def _prompt_texts(span: FinishedSpan) -> list[str]:
    """Return the prompts of a text completion, from an attribute with a list or from numbered attributes."""
    listed: Any = span.attributes.get(semconv.OI_PROMPTS)
    texts: list[Any] = list(cast("list[Any]", listed)) if isinstance(listed, (list, tuple)) else []
    texts += [each.get(semconv.OI_PROMPT_TEXT) for each in numbered(span.attributes, semconv.OI_PROMPTS)]
    return [text for text in texts if isinstance(text, str)]


def _read_facts(reading: SpanReading, facts: Answer, response_id: str | None) -> None:
    """Read model, tokens and settings of a model call from span attributes or the call's output.

    Attributes take precedence over *facts*, which come from the output.
    """
    span, step = reading.span, reading.step
    parameters = _parsed(span, semconv.OI_INVOCATION_PARAMETERS)
    settings: Mapping[str, Any] = cast("dict[str, Any]", parameters) if isinstance(parameters, dict) else {}
    model = _label(span, semconv.OI_MODEL)
    asked = (
        _label(span, semconv.REQUEST_MODEL),
        _label(span, semconv.OI_REQUEST_MODEL),
        label_of(settings.get("model")),
    )
    replied = (_label(span, semconv.RESPONSE_MODEL), _label(span, semconv.OI_RESPONSE_MODEL), facts.model)
    step.request_model = next(filter(None, asked), model)
    step.response_model = next(filter(None, replied), model if model != step.request_model else None)
    own_id = None if facts.response_id == _FAKE_ID else facts.response_id
    step.response_id = _label(span, semconv.RESPONSE_ID) or response_id or own_id
    providers = (semconv.PROVIDER_NAME, semconv.OI_PROVIDER, semconv.OI_SYSTEM)
    step.provider = next((found for key in providers if (found := _label(span, key))), None)
    reason = _label(span, semconv.OI_FINISH_REASON)
    step.finish_reasons = facts.finish_reasons if reason is None else (reason,)
    usage = usage_of(span, semconv.OI_TOKENS_PROMPT, semconv.OI_TOKENS_COMPLETION)
    if usage == Usage():
        usage = Usage(facts.input_tokens, facts.output_tokens)
    step.usage = usage
    step.streamed = (
        settings.get("stream") is True
        or span.attributes.get(semconv.REQUEST_STREAM) is True
        or any(name == semconv.OI_FIRST_TOKEN for name, _ in span.events)
    )
    first_s = number_of(span.attributes.get(semconv.RESPONSE_TIME_TO_FIRST_CHUNK))
    if first_s is not None and step.timing is not None:
        step.timing = Timing(step.timing.duration_s, first_s)


def _response_id_in(shown: Any) -> str | None:
    """Return the provider's response id, which LangChain and the Agents SDK record beside the model's reply."""
    if not isinstance(shown, dict):
        return None
    record = cast("dict[str, Any]", shown)
    beside = [record.get("llm_output")]
    for item in items_of(record.get("output"), _MOST_ITEMS) or ():
        data = cast("dict[str, Any]", item).get("provider_data") if isinstance(item, dict) else None
        beside.append({"id": cast("dict[str, Any]", data).get("response_id")} if isinstance(data, dict) else None)
    found = (label_of(cast("dict[str, Any]", each).get("id")) for each in beside if isinstance(each, dict))
    return next(filter(None, found), None)


def _read_written(reading: SpanReading, written: list[_ChatMessage], facts: Answer | None) -> None:
    """Read the answer and provider-side tool results from the messages that a model wrote."""
    step = reading.step
    results = [message.text for message in written if message.role == "tool" and message.text is not None]
    said = [message for message in written if message.role != "tool" and (message.text is not None or message.calls)]
    found = [documents for text in results if (documents := passages_in(text))]
    step.documents = documents_from(chain(*found), *found) if found else None
    if not said:
        return
    calls = said[-1].calls
    if calls and all(text_of(call.get(semconv.OI_CALLED_FUNCTION)) == _FINAL_RESULT for call in calls):
        answer = find_answer(flatten(parse_json(calls[0].get(semconv.OI_CALL_ARGUMENTS))))
        step.answer = None if answer is None else unmasked(answer.text)
    elif calls:
        reading.calls_tools = True
    else:
        texts = [message.text for message in said if message.text is not None]
        # Several are alternatives of a chat completion, or the parts of one response.
        step.answer = facts.text if len(texts) > 1 and facts is not None and facts.text else texts[0]
    step.answer_found = True
    reading.is_cut = reading.is_cut or reading.span.is_cut(step.answer)


def _read_completion(reading: SpanReading, facts: Answer | None) -> None:
    """Read the answer of a model call whose span has no output messages, from completions or the output value."""
    span, step = reading.span, reading.step
    choices = [text_of(each.get(semconv.OI_COMPLETION_TEXT)) for each in numbered(span.attributes, semconv.OI_CHOICES)]
    text = unmasked(next(iter(choices), None))
    if text is None and facts is not None:
        text = unmasked(facts.text)
        reading.calls_tools = facts.tool_calls > 0 and text is None
    elif text is None:
        output = _output(reading)
        text = output if isinstance(output, str) else None
    if text is None and _TOOLS_CALLED.intersection(step.finish_reasons):
        reading.calls_tools = True
    step.answer = text
    step.answer_found = True if text is not None or reading.calls_tools else None
    reading.is_cut = reading.is_cut or span.is_cut(text)


# --- Attributes -------------------------------------------------------------------------------------------------------


def _begin(span: FinishedSpan, kind: StepKind) -> SpanReading:
    """Create a step of a RAG call from an OpenInference span, with session id and user id."""
    step = new_step(span, kind)
    metadata = _parsed(span, semconv.OI_METADATA)
    known: Mapping[str, Any] = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
    sessions = ("session_id", "conversation_id", "thread_id")
    step.conversation_id = (
        _label(span, semconv.OI_SESSION)
        or _label(span, semconv.CONVERSATION_ID)
        or next((found for name in sessions if (found := label_of(known.get(name)))), None)
    )
    step.user_id = _label(span, semconv.OI_USER) or label_of(known.get("user_id"))
    step.abandoned = span.attributes.get(semconv.ABANDONED) is True
    step.cut_chars = whole_of(span.attributes.get(semconv.CUT_CHARS)) or 0
    return SpanReading(span, step, CONVENTION)


def _label(span: FinishedSpan, name: str) -> str | None:
    return unmasked(label_of(span.attributes.get(name)))


def _input(reading: SpanReading) -> Any:
    return _json_value(reading, semconv.OI_INPUT, semconv.OI_INPUT_TYPE)


def _output(reading: SpanReading) -> Any:
    return _json_value(reading, semconv.OI_OUTPUT, semconv.OI_OUTPUT_TYPE)


def _json_value(reading: SpanReading, name: str, type_name: str) -> Any:
    """Return the value of the span attribute *name*: parsed and flattened if it is JSON, else the text.

    Return None if the attribute is missing, masked, JSON that was cut, an input of broken JSON, or the string form of
    an object.
    """
    span = reading.span
    text = unmasked(span.text(name))
    if text is None:
        return None
    is_cut = span.is_cut(text)
    reading.is_cut = reading.is_cut or is_cut
    is_json = span.attributes.get(type_name) == _JSON
    if span.scope == semconv.SCOPE or (text[:1] == '"' and not is_json):
        return text
    value = parse_json(text)
    if not isinstance(value, str):
        return flatten(value)
    # A model may have written an answer that breaks off like JSON. Of an input, what was asked is then not known.
    is_unreadable = name == semconv.OI_INPUT and is_unreadable_json(text, is_declared=is_json)
    is_broken = is_unreadable or (begins_like_json(text) and (is_json or is_cut or is_too_large(text)))
    if value is text and is_broken:
        reading.is_cut = reading.is_cut or is_too_large(text)
        return None
    # LlamaIndex writes the string form of a stream, of nodes, and of the event that stops an agent.
    return flatten(unmasked(value)) if span.scope == _LLAMA_INDEX else unmasked(value)


def _parsed(span: FinishedSpan, name: str) -> Any:
    text = span.text(name)
    return None if text is None else flatten(parse_json(text))


_READERS: Final[Mapping[str, Callable[[FinishedSpan], SpanReading | None]]] = {
    semconv.OI_CHAIN: _read_workflow,
    semconv.OI_AGENT: _read_workflow,
    semconv.OI_RETRIEVER: _read_retrieval,
    semconv.OI_RERANKER: _read_retrieval,
    semconv.OI_TOOL: _read_tool,
    semconv.OI_LLM: _read_generation,
}
