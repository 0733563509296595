"""Cache of judgements by what was judged, so that identical calls are judged once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final, cast

from ragtrace.core.cost import Cost
from ragtrace.core.types import Document, Judgement, Plain, RagCall

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CACHED: Final = "cached"
"""Attribute of a judgement that came from an identical call."""
_CACHE_CHARS: Final = 4_000_000
_MOST_CHARS_EACH: Final = 100_000
_NOTES: Final = ("reasons", "attributes")
"""Fields of a judgement that hold no labels."""


def fingerprint(call: RagCall, evaluator: str) -> bytes:
    """Return a hash of everything that a judge may judge *call* by, and of the judge.

    That is query, contexts (texts and ids, in order), answer and reference, and what else the application gave:
    reference contexts, the conversation, repeated runs, the answer's parts.

    Args:
        evaluator: id and version of the judge.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(call, evaluator):
        data = b"" if part is None else part.encode("utf-8", "surrogatepass")
        # The length first, so that no two sequences of parts run together; None is no empty string.
        digest.update(b"-" if part is None else b"%d:" % len(data))
        digest.update(data)
    return digest.digest()


def _parts(call: RagCall, evaluator: str) -> Iterator[str | None]:
    yield from (evaluator, call.query, call.answer, call.reference)
    yield from _documents(call.contexts)
    yield from _documents(call.reference_contexts)
    if call.turns is None and call.runs is None and call.parts is None:
        return  # so it is for nearly every call
    for group in (call.turns, call.runs, call.parts):
        yield None if group is None else str(len(group))
    for turn in call.turns or ():
        yield from (turn.role, turn.text)
    yield from call.runs or ()
    for part in call.parts or ():
        yield from (part.text, str(len(part.cited)), *part.cited)


def _documents(documents: tuple[Document, ...] | None) -> Iterator[str | None]:
    yield None if documents is None else str(len(documents))
    for document in documents or ():
        yield document.text
        yield document.id


def as_cached(judgement: Judgement) -> Judgement:
    """Return *judgement* for an identical call: without a cost, and marked as cached."""
    attributes: object = judgement.attributes  # a user's judge may have put anything there
    kept = cast("Mapping[str, Plain]", attributes if isinstance(attributes, Mapping) else {})
    return replace(Cost(cost_usd=0.0).on_judgement(judgement), attributes={**kept, CACHED: True})


def was_cached(judgement: Judgement) -> bool:
    """Return whether *judgement* came from an identical call."""
    attributes: object = judgement.attributes
    return isinstance(attributes, Mapping) and cast("Mapping[object, object]", attributes).get(CACHED) is True


class JudgementCache:
    """Least recently used cache of judgements, bounded by their number and by about four million characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[bytes, tuple[Judgement, int]] = OrderedDict()
        self._chars = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> Judgement | None:
        """Return the judgement stored under *key*, which becomes the one used last; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: bytes, judgement: Judgement) -> None:
        """Store *judgement* unless it is malformed or huge, and evict the ones used longest ago."""
        chars = _chars_of(judgement)
        if chars is None or chars > _MOST_CHARS_EACH:
            return
        self._remove(key)
        self._entries[key] = judgement, chars
        self._chars += chars
        while len(self._entries) > self._limit or self._chars > _CACHE_CHARS:
            self._remove(next(iter(self._entries)))

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._chars -= entry[1]


def _chars_of(judgement: Judgement) -> int | None:
    """Return the characters of all texts in the labels of *judgement*; None if a label is of a type that no label has.

    A judge of the user's may put anything there: a list that grows, or an iterator that ends.
    """
    try:
        return sum(_chars_in(getattr(judgement, label.name)) for label in fields(judgement) if label.name not in _NOTES)
    except Exception:
        return None


def _chars_in(value: object) -> int:
    """Return the characters of the texts in *value*: plain values, and tuples, mappings and dataclasses of them."""
    if isinstance(value, str):
        return len(value)
    if value is None or isinstance(value, (int, float)):
        return 0
    if isinstance(value, tuple):
        return sum(map(_chars_in, cast("tuple[object, ...]", value)))
    if isinstance(value, Mapping):
        return sum(map(_chars_in, cast("Mapping[object, object]", value).values()))
    return sum(_chars_in(getattr(value, label.name)) for label in fields(cast("DataclassInstance", value)))
