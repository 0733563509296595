"""Flat records, the form in which nearly all retrievers hand out passages, read with as few steps as possible.

Which keys matter is worked out once for each set of keys that occurs, and remembered.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, cast

from ragtrace.capture import names
from ragtrace.capture.reading import MAX_LABEL_CHARS, label_of, number_of, plain_fields
from ragtrace.core.types import Document

_MAX_KEYS = 32

_new: Any = object.__new__
_set_text, _set_id, _set_score, _set_duplicate, _set_cut = (
    vars(Document)[name].__set__ for name in ("text", "id", "score", "duplicate", "cut_chars")
)


def document(text: str, id_: str | None = None, score: float | None = None) -> Document:
    """A `Document` with these fields."""
    # The __init__ of a frozen dataclass takes twice as long, and this runs for every passage on the request path.
    made: Document = _new(Document)
    _set_text(made, text)
    _set_id(made, id_)
    _set_score(made, score)
    _set_duplicate(made, False)
    _set_cut(made, 0)
    return made


class _Plan(NamedTuple):
    """The keys of one kind of record that matter."""

    text: str | None
    ids: tuple[str, ...]
    scores: tuple[str, ...]
    names: tuple[str, ...]
    metadata: str | None


def _present(wanted: tuple[str, ...], keys: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(name for name in wanted if name in keys)


def _plan_record(keys: tuple[object, ...]) -> _Plan:
    text = None if "status_code" in keys else next(iter(_present(names.TEXT, keys)), None)
    metadata = next(iter(_present(names.METADATA, keys)), None)
    return _Plan(text, _present(names.ID, keys), _present(names.SCORE, keys), _present(names.NAME, keys), metadata)


def _plan_metadata(keys: tuple[object, ...]) -> _Plan:
    ids, scores = (_present(wanted, keys) for wanted in (names.METADATA_ID, names.METADATA_SCORE))
    return _Plan(None, ids, scores, _present(names.NAME, keys), None)


_plan_of: Any = lru_cache(maxsize=512)(_plan_record)
_metadata_plan_of: Any = lru_cache(maxsize=512)(_plan_metadata)


def flat_passage(value: object) -> Document | None:
    """The passage in a dict or an object whose text is right there; None if it takes a closer look."""
    kind = type(value)
    fields: Any = value if kind is dict else plain_fields(value)
    if fields is None or len(fields) > _MAX_KEYS:
        return None
    for key in fields:
        if type(key) is not str:  # hashing and comparing it would run code of its class
            return None
    text_key, ids, scores, named, metadata_key = _plan_of(tuple(fields))
    text: object = None if text_key is None else fields[text_key]
    if type(text) is not str:
        return None
    # This runs for every passage on the request path: calls that would find nothing are saved.
    id_ = _label(fields, ids) if ids else None
    score = _number(fields, scores) if scores else None
    if metadata_key is not None and (id_ is None or score is None):
        metadata: Any = plain_fields(fields[metadata_key])
        if metadata and len(metadata) <= _MAX_KEYS:
            for key in metadata:
                if type(key) is not str:
                    return None
            _, ids, scores, sources, _ = _metadata_plan_of(tuple(metadata))
            if id_ is None:
                id_ = _label(metadata, ids) if ids else None
                id_ = _label(metadata, sources) if id_ is None and sources else id_
            if score is None and scores:
                score = _number(metadata, scores)
    if id_ is None and named:
        id_ = _label(fields, named)
    return document(text, id_, score)


def flat_passages(items: list[object]) -> list[Document] | None:
    """The passages in *items* if each of them is a text, a flat record or a simple pair; else None."""
    found: list[Document] = []
    for item in items:
        kind = type(item)
        if kind is str:
            made: Document | None = document(cast(str, item))
        else:
            made = scored_passage(item) if kind is tuple else flat_passage(item)
        if made is None:
            return None
        found.append(made)
    return found


def scored_passage(value: object) -> Document | None:
    """The passage in a tuple (passage, score) or (score, passage) of simple make; None if it takes a closer look."""
    pair: Any = value
    if len(pair) != 2:
        return None
    record, score = pair
    if type(score) is not float:
        score, record = pair
    if type(score) is not float or not isfinite(score):
        return None
    made = document(record) if type(record) is str else flat_passage(record)
    if made is not None:
        _set_score(made, score)
    return made


def _label(fields: Any, keys: tuple[str, ...]) -> str | None:
    for key in keys:
        found = fields[key]
        if type(found) is str and 0 < len(found) <= MAX_LABEL_CHARS:
            return found
        if found is not None and (label := label_of(found)) is not None:
            return label
    return None


def _number(fields: Any, keys: tuple[str, ...]) -> float | None:
    for key in keys:
        found = fields[key]
        if found is not None and (number := number_of(found)) is not None:
            return number
    return None
