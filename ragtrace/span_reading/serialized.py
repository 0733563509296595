"""Conversion of messages, documents and answers that frameworks serialise to JSON on spans into plain records.

LangChain writes a message as `{"lc": 1, "kwargs": {...}}` or `{"type": ..., "data": {...}}`. Haystack and LlamaIndex
have objects without a JSON form, of which `str()` or `repr()` stands in the JSON: such a string is no text of the
application, and is removed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from ragtrace.capture import field_names, find_documents, find_query
from ragtrace.capture.plain_json import parse_json
from ragtrace.core.types import Document
from ragtrace.span_reading.values import parse_literal, unmasked

_MAX_DEPTH: Final = 24
_OBJECT: Final = re.compile(r"[A-Z]\w*\(\w+[=:].*(?:\)|\.\.\.)|<[\w.]+ object.*>|<\w+\(\w+=.*\)>", re.DOTALL)
"""Pattern of the string form of a Python object, such as `Document(id=...)`; it may be cut."""
_INSIDE_QUERY: Final = ("query_bundle", "str_or_query_bundle", "kwargs", "data")
"""Names of arguments that contain the question: of LlamaIndex's query engines, and of a Haystack pipeline."""
_MESSAGE_TYPES: Final = {"Human": "human", "AI": "ai", "System": "system", "Tool": "tool", "Function": "function"}


def flatten(value: object) -> Any:
    """Convert the serialised messages, documents and answers in *value*, parsed JSON, to plain records.

    Strings that are only the string form of an object are replaced by None, and so is a list of nothing else.
    """
    return _flatten(value, 0)


def _flatten(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return None if _OBJECT.fullmatch(value) else value
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return _flatten_record(cast("dict[str, Any]", value), depth)
    if not isinstance(value, list):
        return value
    items = cast("list[object]", value)
    if items and all(isinstance(item, str) and item[:1] == "{" for item in items):
        items = list(map(parse_json, items))  # LlamaIndex's nodes under OpenLLMetry, each encoded by itself
    found: list[object] = [_flatten(item, depth + 1) for item in items]
    return None if found and all(item is None for item in found) else found


def _flatten_record(record: dict[str, Any], depth: int) -> Any:
    inner = record.get("kwargs")
    if "lc" in record:
        if not isinstance(inner, dict):
            return None
        path = record.get("id")
        name = str(cast("list[object]", path)[-1]) if isinstance(path, list) and path else ""
        kind = next((kind for start, kind in _MESSAGE_TYPES.items() if name.startswith(f"{start}Message")), None)
        record = {**({} if kind is None else {"type": kind}), **cast("dict[str, Any]", inner)}
    inner = record.get("data")
    if len(record) == 2 and "type" in record and isinstance(inner, dict) and "content" in inner:
        record = {**cast("dict[str, Any]", inner), "type": record["type"]}
    return {key: _flatten(each, depth + 1) for key, each in record.items()}


# --- What the values of frameworks say ------------------------------------------------------------------------------


def query_in(given: Any) -> str | None:
    """Find the user's question in the arguments *given* to a workflow or a retriever, unless it is masked."""
    if (query := find_query(given)) is not None or not isinstance(given, dict):
        return unmasked(query)
    arguments = cast("dict[str, Any]", given)
    for name in _INSIDE_QUERY:
        if (query := query_in(arguments.get(name))) is not None:
            return query
    return None


def argument_in(given: Any) -> str | None:
    """Find the search text in the arguments *given* to a tool: the query, else the only text."""
    if isinstance(given, str):
        arguments = parse_literal(given) if given[:1] == "{" else None  # the form in which LangChain shows arguments
        if not isinstance(arguments, dict):
            return given
        given = cast("dict[str, Any]", arguments)
    if (query := query_in(given)) is not None or not isinstance(given, dict):
        return query
    arguments = cast("dict[str, Any]", given)
    texts = [each for each in arguments.values() if isinstance(each, str)]
    return texts[0] if len(texts) == 1 else None


def given_documents(given: Any) -> tuple[Document, ...] | None:
    """Find the documents in the arguments *given* to a LlamaIndex response synthesizer, or return None."""
    arguments = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    lists = (arguments.get(name) for name in ("nodes", "text_chunks"))
    return next(filter(None, (find_documents(cast("object", each)) for each in lists if isinstance(each, list))), None)


def without_echo(returned: Any, given: Any, query: str | None) -> Any:
    """Return the result of a workflow without the fields that only repeat its arguments."""
    record = cast("dict[str, Any]", returned)
    if not isinstance(returned, dict) or "role" in returned or "type" in returned:
        return record
    before: Mapping[str, Any] = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return {
        key: value
        for key, value in record.items()
        if (key not in before or before[key] != value)
        and not (key in field_names.QUESTION and isinstance(value, str) and value == query)
    }
