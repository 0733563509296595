"""The statements of an answer against the retrieved chunks: whether any lacks support, and four shares of them.

A statement is supported, contradicted, partial or not found; the metrics differ in which of these they count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ragtrace.core.labels import Claim
from ragtrace.core.types import Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, Formula
from ragtrace.metrics.preconditions import any_text, declined, no_answer, too_many, why_missing

_SUPPORTS: Final = ("supported", "contradicted", "partial", "not_found")
_UNSUPPORTED: Final = ("contradicted", "partial", "not_found")
_NOT_CONTRADICTED: Final = ("supported", "partial", "not_found")


def hallucinated_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """1 if the answer states anything that the retrieved chunks do not support, else 0.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: 1 if a checkable statement is contradicted, partial or not found, else 0.
    Range: 0 or 1, lower is better.
    Judge calls: none beside the main reply.
    Unscored: exactly when `faithfulness` is, for the same reason.
    Source: the hallucination rate of public leaderboards, a share of answers; Hughes and Bae 2023, Vectara
        hallucination leaderboard.

    The mean over answers is the hallucination rate; the mean of `hallucination`, a share of statements, is smaller.
    """
    result = hallucination_of(call, judgement, max_unjudged=max_unjudged)
    return replace(result, value=float(result.value > 0)) if isinstance(result, Score) else result


def faithfulness_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that the retrieved chunks support.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: supported / n. Contradicted, partial and not found all count against the answer.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_answer`; `contexts_missing` (retrieval was not captured); `no_claims`, `abstained` (nothing
        checkable was said); `too_many_unjudged` (over 20 % of the statements have no valid label).
    Source: Es et al. 2023, "RAGAS", arXiv:2309.15217, section 3 (faithfulness).

    With contexts that are empty or blank every checkable statement is unsupported, and no judge need be asked.
    """
    return _share(call, judgement, ("supported",), max_unjudged)


def hallucination_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that the retrieved chunks do not support.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: (n - supported) / n = 1 - faithfulness.
    Range: [0, 1], lower is better.
    Judge calls: none beside the main reply.
    Unscored: exactly when `faithfulness` is, for the same reason.
    Source: the complement of faithfulness in Es et al. 2023, arXiv:2309.15217.
    """
    return _share(call, judgement, _UNSUPPORTED, max_unjudged)


def faithfulness_noncontradiction_of(
    call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED
) -> Result:
    """Share of the checkable statements of the answer that no retrieved chunk contradicts.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: (supported + partial + not found) / n = 1 - contradiction.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: as `faithfulness`; `no_contexts` (nothing was retrieved that could contradict).
    Source: the yes / no / undecided reading of faithfulness, as in the deepeval framework.

    An invention on a foreign subject scores 1, so `faithfulness` is always computed beside it; its value and the
    counts are attributes.
    """
    return _share(call, judgement, _NOT_CONTRADICTED, max_unjudged, held_against_chunks=True)


def contradiction_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that a retrieved chunk contradicts.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: contradicted / n, never more than hallucination.
    Range: [0, 1], lower is better.
    Judge calls: none beside the main reply.
    Unscored: as `faithfulness`; `no_contexts` (nothing was retrieved that could contradict).
    Source: the complement of the yes / no / undecided reading of faithfulness.
    """
    return _share(call, judgement, ("contradicted",), max_unjudged, held_against_chunks=True)


def _share(
    call: RagCall,
    judgement: Judgement,
    counted: tuple[str, ...],
    max_unjudged: float,
    *,
    held_against_chunks: bool = False,
) -> Result:
    if reason := _inapplicable(call, judgement):
        return Unscored(reason)
    claims = [claim for claim in judgement.claims or () if claim.checkable]
    retrieved = any_text(call.contexts)
    counts = Counter(_label(claim, retrieved) for claim in claims)
    judged = len(claims) - counts["unjudged"]
    attributes = _attributes(judgement, claims, counts, judged)
    if held_against_chunks and not retrieved:
        return Unscored("no_contexts", attributes=attributes)
    if too_many(counts["unjudged"], len(claims), max_unjudged):
        return Unscored(_why_unjudged(judgement, judged), attributes=attributes)
    if held_against_chunks:
        attributes["faithfulness"] = counts["supported"] / judged
    share = sum(counts[label] for label in counted) / judged
    return Score(share, attributes=attributes, claims=judgement.claims or ())


def _why_unjudged(judgement: Judgement, judged: int) -> str:
    """What kept the statements from being held against the chunks, if the judge has said so: no label says less."""
    return "too_many_unjudged" if judged else judgement.reasons.get("claims") or "too_many_unjudged"


def _inapplicable(call: RagCall, judgement: Judgement) -> str:
    if no_answer(call):
        return "empty_answer"
    if call.contexts is None:
        return "contexts_missing"
    if judgement.claims is None:
        return why_missing(judgement, "claims")
    if not any(claim.checkable for claim in judgement.claims):
        return "abstained" if declined(judgement) else "no_claims"
    return ""


def _label(claim: Claim, retrieved: bool) -> str:
    if not retrieved:
        return "not_found"  # no judge needs to be asked, and none can say otherwise
    return claim.support if claim.support in _SUPPORTS else "unjudged"


def _attributes(judgement: Judgement, claims: list[Claim], counts: Mapping[str, int], judged: int) -> dict[str, Plain]:
    attributes: dict[str, Plain] = {label: counts[label] for label in (*_SUPPORTS, "unjudged")}
    attributes["statements"] = judged
    attributes["unverified"] = sum(claim.unverified for claim in claims)
    if judgement.answer_label == "abstained":
        attributes["abstained"] = True
    return attributes


_NEEDS: Final = frozenset({"claims", "answer_label"})
# One statement without support is one too many: an answer that is half invented is not to pass, and neither is one that
# contradicts its own sources. The labels of complements agree.
hallucinated: Final = Formula("hallucinated", "1", hallucinated_of, _NEEDS, higher_is_better=False, threshold=0.0)
faithfulness: Final = Formula("faithfulness", "1", faithfulness_of, _NEEDS, threshold=1.0)
hallucination: Final = Formula("hallucination", "1", hallucination_of, _NEEDS, higher_is_better=False, threshold=0.0)
faithfulness_noncontradiction: Final = Formula(
    "faithfulness_noncontradiction",
    "1",
    faithfulness_noncontradiction_of,
    _NEEDS,
    threshold=1.0,
    beside=("faithfulness",),
)
contradiction: Final = Formula("contradiction", "1", contradiction_of, _NEEDS, higher_is_better=False, threshold=0.0)
METRICS: Final[tuple[Metric, ...]] = (
    hallucinated,
    faithfulness,
    faithfulness_noncontradiction,
    hallucination,
    contradiction,
)
