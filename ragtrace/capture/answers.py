"""The answer out of what a generator function returned, with what the provider said about it."""

from __future__ import annotations

from typing import Any, Final

from ragtrace.capture import names
from ragtrace.capture.draft import MAX_CHOICES, Draft, Reply, count, facts, plain_reply
from ragtrace.capture.messages import content_of, last_message, parts_text
from ragtrace.capture.passages import documents
from ragtrace.capture.reading import (
    MAX_DEPTH,
    Get,
    getter,
    is_late,
    is_list,
    items_of,
    label_of,
    number_of,
    peel,
    shape_of,
    text_of,
    values_of,
)
from ragtrace.capture.report import failed
from ragtrace.core.types import Document

_MAX_BYTES: Final = 1_000_000
_MAX_OUTPUT_ITEMS: Final = 1_000
_MAX_COMPONENTS: Final = 20


def reply(value: object) -> Reply | None:
    """The answer in *value*.

    Args:
        value: a string; a record with an answer field; a message or completion of OpenAI, LangChain, LlamaIndex,
            Haystack and others that name their fields alike; (answer, documents); the results of a pipeline.

    Returns:
        None if there is no answer in it: documents, HTTP responses and streams are none. Never raises.
    """
    try:
        if type(value) is str:
            return plain_reply(value)
        draft = Draft()
        return draft.reply(draft.text) if read(peel(value), draft, 0) else None
    except Exception as error:  # the application must not see it
        failed("capture.reply", error)
        return None


def read(value: object, draft: Draft, depth: int) -> bool:
    """Fill *draft* from *value*; False if there is no answer in it."""
    draft.looks.left -= 1
    if depth > MAX_DEPTH or draft.looks.left < 0:
        return False
    if (text := _whole_text(value)) is not None:
        draft.text = text
        return True
    get = getter(value)
    if get is not None:
        return _record(value, get, draft, depth)
    if shape_of(type(value)).kind == "tuple":
        return _beside(value, draft, depth)
    return _list(value, draft, depth)


def _whole_text(value: object) -> str | None:
    plain: Any = value
    if type(plain) is bytes and len(plain) <= _MAX_BYTES:
        try:
            return plain.decode("utf-8")
        except UnicodeDecodeError:
            return None  # a picture, an archive
    return text_of(plain)


def _record(value: object, get: Get, draft: Draft, depth: int) -> bool:
    if shape_of(type(value)).is_passage or get("page_content") is not None:
        return False
    choices = items_of(get("choices"), MAX_CHOICES)
    if choices:
        facts(get, draft)
        return _choices(choices, draft)
    if read_response(get, draft):
        return True
    for first in items_of(get("generations"), 1) or ():  # of LangChain: one for each prompt, or a list for each
        inner = items_of(first, 1)
        return read(inner[0] if inner else first, draft, depth + 1)
    understood = _fields(get, draft, depth)
    if draft.text == "" and is_late(value):
        draft.text = None  # it is still to come
    return understood or _components(value, draft, depth)


def _choices(choices: list[object], draft: Draft) -> bool:
    """The choices of a chat or text completion: the first is the answer."""
    getters = [get for choice in choices if (get := getter(choice)) is not None]
    reasons = (label_of(get("finish_reason")) for get in getters)
    draft.finish_reasons = tuple(reason for reason in reasons if reason is not None)
    if not getters:
        return False
    message = getter(getters[0]("message"))
    if message is None:
        draft.text = text_of(getters[0]("text"))
        return draft.text is not None
    return _message(message, draft)


def _message(get: Get, draft: Draft) -> bool:
    """One assistant message: words, a refusal, or tool calls."""
    draft.tool_calls += count(get("tool_calls")) or int(get("function_call") is not None)
    text = content_of(get, "")
    if text is None and (refusal := text_of(get("refusal"))) is not None:
        draft.refusal, text = True, refusal
    if text == "" and draft.tool_calls:
        text = None  # a message that only calls tools says nothing
    draft.text = text
    return text is not None or draft.tool_calls > 0


def read_response(get: Get, draft: Draft) -> bool:
    """Fill *draft* from a response of OpenAI's Responses API: messages, function calls, status."""
    facts(get, draft)
    output = items_of(get("output"), _MAX_OUTPUT_ITEMS)
    if not output:
        return False
    texts: list[str] = []
    calls = 0
    for item in output:
        look = getter(item)
        kind = None if look is None else label_of(look("type"))
        if look is None or kind is None:
            continue
        if kind == "message":
            texts += _output_texts(look, draft)
        calls += kind.endswith("_call")
    draft.text = "".join(texts) if texts else None
    draft.tool_calls = calls
    _status(get, draft)
    return bool(texts) or calls > 0


def _status(get: Get, draft: Draft) -> None:
    details = getter(get("incomplete_details"))
    reason = label_of(get("status")) if details is None else label_of(details("reason"))
    if reason is not None:
        draft.finish_reasons = (reason,)


def _output_texts(get: Get, draft: Draft) -> list[str]:
    texts: list[str] = []
    for part in items_of(get("content"), _MAX_OUTPUT_ITEMS) or ():
        look = getter(part)
        if look is None:
            continue
        if (text := text_of(look("text"))) is not None:
            texts.append(text)
        elif (refusal := text_of(look("refusal"))) is not None:
            draft.refusal = True
            texts.append(refusal)
    return texts


def _fields(get: Get, draft: Draft, depth: int) -> bool:
    """A record of any kind: the first answer field that holds an answer, and the documents beside it."""
    draft.tool_calls += count(get("tool_calls"))
    understood = any(_field(get(name), name, draft, depth) for name in names.ANSWER)
    if draft.text == "" and draft.tool_calls:
        draft.text = None
    # LlamaIndex's streaming response: the text is still to come, its documents are there.
    understood = understood or draft.tool_calls > 0 or get("response_gen") is not None
    if understood and draft.documents is None:
        draft.documents = documents_beside(get, draft)
    return understood


def _field(found: object, name: str, draft: Draft, depth: int) -> bool:
    if found is None:
        return False
    if name in names.ALTERNATIVES:
        found = next(iter(items_of(found, 1) or ()), None)
    if name == "data":  # Haystack's GeneratedAnswer; in other records it can be anything
        draft.text = text_of(found)
        return draft.text is not None
    return read(found, draft, depth + 1)


def documents_beside(get: Get, draft: Draft) -> tuple[Document, ...] | None:
    """The documents that a record carries next to its answer."""
    for name in names.ANSWER_DOCUMENTS:
        found = get(name)
        if found is None or (name in names.REFERENCES and _is_references(found)):
            continue
        if (understood := documents(found, draft.looks)) is not None:
            return understood
    return None


def _is_references(found: object) -> bool:
    items = items_of(found, 1)
    return text_of(found) is not None or bool(items and text_of(items[0]) is not None)


def _components(value: object, draft: Draft, depth: int) -> bool:
    """The results of a pipeline, component by component: the last one that answers."""
    understood = False
    for component in values_of(value, _MAX_COMPONENTS):
        if shape_of(type(component)).kind != "dict":
            continue
        get = getter(component)
        if get is None:
            continue
        understood = any(_field(get(name), name, draft, depth + 1) for name in names.INNER_ANSWER) or understood
        if draft.documents is None:
            draft.documents = documents_beside(get, draft)
    return understood


def _list(value: object, draft: Draft, depth: int) -> bool:
    """A conversation, the parts of one message, or the results of a component; plain documents are none of them."""
    message = last_message(value, names.ASSISTANT)
    if message is not None:
        return read(message, draft, depth + 1)
    first = next(iter(items_of(value, 1) or ()), None)
    get = getter(first)
    if _is_part(first, get) if depth > 0 else get is not None and get("type") is not None:
        draft.text = parts_text(value, "")
        return draft.text is not None
    return depth > 0 and first is not None and read(first, draft, depth + 1)


def _is_part(value: object, get: Get | None) -> bool:
    """Whether it is one part of a message's content."""
    return text_of(value) is not None if get is None else get("type") is not None or text_of(get("text")) is not None


def _beside(value: object, draft: Draft, depth: int) -> bool:
    """(answer, documents), (answer, confidence) ...: exactly one item is an answer."""
    items = items_of(value, 8) or []
    rest = [item for item in items if item is not None and number_of(item) is None and not is_list(item)]
    if len(rest) != 1 or not read(rest[0], draft, depth + 1):
        return False
    lists = (documents(item, draft.looks) for item in items if is_list(item) and item)
    draft.documents = draft.documents or next((found for found in lists if found is not None), None)
    return True
