"""Telling values that cannot change under us from those that must be read now, while the application waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

UNFROZEN: Final = object()
"""Stands for a value that may change: it has to be read at once."""
_IMMUTABLE: Final = frozenset(map(id, (str, bytes, int, float, bool, type(None))))
"""By identity: a metaclass may make its classes unhashable."""
_class_of: Callable[[object], type[object]] = type
"""`type`, of which the type checker knows what it returns: `typing.cast` would be another call."""


def frozen(value: Any) -> Any:
    """*value* if it cannot change, a copy if it is a list or tuple of texts, else `UNFROZEN`.

    Only exact types count: a subclass may do anything.
    """
    kind = _class_of(value)
    if kind is str or id(kind) in _IMMUTABLE:
        return value
    if kind is list or kind is tuple:
        for item in value:
            if type(item) is not str:
                return UNFROZEN
        return tuple(value)
    return UNFROZEN


def frozen_arguments(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
    """The arguments of a call if none of them can change, else None."""
    kept: list[Any] = []
    for value in args:
        if type(value) is str:
            kept.append(value)
            continue
        value = frozen(value)
        if value is UNFROZEN:
            return None
        kept.append(value)
    if not kwargs:
        return tuple(kept), kwargs
    named = {name: frozen(value) for name, value in kwargs.items()}
    return None if UNFROZEN in named.values() else (tuple(kept), named)
