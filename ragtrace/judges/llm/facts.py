"""Short facts that an LLM lists and then labels: claims of answer and reference, and key facts (nuggets) of the chunks.

Claims: what each text says of the other's, and which chunks entail them. Nuggets: facts in the retrieved chunks that a
good answer should contain, and which of them the answer has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ragtrace.core.errors import JudgeError
from ragtrace.core.follow_ups import QUERY_NEEDS_TURNS, needs_earlier_turns
from ragtrace.core.labels import Entailments, Fact, FactLabel, Importance, Nugget, NuggetSupport
from ragtrace.core.text import first_ranks
from ragtrace.judges.llm.chat import run_concurrently
from ragtrace.judges.llm.extra_labels import MOST_UNJUDGED, ExtraLabels, LabelFamily, ask_in_batches
from ragtrace.judges.llm.prompt import YES_NO, enum, group_by_size, id_text_list, object_with, objects, string, with_ids
from ragtrace.judges.llm.prompt_input import PromptChunk
from ragtrace.judges.llm.reply_reader import LabelsById, ReplyReader, one_line, shorten_value

BATCH_CHARS: Final = 48_000
"""Most characters of chunks in one request."""
CLAIMS_AT_A_TIME: Final = 60
"""Most claims in one request."""
MOST_CELLS: Final = 240
"""Most pairs of a chunk and a claim in one request."""
SIDES: Final = ("answer", "reference")
_FIELD: Final = {"answer": "answer_facts", "reference": "reference_facts"}
_LABELS: Final[tuple[FactLabel, ...]] = ("entailment", "neutral", "contradiction")
_CLAIMS: Final = object_with(answer=objects(id=string(), text=string()), reference=objects(id=string(), text=string()))
_VERDICTS: Final = objects(id=string(), label=enum(_LABELS))
_FACTS: Final = object_with(answer=_VERDICTS, reference=_VERDICTS)
_ENTAILED: Final = objects(id=string(), entails=enum(YES_NO))
_ENTAILMENTS: Final = object_with(chunks=objects(id=string(), answer=_ENTAILED, reference=_ENTAILED))

Row: TypeAlias = tuple[tuple[bool | None, ...], tuple[bool | None, ...]]
"""Whether one chunk entails each claim of the answer, and each of the reference; None where that is unknown."""


class ClaimsReply(NamedTuple):
    """Reply of the LLM that lists the claims which the answer and the reference answer make."""

    texts: dict[str, tuple[str, ...] | None]
    """Distinct claims of the "answer" and of the "reference"; None for claims that cannot be used."""
    reasons: dict[str, str]
    """Reason for each of the two texts whose claims cannot be used."""
    defects: list[str]
    invalid: int
    """Number of entries without a text."""


def read_claims(data: Mapping[str, Any]) -> ClaimsReply:
    """Read the claims of the answer and of the reference answer from the LLM's JSON reply, whatever its form."""
    reader = ReplyReader(data)
    claims: dict[str, tuple[str, ...] | None] = {}
    reasons: dict[str, str] = {}
    invalid = 0
    for side in SIDES:
        entries = reader.entries(side)
        texts = [one_line(entry.get("text")) for entry in entries or ()]
        blank = texts.count("")
        invalid += blank
        claims[side] = tuple(dict.fromkeys(filter(None, texts)))
        if blank:
            reader.add_defect(f"{side}: {blank} claims have no text")
        if entries is None or blank > MOST_UNJUDGED * len(texts):
            claims[side] = None
            reasons[side] = "unparsable" if entries is None else "too_many_unjudged"
    return ClaimsReply(claims, reasons, reader.defects, invalid)


async def find_facts(extra: ExtraLabels) -> None:
    """Ask the LLM to list the claims of answer and reference, and to compare each with the other text and the chunks.

    The chunks are only compared if a metric needs it.
    """
    answer, reference = (
        extra.text_for_prompt("answer", extra.call.answer),
        extra.text_for_prompt("reference", extra.call.reference),
    )
    if not answer or not reference:
        return
    data = {"answer": answer, "reference": reference}
    claims = (await extra.ask("claims", data, _CLAIMS, read_claims)).reply
    extra.reasons |= {_FIELD[side]: reason for side, reason in claims.reasons.items()}
    if claims.invalid:
        extra.attributes["invalid_claims"] = claims.invalid
    ids = {side: with_ids(side[0], claims.texts[side] or ()) for side in SIDES}
    work = [_verify(extra, data, ids, [side for side in SIDES if claims.texts[side] is not None])]
    if "entailments" in extra.wanted and None not in claims.texts.values():
        work.append(_find_entailments(extra, ids["answer"], ids["reference"]))
    await run_concurrently(work)


async def _verify(
    extra: ExtraLabels, texts: Mapping[str, str], ids: Mapping[str, Mapping[str, str]], sides: Sequence[str]
) -> None:
    """Ask the LLM whether the reference supports each claim of the answer, and vice versa.

    Only the claims of *sides* are asked about.
    """

    async def ask(some: Sequence[tuple[str, str]]) -> dict[str, Any]:
        asked = {side: {name: ids[side][name] for part, name in some if part == side} for side in SIDES}
        data = {**texts, **{f"{side}_claims": id_text_list(asked[side]) for side in SIDES}}
        return (await extra.ask("facts", data, _FACTS, partial(read_facts, asked=asked))).reply.labels

    try:
        labels = await ask_in_batches([(side, name) for side in sides for name in ids[side]], CLAIMS_AT_A_TIME, ask)
    except JudgeError as error:
        extra.note_failure(error, (_FIELD[side] for side in sides))
        return
    for side in sides:
        extra.labels[_FIELD[side]] = tuple(Fact(claim, labels[name]) for name, claim in ids[side].items())


def read_facts(data: Mapping[str, Any], asked: Mapping[str, Mapping[str, str]]) -> LabelsById:
    """Read the label of each claim (entailment, neutral or contradiction) from the LLM's JSON reply."""
    reader = ReplyReader(data)
    labels: dict[str, FactLabel | None] = {}
    for side in SIDES:
        labels |= reader.labels_by_id(side, asked[side], "label", _LABELS)
    return LabelsById(labels, reader.defects)


async def _find_entailments(extra: ExtraLabels, answer: Mapping[str, str], reference: Mapping[str, str]) -> None:
    """Ask the LLM which claims of the *answer* and of the *reference* each retrieved chunk entails."""
    chunks = extra.input.chunks
    if not chunks or not answer or not reference:
        return

    async def ask(some: Sequence[PromptChunk]) -> dict[str, Any]:
        data = {
            "chunks": id_text_list({chunk.id: chunk.text for chunk in some}),
            "answer_claims": id_text_list(answer),
            "reference_claims": id_text_list(reference),
        }
        read = partial(read_rows, ids=[chunk.id for chunk in some], answer=answer, reference=reference)
        return (await extra.ask("entailments", data, _ENTAILMENTS, read)).reply.labels

    rows: dict[str, Row] = {}
    try:
        for batch in group_by_size(chunks, BATCH_CHARS, max(1, MOST_CELLS // (len(answer) + len(reference)))):
            rows |= await ask_in_batches(batch, len(batch), ask)
    except JudgeError as error:
        extra.note_failure(error, ("entailments",))
        return
    # One row for each distinct passage before cleaning: two passages may differ in invisible characters only.
    by_rank = {chunk.rank: rows[chunk.id] for chunk in chunks}
    distinct = sorted(set(first_ranks(document.text for document in extra.call.contexts or ()).values()))
    nothing: Row = (False,) * len(answer), (False,) * len(reference)
    firsts = [(extra.input.same_as or ())[rank] for rank in distinct]
    found = [nothing if first is None else by_rank[first] for first in firsts]
    extra.labels["entailments"] = Entailments(tuple(row[0] for row in found), tuple(row[1] for row in found))


def read_rows(
    data: Mapping[str, Any], ids: Sequence[str], answer: Mapping[str, str], reference: Mapping[str, str]
) -> LabelsById:
    """Read from the LLM's reply which claims of answer and reference each chunk entails.

    The reply may be any JSON object. A chunk that is missing in it, or there more than once, is unjudged.
    """
    reader = ReplyReader(data)
    given: dict[str, list[Mapping[str, Any]]] = {name: [] for name in ids}
    for entry in reader.entries("chunks") or ():
        name = entry.get("id")
        if isinstance(name, str) and name in given:
            given[name].append(entry)
        else:
            reader.add_defect(f"chunks: unknown id {shorten_value(name)}")
    rows: dict[str, Row] = {}
    for name, entries in given.items():
        if len(entries) != 1:
            reader.add_defect(f"chunks: {name} is {'there more than once' if entries else 'missing'}")
            rows[name] = (None,) * len(answer), (None,) * len(reference)
            continue
        row = ReplyReader(entries[0])
        sides: list[tuple[bool | None, ...]] = []
        for side, claims in (("answer", answer), ("reference", reference)):
            labels = row.labels_by_id(side, claims, "entails", YES_NO)
            sides.append(tuple(None if label is None else label == "yes" for label in labels.values()))
        reader.defects += row.defects
        rows[name] = sides[0], sides[1]
    return LabelsById(rows, reader.defects)


CLAIMS: Final = LabelFamily(frozenset({"answer_facts", "reference_facts", "entailments"}), find_facts)


# --- nuggets ---------------------------------------------------------------------------------------------------------

MOST_WRITTEN: Final = 30
MOST_KEPT: Final = 20
MOST_WORDS: Final = 12
_IMPORTANCES: Final[tuple[Importance, ...]] = ("vital", "okay")
_SUPPORTS: Final[tuple[NuggetSupport, ...]] = ("support", "partial_support", "not_support")
_WRITING: Final = object_with(nuggets=objects(id=string(), text=string(), importance=enum(_IMPORTANCES)))
_ASSIGNING: Final = object_with(assignments=objects(id=string(), assignment=enum(_SUPPORTS)))


class NuggetsReply(NamedTuple):
    """Reply of the LLM that lists nuggets: short facts in the chunks that a good answer should contain."""

    nuggets: dict[str, Importance]
    """Importance of each nugget by its text, in the order of the reply."""
    invalid: int
    """Number of entries that cannot be used."""
    listed: bool
    """Whether the reply has a list of nuggets."""
    defects: list[str]


def read_nuggets(data: Mapping[str, Any]) -> NuggetsReply:
    """Read nuggets, which are facts that a good answer should contain, from the LLM's JSON reply.

    Equal texts are one nugget.
    """
    reader = ReplyReader(data)
    entries = reader.entries("nuggets")
    nuggets: dict[str, Importance] = {}
    split: set[str] = set()
    invalid = 0
    if len(entries or ()) > MOST_WRITTEN:
        reader.add_defect(f"there are {len(entries or ())} nuggets; give the {MOST_WRITTEN} most important")
    for index, entry in enumerate((entries or ())[:MOST_WRITTEN]):
        words = one_line(entry.get("text"))
        importance: Importance | None = reader.label(
            entry.get("importance"), _IMPORTANCES, f"nuggets[{index}].importance"
        )
        fits = 1 <= len(words.split()) <= MOST_WORDS
        if not fits:
            reader.add_defect(f"a nugget has 1 to {MOST_WORDS} words, got {shorten_value(words)}")
        if not fits or importance is None:
            invalid += 1
        elif nuggets.setdefault(words, importance) != importance:
            reader.add_defect(f"the nugget {shorten_value(words)} is both vital and okay")
            split.add(words)
    kept: dict[str, Importance] = {words: importance for words, importance in nuggets.items() if words not in split}
    return NuggetsReply(kept, invalid + len(split), entries is not None, reader.defects)


def read_assignments(data: Mapping[str, Any], ids: Sequence[str]) -> LabelsById:
    """Read from the LLM's reply how far the answer contains each nugget, a fact that a good answer should contain.

    The reply may be any JSON object.
    """
    reader = ReplyReader(data)
    return LabelsById(reader.labels_by_id("assignments", ids, "assignment", _SUPPORTS), reader.defects)


async def find_nuggets(extra: ExtraLabels) -> None:
    """Ask the LLM for nuggets (facts that a good answer should contain), and how far the answer contains each.

    The facts are taken from the chunks that are related to the query.
    """
    if not extra.input.query or not extra.input.answer.strip() or not extra.input.chunks:
        return
    if not extra.input.earlier_turns and needs_earlier_turns(extra.call.query):
        extra.reasons["nuggets"] = QUERY_NEEDS_TURNS
        return
    nuggets = await _write_nuggets(extra)
    if isinstance(nuggets, str):
        extra.reasons["nuggets"] = nuggets
        return
    ids = with_ids("n", nuggets)
    supports: dict[str, NuggetSupport | None] = dict.fromkeys(ids, "not_support")
    if not extra.declined:
        answer = extra.text_for_prompt("answer", extra.call.answer)

        async def assign(some: Sequence[str]) -> dict[str, Any]:
            given = id_text_list({name: ids[name] for name in some})
            data = {"query": extra.input.query, "answer": answer, "nuggets": given}
            return (await extra.ask("assignments", data, _ASSIGNING, partial(read_assignments, ids=some))).reply.labels

        supports = await ask_in_batches(list(ids), MOST_KEPT, assign)
    extra.labels["nuggets"] = tuple(Nugget(words, nuggets[words], supports[name]) for name, words in ids.items())


async def _write_nuggets(extra: ExtraLabels) -> dict[str, Importance] | str:
    """Ask the LLM to write nuggets (facts that a good answer should contain) from the chunks related to the query.

    These have a grade of 1 or more. Returns the importance of at most `MOST_KEPT` nuggets by their text, vital ones
    first; or the reason why there are none.
    """
    labels, chunks = extra.judgement.chunks, extra.input.chunks
    if labels is None or any(chunk.rank >= len(labels) for chunk in chunks):
        reasons = extra.judgement.reasons
        return reasons.get("chunks") or reasons.get("") or "unparsable"
    grades = [labels[chunk.rank].grade for chunk in chunks]
    if grades.count(None) > MOST_UNJUDGED * len(grades):
        return "too_many_unjudged"
    nuggets: dict[str, Importance] = {}
    invalid = 0
    for batch in group_by_size([chunk for chunk, grade in zip(chunks, grades, strict=True) if grade], BATCH_CHARS):
        data = {"query": extra.input.query, "chunks": id_text_list({chunk.id: chunk.text for chunk in batch})}
        written = (await extra.ask("nuggets", data, _WRITING, read_nuggets)).reply
        if not written.listed:
            return "unparsable"
        invalid += written.invalid
        nuggets |= {words: label for words, label in written.nuggets.items() if words not in nuggets}
    if invalid:
        extra.attributes["invalid_nuggets"] = invalid
    if invalid > MOST_UNJUDGED * (invalid + len(nuggets)):
        return "too_many_unjudged"
    ranked = sorted(nuggets, key=lambda words: _IMPORTANCES.index(nuggets[words]))
    return {words: nuggets[words] for words in ranked[:MOST_KEPT]}


NUGGETS: Final = LabelFamily(frozenset({"nuggets"}), find_nuggets)
