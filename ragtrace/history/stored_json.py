"""JSON in the rows of a history, of which some may be damaged, by a failing disk or a repair of the file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, cast


def stored_object(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object of a stored row, or None if the row is damaged."""
    found = _parsed(text)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def needed_object(text: str | bytes, row: str) -> dict[str, Any]:
    """Return the JSON object of a stored row that cannot be left out, as more than one call depends on it.

    Args:
        text: JSON text of the row.
        row: name of the row's contents, for the message of the error.

    Raises:
        sqlite3.DatabaseError: the row is damaged.
    """
    found = stored_object(text)
    if found is None:
        raise sqlite3.DatabaseError(f"a stored {row} is damaged: {text[:40]!r}")
    return found


def needed_list(text: str | bytes, row: str) -> Sequence[Any]:
    """Return the JSON array of a stored row that cannot be left out, with arguments and errors as `needed_object`."""
    found = _parsed(text)
    if not isinstance(found, list):
        raise sqlite3.DatabaseError(f"a stored {row} is damaged: {text[:40]!r}")
    return cast("Sequence[Any]", found)


def _parsed(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
