"""Merges labels from several LLM replies about one call: from batches of items, and from repeated rounds that vote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ragtrace.core.labels import AnswerLabel, CitationSupport
from ragtrace.judges.llm.label_reply import UNJUDGED, ExtractedStatement, LabelReply, Verdict
from ragtrace.judges.llm.quotes import normalize_quote

BEST_FIRST: Final = ("supported", "contradicted", "partial", "not_found")


@dataclass(slots=True)
class Verification:
    """Labels from comparing an answer with the chunks: verdicts, contradictions, relevance grades, citations."""

    verdicts: dict[int, Verdict] = field(default_factory=dict[int, Verdict])
    """Verdict on each statement, by index of the statement."""
    contradicted: dict[str, bool | None] | None = None
    grades: dict[str, int | None] | None = None
    citations: dict[str, CitationSupport | None] | None = None


def merge_extractions(replies: Sequence[LabelReply]) -> LabelReply:
    """Merge the labels that the LLM gave to parts of an answer into labels of the whole answer.

    All statements are kept, and the best rating and label.
    """
    ratings = [reply.answer_rating for reply in replies if reply.answer_rating is not None]
    labels = [reply.answer_label for reply in replies]
    label: AnswerLabel | None = None if None in labels else "answered" if "answered" in labels else "abstained"
    sentences = [reply.sentences for reply in replies]
    statements = [reply.statements for reply in replies]
    return LabelReply(
        sentences=None
        if None in sentences
        else {key: value for one in sentences for key, value in (one or {}).items()},
        skipped=frozenset[str]().union(*(reply.skipped for reply in replies)),
        statements=None if None in statements else merge_statements(one for some in statements for one in some or ()),
        answer_rating=max(ratings, default=None),
        answer_label=label,
    )


def merge_statements(statements: Iterable[ExtractedStatement]) -> list[ExtractedStatement]:
    """Merge *statements* that have the same text. A relevance or verdict on which they differ counts as missing."""
    found: dict[object, ExtractedStatement] = {}
    for index, new in enumerate(statements):
        key = normalize_quote(new.text).rstrip(".,;:!? ") or index
        old = found.setdefault(key, new)
        if old is not new:
            found[key] = replace(
                old,
                sentences=tuple(sorted({*old.sentences, *new.sentences})),
                checkable=old.checkable or new.checkable,
                relevant=old.relevant if old.relevant == new.relevant else None,
                verdict=old.verdict if old.verdict.support == new.verdict.support else UNJUDGED,
            )
    return list(found.values())


def merge_verifications(replies: Sequence[LabelReply], verdicts: Iterable[tuple[int, Verdict]]) -> Verification:
    """Merge the labels in the LLM's replies about all batches of one verification round.

    Of a statement held against several groups of chunks the best label counts; if one group left it unjudged, only
    support by another group counts. A chunk is contradicted if one batch says so; its grade is the first.
    """
    merged: dict[int, Verdict] = {}
    for index, verdict in verdicts:
        merged[index] = _preferred(merged[index], verdict) if index in merged else verdict
    return Verification(
        verdicts=merged,
        contradicted=_merge([reply.contradicted for reply in replies], lambda old, new: old or new),
        grades=_merge([reply.grades for reply in replies]),
        citations=_merge([reply.citations for reply in replies]),
    )


def _preferred(old: Verdict, new: Verdict) -> Verdict:
    if old.support is None or new.support is None:
        return next((one for one in (old, new) if one.support == "supported"), UNJUDGED)
    return min(old, new, key=lambda verdict: BEST_FIRST.index(verdict.support or "not_found"))


def _merge(
    replies: Iterable[Mapping[str, Any] | None], join: Callable[[Any, Any], Any] = lambda old, _: old
) -> dict[str, Any] | None:
    """Merge the labels of several *replies* into one dictionary by item id.

    The function *join* chooses between two labels of one item. None if no reply has labels.
    """
    merged: dict[str, Any] | None = None
    for labels in replies:
        if labels is not None:
            merged = merged or {}
            for key, label in labels.items():
                old = merged.get(key)
                merged[key] = label if old is None else old if label is None else join(old, label)
    return merged
