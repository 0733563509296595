"""Nuggets: facts in the retrieved chunks that a good answer should contain, and which of them the answer has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ragtrace.core.labels import Importance, Nugget, NuggetSupport
from ragtrace.judges.llm.extra_labels import (
    MOST_UNJUDGED,
    ExtraLabels,
    LabelFamily,
    LabelsById,
    in_batches,
    labels_by_id,
    note,
    one_line,
    records,
    shown,
)
from ragtrace.judges.llm.prompt import listed, numbered
from ragtrace.judges.llm.prompt_input import Chunk
from ragtrace.judges.llm.schemas import list_of, one_of, record, text

MOST_WRITTEN: Final = 30
MOST_KEPT: Final = 20
MOST_WORDS: Final = 12
BATCH_CHARS: Final = 48_000
"""Characters of chunks in one request."""
_IMPORTANCES: Final[tuple[Importance, ...]] = ("vital", "okay")
_SUPPORTS: Final[tuple[NuggetSupport, ...]] = ("support", "partial_support", "not_support")
_WRITING: Final = record(nuggets=list_of(id=text(), text=text(), importance=one_of(_IMPORTANCES)))
_ASSIGNING: Final = record(assignments=list_of(id=text(), assignment=one_of(_SUPPORTS)))


class NuggetsReply(NamedTuple):
    """Nuggets that the model wrote from chunks."""

    nuggets: dict[str, Importance]
    """By text, in their order."""
    invalid: int
    """Entries that cannot be used."""
    listed: bool
    """Whether the reply has a list of nuggets."""
    defects: list[str]


def read_nuggets(data: Mapping[str, Any]) -> NuggetsReply:
    """Return the nuggets in a reply, which may be any JSON object. Equal texts are one nugget."""
    defects: list[str] = []
    found = records(data, "nuggets", defects)
    nuggets: dict[str, Importance] = {}
    split: set[str] = set()
    invalid = 0
    if found is not None and len(found) > MOST_WRITTEN:
        note(defects, f"there are {len(found)} nuggets; give the {MOST_WRITTEN} most important")
    for entry in (found or ())[:MOST_WRITTEN]:
        words, importance = one_line(entry.get("text")), entry.get("importance")
        if not 1 <= len(words.split()) <= MOST_WORDS:
            note(defects, f"a nugget has 1 to {MOST_WORDS} words, got {shown(words)}")
            invalid += 1
        elif importance not in _IMPORTANCES:
            note(defects, f"importance of a nugget must be vital or okay, got {shown(importance)}")
            invalid += 1
        elif nuggets.setdefault(words, importance) != importance:
            note(defects, f"the nugget {shown(words)} is both vital and okay")
            split.add(words)
    kept: dict[str, Importance] = {words: importance for words, importance in nuggets.items() if words not in split}
    return NuggetsReply(kept, invalid + len(split), found is not None, defects)


def read_assignments(data: Mapping[str, Any], ids: Sequence[str]) -> LabelsById:
    """Return how far the answer has each nugget, out of a reply, which may be any JSON object."""
    defects: list[str] = []
    return LabelsById(labels_by_id(data, "assignments", "assignment", ids, _SUPPORTS, defects), defects)


async def find_nuggets(extra: ExtraLabels) -> None:
    """Write the nuggets from the chunks that are related to the query, then look for them in the answer."""
    if not extra.input.query or not extra.input.answer.strip() or not extra.input.chunks:
        return
    chunks = _related(extra)
    nuggets = None if chunks is None else await _write(extra, chunks)
    if nuggets is None:
        return
    ids = numbered("n", nuggets)
    supports: dict[str, NuggetSupport | None] = dict.fromkeys(ids, "not_support")
    if not extra.declined:
        answer = extra.shown("answer", extra.call.answer)

        async def assign(some: Sequence[str]) -> dict[str, Any]:
            shown_nuggets = listed({name: ids[name] for name in some})
            data = {"query": extra.input.query, "answer": answer, "nuggets": shown_nuggets}
            read = partial(read_assignments, ids=some)
            return (await extra.ask("assignments", data, _ASSIGNING, read)).reply.labels

        supports = await in_batches(list(ids), MOST_KEPT, assign)
    extra.labels["nuggets"] = tuple(Nugget(words, nuggets[words], supports[name]) for name, words in ids.items())


def _related(extra: ExtraLabels) -> list[Chunk] | None:
    """Return the chunks with a grade of 1 or more; note the reason and return None if the grades are not known."""
    labels, chunks = extra.judgement.chunks, extra.input.chunks
    if labels is None or any(chunk.rank >= len(labels) for chunk in chunks):
        reasons = extra.judgement.reasons
        extra.reasons["nuggets"] = reasons.get("chunks") or reasons.get("") or "unparsable"
        return None
    grades = [labels[chunk.rank].grade for chunk in chunks]
    if sum(grade is None for grade in grades) > MOST_UNJUDGED * len(grades):
        extra.reasons["nuggets"] = "too_many_unjudged"
        return None
    return [chunk for chunk, grade in zip(chunks, grades, strict=True) if grade]


async def _write(extra: ExtraLabels, chunks: Sequence[Chunk]) -> dict[str, Importance] | None:
    """Return at most `MOST_KEPT` nuggets, vital ones first; note the reason and return None if too many are invalid."""
    nuggets: dict[str, Importance] = {}
    invalid = 0
    for batch in _batches(chunks):
        data = {"query": extra.input.query, "chunks": listed({chunk.id: chunk.text for chunk in batch})}
        written = (await extra.ask("nuggets", data, _WRITING, read_nuggets)).reply
        if not written.listed:
            extra.reasons["nuggets"] = "unparsable"
            return None
        invalid += written.invalid
        nuggets |= {words: label for words, label in written.nuggets.items() if words not in nuggets}
    if invalid:
        extra.attributes["invalid_nuggets"] = invalid
    if invalid > MOST_UNJUDGED * (invalid + len(nuggets)):
        extra.reasons["nuggets"] = "too_many_unjudged"
        return None
    ranked = sorted(nuggets, key=lambda words: _IMPORTANCES.index(nuggets[words]))
    return {words: nuggets[words] for words in ranked[:MOST_KEPT]}


def _batches(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    batches: list[list[Chunk]] = []
    room = 0
    for chunk in chunks:
        if not batches or len(chunk.text) > room:
            batches.append([])
            room = BATCH_CHARS
        batches[-1].append(chunk)
        room -= len(chunk.text)
    return batches


FAMILY: Final = LabelFamily(frozenset({"nuggets"}), find_nuggets)
