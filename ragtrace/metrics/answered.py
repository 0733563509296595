"""`answered`: whether the answer attempts to answer at all."""

from __future__ import annotations

from ragtrace.metrics.formula import Formula
from ragtrace.model import Judgement, RagCall, Result, Score, Unscored

_VALUES = {"answered": 1.0, "abstained": 0.0}


def answered_of(call: RagCall, judgement: Judgement) -> Result:
    """1 if the answer attempts to answer the query, 0 if it declines; its mean is the share of calls answered.

    Inputs: query and answer. Values 0 and 1, higher is better, labelled `answered` or `abstained`. A wrong or partial
    answer is an attempt; a blank one is 0 whatever the query. No judge call beyond the one that gives all labels.

    Unscored: `empty_query` (with an answer that is not blank), `unparsable` (no valid label), or a reason of the judge.

    Source: the no-answer check of the open-rag-eval framework, as a metric of its own.
    """
    if not (call.answer or "").strip():
        return Score(0.0, label="abstained")
    if not (call.query or "").strip():
        return Unscored("empty_query")
    label = judgement.answer_label
    if label not in _VALUES:
        return Unscored(judgement.reasons.get("answer_label") or judgement.reasons.get("") or "unparsable")
    return Score(_VALUES[label], label=label)


answered = Formula("answered", "1", answered_of, frozenset({"answer_label"}))
