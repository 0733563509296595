"""The nuggets of what was retrieved, and which of them the answer holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragtrace.core.labels import Importance, Nugget, NuggetSupport
from ragtrace.judges.llm.family import (
    MOST_UNJUDGED,
    Case,
    Found,
    Request,
    in_batches,
    instructions,
    labels_by_id,
    listed,
    note,
    numbered,
    records,
    shown,
    text_of,
)
from ragtrace.judges.llm.prompt_input import Chunk
from ragtrace.judges.llm.shapes import list_of, one_of, record, text

FIELDS: Final = frozenset({"nuggets"})
MOST_WRITTEN: Final = 30
MOST_KEPT: Final = 20
MOST_WORDS: Final = 12
BATCH_CHARS: Final = 48_000
"""Of chunks in one request."""
_IMPORTANCES: Final[tuple[Importance, ...]] = ("vital", "okay")
_SUPPORTS: Final[tuple[NuggetSupport, ...]] = ("support", "partial_support", "not_support")
_WRITING: Final = record(nuggets=list_of(id=text(), text=text(), importance=one_of(_IMPORTANCES)))
_ASSIGNING: Final = record(assignments=list_of(id=text(), assignment=one_of(_SUPPORTS)))


class Written(NamedTuple):
    """The nuggets that a reply holds."""

    nuggets: dict[str, Importance]
    """By text, in their order."""
    invalid: int
    """Entries that cannot be used."""
    listed: bool
    """Whether there was a list at all."""
    defects: list[str]


def read_nuggets(data: Mapping[str, Any]) -> Written:
    """*data*, a reply that writes nuggets, whatever it is. Equal texts are one nugget."""
    defects: list[str] = []
    found = records(data, "nuggets", defects)
    nuggets: dict[str, Importance] = {}
    split: set[str] = set()
    invalid = 0
    if found is not None and len(found) > MOST_WRITTEN:
        note(defects, f"there are {len(found)} nuggets; give the {MOST_WRITTEN} most important")
    for entry in (found or ())[:MOST_WRITTEN]:
        words, importance = text_of(entry), entry.get("importance")
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
    return Written(kept, invalid + len(split), found is not None, defects)


def read_assignments(
    data: Mapping[str, Any], ids: Sequence[str], defects: list[str]
) -> dict[str, NuggetSupport | None]:
    """The label of each nugget in a reply that assigns them."""
    return labels_by_id(data, "assignments", "assignment", ids, _SUPPORTS, defects)


async def find(case: Case, found: Found) -> None:
    """Write the nuggets from the chunks that are related to the query, then hold them against the answer."""
    if not case.sheet.query or not case.sheet.answer.strip() or not case.sheet.chunks:
        return
    chunks = _related(case, found)
    if chunks is None:
        return
    nuggets = await _write(case, found, chunks)
    if nuggets is None:
        return
    ids = numbered("n", nuggets)
    supports: dict[str, NuggetSupport | None] = {}
    if not case.declined:
        answer = found.shown("answer", case.call.answer)

        async def assign(some: Sequence[str]) -> dict[str, NuggetSupport | None]:
            return await _assign(case, found, answer, {name: ids[name] for name in some})

        supports = await in_batches(list(ids), MOST_KEPT, assign)
    found.labels["nuggets"] = tuple(
        Nugget(words, nuggets[words], "not_support" if case.declined else supports[name]) for name, words in ids.items()
    )


def _related(case: Case, found: Found) -> list[Chunk] | None:
    """The chunks with a grade of 1 or more; None, and why, if the grades are not known."""
    labels, chunks = case.judgement.chunks, case.sheet.chunks
    if labels is None or any(chunk.rank >= len(labels) for chunk in chunks):
        reasons = case.judgement.reasons
        found.reasons["nuggets"] = reasons.get("chunks") or reasons.get("") or "unparsable"
        return None
    grades = [labels[chunk.rank].grade for chunk in chunks]
    if sum(grade is None for grade in grades) > MOST_UNJUDGED * len(grades):
        found.reasons["nuggets"] = "too_many_unjudged"
        return None
    return [chunk for chunk, grade in zip(chunks, grades, strict=True) if grade]


async def _write(case: Case, found: Found, chunks: Sequence[Chunk]) -> dict[str, Importance] | None:
    """At most `MOST_KEPT` nuggets, vital ones first; None, and why, if too many are invalid."""
    nuggets: dict[str, Importance] = {}
    invalid = 0
    for batch in _batches(chunks):
        data = {"query": case.sheet.query, "chunks": listed({chunk.id: chunk.text for chunk in batch})}
        request = Request("nuggets", instructions("nuggets"), data, _WRITING, lambda reply: read_nuggets(reply).defects)
        written = read_nuggets((await found.ask(case, request)).data)
        if not written.listed:
            found.reasons["nuggets"] = "unparsable"
            return None
        invalid += written.invalid
        nuggets |= {words: label for words, label in written.nuggets.items() if words not in nuggets}
    if invalid:
        found.attributes["invalid_nuggets"] = invalid
    if invalid > MOST_UNJUDGED * (invalid + len(nuggets)):
        found.reasons["nuggets"] = "too_many_unjudged"
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


async def _assign(case: Case, found: Found, answer: str, nuggets: Mapping[str, str]) -> dict[str, NuggetSupport | None]:
    def check(reply: dict[str, Any]) -> list[str]:
        defects: list[str] = []
        read_assignments(reply, list(nuggets), defects)
        return defects

    data = {"query": case.sheet.query, "answer": answer, "nuggets": listed(nuggets)}
    request = Request("assignments", instructions("assign"), data, _ASSIGNING, check)
    return read_assignments((await found.ask(case, request)).data, list(nuggets), [])
