"""Claims of answer and reference: what each text says of the other's, and which chunks entail them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Entailments, Fact, FactLabel
from ragtrace.core.types import Document
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
from ragtrace.judges.llm.judge_session import together
from ragtrace.judges.llm.prompt import listed, numbered
from ragtrace.judges.llm.prompt_input import Chunk
from ragtrace.judges.llm.schemas import YES_NO, list_of, one_of, record, text

SIDES: Final = ("answer", "reference")
BATCH: Final = 60
"""Claims in one request."""
MOST_CELLS: Final = 240
"""Pairs of a chunk and a claim in one request."""
BATCH_CHARS: Final = 48_000
"""Characters of chunks in one request."""
_LABELS: Final[tuple[FactLabel, ...]] = ("entailment", "neutral", "contradiction")
_CLAIMS: Final = record(answer=list_of(id=text(), text=text()), reference=list_of(id=text(), text=text()))
_VERDICTS: Final = list_of(id=text(), label=one_of(_LABELS))
_FACTS: Final = record(answer=_VERDICTS, reference=_VERDICTS)
_ENTAILED: Final = list_of(id=text(), entails=one_of(YES_NO))
_ENTAILMENTS: Final = record(chunks=list_of(id=text(), answer=_ENTAILED, reference=_ENTAILED))
_FIELD: Final = {"answer": "answer_facts", "reference": "reference_facts"}

Row: TypeAlias = tuple[tuple[bool | None, ...], tuple[bool | None, ...]]
"""Of one chunk: whether it entails each claim of the answer, and each of the reference."""


class ClaimsReply(NamedTuple):
    """Claims of both texts, as the model listed them."""

    texts: dict[str, tuple[str, ...] | None]
    """Distinct claims by side; None: they cannot be used."""
    reasons: dict[str, str]
    """By side, why its claims cannot be used."""
    defects: list[str]
    invalid: int
    """Entries that have no text."""


def read_claims(data: Mapping[str, Any]) -> ClaimsReply:
    """Return the claims of both texts in a reply, which may be any JSON object."""
    claims: dict[str, tuple[str, ...] | None] = {}
    reasons: dict[str, str] = {}
    defects: list[str] = []
    invalid = 0
    for side in SIDES:
        found = records(data, side, defects)
        texts = [one_line(entry.get("text")) for entry in found or ()]
        blank = texts.count("")
        invalid += blank
        claims[side] = tuple(dict.fromkeys(claim for claim in texts if claim))
        if blank:
            note(defects, f"{side}: {blank} claims have no text")
        if found is None or blank > MOST_UNJUDGED * len(texts):
            claims[side] = None
            reasons[side] = "unparsable" if found is None else "too_many_unjudged"
    return ClaimsReply(claims, reasons, defects, invalid)


async def find_facts(extra: ExtraLabels) -> None:
    """List the claims of both texts, then compare each with the other text and, if that is wanted, with the chunks."""
    answer, reference = extra.shown("answer", extra.call.answer), extra.shown("reference", extra.call.reference)
    if not answer or not reference:
        return
    data = {"answer": answer, "reference": reference}
    claims = (await extra.ask("claims", data, _CLAIMS, read_claims)).reply
    extra.reasons |= {_FIELD[side]: reason for side, reason in claims.reasons.items()}
    if claims.invalid:
        extra.attributes["invalid_claims"] = claims.invalid
    ids = {side: numbered(side[0], claims.texts[side] or ()) for side in SIDES}
    work = [_verify(extra, data, ids, [side for side in SIDES if claims.texts[side] is not None])]
    if "entailments" in extra.wanted and None not in claims.texts.values():
        work.append(_find_entailments(extra, ids["answer"], ids["reference"]))
    await together(work)


# --- claims against the other text -----------------------------------------------------------------------------------


async def _verify(
    extra: ExtraLabels, texts: Mapping[str, str], ids: Mapping[str, Mapping[str, str]], sides: Sequence[str]
) -> None:
    claims = [(side, name) for side in sides for name in ids[side]]

    async def ask(some: Sequence[tuple[str, str]]) -> dict[str, Any]:
        asked = {side: {name: ids[side][name] for part, name in some if part == side} for side in SIDES}
        data = {**texts, **{f"{side}_claims": listed(asked[side]) for side in SIDES}}
        return (await extra.ask("facts", data, _FACTS, partial(read_facts, asked=asked))).reply.labels

    try:
        labels = await in_batches(claims, BATCH, ask)
    except JudgeError as error:
        extra.fail(error, (_FIELD[side] for side in sides))
        return
    for side in sides:
        extra.labels[_FIELD[side]] = tuple(Fact(claim, labels[name]) for name, claim in ids[side].items())


def read_facts(data: Mapping[str, Any], asked: Mapping[str, Mapping[str, str]]) -> LabelsById:
    """Return the labels of all claims in a reply, which may be any JSON object."""
    defects: list[str] = []
    labels: dict[str, FactLabel | None] = {}
    for side in SIDES:
        labels |= labels_by_id(data, side, "label", asked[side], _LABELS, defects)
    return LabelsById(labels, defects)


# --- chunks against claims -------------------------------------------------------------------------------------------


async def _find_entailments(extra: ExtraLabels, answer: Mapping[str, str], reference: Mapping[str, str]) -> None:
    """Ask whether a chunk entails a claim, for every pair; claims are given by id."""
    chunks = extra.input.chunks
    if not chunks or not answer or not reference:
        return

    async def ask(some: Sequence[Chunk]) -> dict[str, Any]:
        data = {
            "chunks": listed({chunk.id: chunk.text for chunk in some}),
            "answer_claims": listed(answer),
            "reference_claims": listed(reference),
        }
        read = partial(read_rows, ids=[chunk.id for chunk in some], answer=answer, reference=reference)
        return (await extra.ask("entailments", data, _ENTAILMENTS, read)).reply.labels

    rows: dict[str, Row] = {}
    try:
        for batch in _batches(chunks, len(answer) + len(reference)):
            rows |= await in_batches(batch, len(batch), ask)
    except JudgeError as error:
        extra.fail(error, ("entailments",))
        return
    extra.labels["entailments"] = _matrices(extra, rows, len(answer), len(reference))


def read_rows(
    data: Mapping[str, Any], ids: Sequence[str], answer: Mapping[str, str], reference: Mapping[str, str]
) -> LabelsById:
    """Return one row a chunk out of a reply, which may be any JSON object; a missing or doubled row is unjudged."""
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
    return LabelsById(rows, defects)


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


def _matrices(extra: ExtraLabels, rows: Mapping[str, Row], answer: int, reference: int) -> Entailments:
    """Return one row a distinct passage as it was retrieved: two may differ in invisible characters only."""
    by_rank = {chunk.rank: rows[chunk.id] for chunk in extra.input.chunks}
    nothing: Row = (False,) * answer, (False,) * reference
    same_as = extra.input.same_as or ()
    firsts = [same_as[rank] for rank in _distinct(extra.call.contexts or ())]
    found = [nothing if first is None else by_rank[first] for first in firsts]
    return Entailments(tuple(row[0] for row in found), tuple(row[1] for row in found))


def _distinct(contexts: Sequence[Document]) -> list[int]:
    seen: dict[str, int] = {}
    for rank, document in enumerate(contexts):
        if folded := " ".join(document.text.split()):
            seen.setdefault(folded, rank)
    return list(seen.values())


FAMILY: Final = LabelFamily(frozenset({"answer_facts", "reference_facts", "entailments"}), find_facts)
