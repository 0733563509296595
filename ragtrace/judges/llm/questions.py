"""The questions that an answer would answer, and how close they are to the one that was asked."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from ragtrace.judges.llm.family import Case, Found, Request, instructions, note, shown, text_of
from ragtrace.judges.llm.schemas import YES_NO
from ragtrace.judges.llm.shapes import one_of, record, texts
from ragtrace.judges.local.embedder import cosines

FIELDS: Final = frozenset({"questions", "question_cosines", "noncommittal"})
WANTED: Final = 3
_SCHEMA: Final = record(noncommittal=one_of(YES_NO), questions=texts())


class Reply(NamedTuple):
    """What a reply says."""

    noncommittal: bool | None
    questions: tuple[str, ...]
    """Distinct, not blank, in their order."""
    defects: list[str]


def read(data: Mapping[str, Any]) -> Reply:
    """*data*, a reply, whatever it is."""
    defects: list[str] = []
    label: object = data.get("noncommittal")
    noncommittal = label == "yes" if isinstance(label, str) and label in YES_NO else None
    if noncommittal is None:
        note(defects, f"noncommittal must be yes or no, got {shown(label)}")
    given: object = data.get("questions")
    items = cast("list[object]", given) if isinstance(given, list) else []
    if not isinstance(given, list):
        note(defects, "questions is missing or not a list")
    elif len(items) > WANTED:
        note(defects, f"questions has {len(items)} entries; give {WANTED} different ones")
    questions = {_folded(text): text for text in (text_of({"text": item}) for item in items[:WANTED]) if text}
    if not questions and not noncommittal:
        note(defects, f"there is no question; give {WANTED} different ones")
    return Reply(noncommittal, tuple(questions.values()), defects)


async def find(case: Case, found: Found) -> None:
    """Ask for the questions with the answer alone, then embed them with the query."""
    if case.embedder is None:
        found.reasons["question_cosines"] = "no_embedder"
        return
    if not case.sheet.query or not case.sheet.answer.strip() or case.declined:
        return
    data = {"answer": found.shown("answer", case.call.answer)}
    request = Request("questions", instructions("questions"), data, _SCHEMA, lambda reply: read(reply).defects)
    reply = read((await found.ask(case, request)).data)
    if reply.noncommittal is None:
        found.reasons["question_cosines"] = "unparsable"
        return
    found.labels |= {"noncommittal": reply.noncommittal, "questions": reply.questions}
    if not reply.questions:
        found.reasons["question_cosines"] = "no_questions"
    elif not reply.noncommittal:  # else the score is 0 whatever they are
        vectors = await found.embed(case.embedder, [case.sheet.query, *reply.questions])
        found.labels["question_cosines"] = cosines(vectors, 1 + len(reply.questions))


def _folded(text: str) -> str:
    """Questions that differ in case, form of characters or the closing mark are one."""
    return unicodedata.normalize("NFKC", text).casefold().rstrip("?.! ")
