"""Parsing of chat messages, retrieved documents and tool results in span attributes of several conventions.

A message of the GenAI conventions has a role and a list of parts; older instrumentations write a field `content`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from ragtrace.capture import field_names
from ragtrace.capture.arguments import find_prompt
from ragtrace.capture.documents import MAX_DOCUMENTS, find_documents
from ragtrace.capture.fields import Get, first, getter, items_of, label_of, text_of
from ragtrace.capture.plain_json import parse_json
from ragtrace.capture.tool_results import find_tool_result
from ragtrace.core.step import Prompt
from ragtrace.core.types import Document, DocumentsInPart, documents_from
from ragtrace.span_reading.values import unmasked

_MAX_MESSAGES: Final = 1_000
_MAX_PARTS: Final = 1_000
_TOOL_ROLES: Final = frozenset({"tool", "function"})
_CALL_PARTS: Final = frozenset({"tool_call", "tool_use", "function_call"})
_RESULT_PARTS: Final = frozenset({"tool_call_response", "tool_result"})
_SERVER_PARTS: Final = {
    "server_tool_call": "server_tool_call",
    "server_tool_call_response": "server_tool_call_response",
}
"""Types of message parts about a tool that the provider ran, each with the field of the results."""
_UNTYPED_RESULT: Final = "toolResult"
"""Field with a tool's result in message parts without type, of Amazon Bedrock's Converse API."""
_RESULT_FIELDS: Final = ("response", "result", "content")


@dataclass(slots=True)
class ReadMessage:
    """Chat message that was parsed from a span, with its role, texts and tool results."""

    role: str
    texts: list[str] = field(default_factory=list[str])
    results: list[object] = field(default_factory=list[object])
    """Results that tools returned to the model, in a message of any role."""
    server_results: list[object] = field(default_factory=list[object])
    """Results of tools that the provider ran during the generation."""
    calls_tools: bool = False
    finish_reason: str | None = None

    def text(self, separator: str) -> str | None:
        """Return the texts of the message, joined with *separator*, or None if it has none."""
        return separator.join(self.texts) if self.texts else None


def read_messages(value: object, role: str = "user") -> list[ReadMessage]:
    """Parse the chat messages in *value*, a list or its JSON text, oldest first.

    Any other value gives an empty list.

    Args:
        role: role of a message that does not name its own.
    """
    items = items_of(parse_json(value), _MAX_MESSAGES + 1)
    if items is None or len(items) > _MAX_MESSAGES:
        return []
    getters = (getter(parse_json(item)) for item in items)
    return [_message(get, role) for get in getters if get is not None]


def read_parts(value: object) -> str | None:
    """Join the texts of message parts, such as system instructions, given as a list or as JSON text."""
    parsed = parse_json(value)
    if isinstance(parsed, str):
        return None if looks_like_json(parsed) else unmasked(parsed)
    message = ReadMessage("")
    _add_parts(message, parsed)
    return message.text("\n")


def _message(get: Get, role: str) -> ReadMessage:
    message = ReadMessage(first(get, ("role",), label_of) or role, finish_reason=label_of(get("finish_reason")))
    content = get("parts")
    content = get("content") if content is None else content
    if message.role in _TOOL_ROLES and get("parts") is None and not _has_result_parts(content):
        message.results.append(parse_json(content))
    elif (text := text_of(content)) is not None:
        _add_text(message, text)
    else:
        _add_parts(message, content)
    message.calls_tools = message.calls_tools or bool(items_of(get("tool_calls"), 1))
    return message


def _has_result_parts(content: object) -> bool:
    """Return whether *content* is a list with tool results in the format of Amazon Bedrock."""
    getters = [getter(part) for part in items_of(content, _MAX_PARTS) or ()]
    return any(get is not None and getter(get(_UNTYPED_RESULT)) is not None for get in getters)


def _add_parts(message: ReadMessage, parts: object) -> None:
    for part in items_of(parts, _MAX_PARTS) or ():
        get = getter(part)
        if get is not None:
            _add_part(message, get)
        elif (text := text_of(part)) is not None:
            _add_text(message, text)


def _add_part(message: ReadMessage, get: Get) -> None:
    kind = label_of(get("type"))
    if kind is None and (result := getter(get(_UNTYPED_RESULT))) is not None:
        if result("status") != "error":
            message.results.append(result("content"))
    elif kind is None and get("toolUse") is not None:
        message.calls_tools = True
    elif kind is None or kind in field_names.TEXT_PARTS:
        # An invisible part is a system prompt of an earlier request, which the model does not see (pydantic-ai 2.68).
        if get("visible") is not False and (text := first(get, ("content", "text"), text_of)) is not None:
            _add_text(message, text)
    elif kind in _CALL_PARTS:
        # A call that the provider runs itself, marked by pydantic-ai, does not ask the application for anything.
        message.calls_tools = message.calls_tools or get("builtin") is not True
    elif kind in _RESULT_PARTS:
        results = message.server_results if get("builtin") is True else message.results
        results.extend(found for name in _RESULT_FIELDS if (found := get(name)) is not None)
    elif kind in _SERVER_PARTS and (found := getter(get(_SERVER_PARTS[kind]))) is not None:
        message.server_results.extend(each for name in ("results", "output") if (each := found(name)) is not None)


def _add_text(message: ReadMessage, text: str) -> None:
    if (captured := unmasked(text)) is not None:
        message.texts.append(captured)


def looks_like_json(text: str) -> bool:
    """Return whether *text* begins like a JSON array or object, and so was not written by a person."""
    return text.lstrip()[:2] in ("[{", "[]", '["', '{"', "{}")


# --- What the messages say --------------------------------------------------------------------------------------------


def prompt_of(messages: Iterable[ReadMessage], instructions: str | None = None) -> Prompt | None:
    """Build a `Prompt` from *messages* and the system *instructions*, or return None if they contain no text.

    The result of a tool becomes a message of its own, with the role "tool".
    """
    pairs: list[tuple[str, str]] = []
    for message in messages:
        pairs += [("tool", as_text(result)) for result in message.results]
        text = message.text("\n")
        if text is not None and not _repeats_results(message):
            pairs.append((message.role, text))
    if instructions is not None and ("system", instructions) not in pairs:
        pairs.insert(0, ("system", instructions))
    return find_prompt(pairs)


def _repeats_results(message: ReadMessage) -> bool:
    """Return whether the texts of *message* only repeat the tool results that the message also contains."""
    return message.role in _TOOL_ROLES and bool(message.results)


def last_user_text(messages: Sequence[ReadMessage]) -> str | None:
    """Return the text of the last message of the user that has a text, or None if there is none."""
    texts = (message.text("\n") for message in reversed(messages) if message.role in field_names.USER)
    return next((text for text in texts if text is not None), None)


def results_since_user(messages: Sequence[ReadMessage]) -> list[object]:
    """Return the tool results in *messages* that follow the last text of the user."""
    found: list[object] = []
    for message in messages:
        if message.role in field_names.USER and message.texts:
            found.clear()
        found += message.results + message.server_results
        if message.role in _TOOL_ROLES and not message.results:
            found += message.texts
    return found


def documents_of_results(results: Iterable[object]) -> tuple[Document, ...] | None:
    """Return the documents in several tool results, in order, or None if no result contains a document."""
    found = [documents for result in results if (documents := result_documents(result)) is not None]
    return documents_from(chain(*found), *found) if found else None


# --- Tool results and documents ---------------------------------------------------------------------------------------


def result_documents(value: object, shown: str | None = None) -> tuple[Document, ...] | None:
    """Convert the result of a tool to documents as `find_tool_result` does, without texts that are masked.

    Return None if the result was not captured or is the message of a failure, and () if the tool returned nothing.
    """
    found = find_tool_result(value, shown)
    if found is None:
        return None
    kept = documents_from((document for document in found if unmasked(document.text) is not None), found)
    return None if found and not kept else kept


def as_text(value: object) -> str:
    """Return *value* itself if it is a string, else its JSON text."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def read_documents(value: object) -> tuple[tuple[Document, ...] | None, int]:
    """Parse the documents in a list of records, or in its JSON text, and count the records without a text.

    Return None in place of the documents if *value* is no list, or if no record of it has a text.
    """
    items = items_of(parse_json(value), MAX_DOCUMENTS + 1)
    if items is None:
        return None, 0
    found: list[Document] = []
    missing = 0
    for item in items[:MAX_DOCUMENTS]:
        # A bare string may be an id as well as a text.
        documents = None if isinstance(item, str) else find_documents([item])
        texts = [document for document in documents or () if unmasked(document.text) is not None]
        found += texts
        missing += not texts
    if items and not found:
        return None, missing
    return (DocumentsInPart(found) if len(items) > MAX_DOCUMENTS else tuple(found)), missing
