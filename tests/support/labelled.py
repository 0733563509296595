"""Calls and judgements in short, for tests of metrics: one letter a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ragtrace.core.labels import (
    AnswerLabel,
    ChunkLabel,
    Citation,
    CitationSupport,
    Claim,
    Relevance,
    Sentence,
    SentenceRelevance,
    Support,
)
from ragtrace.core.types import Document, Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.metrics import registry

SUPPORT: Final[Mapping[str, Support | None]] = {
    "S": "supported", "C": "contradicted", "P": "partial", "F": "not_found", "?": None,
}  # fmt: skip
RELEVANCE: Final[Mapping[str, Relevance | None]] = {"y": "yes", "s": "background", "n": "no", "?": None}
SENTENCE: Final[Mapping[str, SentenceRelevance | None]] = {
    "y": "yes", "s": "background", "n": "no", "f": "filler", "?": None,
}  # fmt: skip
CITED: Final[Mapping[str, CitationSupport | None]] = {"1": "full", "h": "partial", "0": "none", "?": None}
SHARE_METRICS: Final = ("faithfulness", "faithfulness_noncontradiction", "hallucination", "contradiction")
CLAIM_METRICS: Final = ("hallucinated", *SHARE_METRICS)
RELEVANCY_METRICS: Final = ("answer_relevancy", "answer_relevancy_sentences", "answer_relevancy_rating")
CHUNK_METRICS: Final = ("context_relevance", "context_relevance_weighted", "contextual_accuracy", "umbrela")
RANK_METRICS: Final = ("precision_at_k", "average_precision_at_k", "reciprocal_rank")
QUALITY_METRICS: Final = ("quality_weighted", "quality_harmonic", "quality_minimum")
CITATION_METRICS: Final = ("citation_precision", "citation_recall", "citation_f1")


def asked(*contexts: str, query: str | None = "Where?", answer: str | None = "Here.") -> RagCall:
    """A call with these contexts, duplicates marked."""
    seen: set[str] = set()
    documents: list[Document] = []
    for text in contexts:
        folded = " ".join(text.split())
        documents.append(Document(text, duplicate=folded in seen))
        seen.add(folded)
    return RagCall(query, tuple(documents), answer)


def stated(support: str, relevant: str = "", *, remarks: int = 0, label: AnswerLabel | None = "answered") -> Judgement:
    """A judgement of one statement a letter of *support*, and of *remarks* that cannot be checked."""
    letters = relevant or "y" * len(support)
    claims = [
        Claim("claim", 0, 5, SUPPORT[one], relevant=RELEVANCE[other])
        for one, other in zip(support, letters, strict=True)
    ]
    claims += [Claim("hello", 0, 5, None, checkable=False, relevant="no")] * remarks
    return Judgement(tuple(claims), label)


def sentences(labels: str) -> tuple[Sentence, ...]:
    """One sentence a letter."""
    return tuple(Sentence("sentence", 0, 8, SENTENCE[letter]) for letter in labels)


def graded(grades: Sequence[int | None]) -> tuple[RagCall, Judgement]:
    """A call with as many different chunks, and their grades."""
    call = asked(*(f"chunk {rank}" for rank in range(len(grades))))
    return call, Judgement((), "answered", chunks=tuple(ChunkLabel(grade, False) for grade in grades))


def cited(*parts: Mapping[int | str, str]) -> Judgement:
    """A judgement of an answer whose parts cite passages, by rank from 0, or unknown ones, by marker."""
    citations = [
        Citation(part, passage if isinstance(passage, int) else None, CITED[worth], f"[{passage}]")
        for part, cites in enumerate(parts)
        for passage, worth in cites.items()
    ]
    return Judgement((Claim("c", 0, 1, "supported"),), "answered", citations=tuple(citations), parts=len(parts))


def measure(metric: str | Metric, call: RagCall, judgement: Judgement) -> Result:
    """What *metric* makes of the labels."""
    return (registry.get(metric) if isinstance(metric, str) else metric)(call, judgement)


def outcome(metric: str | Metric, call: RagCall, judgement: Judgement) -> float | str:
    """The value, or status and reason."""
    result = measure(metric, call, judgement)
    return result.value if isinstance(result, Score) else f"{result.status}/{result.reason}"


def scored(metric: str | Metric, call: RagCall, judgement: Judgement) -> Score:
    """The score, which there must be."""
    result = measure(metric, call, judgement)
    assert isinstance(result, Score), result
    return result


def unscored(metric: str | Metric, call: RagCall, judgement: Judgement) -> Unscored:
    """The reason, which there must be."""
    result = measure(metric, call, judgement)
    assert isinstance(result, Unscored), result
    return result
