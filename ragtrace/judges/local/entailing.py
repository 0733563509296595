"""Which of the retrieved chunks entail which claims of answer and reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Entailments
from ragtrace.core.types import Document
from ragtrace.judges.llm.family import (
    Case,
    Found,
    Request,
    in_batches,
    instructions,
    labels_by_id,
    listed,
    note,
    records,
    shown,
)
from ragtrace.judges.llm.prompt_input import Chunk
from ragtrace.judges.llm.schemas import YES_NO
from ragtrace.judges.llm.shapes import list_of, one_of, record, text

MOST_CELLS: Final = 240
"""Verdicts in one reply."""
BATCH_CHARS: Final = 48_000
_VERDICTS: Final = list_of(id=text(), entails=one_of(YES_NO))
_SCHEMA: Final = record(chunks={"type": "array", "items": record(id=text(), answer=_VERDICTS, reference=_VERDICTS)})
Row: TypeAlias = tuple[tuple[bool | None, ...], tuple[bool | None, ...]]
"""Of one chunk: whether it entails each claim of the answer, and each of the reference."""


async def entailments(case: Case, found: Found, answer: Mapping[str, str], reference: Mapping[str, str]) -> None:
    """Ask for every pair of a chunk and a claim; claims are given by id."""
    chunks = case.sheet.chunks
    if not chunks or not answer or not reference:
        return

    async def ask(some: Sequence[Chunk]) -> dict[str, Row]:
        data = {
            "chunks": listed({chunk.id: chunk.text for chunk in some}),
            "answer_claims": listed(answer),
            "reference_claims": listed(reference),
        }
        ids = [chunk.id for chunk in some]

        def check(reply: dict[str, Any]) -> list[str]:
            return read_rows(reply, ids, answer, reference)[1]

        request = Request("entailments", instructions("entailments"), data, _SCHEMA, check)
        return read_rows((await found.ask(case, request)).data, ids, answer, reference)[0]

    try:
        rows: dict[str, Row] = {}
        for batch in _batches(chunks, len(answer) + len(reference)):
            rows |= await in_batches(batch, len(batch), ask)
    except JudgeError as error:
        found.failed(error, ("entailments",))
        raise
    found.labels["entailments"] = _matrices(case, rows, len(answer), len(reference))


def read_rows(
    data: Mapping[str, Any], ids: Sequence[str], answer: Mapping[str, str], reference: Mapping[str, str]
) -> tuple[dict[str, Row], list[str]]:
    """One row a chunk out of *data*, a reply, whatever it is; and its defects. A missing or doubled one is unjudged."""
    defects: list[str] = []
    given: dict[str, list[Mapping[str, Any]]] = {name: [] for name in ids}
    for entry in records(data, "chunks", defects) or ():
        name = entry.get("id")
        if isinstance(name, str) and name in given:
            given[name].append(entry)
        else:
            note(defects, f"chunks: no id {shown(name)} was asked for")
    rows: dict[str, Row] = {}
    for name, entries in given.items():
        if len(entries) != 1:
            note(defects, f"chunks: {name} is {'missing' if not entries else 'there more than once'}")
        only = entries[0] if len(entries) == 1 else None
        rows[name] = _row(only, answer, defects, "answer"), _row(only, reference, defects, "reference")
    return rows, defects


def _row(
    entry: Mapping[str, Any] | None, claims: Mapping[str, str], defects: list[str], side: str
) -> tuple[bool | None, ...]:
    if entry is None:
        return (None,) * len(claims)
    labels = labels_by_id(entry, side, "entails", claims, YES_NO, defects)
    return tuple(None if label is None else label == "yes" for label in labels.values())


def _batches(chunks: Sequence[Chunk], claims: int) -> Iterator[list[Chunk]]:
    most = max(1, MOST_CELLS // max(1, claims))
    batch: list[Chunk] = []
    for chunk in chunks:
        if batch and (len(batch) >= most or sum(len(c.text) for c in batch) + len(chunk.text) > BATCH_CHARS):
            yield batch
            batch = []
        batch.append(chunk)
    if batch:
        yield batch


def _matrices(case: Case, rows: Mapping[str, Row], answer: int, reference: int) -> Entailments:
    """One row a distinct passage as it was retrieved: hidden characters may be all that two of them differ in."""
    by_rank = {chunk.rank: rows[chunk.id] for chunk in case.sheet.chunks}
    nothing: Row = (False,) * answer, (False,) * reference
    same_as = case.sheet.same_as or ()
    firsts = [same_as[rank] for rank in _distinct(case.call.contexts or ())]
    found = [nothing if first is None else by_rank[first] for first in firsts]
    return Entailments(tuple(row[0] for row in found), tuple(row[1] for row in found))


def _distinct(contexts: Sequence[Document]) -> list[int]:
    seen: dict[str, int] = {}
    for rank, document in enumerate(contexts):
        if folded := " ".join(document.text.split()):
            seen.setdefault(folded, rank)
    return list(seen.values())
