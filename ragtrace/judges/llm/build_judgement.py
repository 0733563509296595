"""Builds a `Judgement` from the labels in an LLM's replies, with a reason for each label that is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.core.labels import ChunkLabel, Citation, CitationSupport, Claim, Sentence
from ragtrace.core.types import Judgement, Plain
from ragtrace.judges.llm.label_collector import Labels
from ragtrace.judges.llm.label_reply import (
    UNJUDGED,
    ExtractedStatement,
    Verdict,
    omitted_terms,
    too_many_unverified,
    uncovered_sentences,
)
from ragtrace.judges.llm.prompt_input import PromptInput

OF_ANSWER: Final = ("claims", "sentences", "citations", "parts", "answer_label", "answer_rating")
"""Fields of a judgement with labels of the answer."""
FIELDS: Final = frozenset((*OF_ANSWER, "chunks"))
"""Fields of a judgement that `build_judgement` can fill."""
MOST_UNCOVERED: Final = 0.2
_SLACK: Final = 1e-9


def build_judgement(source: PromptInput, labels: Labels, most_uncovered: float = MOST_UNCOVERED) -> Judgement:
    """Return the `Judgement` of one call, built from the *labels* that the LLM gave.

    A label that the LLM did not give stays missing, with a reason.

    Args:
        most_uncovered: share of the sentences with content that may be in no statement; over it there are no claims.
    """
    attributes: dict[str, Plain] = dict(source.attributes)
    if labels.suspect:
        withheld: dict[str, str] = dict.fromkeys(("", *FIELDS), "control_failed")
        return Judgement(reasons=withheld, mode=labels.mode, attributes=attributes)
    reasons = _reasons(source, labels)
    claims = _claims(source, labels, reasons, attributes, most_uncovered)
    relevances = labels.extraction.sentences
    sentences: tuple[Sentence, ...] | None = None
    if relevances is not None and source.sentences:
        sentences = tuple(
            Sentence(source.answer[unit.start : unit.end], unit.start, unit.end, relevances.get(unit.id))
            for unit in source.sentences
        )
    parts = _parts(source, sentences)
    return Judgement(
        claims=claims,
        answer_label=labels.extraction.answer_label,
        reasons=reasons,
        sentences=sentences,
        chunks=_chunks(source, labels),
        citations=None if parts is None else _citations(source, labels.verification.citations or {}, parts),
        parts=None if parts is None else len(parts),
        answer_rating=labels.extraction.answer_rating,
        mode=labels.mode,
        attributes=attributes,
    )


def _reasons(source: PromptInput, labels: Labels) -> dict[str, str]:
    """Return the reasons for missing labels, by field of the judgement."""
    reasons: dict[str, str] = {}
    answer = labels.extraction
    if not source.sentences:
        reasons = dict.fromkeys(OF_ANSWER, "empty_answer")
    else:
        missing = {"claims": answer.statements, "sentences": answer.sentences, "parts": answer.sentences}
        reasons = {name: "unparsable" for name, value in missing.items() if value is None}
        # There is one item: if it is unjudged, all are.
        single = {"answer_label": answer.answer_label, "answer_rating": answer.answer_rating}
        reasons |= {name: "too_many_unjudged" for name, value in single.items() if value is None}
    if "answer" in labels.failed:
        reasons |= dict.fromkeys(OF_ANSWER, labels.failed["answer"])
    if source.same_as is None:
        reasons |= dict.fromkeys(("chunks", "citations"), "contexts_missing")
    elif "chunks" in labels.failed:
        # The claims have labels of relevance; this is the reason why none has a label of support.
        reasons |= dict.fromkeys(("chunks", "citations", "claims"), labels.failed["chunks"])
    elif source.chunks and labels.verification.contradicted is None and labels.verification.grades is None:
        reasons["chunks"] = "unparsable"
    return reasons


def _claims(
    source: PromptInput, labels: Labels, reasons: dict[str, str], attributes: dict[str, Plain], most_uncovered: float
) -> tuple[Claim, ...] | None:
    statements = labels.extraction.statements
    if statements is None:
        return None
    skipped = labels.extraction.skipped
    lost = omitted_terms(source.sentences, skipped, statements)
    left_out = len({*uncovered_sentences(source.sentences, skipped, statements, labels.extraction.answer_label), *lost})
    meant = sum(unit.id not in skipped for unit in source.sentences)
    verdicts = labels.verification.verdicts
    checkable = [verdict for index, verdict in verdicts.items() if statements[index].checkable]
    unverified = sum(verdict.unverified for verdict in checkable)
    counts = {"uncovered_sentences": left_out, "unverified_statements": unverified}
    attributes.update({name: count for name, count in counts.items() if count})
    if left_out > most_uncovered * meant + _SLACK:
        reasons["claims"] = "coverage"
        return None
    # In steps such a label counts as `not_found`; one word in reply never shows anything.
    if labels.mode == "fast" and too_many_unverified(checkable):
        reasons["claims"] = "unverified"
        verdicts = {index: Verdict(None, unverified=verdict.unverified) for index, verdict in verdicts.items()}
    return tuple(_claim(source, one, verdicts.get(index, UNJUDGED)) for index, one in enumerate(statements))


def _claim(source: PromptInput, statement: ExtractedStatement, verdict: Verdict) -> Claim:
    start = end = 0
    if statement.sentences:  # range of the statement's own words, or else of its sentences
        start, end = source.sentences[statement.sentences[0]].start, source.sentences[statement.sentences[-1]].end
        at = source.answer.find(statement.text, start, end)
        start, end = (start, end) if at < 0 else (at, at + len(statement.text))
    support = verdict.support if statement.checkable and statement.sentences else None
    if statement.checkable and source.same_as is not None and not source.chunks:
        support = "not_found"  # nothing was retrieved: no model needs to be asked
    evidence = verdict.evidence
    if support == "not_found" and not evidence:
        evidence = tuple(chunk.rank for chunk in source.chunks)
    return Claim(
        text=statement.text,
        start=start,
        end=end,
        support=support,
        checkable=statement.checkable,
        relevant=statement.relevant,
        evidence=evidence if statement.checkable else (),
        quote=verdict.quote,
        unsupported=((start, end),) if support is not None and support != "supported" else (),
        unverified=verdict.unverified,
    )


def _chunks(source: PromptInput, labels: Labels) -> tuple[ChunkLabel, ...] | None:
    grades, denied = labels.verification.grades, labels.verification.contradicted
    if source.same_as is None or (source.chunks and grades is None and denied is None):
        return None
    found: list[ChunkLabel] = []
    for first in source.same_as:
        if first is None:
            found.append(ChunkLabel(0, contradicted=False))
            continue
        name = f"c{first + 1}"
        # Whatever the model says: without a query no chunk is relevant, and without an answer none is contradicted.
        grade = (grades or {}).get(name) if source.query else None
        found.append(ChunkLabel(grade, (denied or {}).get(name) if source.sentences else None))
    return tuple(found)


def _parts(source: PromptInput, sentences: tuple[Sentence, ...] | None) -> dict[int, int] | None:
    """Return the parts of the answer that may contain citations.

    They are the parts that the application gave, or else the sentences, except filler. Keys are indices of the parts,
    values their numbers among those that may cite.
    """
    if source.parts is not None:
        return {index: index for index in range(len(source.parts))}
    if sentences is None:
        return None
    meant = [index for index, sentence in enumerate(sentences) if sentence.relevant != "filler"]
    return {index: part for part, index in enumerate(meant)}


def _citations(
    source: PromptInput, supports: Mapping[str, CitationSupport | None], parts: Mapping[int, int]
) -> tuple[Citation, ...] | None:
    if source.same_as is None:
        return None
    found: list[Citation] = []
    for cited in source.citations:
        if cited.part in parts:
            blank = cited.rank is not None and source.same_as[cited.rank] is None
            support = "none" if blank else supports.get(cited.id)
            found.append(Citation(parts[cited.part], cited.rank, support, cited.marker))
    return tuple(found)
