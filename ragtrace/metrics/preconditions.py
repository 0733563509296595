"""What most metrics ask of a call and its labels before they count: the situations in which there is no number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Document, Judgement, Plain, RagCall
from ragtrace.metrics.formula import SLACK

RELEVANT_GRADE: Final = 2
"""From this grade on a chunk is relevant: it holds at least part of the answer."""
BEST_GRADE: Final = 3


def blank(text: str | None) -> bool:
    """Whether *text* is absent or nothing but white space."""
    return not text or text.isspace()


def no_answer(call: RagCall) -> bool:
    """Whether the answer is absent or blank."""
    return blank(call.answer)


def no_query(call: RagCall) -> bool:
    """Whether the query is absent or blank."""
    return blank(call.query)


def any_text(contexts: Sequence[Document] | None) -> bool:
    """Whether at least one of the contexts is not blank."""
    return not all(blank(document.text) for document in contexts or ())


def declined(judgement: Judgement) -> bool:
    """Whether the answer declines and states nothing that could be checked: a label alone hides no statement."""
    return judgement.answer_label == "abstained" and not any(claim.checkable for claim in judgement.claims or ())


def why_missing(judgement: Judgement, field: str) -> str:
    """Why *field* of the judgement is None, as far as the judge has said it."""
    return judgement.reasons.get(field) or judgement.reasons.get("") or "unparsable"


def too_many(unjudged: int, items: int, limit: float) -> bool:
    """Whether more than the share *limit* of *items* has no valid label, or none has."""
    return unjudged >= items or unjudged > limit * items + SLACK


def why_ungraded(call: RagCall, judgement: Judgement) -> tuple[str, str]:
    """Why the retrieved chunks have no grades: reason and what was seen; ("", "") if they have.

    Chunks that are all blank, or none at all, need no judge.
    """
    if no_query(call):
        return "empty_query", ""
    if call.contexts is None:
        return "contexts_missing", ""
    if not any_text(call.contexts):
        return "", ""
    if judgement.chunks is None:
        return why_missing(judgement, "chunks"), ""
    if len(judgement.chunks) != len(call.contexts):  # by position only: which ones lack a label cannot be told
        return "unparsable", f"{len(judgement.chunks)} labels for {len(call.contexts)} chunks"
    return "", ""


def nothing_to_grade(call: RagCall) -> bool:
    """Whether there is nothing that a judge could grade: no query, or no chunk with a text."""
    return no_query(call) or not any_text(call.contexts)


def grades(call: RagCall, judgement: Judgement) -> list[int | None]:
    """The grade of every chunk in rank order, where `why_ungraded` finds none missing; None: unjudged.

    A blank chunk is 0 whatever was said of it.
    """
    contexts = call.contexts or ()
    if not any_text(contexts):
        return [0] * len(contexts)
    labels = zip(contexts, judgement.chunks or (), strict=True)
    return [0 if blank(document.text) else _valid(label.grade) for document, label in labels]


def about_chunks(
    call: RagCall, judgement: Judgement, graded: Sequence[int | None], threshold: int = RELEVANT_GRADE
) -> dict[str, Plain]:
    """What every metric over chunks publishes beside its number: the grades, counts, and what they make noticeable."""
    judged = [grade for grade in graded if grade is not None]
    relevant = sum(grade >= threshold for grade in judged)
    attributes: dict[str, Plain] = {
        "chunks": len(judged),
        "relevant_chunks": relevant,
        "unjudged": len(graded) - len(judged),
        "duplicate_chunks": sum(document.duplicate for document in call.contexts or ()),
        "grades": tuple(map(float, judged)),
        "unit_scores": tuple(grade / BEST_GRADE for grade in judged),
    }
    if len(judged) < len(graded):
        attributes["unjudged_ranks"] = tuple(float(rank) for rank, grade in enumerate(graded, 1) if grade is None)
    if declined(judgement) and any(grade >= RELEVANT_GRADE for grade in judged):
        attributes["missed_answer"] = True
    return attributes


def relevance_threshold(grade: object) -> int:
    """*grade* if it can be a bar of relevance.

    Raises:
        SettingsError: it is not 1, 2 or 3.
    """
    if not isinstance(grade, int) or isinstance(grade, bool) or not 1 <= grade <= BEST_GRADE:
        raise SettingsError(f"the grade from which a chunk is relevant must be 1, 2 or 3, got {grade!r}")
    return grade


def _valid(grade: int | None) -> int | None:
    return grade if type(grade) is int and 0 <= grade <= BEST_GRADE else None  # True is no grade
