"""The length limit of span attributes, and JSON texts shortened to one so that they stay JSON.

The texts inside are cut, and last items left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from gc import get_referents
from types import MappingProxyType
from typing import Any, Final

_WHOLE: Final = frozenset({"role", "type", "id", "support"})
"""Fields whose values mean nothing in parts."""
_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def shorten_json(text: str, limit: int) -> tuple[str, int] | None:
    """Return the JSON array or object *text* with at most *limit* characters, and how many of its texts were left out.

    All texts in it are cut to one length, the largest that fits. If they do not fit without any text, the last items of
    the array are left out, too. None if *text* is neither, or *limit* leaves no room for one.
    """
    if text[:1] not in ("[", "{") or limit < 2:
        return None
    try:
        whole: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    value: Any = whole
    if text[0] == "[":
        room, value = limit - 1, []
        for item in whole:
            room -= len(_dump(_cut(item, 0))) + 1
            if room < 0:
                break
            value.append(item)
    elif len(_dump(_cut(whole, 0))) > limit:
        value = {}
    lengths = [len(each) for each in _texts(value)]
    least, most = 0, max(lengths, default=0)  # number of characters of each text that fits, and one that may not
    while least < most:
        middle = (least + most + 1) // 2
        # Texts that are too long for the limit as they are need not be written to know that.
        fits = sum(min(each, middle) for each in lengths) <= limit and len(_dump(_cut(value, middle))) <= limit
        least, most = (middle, most) if fits else (least, middle - 1)
    left_out = sum(len(each) for each in _texts(whole)) - sum(min(each, least) for each in lengths)
    return _dump(_cut(value, least)), left_out


def _texts(value: object, name: str = "") -> Iterator[str]:
    plain: Any = value
    kind = type(value)
    if kind is str and name not in _WHOLE:
        yield plain
    for key, inner in plain.items() if kind is dict else ():
        yield from _texts(inner, key)
    for inner in plain if kind is list else ():
        yield from _texts(inner)


def _cut(value: object, length: int, name: str = "") -> object:
    """Return a copy of *value* whose texts have at most *length* characters."""
    plain: Any = value
    kind = type(value)
    if kind is str:
        return value if name in _WHOLE else plain[:length]
    if kind is list:
        return [_cut(inner, length) for inner in plain]
    return {key: _cut(inner, length, key) for key, inner in plain.items()} if kind is dict else value


def length_limit(attributes: Mapping[str, Any]) -> int | None:
    """Return the length at which the SDK cut the values of *attributes*, or None if there is no limit.

    A span shows its attributes through a proxy, and only the mapping behind the proxy knows the limit.
    """
    inner: object = attributes
    for _ in range(3):
        if type(inner) is not MappingProxyType:
            break
        inner = next(iter(get_referents(inner)), None)
    limit: object = getattr(inner, "max_value_len", None)
    return limit if type(limit) is int else None
