"""How relevant the retrieved chunks are to the query: means over their grades.

Grades: 0 unrelated, 1 related without an answer, 2 part of the answer or hidden in other text, 3 dedicated and exact.
The unit score of a chunk is grade / 3. The truth of the answer plays no part, nor does the answer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, Formula
from ragtrace.metrics.preconditions import (
    BEST_GRADE,
    RELEVANT_GRADE,
    about_chunks,
    grades,
    nothing_to_grade,
    relevance_threshold,
    too_many,
    why_ungraded,
)

DECAY: Final = 0.9


def context_relevance_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Mean relevance of the retrieved chunks to the query.

    Inputs: query and contexts.
    Formula: mean of grade / 3 over the chunks.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_query`; `contexts_missing`; `no_contexts` (retrieval returned nothing); `too_many_unjudged` (over
        20 % of the chunks have no valid label).
    Source: graded context relevance with the four grades of UMBRELA, arXiv:2406.06519, brought to [0, 1].

    The attribute `unit_scores` has one number a judged chunk, in rank order; `unjudged_ranks` (from 1) names the
    others, if there are any. A chunk is relevant from 0.5 on.
    """
    return _mean_unit(call, judgement, 1.0, max_unjudged)


def context_relevance_weighted_of(
    call: RagCall, judgement: Judgement, *, decay: float = DECAY, max_unjudged: float = MAX_UNJUDGED
) -> Result:
    """Mean relevance of the retrieved chunks to the query, the first ones weighing most.

    Inputs: query and contexts.
    Formula: sum(u_i * d^i) / sum(d^i) over the ranks i from 0, with u = grade / 3 and decay d = 0.9. A chunk without a
        valid label drops out with its weight and keeps its rank.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: as `context_relevance`.
    Source: geometric discounting by rank, as in rank-biased precision (Moffat and Zobel 2008).
    """
    return _mean_unit(call, judgement, decay, max_unjudged)


def contextual_accuracy_of(
    call: RagCall,
    judgement: Judgement,
    *,
    threshold: int = RELEVANT_GRADE,
    max_unjudged: float = MAX_UNJUDGED,
) -> Result:
    """Share of the retrieved chunks that are relevant to the query.

    Inputs: query and contexts.
    Formula: chunks of grade >= 2 / chunks.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: as `context_relevance`.
    Source: precision over all that was retrieved, with grades made binary as in UMBRELA, arXiv:2406.06519.
    """
    return _mean(call, judgement, lambda grade: float(grade >= threshold), max_unjudged, threshold)


def umbrela_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Mean grade of the retrieved chunks.

    Inputs: query and contexts.
    Formula: mean of the grades.
    Range: [0, 3], higher is better.
    Judge calls: none beside the main reply.
    Unscored: as `context_relevance`.
    Source: Upadhyay et al. 2024, "UMBRELA", arXiv:2406.06519: its grades, without its parsing of free text.

    The attribute `grades` has one number a judged chunk, in rank order.
    """
    return _mean(call, judgement, float, max_unjudged)


def discounted_mean(units: Sequence[float | None], decay: float = 1.0) -> float:
    """sum(u_i * decay^i) / sum(decay^i) over the scores that are not None, i their position from 0.

    Args:
        units: one score a chunk in rank order, at least one of them a number; None: unjudged.
        decay: weight of a rank relative to the one before it, in (0, 1]; 1: the plain mean.
    """
    weighted = [(unit, decay**rank) for rank, unit in enumerate(units) if unit is not None]
    return sum(unit * weight for unit, weight in weighted) / sum(weight for _, weight in weighted)


def _mean_unit(call: RagCall, judgement: Judgement, decay: float, max_unjudged: float) -> Result:
    return _mean(call, judgement, lambda grade: grade / BEST_GRADE, max_unjudged, decay=decay)


def _mean(
    call: RagCall,
    judgement: Judgement,
    worth: Callable[[int], float],
    max_unjudged: float,
    threshold: int = RELEVANT_GRADE,
    *,
    decay: float = 1.0,
) -> Result:
    reason, seen = why_ungraded(call, judgement)
    if reason or not call.contexts:
        return Unscored(reason or "no_contexts", explanation=seen or None)
    graded = grades(call, judgement)
    attributes = about_chunks(call, judgement, graded, threshold)
    unjudged = graded.count(None)
    if too_many(unjudged, len(graded), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    value = discounted_mean([None if grade is None else worth(grade) for grade in graded], decay)
    return Score(value, attributes=attributes)


def contextual_accuracy_from(grade: int) -> Formula:
    """`contextual_accuracy` with another bar: a chunk counts from *grade* (1, 2 or 3) on; 1 asks for the topic only.

    The metric is called `contextual_accuracy_from_<grade>`.

    Raises:
        SettingsError: *grade* is not 1, 2 or 3.
    """
    compute = partial(contextual_accuracy_of, threshold=relevance_threshold(grade))
    return Formula(f"contextual_accuracy_from_{grade}", "1", compute, _NEEDS, threshold=0.5, settled=nothing_to_grade)


def context_relevance_decaying(decay: float, *, name: str) -> Formula:
    """`context_relevance_weighted` with another *decay*, as a metric called *name*.

    Raises:
        SettingsError: *decay* is not in (0, 1].
    """
    if not 0 < decay <= 1:
        raise SettingsError(f"decay must be above 0 and at most 1, got {decay!r}; 1 weighs all ranks alike")
    return Formula(
        name, "1", partial(context_relevance_weighted_of, decay=decay), _NEEDS, threshold=0.5, settled=nothing_to_grade
    )


_NEEDS: Final = frozenset({"chunks", "claims", "answer_label"})
# The threshold asks for chunks that are relevant on average, or for a majority of relevant ones.
context_relevance: Final = Formula(
    "context_relevance", "1", context_relevance_of, _NEEDS, threshold=0.5, settled=nothing_to_grade
)
context_relevance_weighted: Final = Formula(
    "context_relevance_weighted", "1", context_relevance_weighted_of, _NEEDS, threshold=0.5, settled=nothing_to_grade
)
contextual_accuracy: Final = Formula(
    "contextual_accuracy", "1", contextual_accuracy_of, _NEEDS, threshold=0.5, settled=nothing_to_grade
)
umbrela: Final = Formula("umbrela", "1", umbrela_of, _NEEDS, range=(0.0, 3.0), settled=nothing_to_grade)
METRICS: Final[tuple[Metric, ...]] = (context_relevance, context_relevance_weighted, contextual_accuracy, umbrela)
FACTORIES: Final = (context_relevance_decaying, contextual_accuracy_from)
