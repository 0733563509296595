"""Labels from embeddings: similarity of query and guessed questions, and of answer and reference answer."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ragtrace.core.follow_ups import QUERY_NEEDS_TURNS, needs_earlier_turns
from ragtrace.judges.llm.embedder import cosine_similarities
from ragtrace.judges.llm.extra_labels import ExtraLabels, LabelFamily
from ragtrace.judges.llm.prompt import YES_NO, enum, object_with, strings
from ragtrace.judges.llm.reply_reader import ReplyReader, one_line

WANTED: Final = 3
_SCHEMA: Final = object_with(noncommittal=enum(YES_NO), questions=strings())


class QuestionsReply(NamedTuple):
    """Reply of the LLM that lists questions which the given answer would answer."""

    noncommittal: bool | None
    questions: tuple[str, ...]
    """Distinct questions that are not blank, in the order of the reply."""
    defects: list[str]


def read_questions(data: Mapping[str, Any]) -> QuestionsReply:
    """Read from the LLM's JSON reply the questions that an answer would answer."""
    reader = ReplyReader(data)
    label = reader.label(data.get("noncommittal"), YES_NO, "noncommittal")
    written = reader.texts("questions")
    if len(written) > WANTED:
        reader.add_defect(f"questions has {len(written)} entries; give {WANTED} different ones")
    # Questions are equal that differ in case, form of characters or the closing mark.
    distinct = {
        unicodedata.normalize("NFKC", text).casefold().rstrip("?.! "): text
        for text in map(one_line, written[:WANTED])
        if text
    }
    if not distinct and label != "yes":
        reader.add_defect(f"there is no question; give {WANTED} different ones")
    return QuestionsReply(None if label is None else label == "yes", tuple(distinct.values()), reader.defects)


async def find_questions(extra: ExtraLabels) -> None:
    """Ask the LLM which questions the answer would answer, and compare their embeddings with that of the query.

    The LLM is not shown the query.
    """
    embedder = extra.session.embedder
    if embedder is None:
        extra.reasons["question_cosines"] = "no_embedder"
        return
    if not extra.input.query or not extra.input.answer.strip() or extra.declined:
        return
    if needs_earlier_turns(extra.call.query):  # the embedding of a query such as "Yes." is near no question's
        extra.reasons["question_cosines"] = QUERY_NEEDS_TURNS
        return
    data = {"answer": extra.text_for_prompt("answer", extra.call.answer)}
    reply = (await extra.ask("questions", data, _SCHEMA, read_questions)).reply
    if reply.noncommittal is None:
        extra.reasons["question_cosines"] = "unparsable"
        return
    extra.labels |= {"noncommittal": reply.noncommittal, "questions": reply.questions}
    if not reply.questions:
        extra.reasons["question_cosines"] = "no_questions"
    elif not reply.noncommittal:  # a noncommittal answer scores 0 whatever the cosines are
        vectors = await extra.session.embed(embedder, [extra.input.query, *reply.questions])
        extra.labels["question_cosines"] = cosine_similarities(vectors, 1 + len(reply.questions))


async def find_reference_cosine(extra: ExtraLabels) -> None:
    """Label the call with the cosine similarity of the embeddings of answer and reference answer."""
    embedder = extra.session.embedder
    if embedder is None:
        extra.reasons["reference_cosine"] = "no_embedder"
        return
    answer, reference = (extra.call.answer or "").strip(), (extra.call.reference or "").strip()
    if answer and reference:
        extra.labels["reference_cosine"] = cosine_similarities(
            await extra.session.embed(embedder, [answer, reference]), 2
        )[0]


QUESTIONS: Final = LabelFamily(frozenset({"questions", "question_cosines", "noncommittal"}), find_questions)
REFERENCE_COSINE: Final = LabelFamily(frozenset({"reference_cosine"}), find_reference_cosine)
