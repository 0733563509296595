"""Faithfulness and hallucination: whether the retrieved chunks support the statements of an answer.

A statement is supported, contradicted, partial or not found; the metrics differ in which of these they count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, get_args

from ragtrace.core.labels import Support
from ragtrace.core.types import Document, Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, formula
from ragtrace.metrics.preconditions import any_text, blank, declined, share, too_many, unmet, why_missing

# One statement without support is one too many: an answer that is half invented is not to pass, and neither is one that
# contradicts its own sources. The labels of complements agree.
_NEEDS: Final = frozenset({"claims", "answer_label"})
_SUPPORTS: Final[tuple[str, ...]] = get_args(Support)
_UNSUPPORTED: Final = ("contradicted", "partial", "not_found")
_NOT_CONTRADICTED: Final = ("supported", "partial", "not_found")


@formula(needs=_NEEDS, higher_is_better=False, threshold=0.0)
def hallucinated(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """1 if the answer states anything that the retrieved chunks do not support, else 0.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: 1 if a checkable statement is contradicted, partial or not found, else 0.
    Range: 0 or 1, lower is better.
    Unscored: exactly when `faithfulness` is, for the same reason.
    Source: the hallucination rate of public leaderboards, a share of answers; Hughes and Bae 2023, Vectara
        hallucination leaderboard.

    The mean over answers is the hallucination rate; the mean of `hallucination`, a share of statements, is smaller.
    """
    result = _share(call, judgement, _UNSUPPORTED, max_unjudged)
    return replace(result, value=float(result.value > 0)) if isinstance(result, Score) else result


@formula(needs=_NEEDS, threshold=1.0)
def faithfulness(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that the retrieved chunks support.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: supported / n. Contradicted, partial and not found all count against the answer.
    Unscored: `empty_answer`; `contexts_missing` (retrieval was not captured); `no_claims`, `abstained` (nothing
        checkable was said); `too_many_unjudged` (over 20 % of the statements have no valid label).
    Source: Es et al. 2023, "RAGAS", arXiv:2309.15217, section 3 (faithfulness).

    With contexts that are empty or blank every checkable statement is unsupported, and no judge need be asked.
    """
    return _share(call, judgement, ("supported",), max_unjudged)


@formula(needs=_NEEDS, higher_is_better=False, threshold=0.0)
def hallucination(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that the retrieved chunks do not support.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: (n - supported) / n = 1 - faithfulness.
    Unscored: exactly when `faithfulness` is, for the same reason.
    Source: the complement of faithfulness in Es et al. 2023, arXiv:2309.15217.
    """
    return _share(call, judgement, _UNSUPPORTED, max_unjudged)


@formula(needs=_NEEDS, threshold=1.0, beside=("faithfulness",))
def faithfulness_noncontradiction(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that no retrieved chunk contradicts.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: (supported + partial + not found) / n = 1 - contradiction.
    Unscored: as `faithfulness`; `no_contexts` (nothing was retrieved that could contradict).
    Source: the yes / no / undecided reading of faithfulness, as in the deepeval framework.

    An invented statement about something that the chunks do not mention scores 1, so `faithfulness` is always computed
    beside it; its value and the counts are attributes.
    """
    return _share(call, judgement, _NOT_CONTRADICTED, max_unjudged, held_against_chunks=True)


@formula(needs=_NEEDS, higher_is_better=False, threshold=0.0)
def contradiction(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that a retrieved chunk contradicts.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: contradicted / n, never more than hallucination.
    Unscored: as `faithfulness`; `no_contexts` (nothing was retrieved that could contradict).
    Source: the complement of the yes / no / undecided reading of faithfulness.
    """
    return _share(call, judgement, ("contradicted",), max_unjudged, held_against_chunks=True)


@formula(
    needs=_NEEDS | {"chunks", "reference_contexts_contradicted"},
    higher_is_better=False,
    threshold=0.0,
    settled=lambda call: not any_text(call.contexts if call.reference_contexts is None else call.reference_contexts),
)
def context_contradiction(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the contexts that the answer contradicts: of the reference contexts if the call has them.

    Inputs: answer and contexts; with reference contexts the retrieved ones play no part.
    Formula: contradicted contexts / distinct contexts that are not blank. A context is contradicted when the judge
        says so, or when it is evidence of a statement labelled contradicted.
    Judge calls: none beside the main reply; one with reference contexts.
    Unscored: `empty_answer`; `contexts_missing`; `no_contexts` (none but blank ones); `abstained` (nothing checkable
        was said); `too_many_unjudged` (over 20 % of the contexts have no valid label).
    Source: the hallucination metric of the deepeval framework, under a name that says what it measures.

    The attribute `contexts` is `reference` or `retrieved`. Over retrieved chunks the share is diluted: one contradicted
    chunk of ten is 0.1, and an invention that contradicts nothing is 0.
    """
    reference = call.reference_contexts is not None
    contexts = call.reference_contexts if reference else call.contexts
    origin: dict[str, Plain] = {"contexts": "reference" if reference else "retrieved"}
    given = replace(call, contexts=contexts) if reference else call
    if reason := unmet(given, judgement, "empty_answer", "contexts_missing", "no_contexts", "abstained"):
        return Unscored(reason, attributes=origin)
    firsts = _first_ranks(contexts or (), marked=not reference)
    verdicts = judgement.reference_contexts_contradicted if reference else _of_retrieved(call, judgement, firsts)
    if verdicts is None:
        field = "reference_contexts_contradicted" if reference else "chunks"
        return Unscored(why_missing(judgement, field), attributes=origin)
    distinct = len(set(firsts.values()))
    if len(verdicts) != distinct:
        seen = f"{len(verdicts)} labels for {distinct} distinct contexts"
        return Unscored("unparsable", explanation=seen, attributes=origin)
    contradicted = sum(verdict is True for verdict in verdicts)
    judged = contradicted + sum(verdict is False for verdict in verdicts)
    unjudged = distinct - judged
    attributes = {**origin, "distinct_contexts": judged, "contradicted_contexts": contradicted, "unjudged": unjudged}
    return share(contradicted, unjudged, distinct, max_unjudged, attributes)


def _share(
    call: RagCall, judgement: Judgement, counted: Collection[str], limit: float, *, held_against_chunks: bool = False
) -> Result:
    """Return the share of the checkable claims whose label is one of *counted*.

    Args:
        limit: share of claims that may be unjudged.
        held_against_chunks: without any retrieved text there is nothing to hold the claims against, and no score.
    """
    if reason := unmet(call, judgement, "empty_answer", "contexts_missing"):
        return Unscored(reason)
    if judgement.claims is None:
        return Unscored(why_missing(judgement, "claims"))
    claims = [claim for claim in judgement.claims if claim.checkable]
    if not claims:
        return Unscored("abstained" if declined(judgement) else "no_claims")
    if retrieved := any_text(call.contexts):
        counts = Counter(claim.support if claim.support in _SUPPORTS else "unjudged" for claim in claims)
    else:  # no judge needs to be asked, and none can say otherwise
        counts = Counter({"not_found": len(claims)})
    judged = len(claims) - counts["unjudged"]
    attributes: dict[str, Plain] = {label: counts[label] for label in (*_SUPPORTS, "unjudged")}
    attributes["statements"] = judged
    attributes["unverified"] = sum(claim.unverified for claim in claims)
    if judgement.answer_label == "abstained":
        attributes["abstained"] = True
    if held_against_chunks and not retrieved:
        return Unscored("no_contexts", attributes=attributes)
    if too_many(counts["unjudged"], len(claims), limit):
        # Where no claim at all has a label, the judge may have said why.
        why = "" if judged else judgement.reasons.get("claims")
        return Unscored(why or "too_many_unjudged", attributes=attributes)
    if held_against_chunks:
        attributes["faithfulness"] = counts["supported"] / judged
    value = sum(counts[label] for label in counted) / judged
    return Score(value, attributes=attributes, claims=judgement.claims)


def _first_ranks(contexts: Sequence[Document], *, marked: bool) -> dict[int, int]:
    """Return, for the rank of every context that is not blank, the rank of the first one with the same words.

    Args:
        marked: duplicates are marked as such, so that contexts without any mark need not be compared.
    """
    if marked and not any(document.duplicate for document in contexts):
        return {rank: rank for rank, document in enumerate(contexts) if not blank(document.text)}
    seen: dict[str, int] = {}
    folded = ((rank, " ".join(document.text.split())) for rank, document in enumerate(contexts))
    return {rank: seen.setdefault(text, rank) for rank, text in folded if text}


def _of_retrieved(call: RagCall, judgement: Judgement, firsts: dict[int, int]) -> tuple[bool | None, ...] | None:
    """Return whether each distinct chunk is contradicted, in rank order.

    None if the chunks were not judged, () if the judgement has not one label a chunk.
    """
    labels = judgement.chunks
    if labels is None or len(labels) != len(call.contexts or ()):
        return None if labels is None else ()
    contradicted = [claim for claim in judgement.claims or () if claim.checkable and claim.support == "contradicted"]
    against = {firsts.get(rank) for claim in contradicted for rank in claim.evidence}
    return tuple(True if rank in against else labels[rank].contradicted for rank in sorted(set(firsts.values())))


METRICS: Final = (
    hallucinated,
    faithfulness,
    faithfulness_noncontradiction,
    hallucination,
    contradiction,
    context_contradiction,
)
