"""Reads the result of a tool as evidence, for decorated functions, listeners and spans alike.

A result that is passages gives these; any other is kept whole, as text or JSON, since an answer is checked against its
numbers and further fields, too. The message of a failure is no evidence.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from ragtrace.capture import field_names
from ragtrace.capture.answers import find_answer, is_failure
from ragtrace.capture.documents import MAX_DOCUMENTS, cut_documents, find_documents, rows_of_frame
from ragtrace.capture.fields import (
    ABSENT,
    MAX_DEPTH,
    Get,
    SearchBudget,
    fields_of,
    getter,
    is_known,
    items_of,
    label_of,
    number_of,
    shape_of,
    static_attribute,
    text_of,
    text_or_parts,
    unwrap_proxies,
)
from ragtrace.capture.plain_json import MOST_VALUES, json_of, parse_json
from ragtrace.core.types import Document, documents_from
from ragtrace.system.faults import faults

_RESULT_TYPES: Final = frozenset({"tool", "tool_result", "function_call_output", "custom_tool_call_output"})
_RESULT_MARKS: Final = ("tool_call_id", "tool_use_id", "toolUseId", "isError", "is_error")
"""Fields that only a message about a tool's result has."""
_CONTENT: Final = ("content", "output", "result", "structuredContent", "structured_content")
_MOST_ROWS: Final = 200
"""Most items of a list that become a document each where they are data; further items are as the first ones."""
_PART_TYPES: Final = frozenset({*field_names.TEXT_PARTS, "image", "audio", "resource", "resource_link", "image_url"})
_PASSAGE_FIELDS: Final = frozenset((
    *field_names.TEXT, *field_names.INSIDE, *field_names.ID, *field_names.NAME, *field_names.SCORE, "type", "embedding",
    "vector", "values", "distance", "_index",
))  # fmt: skip
"""Fields of a record that is a passage. A record with other fields is data, which must be kept whole."""
_WRAPPER_FIELDS: Final = frozenset((
    *field_names.SEVERAL, *field_names.QUESTION, *field_names.ANSWER, *field_names.METADATA, *field_names.IDS,
    *field_names.SCORES, "type", "status", "object", "model", "usage", "distances", "embeddings", "metadatas", "uris",
    "included",
))  # fmt: skip
"""Fields beside a list of passages that say nothing more of what was found."""


def find_tool_result(value: object, shown: str | None = None) -> tuple[Document, ...] | None:
    """Return the result of a tool as documents. Never raises.

    Args:
        value: passages in any form that `find_documents` understands; a text, or the JSON text of any of these; a
            message or a result of MCP with parts; numbers, rows, and records of plain values.
        shown: text that stands for *value* if it is kept whole; None: its JSON.

    Returns:
        None if *value* is the message of a failure or cannot be read, () if it is empty. `DocumentsInPart` if *value*
        has a list of more than `MAX_DOCUMENTS` items, unless it is a text that is kept whole.
    """
    try:
        budget = SearchBudget()
        budget.left = MOST_VALUES
        return _read(unwrap_proxies(value), shown, budget, 0)
    except Exception as error:  # an error of the capture must not reach the application
        faults.record("capture.tool", error)
        return None


def is_tool_error(value: object) -> bool:
    """Return whether *value*, the result of a tool, is the message of a failure: no evidence for an answer.

    MCP and Anthropic mark it by `isError` and `is_error`, LangChain and Amazon Bedrock by the status "error", functions
    of applications by a field `error`. A number there may be one of measurement. Never raises.
    """
    try:
        value = unwrap_proxies(value)
        get = getter(value)
        if get is None or issubclass(type(value), BaseException):
            return issubclass(type(value), BaseException)
        is_marked = get("isError") is True or get("is_error") is True or label_of(get("status")) == "error"
        return is_marked or (number_of(get("error")) is None and is_failure(get))
    except Exception as error:  # an error of the capture must not reach the application
        faults.record("capture.tool", error)
        return False


def _read(value: object, shown: str | None, budget: SearchBudget, depth: int) -> tuple[Document, ...] | None:
    if (text := text_of(value)) is not None:
        value, shown = parse_json(text), text
        if (text := text_of(value)) is not None:
            return (Document(text),) if text.strip() else ()
    if value is None or depth > MAX_DEPTH or is_tool_error(value):
        return None
    value = _named(value)
    get = getter(value)
    if get is not None and (content := _content_of(get)) is not None:
        return _read(content, None, budget, depth + 1)
    items = items_of(value, MAX_DOCUMENTS + 1)
    items = rows_of_frame(value) if items is None else items
    if items is not None and len(items) > MAX_DOCUMENTS:
        first = _read(items[:MAX_DOCUMENTS], shown, budget, depth)
        is_whole = first is None or [document.text for document in first] == [shown]
        return first if is_whole or first is None else cut_documents(first)
    if items and all(map(_is_part, items)):
        # A server of MCP tools writes every passage of a list as a part of its own, often as JSON.
        read = [_read(_part_text(part), None, budget, depth + 1) for part in items]
        understood = [documents for documents in read if documents is not None]
        return documents_from(chain(*understood), *understood) if understood else None
    documents = _passages(value, get, items, budget)
    if documents is not None:
        return documents
    answer = find_answer(value)
    said = None if answer is None else answer.text
    is_message = get is not None and (is_known(type(value)) or len(fields_of(value) or ()) == 1)
    if said is None or not is_message:
        said = shown or json_of(value if items is None else items, budget) or said
    return None if said is None else (Document(said),)


# --- Messages with a result, and their parts --------------------------------------------------------------------------


def _content_of(get: Get) -> object:
    """Return what a message about a tool's result contains, or None if a record is no such message."""
    content = get("content")
    is_message = label_of(get("type")) in _RESULT_TYPES or label_of(get("role")) == "tool"
    if is_message or any(get(name) is not None for name in _RESULT_MARKS):
        return next(
            (found for name in _CONTENT if (found := get(name)) is not None and items_of(found, 1) != []), content
        )
    parts = items_of(content, MAX_DOCUMENTS)
    return content if parts and all(map(_is_part, parts)) else None


def _is_part(part: object) -> bool:
    get = getter(part)
    return get is not None and label_of(get("type")) in _PART_TYPES


def _part_text(part: object) -> object:
    get = getter(part)
    inner = None if get is None else getter(get("resource"))
    return None if get is None else get("text") if inner is None else inner("text")


# --- Passages and data ------------------------------------------------------------------------------------------------


def _passages(
    value: object, get: Get | None, items: list[object] | None, budget: SearchBudget
) -> tuple[Document, ...] | None:
    """Return the passages in *value*, or None if *value* is no passages, or none alone, and must be kept whole."""
    if items is not None:
        return _list_of_passages(items, budget)
    if get is None:
        return None
    if not _has_more(value, budget, 0):
        return find_documents(value)
    for name in field_names.SEVERAL:
        inside = items_of(get(name), MAX_DOCUMENTS + 1)
        found = _list_of_passages(inside, budget) if inside else None
        if found is not None:
            fields = (fields_of(value) or {}).items()
            rest = {key: each for key, each in fields if key not in _WRAPPER_FIELDS and _says_something(each)}
            more = json_of(rest, budget) if rest else None
            return found if more is None else documents_from((*found, Document(more)), found)
    return None


def _list_of_passages(items: list[object], budget: SearchBudget) -> tuple[Document, ...] | None:
    """Return the passages in *items*, or None if one of them has no text.

    A row or record with more than a passage is the JSON of all its values: its numbers are evidence, and no scores.
    """
    if len(items) > MAX_DOCUMENTS:
        first = _list_of_passages(items[:MAX_DOCUMENTS], budget)
        return None if first is None else cut_documents(first)
    items = list(map(_named, items))
    are_data = [_has_more(item, budget, 0) for item in items[:_MOST_ROWS]]
    if not any(are_data):
        return find_documents(items)
    if len(items) > _MOST_ROWS:
        return None
    found: list[tuple[Document, ...]] = []
    searched = SearchBudget()
    for item, is_data in zip(items, are_data, strict=True):
        is_record = getter(item) is not None
        documents = find_documents([item], searched) if is_record or not is_data else None
        if is_data:
            has_text = documents or any(text_of(cell) for cell in (not is_record and items_of(item, _MOST_ROWS)) or ())
            whole = json_of(item, budget) if has_text else None
            documents = None if whole is None else (Document(whole, documents[0].id if documents else None),)
        if documents is None:
            return None
        found.append(documents)
    return documents_from(chain(*found), *found)


def _named(value: object) -> object:
    """Return a named tuple, or a row of SQLAlchemy, as a dict by the names of its columns, and others as they are."""
    row: Any = value
    cls = type(value)
    if is_known(cls) and static_attribute(cls, "_asdict") is not ABSENT:
        return row._asdict()
    is_named = static_attribute(cls, "_fields") is not ABSENT and shape_of(cls).kind == "object"
    return (fields_of(value) if is_named and issubclass(cls, tuple) else None) or row


def _has_more(value: object, budget: SearchBudget, depth: int) -> bool:
    """Return whether *value*, an item of a list, has no text, or numbers or fields that are no part of a passage."""
    if text_of(value) is not None:
        return False
    budget.left -= 1
    if budget.left < 0 or depth > MAX_DEPTH:
        return False
    get = getter(value)
    if get is None:
        items = items_of(value, MAX_DOCUMENTS)
        if not items:
            return True
        if len(items) == 2 and shape_of(type(value)).kind == "tuple":  # a document beside its score
            scored = [item for item in items if number_of(item) is None]
            return len(scored) != 1 or getter(scored[0]) is None or _has_more(scored[0], budget, depth + 1)
        return any(_has_more(item, budget, depth + 1) for item in items)
    is_own = not is_known(type(value)) and not shape_of(type(value)).is_passage
    fields = (fields_of(value) if is_own else None) or {}
    budget.left -= len(fields)
    said = {name for name, each in fields.items() if _says_something(each)}
    written = [name for name in field_names.TEXT if text_or_parts(get(name), "") is not None]
    inner = [get(name) for name in field_names.INSIDE if name not in field_names.METADATA]
    records = [each for each in inner if getter(each) is not None]
    if not _PASSAGE_FIELDS.issuperset(said) or (is_own and len(written) > 1) or not (written or records):
        return True
    return any(_has_more(each, budget, depth + 1) for each in records)


def _says_something(value: object) -> bool:
    text = text_of(value)
    if text is not None:
        return bool(text.strip())
    return value is not None and type(value) is not bool and items_of(value, 1) != []
