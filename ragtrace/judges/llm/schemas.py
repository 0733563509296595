"""JSON schemas of replies, as strict servers want them: every field required, no other allowed, labels as strings.

The schemas are static, because servers cache what they compile from a schema; ids are checked when a reply is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

Schema: TypeAlias = Mapping[str, object]
YES_NO: Final = ("yes", "no")


def text() -> Schema:
    """Return the schema of a string."""
    return {"type": "string"}


def texts() -> Schema:
    """Return the schema of a list of strings."""
    return {"type": "array", "items": text()}


def one_of(labels: Sequence[str]) -> Schema:
    """Return the schema of a string that is one of *labels*."""
    return {"type": "string", "enum": list(labels)}


def record(**fields: Schema) -> Schema:
    """Return the schema of an object with exactly these fields."""
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


def list_of(**fields: Schema) -> Schema:
    """Return the schema of a list of objects with exactly these fields."""
    return {"type": "array", "items": record(**fields)}
