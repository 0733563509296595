"""JSON of the plain values in objects, written without running code of their classes, and JSON parsed within limits."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Final
from uuid import UUID

from ragtrace.capture.fields import (
    SearchBudget,
    fields_of,
    is_mock,
    items_of,
    module_of,
    number_of,
    own_fields,
    text_of,
    unwrap_proxies,
)

MOST_VALUES: Final = 5_000
"""Most values that are read of the result of one function: it is read while the application waits."""
_MOST_DEPTH: Final = 12
_MOST_CHARS: Final = 4_000_000


class _UnreadableError(ValueError):
    """A value can be read only by running code of its class, or there are too many values."""


def parse_json(value: object) -> Any:
    """Parse *value* if it is JSON text, and return any other value unchanged.

    A JSON text that is too large is returned unchanged, too.
    """
    if not isinstance(value, str) or value[:1_000].lstrip()[:1] not in ("{", "[", '"') or is_too_large(value):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def is_too_large(text: str) -> bool:
    """Return whether the JSON *text* has too many characters or values to be parsed."""
    # Most commas of a JSON text that is parsed: searching more values would take seconds.
    return len(text) > _MOST_CHARS or text.count(",") > 100_000


def json_of(value: object, budget: SearchBudget) -> str | None:
    """Return the plain values in *value* as JSON text; of a single text, date or decimal number, the text alone.

    None if any can be read only by running code of its class, or if there are more than *budget* allows.
    """
    try:
        plain = _plain(value, budget, 0)
        return plain if type(plain) is str else json.dumps(plain, ensure_ascii=False)
    except ValueError:  # an integer may also have too many digits
        return None


def _plain(value: object, budget: SearchBudget, depth: int) -> Any:
    """Return *value* in the types that JSON knows."""
    budget.left -= 1
    if budget.left < 0 or depth > _MOST_DEPTH or is_mock(type(value)):
        raise _UnreadableError
    value = unwrap_proxies(value)
    plain: Any = value
    cls = type(value)
    if value is None or cls is bool or cls is int:
        return value
    if (text := text_of(value)) is not None:
        return text
    if issubclass(cls, Enum):
        return _plain((own_fields(value) or {}).get("_value_"), budget, depth + 1)
    if cls is Decimal or cls is UUID or cls is timedelta or (cls is float and not isfinite(plain)):
        return str(value)
    if issubclass(cls, (date, time)):
        return _moment(value, cls)
    if (number := number_of(value)) is not None:
        return int(number) if number.is_integer() and not issubclass(cls, float) else number
    if (items := items_of(value, budget.left + 1)) is not None and fields_of(value) is None:
        return [_plain(item, budget, depth + 1) for item in items]
    fields = fields_of(value)
    if fields is None:
        raise _UnreadableError
    return {name: _plain(each, budget, depth + 1) for name, each in fields.items()}


def _moment(value: Any, cls: type[Any]) -> str:
    """Return a date or a time as text, by the methods of the built-in classes."""
    if not issubclass(cls, (datetime, time)):
        return date.isoformat(value)
    base: Any = datetime if issubclass(cls, datetime) else time
    zone: object = base.tzinfo.__get__(value)
    if zone is not None and module_of(type(zone)) not in ("datetime", "zoneinfo"):
        raise _UnreadableError  # the zone would compute the offset
    written: str = base.isoformat(value)
    return written
