"""Citation precision and recall: whether the cited passages support the parts of the answer that cite them.

A part is a sentence of the answer (courtesies and other filler excluded), or a part of the answer that the application
gave. A pair of a part and a passage counts once, however often it is cited: full support 1, partial 0.5, none 0. A
passage that does not exist supports nothing, so an invented citation costs. What each citation supports is judged on
its own; ALCE's metrics of the same names ask whether all citations of a sentence together support it, and are not
comparable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple

from ragtrace.core.text import OwnText
from ragtrace.core.types import Judgement, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, any_text, blank, f1, formula, too_many, unmet, why_missing

_NEEDS: Final = frozenset({"citations", "parts", "claims", "answer_label"})
_READS: Final = frozenset({"statements", "answer_label"})
_WORTH: Final = {"full": 1.0, "partial": 0.5, "none": 0.0}


@formula(needs=_NEEDS, reads=_READS)
def citation_precision(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """How well the cited passages support the parts of the answer that cite them.

    Inputs: answer with citations, and contexts.
    Formula: mean over the distinct cited passages of the mean worth of their citations: full 1, partial 0.5, none 0. A
        passage that does not exist counts 0.
    Unscored: `empty_answer`; `contexts_missing`; `abstained` (nothing checkable was said); `no_citations` (with the
        attribute `uncited`); `too_many_unjudged` (over 20 % of the citations have no valid label).
    Source: the citation metric of the open-rag-eval framework, with unknown passages counted.
    """
    return _measure(call, judgement, _Citations.precision, max_unjudged)


@formula(needs=_NEEDS, reads=_READS)
def citation_recall(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """How much of the answer is supported by the passages that it cites.

    Inputs: answer with citations, and contexts.
    Formula: mean over the parts of the mean worth of their citations: full 1, partial 0.5, none 0. A part that cites
        nothing, or only passages that do not exist, counts 0.
    Unscored: as `citation_precision`.
    Source: the citation metric of the open-rag-eval framework, with unknown passages counted.
    """
    return _measure(call, judgement, _Citations.recall, max_unjudged)


@formula(needs=_NEEDS, reads=_READS)
def citation_f1(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Harmonic mean of citation precision and citation recall.

    Inputs: answer with citations, and contexts.
    Formula: 2 P R / (P + R); 0 if both are 0.
    Unscored: as `citation_precision`.
    Source: the citation metric of the open-rag-eval framework, with unknown passages counted.
    """
    return _measure(call, judgement, lambda found: f1(found.precision(), found.recall()), max_unjudged)


class _Citations(NamedTuple):
    """Citations of an answer, with the degree to which each cited passage supports the citing part of the answer.

    `worth` has one value for each distinct pair of a part and a passage; None: unjudged. A passage is its rank, or,
    where there is no such passage, the marker that cites it.
    """

    parts: int
    worth: dict[tuple[int, int | str], float | None]

    def precision(self) -> float:
        """Return the citation precision: how well each cited passage supports the citing parts, on average.

        A passage counts with the mean worth of its citations.
        """
        means = _means((passage, worth) for (_, passage), worth in self.worth.items())
        return sum(means) / len(means)

    def recall(self) -> float:
        """Return the citation recall: how well each part of the answer is supported by its citations, on average.

        A part counts with the mean worth of its citations, and with 0 if it has none. A part of whose citations none
        has a valid label is left out: nothing is known of it.
        """
        known = _means((part, worth) for (part, _), worth in self.worth.items())
        return sum(known) / (len(known) + self.uncited)

    @property
    def uncited(self) -> int:
        """Number of parts of the answer that cite nothing."""
        return self.parts - len({part for part, _ in self.worth})


def _measure(call: RagCall, judgement: Judgement, value: Callable[[_Citations], float], max_unjudged: float) -> Result:
    if reason := unmet(call, judgement, "empty_answer", "contexts_missing", "abstained"):
        return Unscored(reason)
    if judgement.citations is None:
        return Unscored(why_missing(judgement, "citations"))
    if not judgement.citations:
        return Unscored("no_citations", attributes={"uncited": True})
    if judgement.parts is None:
        return Unscored(why_missing(judgement, "parts"))
    found = _citations(call, judgement, judgement.parts)
    if found.uncited < 0:
        seen = f"citations in more parts than the {found.parts} that the answer has"
        return Unscored("unparsable", explanation=OwnText(seen))
    judged = [worth for worth in found.worth.values() if worth is not None]
    passages = [passage for _, passage in found.worth]
    attributes = {
        "parts": found.parts,
        "uncited_parts": found.uncited,
        "citations": len(judged),
        "cited_passages": len(set(passages)),
        "unknown_citations": sum(isinstance(passage, str) for passage in passages),
        "unjudged": len(passages) - len(judged),
        **{label: judged.count(worth) for label, worth in _WORTH.items()},
    }
    if too_many(len(passages) - len(judged), len(passages), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(value(found), attributes=attributes)


def _citations(call: RagCall, judgement: Judgement, parts: int) -> _Citations:
    passages = call.contexts or () if any_text(call.contexts) else ()  # all blank: there is no passage to cite
    found: dict[tuple[int, int | str], float | None] = {}
    for citation in judgement.citations or ():
        rank = citation.chunk
        if rank is None or not 0 <= rank < len(passages):
            # A missing passage supports nothing, whatever a judge says.
            found.setdefault((citation.part, citation.marker or f"rank {rank}"), 0.0)
        elif blank(passages[rank].text):
            found.setdefault((citation.part, rank), 0.0)
        else:
            found.setdefault((citation.part, rank), _WORTH.get(citation.support or ""))
    return _Citations(parts, found)


def _means(pairs: Iterable[tuple[Hashable, float | None]]) -> list[float]:
    """Return the mean value for each key in (key, value) pairs, leaving out values that are None."""
    grouped: defaultdict[Hashable, list[float]] = defaultdict(list)
    for key, worth in pairs:
        if worth is not None:
            grouped[key].append(worth)
    return [sum(worths) / len(worths) for worths in grouped.values()]


METRICS: Final = (citation_precision, citation_recall, citation_f1)
