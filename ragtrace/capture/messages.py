"""Chat messages: who speaks, and what is said in parts."""

from __future__ import annotations

from typing import Final

from ragtrace.capture import names
from ragtrace.capture.reading import Get, getter, items_of, label_of, last_items, shape_of, text_of

_MAX_PARTS: Final = 1_000
_MAX_MESSAGES: Final = 100
"""How far back a conversation is searched; the last turn is what a call is about."""


def parts_text(value: object, separator: str) -> str | None:
    """The texts of a list of content parts, joined; None if it is no such list or has no text (images, calls)."""
    texts: list[str] = []
    for part in items_of(value, _MAX_PARTS) or ():
        get = getter(part)
        text = text_of(part) if get is None else _part_text(get)
        if text is not None:
            texts.append(text)
    return separator.join(texts) if texts else None


def _part_text(get: Get) -> str | None:
    kind = get("type")
    if kind is not None and label_of(kind) not in names.TEXT_PARTS:
        return None  # reasoning, images, tool calls
    return text_of(get("text"))


def role_of(get: Get) -> str | None:
    """Who speaks: the role of OpenAI, LlamaIndex and Haystack, the type of LangChain."""
    for name in ("role", "_role", "type"):
        found = get(name)
        if found is not None and (role := label_of(found)) is not None:
            return role
    return None


def content_of(get: Get, separator: str) -> str | None:
    """The text of one message, whole or in parts."""
    for name in ("content", "text", "parts"):
        content = get(name)
        if content is None:
            continue
        text = text_of(content)
        if text is None:
            text = parts_text(content, separator)
        if text is not None:
            return text
    return None


def last_message(value: object, roles: frozenset[str]) -> object | None:
    """The last message of a conversation that one of *roles* spoke; None if there is none or it is no conversation."""
    for message in last_items(value, _MAX_MESSAGES) or ():
        get = getter(message)
        if get is None:
            if is_spoken_pair(message, roles):
                return message
        elif role_of(get) in roles:
            return message
    return None


def is_spoken_pair(message: object, roles: frozenset[str]) -> bool:
    """Whether it is a message in LangChain's short form, ("human", "text")."""
    if shape_of(type(message)).kind != "tuple":
        return False
    items = items_of(message, 3) or []
    return len(items) == 2 and text_of(items[0]) in roles
