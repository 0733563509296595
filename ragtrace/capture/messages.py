"""Finds the user's question and the chat messages in what a function was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.capture import field_names
from ragtrace.capture.fields import (
    MAX_DEPTH,
    Get,
    Looks,
    first,
    getter,
    items_of,
    label_of,
    last_items,
    peel,
    shape_of,
    text_of,
)
from ragtrace.core.step import Message, Prompt, Role
from ragtrace.system.faults import faults

_MAX_PARTS: Final = 1_000
_MAX_MESSAGES: Final = 100
"""How far back a conversation is searched; the last turn is what a call is about."""
_MAX_CHARS: Final = 200_000
"""Characters kept of the messages of one prompt."""
_ROLES: Final[Mapping[str, Role]] = {
    **dict.fromkeys(field_names.USER, "user"),
    **dict.fromkeys((*field_names.ASSISTANT, "chatbot"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}
_ROLE_NAMES: Final = frozenset(_ROLES)


def find_query(value: object) -> str | None:
    """Return the question in *value*: a string, the last user message of a conversation, or a field of a record.

    Never raises. None if there is no question; a blank question is returned as it is.
    """
    try:
        return value if type(value) is str else _query(peel(value), 0, Looks())
    except Exception as error:  # the application must not see it
        faults.record("capture.query", error)
        return None


def _query(value: object, depth: int, looks: Looks) -> str | None:
    looks.left -= 1
    if (text := text_of(value)) is not None or depth > MAX_DEPTH or looks.left < 0:
        return text
    get = getter(value)
    if get is not None:
        if role_of(get) in field_names.USER:
            return content_of(get, "\n")
        return first(get, field_names.QUESTION, lambda found: _query(found, depth + 1, looks))
    message = last_message(value, field_names.USER)
    if message is not None:
        get = getter(message)
        return _pair_text(message) if get is None else content_of(get, "\n")
    item = next(iter(items_of(value, 1) or ()), None)
    get = getter(item)
    if (get is not None and get("role") is not None) or _is_spoken_pair(item, field_names.ASSISTANT):
        return None  # a conversation without the user
    # A list of typed parts; a list of plain strings may be anything.
    return parts_text(value, "\n") if get is not None and get("type") is not None else None


def find_prompt(value: object) -> Prompt | None:
    """Return the messages of a conversation, or of a record with a field `messages`; else None. Never raises.

    Each item must have a role: a list of other records may be anything. Messages without a text (images, tool calls)
    are left out; of a long conversation, so are the earliest, which is logged once.
    """
    try:
        if type(value) is str:
            return None
        items = last_items(peel(value), _MAX_MESSAGES + 1)
        if items is None and (get := getter(peel(value))) is not None:
            items = last_items(get("messages"), _MAX_MESSAGES + 1)
        return _prompt(items) if items else None
    except Exception as error:  # the application must not see it
        faults.record("capture.messages", error)
        return None


def _prompt(items: list[object]) -> Prompt | None:
    """Return the prompt of *items*, which are its messages, last first; None if one of them is no message."""
    found: list[Message] = []
    for item in items:
        get = getter(item)
        if get is not None:
            role = _ROLES.get(role_of(get) or "")
            text = content_of(get, "\n")
            if text is None and role == "tool":  # of Haystack: the result of a call, as one part
                parts = map(getter, items_of(get("_content"), _MAX_PARTS) or ())
                text = next((said for part in parts if part and (said := text_of(part("result"))) is not None), None)
        elif _is_spoken_pair(item, _ROLE_NAMES):
            role, text = _ROLES[text_of((items_of(item, 1) or [""])[0]) or ""], _pair_text(item)
        else:
            return None
        if role is None:
            return None
        if text is not None:
            found.append(Message(role, text))
    is_cut = len(items) > _MAX_MESSAGES or sum(len(message.text) for message in found) > _MAX_CHARS
    if is_cut:
        faults.warn_once(
            "capture.messages.cut", "a prompt has more messages than ragtrace records; the last of them were kept"
        )
        del found[_MAX_MESSAGES:]
        while len(found) > 1 and sum(len(message.text) for message in found) > _MAX_CHARS:
            found.pop()
    return Prompt(tuple(reversed(found)), is_cut) if found else None


def parts_text(value: object, separator: str) -> str | None:
    """Return the texts of a list of content parts, joined; None for other values and for parts without a text."""
    texts: list[str] = []
    for part in items_of(value, _MAX_PARTS) or ():
        get = getter(part)
        if get is None:
            text = text_of(part)
        else:
            kind = get("type")
            if kind is not None and label_of(kind) not in field_names.TEXT_PARTS:
                continue  # reasoning, images, tool calls
            text = text_of(get("text"))
        if text is not None:
            texts.append(text)
    return separator.join(texts) if texts else None


def role_of(get: Get) -> str | None:
    """Return the role of one message: that of OpenAI, LlamaIndex and Haystack, the type of LangChain."""
    return first(get, ("role", "_role", "type"), label_of)


def content_of(get: Get, separator: str) -> str | None:
    """Return the text of one message, whole or in parts."""
    return first(get, ("content", "text", "parts"), lambda content: _text_or_parts(content, separator))


def last_message(value: object, roles: frozenset[str]) -> object | None:
    """Return the last message of a conversation with one of *roles*; None if there is none or it is no conversation."""
    for message in last_items(value, _MAX_MESSAGES) or ():
        get = getter(message)
        if _is_spoken_pair(message, roles) if get is None else role_of(get) in roles:
            return message
    return None


def _text_or_parts(value: object, separator: str) -> str | None:
    text = text_of(value)
    return parts_text(value, separator) if text is None else text


def _is_spoken_pair(message: object, roles: frozenset[str]) -> bool:
    """Return whether *message* is in LangChain's short form, ("human", "text")."""
    if shape_of(type(message)).kind != "tuple":
        return False
    items = items_of(message, 3) or []
    return len(items) == 2 and text_of(items[0]) in roles


def _pair_text(pair: object) -> str | None:
    return _text_or_parts((items_of(pair, 2) or ["", ""])[1], "\n")
