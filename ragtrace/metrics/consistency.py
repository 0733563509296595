"""`consistency`: how well the answer as a whole is supported, as a continuous value."""

from __future__ import annotations

import math

from ragtrace.metrics.formula import Formula
from ragtrace.model import Judgement, RagCall, Result, Score, Unscored


def consistency_of(call: RagCall, judgement: Judgement) -> Result:
    """The judge's continuous support of the whole answer by the retrieved chunks.

    Inputs: answer and contexts. Range [0, 1], higher is better. No chat call: a local judge or scorer gives it. The
    attribute `method` tells how (`whole`: the answer against all chunks; `windowed`: sentence by sentence). It ranks
    answers; it is a probability only where the judge says so.

    Unscored: `empty_answer`, `contexts_missing`, `no_contexts` (none but blank ones), `abstained` and `no_claims`
    (nothing checkable was said), `no_scorer` (the judge gives no such value), `non_finite`, `out_of_range`, or a reason
    of the judge.

    Source: the quantity that Vectara's HHEM model estimates, here by whatever judge is configured.
    """
    if reason := _inapplicable(call, judgement):
        return Unscored(reason)
    value = judgement.consistency
    if value is None:
        return Unscored(judgement.reasons.get("consistency") or judgement.reasons.get("") or "no_scorer")
    if not math.isfinite(value):
        return Unscored("non_finite")
    if not 0 <= value <= 1:
        return Unscored("out_of_range", explanation=f"{value!r} is outside [0, 1]")
    return Score(float(value), claims=judgement.claims or ())


def _inapplicable(call: RagCall, judgement: Judgement) -> str:
    if not (call.answer or "").strip():
        return "empty_answer"
    if call.contexts is None:
        return "contexts_missing"
    if not any(document.text.strip() for document in call.contexts):
        return "no_contexts"
    if judgement.answer_label == "abstained" and not any(claim.checkable for claim in judgement.claims or ()):
        return "abstained"
    return ""


consistency = Formula("consistency", "1", consistency_of, frozenset({"consistency"}), threshold=0.5)
