"""Chat messages: who speaks, and what is said in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.capture import names
from ragtrace.capture.reading import Get, getter, items_of, label_of, last_items, peel, shape_of, text_of
from ragtrace.capture.report import failed, warn
from ragtrace.core.step import Message, Prompt, Role

_MAX_PARTS: Final = 1_000
_MAX_MESSAGES: Final = 100
"""How far back a conversation is searched; the last turn is what a call is about."""
_MAX_CHARS: Final = 200_000
"""Of the messages of one prompt."""
_ROLES: Final[Mapping[str, Role]] = {
    **dict.fromkeys(names.USER, "user"),
    **dict.fromkeys((*names.ASSISTANT, "chatbot"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function"), "tool"),
}


def prompt(value: object) -> Prompt | None:
    """Return the messages of a conversation, or of a record with a field `messages`; else None. Never raises.

    Each item must say who speaks: a list of other records may be anything. Messages without a text (images, tool calls)
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
        failed("capture.messages", error)
        return None


def _prompt(items: list[object]) -> Prompt | None:
    """The prompt of *items*, which are its messages, last first; None if one of them is no message."""
    found: list[Message] = []
    chars = 0
    for item in items:
        get = getter(item)
        spoken = _pair(item) if get is None else _ROLES.get(role_of(get) or "")
        if spoken is None:
            return None
        message = spoken if isinstance(spoken, Message) else _message(spoken, get)
        if message is not None:
            found.append(message)
            chars += len(message.text)
    is_cut = len(items) > _MAX_MESSAGES or chars > _MAX_CHARS
    if is_cut:
        warn("capture.messages.cut", "a prompt has more messages than ragtrace records; the last of them were kept")
        del found[_MAX_MESSAGES:]
        while len(found) > 1 and sum(len(message.text) for message in found) > _MAX_CHARS:
            found.pop()
    return Prompt(tuple(reversed(found)), is_cut) if found else None


def _pair(item: object) -> Message | None:
    if not is_spoken_pair(item, frozenset(_ROLES)):
        return None
    role, said = items_of(item, 2) or ("", "")
    text = text_of(said)
    text = parts_text(said, "\n") if text is None else text
    return None if text is None else Message(_ROLES[text_of(role) or ""], text)


def _message(role: Role, get: Get | None) -> Message | None:
    text = None if get is None else content_of(get, "\n")
    if text is None and get is not None and role == "tool":  # of Haystack: the result of a call, as one part
        for part in items_of(get("_content"), _MAX_PARTS) or ():
            look = getter(part)
            text = text_of(look("result")) if look is not None and text is None else text
    return None if text is None else Message(role, text)


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
