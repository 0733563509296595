"""Says once what capture had to leave out, and counts it always. Names types, never content."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

from ragtrace.capture.fields import shape_of, type_name_of
from ragtrace.system.faults import faults

What: TypeAlias = Literal["query", "documents", "contexts", "answer"]


def describe(value: object) -> str:
    """Return the type of *value*, and of its first item if it is a list or a tuple."""
    kind = type(value)
    items: Any = value if kind is list or kind is tuple else ()
    first: object = items[0] if items else None
    return f"{type_name_of(kind)} of {type_name_of(type(first))}" if items else type_name_of(kind)


def unreadable_class(value: object) -> str | None:
    """Return the name of the class whose code would have to run to read *value* or its first item; else None."""
    kind = type(value)
    items: Any = value if kind is list or kind is tuple else ()
    for each in (value, *items[:1]):
        kind_of_each = cast("type[object]", type(each))
        if shape_of(kind_of_each).is_foreign:
            return type_name_of(kind_of_each)
    return None


def warn_unread(name: str) -> None:
    """Count a value that was not read because that would run code of the unknown class *name*; log it once."""
    faults.warn_once(
        "capture.unread",
        "ragtrace did not read an object of class %s: its text comes from a property or an index that would run code of"
        " the application, which takes time and may change something. Say where the text is with a function, such as"
        " documents=lambda hits: [hit.text for hit in hits], or give the class a plain field `text`",
        name,
    )


def warn_not_found(what: What, function_name: str, value: object) -> None:
    """Log once for this function that *what* is not in *value*, and which argument would locate it. Never raises."""
    if (name := unreadable_class(value)) is not None:
        warn_unread(name)
    faults.warn_once(
        f"capture.{what}:{function_name}",
        "ragtrace found no %s in the %s of %s; say where it is with %s= (a name, a path or a function)",
        what,
        describe(value),
        function_name,
        what,
    )
