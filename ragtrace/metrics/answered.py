"""Whether the answer attempts to answer at all, and whether it does so although nothing was retrieved."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ragtrace.core.types import Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import Formula
from ragtrace.metrics.preconditions import any_text, declined, no_answer, no_query, why_missing

_VALUES: Final[Mapping[str | None, float]] = MappingProxyType({"answered": 1.0, "abstained": 0.0})


def answered_of(call: RagCall, judgement: Judgement) -> Result:
    """1 if the answer attempts to answer the query, 0 if it declines; its mean is the share of calls answered.

    Inputs: query and answer.
    Formula: 1 if the answer is labelled `answered`, 0 if `abstained`. A wrong or partial answer is an attempt; a blank
        one is 0 whatever the query.
    Range: 0 or 1, higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_query` (with an answer that is not blank).
    Source: the no-answer check of the open-rag-eval framework, as a metric of its own.
    Labels: `answered`, `abstained`.
    """
    if no_answer(call):
        return Score(0.0, label="abstained")
    if no_query(call):
        return Unscored("empty_query")
    label = judgement.answer_label
    if label not in _VALUES:
        return Unscored(why_missing(judgement, "answer_label"))
    return Score(_VALUES[label], label=label)


def answered_without_context_of(call: RagCall, judgement: Judgement) -> Result:
    """1 if an answer was given although retrieval returned nothing to rest it on, 0 if chunks were retrieved.

    Inputs: answer and contexts.
    Formula: 1 if no retrieved chunk has a text, else 0, over answers that are neither blank nor abstentions. An answer
        that is labelled `abstained` and still states something checkable counts as given.
    Range: 0 or 1, lower is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_answer`; `contexts_missing` (retrieval was not captured); `abstained`.
    Source: ragtrace.

    The plainest sign of an ungrounded answer and of a broken retriever; it reads no label of support.
    """
    if no_answer(call):
        return Unscored("empty_answer")
    if call.contexts is None:
        return Unscored("contexts_missing")
    if judgement.answer_label not in _VALUES:
        return Unscored(why_missing(judgement, "answer_label"))
    if declined(judgement):
        return Unscored("abstained")
    return Score(0.0 if any_text(call.contexts) else 1.0)


answered: Final = Formula("answered", "1", answered_of, frozenset({"answer_label"}))
answered_without_context: Final = Formula(
    "answered_without_context",
    "1",
    answered_without_context_of,
    frozenset({"claims", "answer_label"}),
    higher_is_better=False,
    threshold=0.0,
)
METRICS: Final[tuple[Metric, ...]] = (answered, answered_without_context)
