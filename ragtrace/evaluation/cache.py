"""Judgements remembered by what was judged, so that identical calls are judged once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, cast

from ragtrace.core.labels import Citation, Claim, Fact, Intention, Nugget, Rating, Sentence
from ragtrace.core.types import Document, Judgement, Plain, RagCall

CACHED: Final = "cached"
"""Attribute of a judgement that was not asked for."""
_WORDY: Final[tuple[tuple[str, type], ...]] = (
    ("claims", Claim),
    ("sentences", Sentence),
    ("citations", Citation),
    ("questions", str),
    ("nuggets", Nugget),
    ("intentions", Intention),
    ("answer_facts", Fact),
    ("reference_facts", Fact),
)
"""Fields of a judgement that hold texts, and what they hold."""
_TEXTS: Final = ("text", "quote", "marker", "reason")
_MOST_CHARS: Final = 4_000_000
_MOST_CHARS_EACH: Final = 100_000


def fingerprint(call: RagCall, evaluator: str) -> bytes:
    """A hash of what a judge may judge by: query, contexts (texts and ids, in order), answer, reference, and what else
    the caller knows of it: reference contexts, the conversation, repeated runs, the answer's parts.

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


def again(judgement: Judgement) -> Judgement:
    """*judgement* for another call: it cost nothing, and says so."""
    attributes: object = judgement.attributes  # a user's judge may have put anything there
    kept = cast("Mapping[str, Plain]", attributes if isinstance(attributes, Mapping) else {})
    return replace(
        judgement, n_calls=0, input_tokens=0, output_tokens=0, cost_usd=0.0, attributes={**kept, CACHED: True}
    )


def was_cached(judgement: Judgement) -> bool:
    """Whether *judgement* is that of an identical call."""
    attributes: object = judgement.attributes
    return isinstance(attributes, Mapping) and cast("Mapping[object, object]", attributes).get(CACHED) is True


class Memory:
    """The judgements used last, at most *limit* of them and about four million characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[bytes, tuple[Judgement, int]] = OrderedDict()
        self._chars = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> Judgement | None:
        """The judgement remembered under *key*, which is thereby the one used last."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: bytes, judgement: Judgement) -> None:
        """Remember *judgement*, forgetting those used longest ago; one that is malformed or huge is not remembered."""
        chars = _weight(judgement)
        if chars is None or chars > _MOST_CHARS_EACH:
            return
        self._forget(key)
        self._entries[key] = judgement, chars
        self._chars += chars
        while len(self._entries) > self._limit or self._chars > _MOST_CHARS:
            self._forget(next(iter(self._entries)))

    def _forget(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._chars -= entry[1]


def _weight(judgement: Judgement) -> int | None:
    """Characters that *judgement* keeps alive; None if its labels are not what they should be."""
    weights = [_texts(getattr(judgement, name), kind) for name, kind in _WORDY]
    ratings: object = judgement.ratings
    if isinstance(ratings, Mapping):
        weights.append(_texts(tuple(cast("Mapping[object, object]", ratings).values()), Rating))
    known = [weight for weight in weights if weight is not None]
    return sum(known) if len(known) == len(weights) else None


def _texts(labels: object, kind: type) -> int | None:
    """Characters of the texts in *labels*, a tuple of *kind* or None; None if it is neither."""
    if labels is None:
        return 0
    if not isinstance(labels, tuple):
        return None
    total = 0
    for label in cast("tuple[object, ...]", labels):
        if not isinstance(label, kind):
            return None
        texts = [label] if isinstance(label, str) else [getattr(label, name, None) for name in _TEXTS]
        total += sum(len(text) for text in texts if isinstance(text, str))
    return total
