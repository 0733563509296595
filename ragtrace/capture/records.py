"""Flat records, the form in which nearly all retrievers hand out passages, read with as few steps as possible.

Which keys matter is worked out once for each set of keys that occurs, and remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ragtrace.capture import names
from ragtrace.capture.reading import first_label, first_number, plain_fields
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
    plan: _Plan = _plan_of(tuple(fields))
    text: object = None if plan.text is None else fields[plan.text]
    if type(text) is not str:
        return None
    id_ = first_label(fields.get, plan.ids) if plan.ids else None
    score = first_number(fields.get, plan.scores) if plan.scores else None
    if plan.metadata is not None and (id_ is None or score is None):
        metadata: Any = plain_fields(fields[plan.metadata])
        if metadata and len(metadata) <= _MAX_KEYS:
            inner: _Plan = _metadata_plan_of(tuple(metadata))
            if inner.ids and id_ is None:
                id_ = first_label(metadata.get, inner.ids)
            if inner.scores and score is None:
                score = first_number(metadata.get, inner.scores)
    return document(text, id_, score)
