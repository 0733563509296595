"""What a metric publishes beside its number, its counts above all, as attributes: plain values only, and bounded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias, cast

from ragtrace.core import semconv
from ragtrace.core.text import encodable

Detail: TypeAlias = "str | bool | int | float | tuple[str, ...] | tuple[float, ...]"

MOST_DETAILS: Final = 32
MOST_ITEMS: Final = 64
MOST_CHARS: Final = 200
"""Of a text: a name, a method, a label. Whatever is longer is no detail."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_INT64: Final = 2**63


def details(attributes: object) -> dict[str, Detail]:
    """*attributes* of a result under their names on the wire; what is no plain value, or one too many, is left out.

    So are counts of 0 and what is False or empty: they are most of them, and an absent one says as much.

    Args:
        attributes: a mapping; of a user's metric, anything.
    """
    found: dict[str, Detail] = {}
    if not isinstance(attributes, Mapping):
        return found
    for name, value in cast("Mapping[object, object]", attributes).items():
        plain = _plain(value)
        if (plain or isinstance(plain, float)) and (key := _key(name)):
            found[key] = plain
            if len(found) == MOST_DETAILS:
                break
    return found


@lru_cache(maxsize=1_024)
def _key(name: object) -> str:
    """The name on the wire; "" if *name* can be none."""
    return semconv.eval_detail(name) if isinstance(name, str) and _NAME.fullmatch(name) else ""


def _plain(value: object) -> Detail | None:
    if isinstance(value, (bool, int, float)):
        return value if isinstance(value, bool) else _number(value)
    if isinstance(value, str):
        return encodable(value[:MOST_CHARS])
    return _items(tuple(cast("tuple[object, ...]", value)[:MOST_ITEMS])) if isinstance(value, (tuple, list)) else None


def _number(value: object) -> int | float | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def _items(values: tuple[object, ...]) -> tuple[str, ...] | tuple[float, ...] | None:
    """A sequence of one kind, as the protocol wants it; None if it is none."""
    texts = tuple(encodable(value[:MOST_CHARS]) for value in values if isinstance(value, str))
    if len(texts) == len(values):
        return texts
    numbers = tuple(float(number) for value in values if (number := _number(value)) is not None)
    return numbers if len(numbers) == len(values) else None
