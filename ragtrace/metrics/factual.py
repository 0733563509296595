"""`factual_correctness_*`: the claims of answer and reference, each held against the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ragtrace.core.labels import Fact
from ragtrace.core.types import Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, Formula
from ragtrace.metrics.preconditions import no_answer, too_many, why_missing

_LABELS: Final = ("entailment", "neutral", "contradiction")
_NEEDS: Final = frozenset({"answer_facts", "reference_facts"})


def factual_correctness_precision_of(
    call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED
) -> Result:
    """Share of the answer's claims that the reference entails.

    Inputs: answer and reference.
    Formula: entailed claims of the answer / claims of the answer; neutral and contradicted ones count nothing.
    Range: [0, 1], higher is better.
    Judge calls: 2 (the claims of both texts, then their labels), shared with recall, f1 and noise sensitivity.
    Unscored: `empty_answer`; `needs_reference`; `no_claims` (the answer states none); `too_many_unjudged` (over 20 %
        of the claims have no valid label).
    Source: the factual correctness of the ragas framework, unrounded; without its small number in the denominators.
    """
    reason = _inapplicable(call)
    return Unscored(reason) if reason else _precision(judgement, max_unjudged)


def factual_correctness_recall_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the reference's claims that the answer entails.

    Inputs: answer and reference.
    Formula: entailed claims of the reference / claims of the reference.
    Range: [0, 1], higher is better.
    Judge calls: 2, shared with precision, f1 and noise sensitivity.
    Unscored: `empty_answer`; `needs_reference`; `no_reference_claims` (the reference states none);
        `too_many_unjudged` (over 20 % of the claims have no valid label).
    Source: the factual correctness of the ragas framework.
    """
    reason = _inapplicable(call)
    return Unscored(reason) if reason else _recall(judgement, max_unjudged)


def factual_correctness_f1_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Harmonic mean of factual precision and recall.

    Inputs: answer and reference.
    Formula: 2 P R / (P + R); 0 if both are 0.
    Range: [0, 1], higher is better.
    Judge calls: 2, shared with precision, recall and noise sensitivity.
    Unscored: whatever leaves precision or recall without a number.
    Source: the factual correctness of the ragas framework.
    """
    if reason := _inapplicable(call):
        return Unscored(reason)
    precision, recall = _precision(judgement, max_unjudged), _recall(judgement, max_unjudged)
    attributes = {**precision.attributes, **recall.attributes}
    if isinstance(precision, Unscored):
        return Unscored(precision.reason, attributes=attributes)
    if isinstance(recall, Unscored):
        return Unscored(recall.reason, attributes=attributes)
    p, r = precision.value, recall.value
    return Score(2 * p * r / (p + r) if p + r else 0.0, attributes={**attributes, "precision": p, "recall": r})


def _inapplicable(call: RagCall) -> str:
    if no_answer(call):
        return "empty_answer"
    return "" if (call.reference or "").strip() else "needs_reference"


def _precision(judgement: Judgement, max_unjudged: float) -> Result:
    if judgement.answer_facts is None:
        return Unscored(why_missing(judgement, "answer_facts"))
    return _share(judgement.answer_facts, "generated_claims", "no_claims", max_unjudged)


def _recall(judgement: Judgement, max_unjudged: float) -> Result:
    if judgement.reference_facts is None:
        return Unscored(why_missing(judgement, "reference_facts"))
    return _share(judgement.reference_facts, "reference_claims", "no_reference_claims", max_unjudged)


def _share(facts: Sequence[Fact], side: str, none: str, max_unjudged: float) -> Result:
    counts = Counter(fact.label for fact in facts)
    judged = sum(counts[label] for label in _LABELS)
    unjudged = len(facts) - judged
    attributes: dict[str, Plain] = {side: judged, f"{side}_unjudged": unjudged}
    attributes |= {f"{side}_{label}": counts[label] for label in _LABELS}
    if not facts:
        return Unscored(none, attributes=attributes)
    if too_many(unjudged, len(facts), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(counts["entailment"] / judged, attributes=attributes)


factual_correctness_precision: Final = Formula(
    "factual_correctness_precision", "1", factual_correctness_precision_of, _NEEDS, opt_in=True
)
factual_correctness_recall: Final = Formula(
    "factual_correctness_recall", "1", factual_correctness_recall_of, _NEEDS, opt_in=True
)
factual_correctness_f1: Final = Formula("factual_correctness_f1", "1", factual_correctness_f1_of, _NEEDS, opt_in=True)
METRICS: Final[tuple[Metric, ...]] = (
    factual_correctness_precision,
    factual_correctness_recall,
    factual_correctness_f1,
)
