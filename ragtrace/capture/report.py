"""Saying once, and counting always, that capture had to leave something out. Names types, never content."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias, cast

from ragtrace.capture.reading import shape_of, type_name_of
from ragtrace.system.faults import faults

What: TypeAlias = Literal["query", "documents", "contexts", "answer"]

_ARGUMENTS: Mapping[What, str] = {
    "query": "query=",
    "documents": "documents=",
    "contexts": "contexts=",
    "answer": "answer=",
}


def describe(value: object) -> str:
    """The type of *value*, and of its first item if it is a list or a tuple."""
    kind = type(value)
    items: Any = value if kind is list or kind is tuple else ()
    first: object = items[0] if items else None
    return f"{type_name_of(kind)} of {type_name_of(type(first))}" if items else type_name_of(kind)


def warn(place: str, message: str, *args: object) -> None:
    """`faults.warn_once`, also with a user's log filter that raises."""
    with suppress(Exception):
        faults.warn_once(place, message, *args)


def failed(place: str, error: Exception) -> None:
    """`faults.record`, also with a user's log filter that raises."""
    with suppress(Exception):
        faults.record(place, error)


def foreign(value: object) -> str | None:
    """Name of the class whose code would have to be run to read *value*, or the first item of it; else None."""
    kind = type(value)
    items: Any = value if kind is list or kind is tuple else ()
    for each in (value, *items[:1]):
        kind_of_each = cast("type[object]", type(each))
        if shape_of(kind_of_each).is_foreign:
            return type_name_of(kind_of_each)
    return None


def warn_unread(name: str) -> None:
    """Count a value that was not read because that would run code of a class we do not know; say so once."""
    warn(
        "capture.unread",
        "ragtrace did not read an object of class %s: its text comes from a property or an index that would run code of"
        " the application, which takes time and may change something. Say where the text is with a function, such as"
        " documents=lambda hits: [hit.text for hit in hits], or give the class a plain field `text`",
        name,
    )


def not_understood(what: What, function_name: str, value: object) -> None:
    """Say once for this function that *what* was not found in *value*, and which argument would tell. Never raises."""
    if (name := foreign(value)) is not None:
        warn_unread(name)
    warn(
        f"capture.{what}:{function_name}",
        "ragtrace found no %s in the %s of %s; say where it is with %s (a name, a path or a function)",
        what,
        describe(value),
        function_name,
        _ARGUMENTS[what],
    )
