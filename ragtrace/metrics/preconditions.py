"""Preconditions of metrics: when there is no number, and which `Unscored` reason says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ragtrace.core.types import Document, Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import SLACK


def blank(text: str | None) -> bool:
    """Return whether *text* is absent or nothing but white space."""
    return not text or text.isspace()


def any_text(documents: Sequence[Document] | None) -> bool:
    """Return whether at least one of *documents* is not blank."""
    return not all(blank(document.text) for document in documents or ())


def declined(judgement: Judgement) -> bool:
    """Return whether the answer is an abstention that makes no checkable statement."""
    return judgement.answer_label == "abstained" and not any(claim.checkable for claim in judgement.claims or ())


_HOLDS: Final[Mapping[str, Callable[[RagCall, Judgement], bool]]] = MappingProxyType(
    {
        "empty_answer": lambda call, _: blank(call.answer),
        "empty_query": lambda call, _: blank(call.query),
        "contexts_missing": lambda call, _: call.contexts is None,
        "no_contexts": lambda call, _: not any_text(call.contexts),
        "needs_reference": lambda call, _: blank(call.reference),
        "needs_conversation": lambda call, _: not call.turns,
        "abstained": lambda _, judgement: declined(judgement),
    }
)


def unmet(call: RagCall, judgement: Judgement, *reasons: str) -> str:
    """Return the first of *reasons* for which the call can have no score, "" if none of them holds.

    Args:
        reasons: of `empty_answer`, `empty_query`, `contexts_missing`, `no_contexts`, `needs_reference`,
            `needs_conversation` and `abstained`, in the order in which they are looked at.
    """
    for reason in reasons:
        if _HOLDS[reason](call, judgement):
            return reason
    return ""


def why_missing(judgement: Judgement, field: str, otherwise: str = "unparsable") -> str:
    """Return the judge's reason for leaving *field* of the judgement None; *otherwise* if the judge gave none."""
    return judgement.reasons.get(field) or judgement.reasons.get("") or otherwise


def too_many(unjudged: int, items: int, limit: float) -> bool:
    """Return whether more than the share *limit* of *items*, or all of them, have no valid label."""
    return unjudged >= items or unjudged > limit * items + SLACK


def share(counted: int, unjudged: int, items: int, limit: float, attributes: Mapping[str, Plain]) -> Result:
    """Return the share *counted* / (*items* - *unjudged*) as a score, or `too_many_unjudged` (see `too_many`)."""
    if too_many(unjudged, items, limit):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(counted / (items - unjudged), attributes=attributes)


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean of *precision* and *recall*, 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
