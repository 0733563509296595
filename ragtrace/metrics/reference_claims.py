"""Claims of the answer compared with those of a reference: factual correctness, and noise taken from the chunks.

Each claim of the one text is compared with the other text and, for noise, with the chunks. A missing label counts as
unknown (three-valued logic): a claim is left out only if its result depends on the unknown label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias, get_args

from ragtrace.core.labels import Entailments, Fact, FactLabel
from ragtrace.core.text import OwnText, first_ranks
from ragtrace.core.types import Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, f1, formula, share, too_many, uncalibrated, unmet, why_missing

_LABELS: Final[tuple[FactLabel, ...]] = get_args(FactLabel)
_FACTS: Final = frozenset({"answer_facts", "reference_facts"})
Truth: TypeAlias = bool | None
"""Truth value of three-valued logic; None stands for unknown."""


@formula(needs=_FACTS | {"entailments"}, version="2", higher_is_better=False, opt_in=True)
def noise_sensitivity_relevant(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the answer's claims that are wrong and stated in a relevant retrieved chunk.

    Inputs: answer, contexts and reference.
    Formula: incorrect claims that a relevant chunk entails / claims of the answer. A claim is incorrect when the
        reference does not entail it, a chunk is relevant when it entails a claim of the reference.
    Range: [0, 1], lower is better; the two noise sensitivities sum to at most 1.
    Judge calls: 3, two of them shared with factual correctness.
    Unscored: `empty_answer`; `contexts_missing`; `no_contexts` (none but blank ones); `needs_reference`;
        `no_reference_claims`; `no_claims`; `too_many_unjudged` (over 20 % of the claims cannot be decided).
    Source: Ru et al. 2024, "RAGChecker", arXiv:2408.08067, section 3 (relevant noise sensitivity).
    """
    return _noise(call, judgement, max_unjudged, relevant=True)


@formula(needs=_FACTS | {"entailments"}, version="2", higher_is_better=False, opt_in=True)
def noise_sensitivity_irrelevant(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the answer's claims that are wrong and stated in irrelevant retrieved chunks only.

    Inputs: answer, contexts and reference.
    Formula: incorrect claims that an irrelevant chunk and no relevant one entails / claims of the answer.
    Range: [0, 1], lower is better; the two noise sensitivities sum to at most 1.
    Judge calls: 3, two of them shared with factual correctness.
    Unscored: as for noise_sensitivity_relevant.
    Source: Ru et al. 2024, "RAGChecker", arXiv:2408.08067, section 3 (irrelevant noise sensitivity).
    """
    return _noise(call, judgement, max_unjudged, relevant=False)


@formula(needs=_FACTS, opt_in=True)
def factual_correctness_precision(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the answer's claims that the reference answer entails.

    Inputs: answer and reference.
    Formula: entailed claims of the answer / claims of the answer; neutral and contradicted ones count nothing.
    Judge calls: 2 (the claims of both texts, then their labels), shared with recall, f1 and noise sensitivity.
    Unscored: `empty_answer`; `needs_reference`; `no_claims` (the answer states none); `too_many_unjudged` (over 20 %
        of the claims have no valid label).
    Source: the factual correctness of the ragas framework, not rounded, and without the epsilon that
        ragas adds to the denominators.
    """
    reason = unmet(call, judgement, "empty_answer", "needs_reference")
    return Unscored(reason) if reason else _entailed_share(judgement, "answer_facts", max_unjudged)


@formula(needs=_FACTS, opt_in=True)
def factual_correctness_recall(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the reference answer's claims that the answer entails.

    Inputs: answer and reference.
    Formula: entailed claims of the reference / claims of the reference. From probabilities of a decision model: the
        mean probability that the answer entails a claim.
    Judge calls: 2, shared with precision, f1 and noise sensitivity.
    Unscored: `empty_answer`; `needs_reference`; `no_reference_claims` (the reference states none);
        `too_many_unjudged` (over 20 % of the claims have no valid label).
    Source: the factual correctness of the ragas framework.
    """
    reason = unmet(call, judgement, "empty_answer", "needs_reference")
    return Unscored(reason) if reason else _entailed_share(judgement, "reference_facts", max_unjudged)


@formula(needs=_FACTS, opt_in=True)
def factual_correctness_f1(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Harmonic mean of factual correctness precision and recall.

    Inputs: answer and reference.
    Formula: 2 P R / (P + R); 0 if both are 0.
    Judge calls: 2, shared with precision, recall and noise sensitivity.
    Unscored: as `factual_correctness_precision` or `factual_correctness_recall`.
    Source: the factual correctness of the ragas framework.
    """
    if reason := unmet(call, judgement, "empty_answer", "needs_reference"):
        return Unscored(reason)
    precision = _entailed_share(judgement, "answer_facts", max_unjudged)
    recall = _entailed_share(judgement, "reference_facts", max_unjudged)
    attributes = {**precision.attributes, **recall.attributes}
    if isinstance(precision, Unscored):
        return Unscored(precision.reason, attributes=attributes)
    if isinstance(recall, Unscored):
        return Unscored(recall.reason, attributes=attributes)
    p, r = precision.value, recall.value
    return Score(f1(p, r), attributes={**attributes, "precision": p, "recall": r})


def _entailed_share(judgement: Judgement, field: str, max_unjudged: float) -> Result:
    """Return the share of one text's claims that the other text entails, as a metric's result.

    The two texts are the answer and the reference.

    Args:
        field: whose claims: "answer_facts", or "reference_facts" for those of the reference.
    """
    ours = field == "answer_facts"
    facts: Sequence[Fact] | None = judgement.answer_facts if ours else judgement.reference_facts
    side = "generated_claims" if ours else "reference_claims"
    if facts is None:
        return Unscored(why_missing(judgement, field))
    counts = Counter(fact.label for fact in facts)
    judged = sum(counts[label] for label in _LABELS)
    attributes: dict[str, Plain] = {side: judged, f"{side}_unjudged": len(facts) - judged}
    attributes |= {f"{side}_{label}": counts[label] for label in _LABELS}
    if not facts:
        return Unscored("no_claims" if ours else "no_reference_claims", attributes=attributes)
    chances = [fact.probability for fact in facts if fact.probability is not None]
    if len(chances) == len(facts):
        return uncalibrated(fmean(chances), None, attributes)
    return share(counts["entailment"], len(facts) - judged, len(facts), max_unjudged, attributes)


class _Origin(NamedTuple):
    """Origin of one claim of the answer: whether it is correct, and whether relevant or irrelevant chunks state it.

    None: unknown.
    """

    correct: Truth
    in_relevant: Truth
    in_irrelevant: Truth

    def noise(self, *, relevant: bool) -> Truth:
        """Return whether the claim is wrong and was taken over from retrieved chunks; None: unknown.

        Args:
            relevant: True: stated in a relevant chunk; False: stated in irrelevant chunks only.
        """
        stated = self.in_relevant if relevant else _and(_not(self.in_relevant), self.in_irrelevant)
        return _and(_not(self.correct), stated)


def _noise(call: RagCall, judgement: Judgement, max_unjudged: float, *, relevant: bool) -> Result:
    if reason := unmet(call, judgement, "empty_answer", "contexts_missing", "no_contexts", "needs_reference"):
        return Unscored(reason)
    facts, reference, rows = judgement.answer_facts, judgement.reference_facts, judgement.entailments
    if reference is None:
        return Unscored(why_missing(judgement, "reference_facts"))
    if facts is None:
        return Unscored(why_missing(judgement, "answer_facts"))
    if not reference:
        return Unscored("no_reference_claims")
    if not facts:
        return Unscored("no_claims")
    if rows is None:
        return Unscored(why_missing(judgement, "entailments"))
    ranks = sorted(set(first_ranks(each.text for each in call.contexts or ()).values()))
    sides = ((rows.answer, facts), (rows.reference, reference))
    if not all(len(side) == len(ranks) and all(len(row) == len(claims) for row in side) for side, claims in sides):
        return Unscored("unparsable", explanation=OwnText("the entailments do not fit the chunks and claims"))
    are_relevant = [_any(row) for row in rows.reference]
    origins = [
        _Origin(
            None if fact.label not in _LABELS else fact.label == "entailment",
            _any(_and(one, row[i]) for one, row in zip(are_relevant, rows.answer, strict=True)),
            _any(_and(_not(one), row[i]) for one, row in zip(are_relevant, rows.answer, strict=True)),
        )
        for i, fact in enumerate(facts)
    ]
    known = [origin for origin in origins if origin.noise(relevant=relevant) is not None]
    attributes = _claim_attributes(ranks, rows, are_relevant, known, len(origins))
    if too_many(len(origins) - len(known), len(origins), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    noise = sum(origin.noise(relevant=relevant) is True for origin in known)
    return Score(noise / len(known), attributes=attributes)


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


def _claim_attributes(
    ranks: Sequence[int], rows: Entailments, relevant: Sequence[Truth], known: Sequence[_Origin], claims: int
) -> dict[str, Plain]:
    """Return the attributes of a noise sensitivity score: counts of claims, and shares such as the claim recall."""
    recalled = [_any(column) for column in zip(*rows.reference, strict=True)]
    own = [_and(one.correct, _and(_not(one.in_relevant), _not(one.in_irrelevant))) for one in known]
    counts: dict[str, Plain] = {
        "response_claims": len(known),
        "incorrect_claims": sum(origin.correct is False for origin in known),
        "unjudged": claims - len(known),
        "relevant_chunks": tuple(rank for rank, is_so in zip(ranks, relevant, strict=True) if is_so),
        "reference_claims": len(recalled),
    }
    for name, shares in (("claim_recall", recalled), ("context_precision", list(relevant)), ("self_knowledge", own)):
        if shares and None not in shares:
            counts[name] = sum(value is True for value in shares) / len(shares)
    return counts


METRICS: Final = (
    noise_sensitivity_relevant,
    noise_sensitivity_irrelevant,
    factual_correctness_precision,
    factual_correctness_recall,
    factual_correctness_f1,
)
