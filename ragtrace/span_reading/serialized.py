"""Conversion of messages, documents and answers that frameworks serialise to JSON on spans into plain records.

LangChain writes a message as `{"lc": 1, "kwargs": {...}}` or `{"type": ..., "data": {...}}`. Haystack and LlamaIndex
have objects without a JSON form, of which `str()` or `repr()` stands in the JSON: those of chat messages and answers
hold their whole texts and are read, any other such string is no text of the application and is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from ragtrace.capture import field_names, find_documents, find_query
from ragtrace.core.types import Document
from ragtrace.span_reading.python_repr import parse_repr
from ragtrace.span_reading.values import parse_json, unmasked

_MAX_DEPTH: Final = 24
_STRING: Final = r"'[^'\\]*(?:\\.[^'\\]*)*(?:'|\Z)|\"[^\"\\]*(?:\\.[^\"\\]*)*(?:\"|\Z)"
"""Pattern of a Python string literal. An unterminated one takes the rest of the text, where no other is looked for."""
_OBJECT: Final = re.compile(r"[A-Z]\w*\(\w+[=:].*\)|<[\w.]+ object.*>|<\w+\(\w+=.*\)>", re.DOTALL)
"""Pattern of the string form of a Python object, such as `Document(id=...)` or `<generator object ...>`."""
_CHAT_ROLE: Final = re.compile(r"ChatMessage\(_role=<ChatRole\.(\w+):")
_CONTENT: Final = re.compile(
    rf"\b(TextContent\(text|ToolCallResult\(result|ToolCall\(tool_name)=({_STRING})|{_STRING}", re.DOTALL
)
"""Pattern of a content part of a Haystack message. Other strings match, too, so that nothing is found inside them."""
_ANSWER: Final = re.compile(rf"GeneratedAnswer\(data=({_STRING})", re.DOTALL)
_ROLES: Final = frozenset(("user", "human", "assistant", "ai", "system", "tool"))
_BUNDLES: Final = ("query_bundle", "str_or_query_bundle")
_INSIDE_QUERY: Final = (*_BUNDLES, "kwargs", "data", "inputs")
"""Names of arguments that contain the question: of LlamaIndex's retrievers and tools, and of a Haystack pipeline."""
_MESSAGE_TYPES: Final = {"Human": "human", "AI": "ai", "System": "system", "Tool": "tool", "Function": "function"}


def flatten(value: object) -> Any:
    """Convert the serialised messages, documents and answers in *value*, parsed JSON, to plain records.

    Strings that are only the string form of an object are replaced by None, and so is a list of nothing else.
    """
    return _flatten(value, 0)


def _flatten(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return _flatten_text(value)
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return _flatten_record(cast("dict[str, Any]", value), depth)
    if not isinstance(value, list):
        return value
    items = cast("list[object]", value)
    if items and all(isinstance(item, str) and item[:1] == "{" for item in items):
        items = list(map(parse_json, items))  # LlamaIndex's nodes under OpenLLMetry, each encoded by itself
    if depth and len(items) == 2 and isinstance(items[0], str) and items[0] in _ROLES and isinstance(items[1], str):
        return {"role": items[0], "content": items[1]}  # JSON has no tuples
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
    flat = {key: _flatten(each, depth + 1) for key, each in record.items()}
    blocks = flat.get("blocks")
    if "role" in flat and isinstance(blocks, list) and flat.get("content") is None:
        flat["content"] = list(map(_message_part, cast("list[object]", blocks)))
    return flat


def _message_part(block: object) -> object:
    """Convert a content block of LlamaIndex to a message part with a type."""
    if not isinstance(block, dict):
        return block
    part = cast("dict[str, Any]", block)
    return {"type": part["block_type"], **part} if "block_type" in part else part


def _flatten_text(text: str) -> Any:
    if text[:1] != "<" and not text[:1].isupper():
        return text
    if (role := _CHAT_ROLE.match(text)) is not None:
        return _chat_message(role[1].lower(), text)
    if (answer := _ANSWER.match(text)) is not None:
        return {"data": _string(answer[1])}
    return None if _OBJECT.fullmatch(text) else text


def _chat_message(role: str, text: str) -> dict[str, Any]:
    """Parse *text*, the string form of a Haystack chat message, into a message record."""
    parts = list(_parts(text))
    texts = [said for kind, said in parts if kind.startswith("Text" if role != "tool" else "ToolCallResult")]
    calls = [{"function": {"name": said}} for kind, said in parts if kind == "ToolCall(tool_name"]
    message: dict[str, Any] = {"role": role, "content": "\n".join(texts) if texts else None}
    return {**message, "tool_calls": calls} if calls and role == "assistant" else message


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for found in _CONTENT.finditer(text):
        if found[1] is not None and (said := _string(found[2])) is not None:
            yield found[1], said


def _string(literal: str) -> str | None:
    """Return the value of a Python string literal, or None if the text is no such literal."""
    value = parse_repr(literal)
    return value if isinstance(value, str) else None


# --- What the values of frameworks say ------------------------------------------------------------------------------


def query_in(given: Any) -> str | None:
    """Find the user's question in the arguments *given* to a workflow or a retriever."""
    if (query := find_query(given)) is not None or not isinstance(given, dict):
        return unmasked(query)
    arguments = cast("dict[str, Any]", given)
    for name in _INSIDE_QUERY:
        inner = arguments.get(name)
        if (isinstance(inner, dict) or name in _BUNDLES) and (query := query_in(inner)) is not None:
            return query
    if all(isinstance(each, dict) for each in arguments.values()):  # of a Haystack pipeline, by component
        for name in field_names.QUESTION:
            for component in arguments.values():
                if (query := find_query(component.get(name))) is not None:
                    return unmasked(query)
    return None


def argument_in(given: Any) -> str | None:
    """Find the search text in the arguments *given* to a tool: the query, else the only text."""
    if isinstance(given, str):
        arguments = parse_repr(given) if given[:1] == "{" else None  # the form in which LangChain shows arguments
        if not isinstance(arguments, dict):
            return given
        given = cast("dict[str, Any]", arguments)
    if (query := query_in(given)) is not None or not isinstance(given, dict):
        return query
    arguments = cast("dict[str, Any]", given)
    inner = arguments.get("kwargs")
    arguments = cast("dict[str, Any]", inner) if isinstance(inner, dict) else arguments
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
