"""`context_contradiction`: how many of the contexts the answer contradicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragtrace.core.labels import Claim
from ragtrace.core.types import Document, Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, Formula
from ragtrace.metrics.preconditions import any_text, blank, declined, no_answer, too_many, why_missing

_FIELDS: Final = ("chunks", "reference_contexts_contradicted")  # without and with reference contexts


def context_contradiction_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the contexts that the answer contradicts: of the reference contexts if the call has them.

    Inputs: answer and contexts; with reference contexts the retrieved ones play no part.
    Formula: contradicted contexts / distinct contexts that are not blank. A context is contradicted when the judge
        says so, or when it is evidence of a statement labelled contradicted.
    Range: [0, 1], lower is better.
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
    if reason := _inapplicable(call, judgement, contexts):
        return Unscored(reason, attributes=origin)
    firsts = _first_ranks(contexts or (), marked=not reference)
    verdicts = judgement.reference_contexts_contradicted if reference else _of_retrieved(call, judgement, firsts)
    if verdicts is None:
        return Unscored(why_missing(judgement, _FIELDS[reference]), attributes=origin)
    distinct = len(set(firsts.values()))
    if len(verdicts) != distinct:
        seen = f"{len(verdicts)} labels for {distinct} distinct contexts"
        return Unscored("unparsable", explanation=seen, attributes=origin)
    return _share(verdicts, origin, max_unjudged)


def _inapplicable(call: RagCall, judgement: Judgement, given: Sequence[Document] | None) -> str:
    if no_answer(call):
        return "empty_answer"
    if given is None:
        return "contexts_missing"
    if not any_text(given):
        return "no_contexts"
    return "abstained" if declined(judgement) else ""


def _first_ranks(contexts: Sequence[Document], *, marked: bool) -> dict[int, int]:
    """For the rank of every context that is not blank: the rank of the first with the same text, space folded.

    Args:
        marked: whether duplicates are marked as such, so that texts without any need not be compared.
    """
    if marked and not any(document.duplicate for document in contexts):
        return {rank: rank for rank, document in enumerate(contexts) if not blank(document.text)}
    seen: dict[str, int] = {}
    folded = ((rank, " ".join(document.text.split())) for rank, document in enumerate(contexts))
    return {rank: seen.setdefault(text, rank) for rank, text in folded if text}


def _of_retrieved(call: RagCall, judgement: Judgement, firsts: dict[int, int]) -> tuple[bool | None, ...] | None:
    """One verdict a distinct chunk in rank order; None if the chunks were not judged, () if not one for each."""
    labels = judgement.chunks
    if labels is None or len(labels) != len(call.contexts or ()):
        return None if labels is None else ()
    against = {firsts.get(rank) for claim in judgement.claims or () if _contradicted(claim) for rank in claim.evidence}
    return tuple(True if rank in against else labels[rank].contradicted for rank in sorted(set(firsts.values())))


def _contradicted(claim: Claim) -> bool:
    return claim.checkable and claim.support == "contradicted"


def _share(verdicts: Sequence[bool | None], origin: dict[str, Plain], max_unjudged: float) -> Result:
    contradicted = sum(verdict is True for verdict in verdicts)
    unjudged = len(verdicts) - contradicted - sum(verdict is False for verdict in verdicts)
    judged = len(verdicts) - unjudged
    attributes = {**origin, "distinct_contexts": judged, "contradicted_contexts": contradicted, "unjudged": unjudged}
    if too_many(unjudged, len(verdicts), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(contradicted / judged, attributes=attributes)


context_contradiction: Final = Formula(
    "context_contradiction",
    "1",
    context_contradiction_of,
    frozenset({"chunks", "claims", "answer_label", "reference_contexts_contradicted"}),
    higher_is_better=False,
    threshold=0.0,
    settled=lambda call: not any_text(call.contexts if call.reference_contexts is None else call.reference_contexts),
)
METRICS: Final[tuple[Metric, ...]] = (context_contradiction,)
