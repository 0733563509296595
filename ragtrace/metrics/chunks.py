"""Retrieval: how relevant the retrieved chunks are to the query, and how early the relevant ones come.

Grades of a chunk: 0, it is unrelated to the query; 1, on the topic without an answer; 2, it answers in part, or the
answer is buried in other text; 3, it is dedicated to the query and contains the exact answer.
The unit score of a chunk is grade / 3; a chunk is relevant from grade 2 on. The truth of the answer plays no part, nor
does the answer itself. What was never retrieved is not seen: the metrics of ranks are like precision, not like recall.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.text import OwnText
from ragtrace.core.types import Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import (
    MAX_UNJUDGED,
    Formula,
    any_text,
    blank,
    declined,
    formula,
    too_many,
    uncalibrated,
    unmet,
    why_missing,
)

RELEVANT_GRADE: Final = 2
"""Lowest grade of a relevant chunk, which holds at least a part of the answer."""
BEST_GRADE: Final = 3
DECAY: Final = 0.9
DEFAULT_K: Final = 5
"""Number of first chunks that the metrics at k read: as many as applications usually show a model."""
_NEEDS: Final = frozenset({"chunks", "claims", "answer_label"})
_READS: Final = frozenset({"grade"})


def _nothing_to_grade(call: RagCall) -> bool:
    return blank(call.query) or not any_text(call.contexts)


# A threshold of 0.5 asks for chunks that are relevant on average, or for a majority of relevant chunks.
@formula(needs=_NEEDS, reads=_READS, threshold=0.5, settled=_nothing_to_grade)
def context_relevance(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Mean relevance of the retrieved chunks to the query.

    Inputs: query and contexts.
    Formula: mean of grade / 3 over the chunks. From probabilities of a decision model: the mean probability that a
        chunk helps to answer the query.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_query`; `query_needs_turns` (a follow-up of which no earlier turn is known); `contexts_missing`;
        `no_contexts` (retrieval returned nothing); `too_many_unjudged` (over 20 % of the chunks have no valid label).
    Source: graded context relevance with the four grades of UMBRELA, arXiv:2406.06519, brought to [0, 1].

    The attribute `unit_scores` has one number a judged chunk, in rank order; `unjudged_ranks` (from 1) names the
    others, if there are any. A chunk is relevant from 0.5 on.
    """
    return _mean(call, judgement, lambda grade: grade / BEST_GRADE, max_unjudged, by_chance=True)


@formula(needs=_NEEDS, reads=_READS, threshold=0.5, settled=_nothing_to_grade)
def context_relevance_weighted(
    call: RagCall, judgement: Judgement, *, decay: float = DECAY, max_unjudged: float = MAX_UNJUDGED
) -> Result:
    """Mean relevance of the retrieved chunks to the query, in which earlier chunks weigh more.

    Inputs: query and contexts.
    Formula: sum(u_i * d^i) / sum(d^i) over the ranks i from 0, with u = grade / 3 and decay d = 0.9. A chunk without a
        valid label is left out of both sums; the ranks of the other chunks do not change.
    Unscored: as `context_relevance`.
    Source: geometric discounting by rank, as in rank-biased precision (Moffat and Zobel 2008).
    """
    return _mean(call, judgement, lambda grade: grade / BEST_GRADE, max_unjudged, decay=decay, by_chance=True)


@formula(needs=_NEEDS, reads=_READS, threshold=0.5, settled=_nothing_to_grade)
def contextual_accuracy(
    call: RagCall, judgement: Judgement, *, threshold: int = RELEVANT_GRADE, max_unjudged: float = MAX_UNJUDGED
) -> Result:
    """Share of the retrieved chunks that are relevant to the query.

    Inputs: query and contexts.
    Formula: chunks of grade >= 2 / chunks.
    Unscored: as `context_relevance`.
    Source: precision over all that was retrieved, with grades made binary as in UMBRELA, arXiv:2406.06519.
    """
    return _mean(call, judgement, lambda grade: float(grade >= threshold), max_unjudged, threshold)


@formula(needs=_NEEDS, reads=_READS, range=(0.0, 3.0), settled=_nothing_to_grade)
def umbrela(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Mean UMBRELA grade, from 0 to 3, of the relevance of the retrieved chunks to the query.

    Inputs: query and contexts.
    Formula: mean of the grades.
    Unscored: as `context_relevance`.
    Source: Upadhyay et al. 2024, "UMBRELA", arXiv:2406.06519: its grades, without its parsing of free text.

    The attribute `grades` has one number a judged chunk, in rank order.
    """
    return _mean(call, judgement, float, max_unjudged)


@formula(needs=_NEEDS, reads=_READS, settled=_nothing_to_grade)
def precision_at_k(
    call: RagCall, judgement: Judgement, *, k: int = DEFAULT_K, threshold: int = RELEVANT_GRADE
) -> Result:
    """Share of relevant chunks among the first K retrieved chunks.

    Inputs: query and contexts; K = 5.
    Formula: relevant chunks among the first K / K, also when fewer than K were retrieved.
    Unscored: `empty_query`; `query_needs_turns` (a follow-up of which no earlier turn is known); `contexts_missing`;
        `unjudged_rank` (one of the first K chunks has no valid label).
    Source: precision at K as trec_eval computes it.

    With nothing retrieved it is 0, with the attribute `retrieved` 0.
    """
    return _rank_score(call, judgement, lambda hits: sum(hits) / k, threshold, k)


@formula(needs=_NEEDS, reads=_READS, settled=_nothing_to_grade)
def average_precision_at_k(
    call: RagCall, judgement: Judgement, *, k: int = DEFAULT_K, threshold: int = RELEVANT_GRADE
) -> Result:
    """Average precision over the first K retrieved chunks: mean of the precision at the rank of each relevant chunk.

    Inputs: query and contexts; K = 5.
    Formula: sum over relevant ranks i <= K of precision at i / number of relevant chunks in the first K; 0 if none is.
    Unscored: `empty_query`; `query_needs_turns` (a follow-up of which no earlier turn is known); `contexts_missing`;
        `unjudged_rank` (one of the first K chunks has no valid label).
    Source: average precision, normalised by what is relevant among the retrieved, as the total is not known.
    """
    return _rank_score(call, judgement, _average_precision, threshold, k)


@formula(needs=_NEEDS, reads=_READS, settled=_nothing_to_grade)
def reciprocal_rank(call: RagCall, judgement: Judgement, *, threshold: int = RELEVANT_GRADE) -> Result:
    """One divided by the rank of the first relevant chunk, or 0 if no chunk is relevant.

    Inputs: query and contexts, all that were retrieved.
    Formula: 1 / rank of the first relevant chunk, from 1; 0 if none is relevant.
    Unscored: `empty_query`; `query_needs_turns` (a follow-up of which no earlier turn is known); `contexts_missing`;
        `unjudged_rank` (a chunk before the first relevant one has no valid label).
    Source: the reciprocal rank of the TREC question-answering tracks.

    The mean over queries is the mean reciprocal rank.
    """
    return _rank_score(call, judgement, lambda hits: 1 / len(hits) if any(hits) else 0.0, threshold, None)


def discounted_mean(units: Sequence[float | None], decay: float = 1.0) -> float:
    """Return the weighted mean of scores in rank order, where each weight is *decay* times the weight before.

    It is sum(u_i * decay^i) / sum(decay^i) over the scores that are not None, i their position from 0.

    Args:
        units: one score a chunk in rank order, at least one of them a number; None: unjudged.
        decay: weight of a rank relative to the one before it, in (0, 1]; 1: the plain mean.
    """
    weighted = [(unit, decay**rank) for rank, unit in enumerate(units) if unit is not None]
    return sum(unit * weight for unit, weight in weighted) / sum(weight for _, weight in weighted)


def _mean(
    call: RagCall,
    judgement: Judgement,
    worth: Callable[[int], float],
    max_unjudged: float,
    threshold: int = RELEVANT_GRADE,
    *,
    decay: float = 1.0,
    by_chance: bool = False,
) -> Result:
    """Return the weighted mean value of the retrieved chunks as a metric's result.

    Args:
        worth: returns the value of a chunk from its relevance grade.
        max_unjudged: largest share of chunks without a valid grade; with more, the result is unscored.
        threshold: least grade of a relevant chunk, for the result's attributes.
        decay: weight of the chunk at each rank, as a multiple of the weight of the chunk before it.
        by_chance: whether the value of a chunk is its probability of being helpful, where the judge gives one.
    """
    graded = _all_grades(call, judgement)
    if isinstance(graded, Unscored):
        return graded
    if not graded:
        return Unscored("no_contexts")
    chances = _chances(call, judgement)
    attributes = _chunk_attributes(call, judgement, graded, chances, threshold)
    if too_many(graded.count(None), len(graded), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    if chances is None:
        value = discounted_mean([None if grade is None else worth(grade) for grade in graded], decay)
        return Score(value, attributes=attributes)
    likely = chances if by_chance else [worth(grade) for grade in graded if grade is not None]
    return uncalibrated(discounted_mean(likely, decay), None, attributes)


def _rank_score(
    call: RagCall, judgement: Judgement, value: Callable[[Sequence[bool]], float], threshold: int, k: int | None
) -> Result:
    """Return a score computed from which of the first *k* retrieved chunks are relevant.

    The function *value* computes it from one boolean for each chunk. With *k* None these are the chunks up to the first
    relevant one.
    """
    graded = _all_grades(call, judgement)
    if isinstance(graded, Unscored):
        return graded
    hits = [grade is not None and grade >= threshold for grade in graded]
    cut = k if k is not None else hits.index(True) + 1 if True in hits else None
    chances = _chances(call, judgement)
    attributes = {
        **_chunk_attributes(call, judgement, graded, chances, threshold),
        "retrieved": len(graded),
        "relevant": sum(hits[:cut]),
        **({} if k is None else {"k": k}),
    }
    if None in graded[:cut]:
        return Unscored("unjudged_rank", attributes=attributes)
    found = value(hits[:cut])
    return Score(found, attributes=attributes) if chances is None else uncalibrated(found, None, attributes)


def _average_precision(hits: Sequence[bool]) -> float:
    precisions = [sum(hits[:rank]) / rank for rank, hit in enumerate(hits, 1) if hit]
    return sum(precisions) / len(precisions) if precisions else 0.0


def _all_grades(call: RagCall, judgement: Judgement) -> Sequence[int | None] | Unscored:
    """Return the relevance grade of every retrieved chunk in rank order, or the reason why there are no grades.

    The grade of an unjudged chunk is None. A blank chunk has grade 0, and where all are blank no judge is needed.
    """
    if reason := unmet(call, judgement, "empty_query", "query_needs_turns", "contexts_missing"):
        return Unscored(reason)
    contexts, labels = call.contexts or (), judgement.chunks
    if not any_text(contexts):
        return [0] * len(contexts)
    if labels is None:
        return Unscored(why_missing(judgement, "chunks"))
    if len(labels) != len(contexts):  # labels go by position, so it is unknown which chunks lack one
        return Unscored("unparsable", explanation=OwnText(f"{len(labels)} labels for {len(contexts)} chunks"))
    given = [0 if blank(each.text) else label.grade for each, label in zip(contexts, labels, strict=True)]
    # bool is a subclass of int, but True is no grade.
    return [grade if type(grade) is int and 0 <= grade <= BEST_GRADE else None for grade in given]


def _chances(call: RagCall, judgement: Judgement) -> list[float] | None:
    """Return the probability that each retrieved chunk helps to answer the query, or None if the judge gives grades.

    A blank chunk has the probability 0.
    """
    contexts, labels = call.contexts or (), judgement.chunks or ()
    pairs = zip(contexts, labels, strict=False)
    given = [0.0 if blank(each.text) else label.probability for each, label in pairs]
    known = [chance for chance in given if chance is not None]
    return known if known and len(known) == len(contexts) and any_text(contexts) else None


def _chunk_attributes(
    call: RagCall,
    judgement: Judgement,
    graded: Sequence[int | None],
    chances: Sequence[float] | None,
    threshold: int,
) -> dict[str, Plain]:
    """Return the score attributes of every metric over chunks: relevance grades, counts, and missed answers.

    An answer was missed if the answer declines to answer although a relevant chunk was retrieved.

    Args:
        graded: grade of each chunk; None: it has none.
        chances: probability that each chunk helps to answer the query; None: the judge gives grades.
        threshold: least grade of a relevant chunk.
    """
    judged = [grade for grade in graded if grade is not None]
    attributes: dict[str, Plain] = {
        "chunks": len(judged),
        "relevant_chunks": sum(grade >= threshold for grade in judged),
        "unjudged": len(graded) - len(judged),
        "duplicate_chunks": sum(document.duplicate for document in call.contexts or ()),
    }
    if chances is None:
        attributes["grades"] = tuple(map(float, judged))
        attributes["unit_scores"] = tuple(grade / BEST_GRADE for grade in judged)
    else:
        attributes["unit_scores"] = tuple(chances)
    if len(judged) < len(graded):
        attributes["unjudged_ranks"] = tuple(float(rank) for rank, grade in enumerate(graded, 1) if grade is None)
    if declined(judgement) and any(grade >= RELEVANT_GRADE for grade in judged):
        attributes["missed_answer"] = True
    return attributes


def context_relevance_decaying(decay: float, *, name: str) -> Formula:
    """Return a metric called *name*: context relevance weighted by rank, with weights falling by the factor *decay*.

    Examples:
        >>> metric = ragtrace.metrics.context_relevance_decaying(0.5, name="relevance_of_first")
        >>> chunks = ["Trains leave at noon.", "The tower is in Paris."]
        >>> with ragtrace.testing.OpenAIServer() as server:  # in place of yours
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(
        ...         query="Where is the tower?", contexts=chunks, answer="In Paris.", metrics=[metric], judge=judge
        ...     )
        >>> scores["relevance_of_first"]
        Score(0.333333, metric='relevance_of_first', label='fail')

    Args:
        decay: weight of a rank divided by that of the rank before it, in (0, 1].
        name: name of the metric.

    Raises:
        SettingsError: *decay* is not in (0, 1].
    """
    if not 0 < decay <= 1:
        raise SettingsError(f"decay must be above 0 and at most 1, got {decay!r}; 1 weighs all ranks alike")
    return context_relevance_weighted.variant(name, decay=decay)


def contextual_accuracy_from(grade: int) -> Formula:
    """Return a metric for the share of retrieved chunks that have at least the relevance *grade* (1, 2 or 3).

    It is `contextual_accuracy` with another threshold. The metric is called `contextual_accuracy_from_<grade>`. With
    grade 1 it is enough that a chunk is on the topic.

    Examples:
        >>> metric = ragtrace.metrics.contextual_accuracy_from(1)
        >>> chunks = ["Trains leave at noon.", "The tower is in Paris."]
        >>> with ragtrace.testing.OpenAIServer() as server:  # in place of yours
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(
        ...         query="Where is the tower?", contexts=chunks, answer="In Paris.", metrics=[metric], judge=judge
        ...     )
        >>> scores["contextual_accuracy_from_1"]
        Score(0.5, metric='contextual_accuracy_from_1', label='pass')

    Args:
        grade: lowest grade that counts: 1, 2 or 3.

    Raises:
        SettingsError: *grade* is not 1, 2 or 3.
    """
    return contextual_accuracy.variant(f"contextual_accuracy_from_{grade}", threshold=_check_grade(grade))


def precision_at(k: int, *, threshold: int = RELEVANT_GRADE) -> Formula:
    """Return the metric `precision_at_<K>`: the share of relevant chunks among the first K retrieved chunks.

    Examples:
        >>> metric = ragtrace.metrics.precision_at(2)
        >>> chunks = ["Trains leave at noon.", "The tower is in Paris."]
        >>> with ragtrace.testing.OpenAIServer() as server:  # in place of yours
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(
        ...         query="Where is the tower?", contexts=chunks, answer="In Paris.", metrics=[metric], judge=judge
        ...     )
        >>> scores["precision_at_2"]
        Score(0.5, metric='precision_at_2')

    Args:
        k: places looked at, at least 1.
        threshold: grade from which a chunk is relevant: 1, 2 or 3.

    Raises:
        SettingsError: *k* or *threshold* is not such a number.
    """
    return _top_k_metric(k, precision_at_k, "precision_at", threshold)


def average_precision_at(k: int, *, threshold: int = RELEVANT_GRADE) -> Formula:
    """Return the metric `average_precision_at_<K>`: average precision over the first K retrieved chunks.

    Examples:
        >>> metric = ragtrace.metrics.average_precision_at(2)
        >>> chunks = ["Trains leave at noon.", "The tower is in Paris."]
        >>> with ragtrace.testing.OpenAIServer() as server:  # in place of yours
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(
        ...         query="Where is the tower?", contexts=chunks, answer="In Paris.", metrics=[metric], judge=judge
        ...     )
        >>> scores["average_precision_at_2"]
        Score(0.5, metric='average_precision_at_2')

    Args:
        k: places looked at, at least 1.
        threshold: grade from which a chunk is relevant: 1, 2 or 3.

    Raises:
        SettingsError: *k* or *threshold* is not such a number.
    """
    return _top_k_metric(k, average_precision_at_k, "average_precision_at", threshold)


def _top_k_metric(k: object, metric: Formula, name: str, threshold: int) -> Formula:
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise SettingsError(f"k must be a whole number of at least 1, got {k!r}; write for instance precision_at(3)")
    suffix = "" if _check_grade(threshold) == RELEVANT_GRADE else f"_from_{threshold}"
    return metric.variant(f"{name}_{k}{suffix}", k=k, threshold=threshold)


def reciprocal_rank_from(grade: int) -> Formula:
    """Return a metric for the reciprocal rank of the first chunk of at least the relevance *grade* (1, 2 or 3).

    It is `reciprocal_rank` with another threshold. The metric is called `reciprocal_rank_from_<grade>`.

    Examples:
        >>> metric = ragtrace.metrics.reciprocal_rank_from(2)
        >>> chunks = ["Trains leave at noon.", "The tower is in Paris."]
        >>> with ragtrace.testing.OpenAIServer() as server:  # in place of yours
        ...     judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(
        ...         query="Where is the tower?", contexts=chunks, answer="In Paris.", metrics=[metric], judge=judge
        ...     )
        >>> scores["reciprocal_rank_from_2"]
        Score(0.5, metric='reciprocal_rank_from_2')

    Args:
        grade: grade from which a chunk is relevant: 1, 2 or 3.

    Raises:
        SettingsError: *grade* is not 1, 2 or 3.
    """
    return reciprocal_rank.variant(f"reciprocal_rank_from_{grade}", threshold=_check_grade(grade))


def _check_grade(grade: object) -> int:
    if not isinstance(grade, int) or isinstance(grade, bool) or not 1 <= grade <= BEST_GRADE:
        raise SettingsError(f"the grade from which a chunk is relevant must be 1, 2 or 3, got {grade!r}")
    return grade


METRICS: Final = (
    context_relevance,
    context_relevance_weighted,
    contextual_accuracy,
    umbrela,
    precision_at_k,
    average_precision_at_k,
    reciprocal_rank,
)
FACTORIES: Final = (
    context_relevance_decaying,
    contextual_accuracy_from,
    precision_at,
    average_precision_at,
    reciprocal_rank_from,
)
