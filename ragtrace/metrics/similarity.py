"""`answer_relevancy_similarity` and `semantic_similarity`: cosine similarity of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ragtrace.core.types import Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import SLACK, declined, formula, unmet, why_missing


@formula(needs=frozenset({"questions", "question_cosines", "noncommittal"}), range=(-1.0, 1.0), opt_in=True)
def answer_relevancy_similarity(call: RagCall, judgement: Judgement) -> Result:
    """Mean cosine similarity of the query to questions that a model guessed from the answer alone.

    Inputs: query, answer and an embedder; the questions are guessed without sight of the query.
    Formula: mean of cos(query, question) over the distinct guessed questions (the model is asked for three); 0 if the
        answer declines or is non-committal.
    Range: [-1, 1], higher is better; negative values stay.
    Judge calls: 1 and an embedding call.
    Unscored: `empty_answer`; `empty_query`; `query_needs_turns` (a follow-up: its embedding alone says little, whatever
        turns are known); `no_embedder`; `no_questions` (the model gave none); `zero_norm` (an
        embedding of zeros); `non_finite` (an embedding with NaN or infinity).
    Source: Es et al. 2023, "RAGAS", arXiv:2309.15217, section 3 (answer relevance).

    It measures embeddings, not words: unrelated texts score well above 0, and levels differ from embedder to embedder,
    so a threshold found with one does not hold for another.
    """
    if reason := unmet(call, judgement, "empty_answer", "empty_query"):
        return Unscored(reason)
    cosines = judgement.question_cosines
    attributes: dict[str, Plain] = {}
    if cosines is not None:
        attributes = {"questions": len(cosines), "similarities": tuple(float(value) for value in cosines)}
    if judgement.noncommittal or declined(judgement):
        return Score(0.0, attributes={**attributes, "noncommittal": True})
    if cosines == () or (cosines is None and judgement.questions == ()):
        return Unscored("no_questions")
    if cosines is None:
        return Unscored(why_missing(judgement, "question_cosines", "no_embedder"))
    if reason := _cosine_defect(cosines):
        return Unscored(reason, attributes=attributes if reason == "out_of_range" else {})
    return Score(math.fsum(cosines) / len(cosines), attributes=attributes)


@formula(needs=frozenset({"reference_cosine"}), range=(-1.0, 1.0), opt_in=True)
def semantic_similarity(call: RagCall, judgement: Judgement) -> Result:
    """Cosine similarity of the answer to the reference answer, by their embeddings.

    Inputs: answer, reference and an embedder.
    Formula: cos(answer, reference).
    Judge calls: an embedding call.
    Unscored: `empty_answer`; `needs_reference`; `no_embedder`; `zero_norm` (an embedding of zeros); `non_finite`
        (an embedding with NaN or infinity).
    Source: the semantic similarity of the open-rag-eval framework, without its default of 0.
    """
    if reason := unmet(call, judgement, "empty_answer", "needs_reference"):
        return Unscored(reason)
    cosine = judgement.reference_cosine
    if cosine is None:
        return Unscored(why_missing(judgement, "reference_cosine", "no_embedder"))
    reason = _cosine_defect((cosine,))
    return Unscored(reason) if reason else Score(float(cosine))


def _cosine_defect(cosines: Sequence[float]) -> str:
    if not all(math.isfinite(value) for value in cosines):
        return "non_finite"
    return "" if all(abs(value) <= 1 + SLACK for value in cosines) else "out_of_range"


METRICS: Final = (answer_relevancy_similarity, semantic_similarity)
