"""The schemas of a judge's replies: static, for servers cache what they make of a schema. Ids are checked in code.

Every field is required, no other is allowed, labels are strings, and the evidence comes before the label it is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

from ragtrace.core.labels import AnswerLabel, CitationSupport, Relevance, SentenceRelevance, Support
from ragtrace.judges.llm.prompts import Kind

Schema: TypeAlias = Mapping[str, object]

SENTENCE_RELEVANCES: Final[tuple[SentenceRelevance, ...]] = ("yes", "background", "no", "filler")
RELEVANCES: Final[tuple[Relevance, ...]] = ("yes", "background", "no")
YES_NO: Final = ("yes", "no")
SUPPORTS: Final[tuple[Support, ...]] = ("supported", "partial", "contradicted", "not_found")
LEVELS: Final = ("0", "1", "2", "3")
CITATION_SUPPORTS: Final[tuple[CitationSupport, ...]] = ("full", "partial", "none")
ANSWER_LABELS: Final[tuple[AnswerLabel, ...]] = ("answered", "abstained")

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}


def _one_of(labels: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(labels)}


def _record(**fields: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(fields), "properties": fields}


def _list(**fields: Schema) -> Schema:
    return {"type": "array", "items": _record(**fields)}


_SENTENCES: Final = _list(id=_TEXT, relevant=_one_of(SENTENCE_RELEVANCES))
_STATED: Final[Mapping[str, Schema]] = {
    "sentence_ids": _TEXTS,
    "text": _TEXT,
    "checkable": _one_of(YES_NO),
    "relevant": _one_of(RELEVANCES),
}
_VERDICT: Final[Mapping[str, Schema]] = {"evidence_chunk_ids": _TEXTS, "quote": _TEXT, "support": _one_of(SUPPORTS)}
_CHUNKS: Final = _list(id=_TEXT, contradicted=_one_of(YES_NO), grade=_one_of(LEVELS))
_CITATIONS: Final = _list(id=_TEXT, support=_one_of(CITATION_SUPPORTS))
_ANSWER: Final[Mapping[str, Schema]] = {"answer_rating": _one_of(LEVELS), "answer_label": _one_of(ANSWER_LABELS)}

NAMES: Final[Mapping[Kind, str]] = {
    "full": "ragtrace_judgement",
    "extract": "ragtrace_extraction",
    "verify": "ragtrace_verification",
    "contradicted": "ragtrace_contradiction",
}
SCHEMAS: Final[Mapping[Kind, Schema]] = {
    "full": _record(
        sentences=_SENTENCES,
        statements=_list(id=_TEXT, **_STATED, **_VERDICT),
        chunks=_CHUNKS,
        citations=_CITATIONS,
        **_ANSWER,
    ),
    "extract": _record(sentences=_SENTENCES, statements=_list(id=_TEXT, **_STATED), **_ANSWER),
    "verify": _record(statements=_list(id=_TEXT, **_VERDICT), chunks=_CHUNKS, citations=_CITATIONS),
    "contradicted": _record(chunks=_list(id=_TEXT, contradicted=_one_of(YES_NO))),
}


def fields(kind: Kind) -> frozenset[str]:
    """The top-level fields of the reply to one kind of request."""
    return frozenset(cast("Mapping[str, object]", SCHEMAS[kind]["properties"]))
