"""JSON schemas of replies, as strict servers want them: every field required, no other allowed, labels as strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Schema: TypeAlias = Mapping[str, object]


def text() -> Schema:
    """A string."""
    return {"type": "string"}


def texts() -> Schema:
    """A list of strings."""
    return {"type": "array", "items": text()}


def one_of(labels: Sequence[str]) -> Schema:
    """One of *labels*."""
    return {"type": "string", "enum": list(labels)}


def record(**fields: Schema) -> Schema:
    """An object with exactly these fields."""
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


def list_of(**fields: Schema) -> Schema:
    """A list of such objects."""
    return {"type": "array", "items": record(**fields)}
