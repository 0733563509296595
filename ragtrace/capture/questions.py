"""The user's question out of what a function was given."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from ragtrace.capture import names
from ragtrace.capture.messages import content_of, is_spoken_pair, last_message, parts_text, role_of
from ragtrace.capture.reading import MAX_DEPTH, MAX_LOOKS, Get, getter, items_of, peel, text_of
from ragtrace.capture.report import failed


def query(value: object) -> str | None:
    """The question in *value*: a string, a conversation (its last user message), or a record with a field for it.

    Returns:
        None if there is none. Never raises; a blank question is returned as it is.
    """
    try:
        return value if type(value) is str else _query(peel(value), 0, count())
    except Exception as error:  # the application must not see it
        failed("capture.query", error)
        return None


def _query(value: object, depth: int, looks: Iterator[int]) -> str | None:
    if (text := text_of(value)) is not None or depth > MAX_DEPTH or next(looks) >= MAX_LOOKS:
        return text
    get = getter(value)
    if get is not None:
        return _from_record(get, depth, looks)
    message = last_message(value, names.USER)
    if message is not None:
        return _from_message(message)
    return None if _is_conversation(value) else parts_text(value, "\n") if _is_parts(value) else None


def _from_record(get: Get, depth: int, looks: Iterator[int]) -> str | None:
    if role_of(get) in names.USER:
        return content_of(get, "\n")
    for name in names.QUESTION:
        found = get(name)
        if found is not None and (text := _query(found, depth + 1, looks)) is not None:
            return text
    return None


def _from_message(message: object) -> str | None:
    get = getter(message)
    if get is not None:
        return content_of(get, "\n")
    items = items_of(message, 2) or []
    text = text_of(items[1])
    return parts_text(items[1], "\n") if text is None else text


def _is_conversation(value: object) -> bool:
    first = next(iter(items_of(value, 1) or ()), None)
    get = getter(first)
    return (get is not None and get("role") is not None) or is_spoken_pair(first, names.ASSISTANT)


def _is_parts(value: object) -> bool:
    """Whether it is a list of typed parts; a list of plain strings may be anything."""
    first = next(iter(items_of(value, 1) or ()), None)
    get = getter(first)
    return get is not None and get("type") is not None
