"""`noise_sensitivity_*`: wrong claims of the answer that come from the chunks it was given.

A label that the judge did not give is unknown, and what follows from it is worked out with three truth values: a claim
is left out only where the unknown would decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.core.labels import Entailments
from ragtrace.core.types import Document, Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, Formula
from ragtrace.metrics.preconditions import any_text, no_answer, too_many, why_missing

_LABELS: Final = ("entailment", "neutral", "contradiction")
_NEEDS: Final = frozenset({"answer_facts", "reference_facts", "entailments"})
Truth = bool | None  # None: unknown


def noise_sensitivity_relevant_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the answer's claims that are wrong and stand in a relevant chunk.

    Inputs: answer, contexts and reference.
    Formula: incorrect claims that a relevant chunk entails / claims of the answer. A claim is incorrect when the
        reference does not entail it, a chunk is relevant when it entails a claim of the reference.
    Range: [0, 1], lower is better; the two noise sensitivities sum to at most 1.
    Judge calls: 3, two of them shared with factual correctness.
    Unscored: `empty_answer`; `contexts_missing`; `no_contexts` (none but blank ones); `needs_reference`;
        `no_reference_claims`; `no_claims`; `too_many_unjudged` (over 20 % of the claims cannot be decided).
    Source: Ru et al. 2024, "RAGChecker", arXiv:2408.08067, section 3 (relevant noise sensitivity).
    """
    return _measure(call, judgement, max_unjudged, relevant=True)


def noise_sensitivity_irrelevant_of(
    call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED
) -> Result:
    """Share of the answer's claims that are wrong and stand in irrelevant chunks only.

    Inputs: answer, contexts and reference.
    Formula: incorrect claims that an irrelevant chunk and no relevant one entails / claims of the answer.
    Range: [0, 1], lower is better; the two noise sensitivities sum to at most 1.
    Judge calls: 3, two of them shared with factual correctness.
    Unscored: as for noise_sensitivity_relevant.
    Source: Ru et al. 2024, "RAGChecker", arXiv:2408.08067, section 3 (irrelevant noise sensitivity).
    """
    return _measure(call, judgement, max_unjudged, relevant=False)


@dataclass(frozen=True, slots=True)
class _Fate:
    """What is known of one claim of the answer."""

    correct: Truth
    in_relevant: Truth
    in_irrelevant: Truth

    @property
    def known(self) -> bool:
        """Whether it is certain into which share it goes, if into any: the same question for both metrics."""
        if self.correct is None:
            return False
        settled = self.in_relevant is True or (self.in_relevant is False and self.in_irrelevant is not None)
        return self.correct or settled

    def noise(self, relevant: bool) -> bool:
        """Whether it counts for the metric of that name."""
        if self.correct:
            return False
        return self.in_relevant is True if relevant else self.in_relevant is False and self.in_irrelevant is True


def _measure(call: RagCall, judgement: Judgement, max_unjudged: float, *, relevant: bool) -> Result:
    if reason := _inapplicable(call) or _missing(judgement):
        return Unscored(reason)
    matrices = judgement.entailments
    facts = judgement.answer_facts or ()
    if matrices is None or not _rectangular(call, judgement, matrices):
        return Unscored("unparsable", explanation="the entailments do not fit the chunks and claims")
    chunk_relevant = [_any(row) for row in matrices.reference]
    fates = [
        _Fate(
            None if fact.label not in _LABELS else fact.label == "entailment",
            _any(_and(rel, row[i]) for rel, row in zip(chunk_relevant, matrices.answer, strict=True)),
            _any(_and(_not(rel), row[i]) for rel, row in zip(chunk_relevant, matrices.answer, strict=True)),
        )
        for i, fact in enumerate(facts)
    ]
    known = [fate for fate in fates if fate.known]
    attributes = _attributes(call, matrices, chunk_relevant, known, len(fates))
    if too_many(len(fates) - len(known), len(fates), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(sum(fate.noise(relevant) for fate in known) / len(known), attributes=attributes)


def _inapplicable(call: RagCall) -> str:
    if no_answer(call):
        return "empty_answer"
    if call.contexts is None:
        return "contexts_missing"
    if not any_text(call.contexts):
        return "no_contexts"
    return "" if (call.reference or "").strip() else "needs_reference"


def _missing(judgement: Judgement) -> str:
    if judgement.reference_facts is None:
        return why_missing(judgement, "reference_facts")
    if judgement.answer_facts is None:
        return why_missing(judgement, "answer_facts")
    if not judgement.reference_facts:
        return "no_reference_claims"
    if not judgement.answer_facts:
        return "no_claims"
    return "" if judgement.entailments is not None else why_missing(judgement, "entailments")


def _rectangular(call: RagCall, judgement: Judgement, matrices: Entailments) -> bool:
    """Whether there is one row a distinct chunk and one entry a claim: a ragged list is no list of verdicts."""
    chunks = len(_ranks(call.contexts or ()))
    sides = ((matrices.answer, judgement.answer_facts or ()), (matrices.reference, judgement.reference_facts or ()))
    return all(len(rows) == chunks and all(len(row) == len(facts) for row in rows) for rows, facts in sides)


def _ranks(contexts: Sequence[Document]) -> list[int]:
    """Ranks of the chunks that are not blank and the first of their text, space folded."""
    seen: dict[str, int] = {}
    for rank, document in enumerate(contexts):
        if text := " ".join(document.text.split()):
            seen.setdefault(text, rank)
    return list(seen.values())


def _not(a: Truth) -> Truth:
    return None if a is None else not a


def _and(a: Truth, b: Truth) -> Truth:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _any(values: Iterable[Truth]) -> Truth:
    found = list(values)
    if True in found:
        return True
    return None if None in found else False


def _attributes(
    call: RagCall, matrices: Entailments, relevant: Sequence[Truth], known: Sequence[_Fate], claims: int
) -> dict[str, Plain]:
    """The counts, and what else the same labels tell (RAGChecker's other quantities)."""
    ranks = _ranks(call.contexts or ())
    recalled = [_any(column) for column in zip(*matrices.reference, strict=True)]
    own = [_and(fate.correct, _and(_not(fate.in_relevant), _not(fate.in_irrelevant))) for fate in known]
    counts: dict[str, Plain] = {
        "response_claims": len(known),
        "incorrect_claims": sum(fate.correct is False for fate in known),
        "unjudged": claims - len(known),
        "relevant_chunks": tuple(rank for rank, is_so in zip(ranks, relevant, strict=True) if is_so),
        "reference_claims": len(recalled),
    }
    for name, shares in (("claim_recall", recalled), ("context_precision", list(relevant)), ("self_knowledge", own)):
        if shares and None not in shares:
            counts[name] = sum(value is True for value in shares) / len(shares)
    return counts


noise_sensitivity_relevant: Final = Formula(
    "noise_sensitivity_relevant", "1", noise_sensitivity_relevant_of, _NEEDS, higher_is_better=False, opt_in=True
)
noise_sensitivity_irrelevant: Final = Formula(
    "noise_sensitivity_irrelevant", "1", noise_sensitivity_irrelevant_of, _NEEDS, higher_is_better=False, opt_in=True
)
METRICS: Final[tuple[Metric, ...]] = (noise_sensitivity_relevant, noise_sensitivity_irrelevant)
