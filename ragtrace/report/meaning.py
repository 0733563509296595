"""What a metric is, in one line: for a reader who has not looked it up."""

from __future__ import annotations

from typing import Final

_MEANINGS: Final = {
    "hallucinated": "share of the answers with at least one statement that no retrieved chunk supports, by the judge's "
    "verdicts",
    "suspicious": "share of the answers less consistent with their chunks than 95% of this application's baseline",
    "answered_without_context": "share of the answers that were given although retrieval returned nothing",
    "hallucination": "share of the statements in an answer that no retrieved chunk supports",
    "faithfulness": "share of the statements in an answer that the retrieved chunks support",
    "contradiction": "share of the statements in an answer that a retrieved chunk contradicts",
    "faithfulness_noncontradiction": "share of the statements in an answer that no retrieved chunk contradicts",
    "consistency": "how far an answer agrees with its retrieved chunks; its scale belongs to "
    "this application, so compare it with its own past",
    "answered": "share of the calls in which the answer attempts to answer",
    "answer_relevancy": "share of the statements in an answer that answer the question or are useful background",
    "context_relevance": "mean relevance of the retrieved chunks to the question",
    "contextual_accuracy": "share of the retrieved chunks that are relevant to the question",
    "citation_precision": "how well the cited chunks support the parts of the answer that cite them",
    "citation_recall": "how much of the answer is supported by what it cites",
}


def meaning(metric: str) -> str:
    """The definition of *metric*; empty if it is none that is explained here."""
    return _MEANINGS.get(metric, "")
