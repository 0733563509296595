"""How early the relevant chunks come in what was retrieved. A chunk is relevant from grade 2 on.

What was never retrieved is not seen: these are precision-like figures, not recall.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import Formula
from ragtrace.metrics.preconditions import (
    RELEVANT_GRADE,
    about_chunks,
    grades,
    nothing_to_grade,
    relevance_threshold,
    why_ungraded,
)

DEFAULT_K: Final = 5
"""A usual number of chunks to show a model."""


def precision_at_k_of(
    call: RagCall, judgement: Judgement, *, k: int = DEFAULT_K, threshold: int = RELEVANT_GRADE
) -> Result:
    """Share of the first K places that hold a relevant chunk.

    Inputs: query and contexts; K = 5.
    Formula: relevant chunks among the first K / K, also when fewer than K were retrieved.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_query`; `contexts_missing`; `unjudged_rank` (one of the first K chunks has no valid label).
    Source: precision at K as trec_eval computes it.

    With nothing retrieved it is 0, with the attribute `retrieved` 0.
    """
    return _ranked(call, judgement, k, threshold, _precision)


def average_precision_at_k_of(
    call: RagCall, judgement: Judgement, *, k: int = DEFAULT_K, threshold: int = RELEVANT_GRADE
) -> Result:
    """Mean, over the relevant chunks among the first K, of the precision at their ranks.

    Inputs: query and contexts; K = 5.
    Formula: sum over relevant ranks i <= K of precision at i / number of relevant chunks in the first K; 0 if none is.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_query`; `contexts_missing`; `unjudged_rank` (one of the first K chunks has no valid label).
    Source: average precision, normalised by what is relevant among the retrieved, as the total is not known.
    """
    return _ranked(call, judgement, k, threshold, _average_precision)


def reciprocal_rank_of(call: RagCall, judgement: Judgement, *, threshold: int = RELEVANT_GRADE) -> Result:
    """One over the rank of the first relevant chunk; its mean over queries is the mean reciprocal rank.

    Inputs: query and contexts, all that were retrieved.
    Formula: 1 / rank of the first relevant chunk, from 1; 0 if none is relevant.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_query`; `contexts_missing`; `unjudged_rank` (a chunk before the first relevant one has no valid
        label).
    Source: the reciprocal rank of the TREC question-answering tracks.
    """
    return _ranked(call, judgement, None, threshold, _reciprocal_rank)


def _precision(hits: Sequence[bool], k: int) -> float:
    return sum(hits) / k


def _average_precision(hits: Sequence[bool], _: int) -> float:
    precisions = [sum(hits[:rank]) / rank for rank, hit in enumerate(hits, 1) if hit]
    return sum(precisions) / len(precisions) if precisions else 0.0


def _reciprocal_rank(hits: Sequence[bool], _: int) -> float:
    return 1 / (hits.index(True) + 1) if True in hits else 0.0


def _ranked(
    call: RagCall,
    judgement: Judgement,
    k: int | None,
    threshold: int,
    value: Callable[[Sequence[bool], int], float],
) -> Result:
    reason, seen = why_ungraded(call, judgement)
    if reason:
        return Unscored(reason, explanation=seen or None)
    graded = grades(call, judgement)
    cut = _up_to_first_relevant(graded, threshold) if k is None else graded[:k]
    hits = [grade is not None and grade >= threshold for grade in cut]
    attributes = {
        **about_chunks(call, judgement, graded, threshold),
        "retrieved": len(graded),
        "relevant": sum(hits),
        **({} if k is None else {"k": k}),
    }
    if None in cut:
        return Unscored("unjudged_rank", attributes=attributes)
    return Score(value(hits, k or len(graded)), attributes=attributes)


def _up_to_first_relevant(graded: Sequence[int | None], threshold: int) -> Sequence[int | None]:
    first = next((rank for rank, grade in enumerate(graded, 1) if grade is not None and grade >= threshold), None)
    return graded[:first]


def precision_at(k: int, *, threshold: int = RELEVANT_GRADE) -> Formula:
    """`precision_at_k` for another K, called `precision_at_<K>`.

    Args:
        k: places looked at, at least 1.
        threshold: grade from which a chunk is relevant: 1, 2 or 3.

    Raises:
        SettingsError: one of them is not of that kind.
    """
    compute = partial(precision_at_k_of, k=_places(k), threshold=relevance_threshold(threshold))
    return Formula(f"precision_at_{k}{_suffix(threshold)}", "1", compute, _NEEDS, settled=nothing_to_grade)


def average_precision_at(k: int, *, threshold: int = RELEVANT_GRADE) -> Formula:
    """`average_precision_at_k` for another K, called `average_precision_at_<K>`; arguments as `precision_at`."""
    compute = partial(average_precision_at_k_of, k=_places(k), threshold=relevance_threshold(threshold))
    return Formula(f"average_precision_at_{k}{_suffix(threshold)}", "1", compute, _NEEDS, settled=nothing_to_grade)


def reciprocal_rank_from(grade: int) -> Formula:
    """`reciprocal_rank` with another bar: a chunk is relevant from *grade* (1, 2 or 3) on.

    The metric is called `reciprocal_rank_from_<grade>`.

    Raises:
        SettingsError: *grade* is not 1, 2 or 3.
    """
    compute = partial(reciprocal_rank_of, threshold=relevance_threshold(grade))
    return Formula(f"reciprocal_rank_from_{grade}", "1", compute, _NEEDS, settled=nothing_to_grade)


def _places(k: object) -> int:
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise SettingsError(f"k must be a whole number of at least 1, got {k!r}; write for instance precision_at(3)")
    return k


def _suffix(threshold: int) -> str:
    return "" if threshold == RELEVANT_GRADE else f"_from_{threshold}"


_NEEDS: Final = frozenset({"chunks", "claims", "answer_label"})
precision_at_k: Final = Formula("precision_at_k", "1", precision_at_k_of, _NEEDS, settled=nothing_to_grade)
average_precision_at_k: Final = Formula(
    "average_precision_at_k", "1", average_precision_at_k_of, _NEEDS, settled=nothing_to_grade
)
reciprocal_rank: Final = Formula("reciprocal_rank", "1", reciprocal_rank_of, _NEEDS, settled=nothing_to_grade)
METRICS: Final[tuple[Metric, ...]] = (precision_at_k, average_precision_at_k, reciprocal_rank)
FACTORIES: Final = (precision_at, average_precision_at, reciprocal_rank_from)
