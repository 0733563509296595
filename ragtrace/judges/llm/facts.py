"""The claims of answer and reference, what each text says of the other's, and which chunks entail them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Fact, FactLabel
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
    text_of,
)
from ragtrace.judges.llm.shapes import list_of, one_of, record, text
from ragtrace.judges.local.entailing import entailments

FIELDS: Final = frozenset({"answer_facts", "reference_facts", "entailments"})
SIDES: Final = ("answer", "reference")
BATCH: Final = 60
"""Claims in one request."""
_LABELS: Final[tuple[FactLabel, ...]] = ("entailment", "neutral", "contradiction")
_CLAIMS: Final = record(answer=list_of(id=text(), text=text()), reference=list_of(id=text(), text=text()))
_VERDICTS: Final = list_of(id=text(), label=one_of(_LABELS))
_FACTS: Final = record(answer=_VERDICTS, reference=_VERDICTS)
_FIELD: Final = {"answer": "answer_facts", "reference": "reference_facts"}


class Claims(NamedTuple):
    """What a reply that lists claims holds."""

    texts: dict[str, tuple[str, ...] | None]
    """Distinct claims by side; None: they cannot be used."""
    reasons: dict[str, str]
    """Why not, by side."""
    defects: list[str]
    invalid: int = 0
    """Entries that have no text."""


def read_claims(data: Mapping[str, Any]) -> Claims:
    """*data*, a reply with the claims of both texts, whatever it is."""
    read, invalid = Claims({}, {}, []), 0
    for side in SIDES:
        found = records(data, side, read.defects)
        texts = [text_of(entry) for entry in found or ()]
        blank = texts.count("")
        invalid += blank
        read.texts[side] = tuple(dict.fromkeys(claim for claim in texts if claim))
        if blank:
            note(read.defects, f"{side}: {blank} claims have no text")
        if found is None or blank > MOST_UNJUDGED * len(texts):
            read.texts[side] = None
            read.reasons[side] = "unparsable" if found is None else "too_many_unjudged"
    return read._replace(invalid=invalid)


async def find(case: Case, found: Found) -> None:
    """List the claims of both texts, then hold each against the other text and, if that is wanted, the chunks."""
    answer, reference = found.shown("answer", case.call.answer), found.shown("reference", case.call.reference)
    if not answer or not reference:
        return
    data = {"answer": answer, "reference": reference}
    request = Request("claims", instructions("claims"), data, _CLAIMS, lambda reply: read_claims(reply).defects)
    texts, reasons, _, invalid = read_claims((await found.ask(case, request)).data)
    found.reasons |= {_FIELD[side]: reason for side, reason in reasons.items()}
    if invalid:
        found.attributes["invalid_claims"] = invalid
    ids = {side: numbered(side[0], texts[side] or ()) for side in SIDES}
    work = [_verify(case, found, data, ids, [side for side in SIDES if texts[side] is not None])]
    if "entailments" in case.wanted and None not in texts.values():
        work.append(entailments(case, found, ids["answer"], ids["reference"]))
    failures = [error for error in await asyncio.gather(*work, return_exceptions=True) if error is not None]
    for error in failures:
        if not isinstance(error, JudgeError):
            raise error


async def _verify(
    case: Case, found: Found, texts: Mapping[str, str], ids: Mapping[str, Mapping[str, str]], sides: Sequence[str]
) -> None:
    claims = [(side, name) for side in sides for name in ids[side]]

    async def ask(some: Sequence[tuple[str, str]]) -> dict[str, FactLabel | None]:
        asked = {side: {name: ids[side][name] for part, name in some if part == side} for side in SIDES}
        data = {**texts, **{f"{side}_claims": listed(asked[side]) for side in SIDES}}

        def check(reply: dict[str, Any]) -> list[str]:
            return read_facts(reply, asked)[1]

        request = Request("facts", instructions("facts"), data, _FACTS, check)
        return read_facts((await found.ask(case, request)).data, asked)[0]

    try:
        labels = await in_batches(claims, BATCH, ask)
    except JudgeError as error:
        found.failed(error, (_FIELD[side] for side in sides))
        raise
    for side in sides:
        found.labels[_FIELD[side]] = tuple(Fact(claim, labels[name]) for name, claim in ids[side].items())


def read_facts(
    data: Mapping[str, Any], asked: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, FactLabel | None], list[str]]:
    """The labels of all claims in *data*, a reply, whatever it is; and its defects."""
    defects: list[str] = []
    labels: dict[str, FactLabel | None] = {}
    for side in SIDES:
        labels |= labels_by_id(data, side, "label", asked[side], _LABELS, defects)
    return labels, defects
