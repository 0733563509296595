"""Flat records, the form in which nearly all retrievers hand out passages, read with as few steps as possible.

Which keys matter is worked out once for each set of keys that occurs, and remembered.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

from ragtrace.capture import names
from ragtrace.capture.reading import label_of, number_of, plain_fields
from ragtrace.model import Document

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
    metadata: str | None


def _present(wanted: tuple[str, ...], keys: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(name for name in wanted if name in keys)


def _plan_record(keys: tuple[object, ...]) -> _Plan:
    text = None if "status_code" in keys else next(iter(_present(names.TEXT, keys)), None)
    metadata = next(iter(_present(names.METADATA, keys)), None)
    return _Plan(text, _present(names.ID, keys), _present(names.SCORE, keys), metadata)


def _plan_metadata(keys: tuple[object, ...]) -> _Plan:
    return _Plan(None, _present(names.METADATA_ID, keys), _present(names.METADATA_SCORE, keys), None)


_plan_of: Any = lru_cache(maxsize=512)(_plan_record)
_metadata_plan_of: Any = lru_cache(maxsize=512)(_plan_metadata)


def flat_passage(value: object) -> Document | None:
    """The passage in a dict or an object whose text is right there; None if it takes a closer look."""
    fields: Any = plain_fields(value)
    if fields is None or len(fields) > _MAX_KEYS:
        return None
    text_key, ids, scores, metadata_key = _plan_of(tuple(fields))
    text: object = None if text_key is None else fields[text_key]
    if type(text) is not str:
        return None
    id_ = _label(fields, ids)
    score = _number(fields, scores)
    if metadata_key is not None and (id_ is None or score is None):
        metadata: Any = plain_fields(fields[metadata_key])
        if metadata and len(metadata) <= _MAX_KEYS:
            _, ids, scores, _ = _metadata_plan_of(tuple(metadata))
            id_ = _label(metadata, ids) if id_ is None else id_
            score = _number(metadata, scores) if score is None else score
    return document(text, id_, score)


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
        if found is not None and (label := label_of(found)) is not None:
            return label
    return None


def _number(fields: Any, keys: tuple[str, ...]) -> float | None:
    for key in keys:
        found = fields[key]
        if found is not None and (number := number_of(found)) is not None:
            return number
    return None
