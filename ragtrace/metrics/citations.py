"""How well the passages that an answer cites support the parts that cite them.

A part is a sentence that is not filler, or what the application gives. A pair of a part and a passage counts once,
however often it is cited: full support 1, partial 0.5, none 0. A passage that does not exist supports nothing, so an
invented citation costs. What each citation supports is judged on its own; ALCE's metrics of the same names ask whether
all citations of a sentence together support it, and are not comparable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ragtrace.core.labels import Citation
from ragtrace.core.types import Document, Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, Formula
from ragtrace.metrics.preconditions import any_text, blank, declined, no_answer, too_many, why_missing

_WORTH: Final = MappingProxyType({"full": 1.0, "partial": 0.5, "none": 0.0})


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Distinct pairs of part and passage with their worth; None: unjudged."""

    parts: int
    worth: dict[tuple[int, Hashable], float | None]

    def precision(self) -> float:
        """Mean over the cited passages of the mean worth of their citations."""
        means = _means((passage, worth) for (_, passage), worth in self.worth.items())
        return sum(means) / len(means)

    def recall(self) -> float:
        """Mean over the parts of the mean worth of their citations; a part without any is 0.

        A part of whose citations none has a valid label is left out: nothing is known of it.
        """
        known = _means((part, worth) for (part, _), worth in self.worth.items())
        return sum(known) / (len(known) + self.uncited())

    def uncited(self) -> int:
        """Parts that cite nothing."""
        return self.parts - len({part for part, _ in self.worth})


def citation_precision_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """How well the cited passages support the parts that cite them.

    Inputs: answer with citations, and contexts.
    Formula: mean over the distinct cited passages of the mean worth of their citations: full 1, partial 0.5, none 0. A
        passage that does not exist counts 0.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_answer`; `contexts_missing`; `abstained` (nothing checkable was said); `no_citations` (with the
        attribute `uncited`); `too_many_unjudged` (over 20 % of the citations have no valid label).
    Source: the citation metric of the open-rag-eval framework, with unknown passages counted.
    """
    return _measure(call, judgement, _Pairs.precision, max_unjudged)


def citation_recall_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """How much of the answer is supported by what it cites.

    Inputs: answer with citations, and contexts.
    Formula: mean over the parts of the mean worth of their citations: full 1, partial 0.5, none 0. A part that cites
        nothing, or only passages that do not exist, counts 0.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: as `citation_precision`.
    Source: the citation metric of the open-rag-eval framework, with unknown passages counted.
    """
    return _measure(call, judgement, _Pairs.recall, max_unjudged)


def citation_f1_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Harmonic mean of citation precision and citation recall.

    Inputs: answer with citations, and contexts.
    Formula: 2 P R / (P + R); 0 if both are 0.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: as `citation_precision`.
    Source: the citation metric of the open-rag-eval framework, with unknown passages counted.
    """
    return _measure(call, judgement, _f1, max_unjudged)


def _f1(pairs: _Pairs) -> float:
    precision, recall = pairs.precision(), pairs.recall()
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _measure(call: RagCall, judgement: Judgement, value: Callable[[_Pairs], float], max_unjudged: float) -> Result:
    if reason := _inapplicable(call, judgement):
        return Unscored(reason, attributes={"uncited": True} if reason == "no_citations" else {})
    pairs = _pairs(call, judgement.citations or (), judgement.parts or 0)
    if pairs.uncited() < 0:
        seen = f"citations in more parts than the {pairs.parts} that the answer has"
        return Unscored("unparsable", explanation=seen)
    attributes = _attributes(pairs)
    unjudged = list(pairs.worth.values()).count(None)
    if too_many(unjudged, len(pairs.worth), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(value(pairs), attributes=attributes)


def _inapplicable(call: RagCall, judgement: Judgement) -> str:
    if no_answer(call):
        return "empty_answer"
    if call.contexts is None:
        return "contexts_missing"
    if declined(judgement):
        return "abstained"
    if judgement.citations is None:
        return why_missing(judgement, "citations")
    if not judgement.citations:
        return "no_citations"
    return why_missing(judgement, "parts") if judgement.parts is None else ""


def _pairs(call: RagCall, citations: Iterable[Citation], parts: int) -> _Pairs:
    passages = call.contexts if any_text(call.contexts) else ()  # where all are blank, there is no passage to cite
    worth: dict[tuple[int, Hashable], float | None] = {}
    for citation in citations:
        passage, value = _judged(citation, passages or ())
        worth.setdefault((citation.part, passage), value)
    return _Pairs(parts, worth)


def _judged(citation: Citation, passages: Sequence[Document]) -> tuple[int | str, float | None]:
    """What tells the cited passage from others (its rank; if there is none, how it is cited), and the worth."""
    rank = citation.chunk
    if rank is None or not 0 <= rank < len(passages):
        return citation.marker or f"rank {rank}", 0.0  # nobody needs to be asked what a missing passage supports
    if blank(passages[rank].text):
        return rank, 0.0
    return rank, None if citation.support is None else _WORTH.get(citation.support)


def _means(pairs: Iterable[tuple[Hashable, float | None]]) -> list[float]:
    """The mean worth under each key, of those that are judged."""
    grouped: defaultdict[Hashable, list[float]] = defaultdict(list)
    for key, worth in pairs:
        if worth is not None:
            grouped[key].append(worth)
    return [sum(worths) / len(worths) for worths in grouped.values()]


def _attributes(pairs: _Pairs) -> dict[str, Plain]:
    passages = {passage for _, passage in pairs.worth}
    judged: Sequence[float] = [worth for worth in pairs.worth.values() if worth is not None]
    return {
        "parts": pairs.parts,
        "uncited_parts": pairs.uncited(),
        "citations": len(judged),
        "cited_passages": len(passages),
        "unknown_citations": sum(isinstance(passage, str) for _, passage in pairs.worth),
        "unjudged": len(pairs.worth) - len(judged),
        **{label: judged.count(worth) for label, worth in _WORTH.items()},
    }


_NEEDS: Final = frozenset({"citations", "parts", "claims", "answer_label"})
citation_precision: Final = Formula("citation_precision", "1", citation_precision_of, _NEEDS)
citation_recall: Final = Formula("citation_recall", "1", citation_recall_of, _NEEDS)
citation_f1: Final = Formula("citation_f1", "1", citation_f1_of, _NEEDS)
METRICS: Final[tuple[Metric, ...]] = (citation_precision, citation_recall, citation_f1)
