"""`LabelTask`: what one request of the main reply shows the model and asks it to label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from ragtrace.core.labels import AnswerLabel, CitationSupport, Relevance, SentenceRelevance, Support
from ragtrace.judges.llm.prompt import MOST_TOKENS, listed
from ragtrace.judges.llm.prompt_input import Chunk, Cited, Unit
from ragtrace.judges.llm.prompts import Kind
from ragtrace.judges.llm.schemas import YES_NO, Schema, list_of, one_of, record, text, texts

SENTENCE_RELEVANCES: Final[tuple[SentenceRelevance, ...]] = ("yes", "background", "no", "filler")
RELEVANCES: Final[tuple[Relevance, ...]] = ("yes", "background", "no")
SUPPORTS: Final[tuple[Support, ...]] = ("supported", "partial", "contradicted", "not_found")
LEVELS: Final = ("0", "1", "2", "3")
CITATION_SUPPORTS: Final[tuple[CitationSupport, ...]] = ("full", "partial", "none")
ANSWER_LABELS: Final[tuple[AnswerLabel, ...]] = ("answered", "abstained")

# The evidence comes before the label that it is for: a model decides as it writes.
_SENTENCES: Final = list_of(id=text(), relevant=one_of(SENTENCE_RELEVANCES))
_STATEMENT: Final[Mapping[str, Schema]] = {
    "sentence_ids": texts(),
    "text": text(),
    "checkable": one_of(YES_NO),
    "relevant": one_of(RELEVANCES),
}
_VERDICT: Final[Mapping[str, Schema]] = {"evidence_chunk_ids": texts(), "quote": text(), "support": one_of(SUPPORTS)}
_CHUNKS: Final = list_of(id=text(), contradicted=one_of(YES_NO), grade=one_of(LEVELS))
_CITATIONS: Final = list_of(id=text(), support=one_of(CITATION_SUPPORTS))
_ANSWER: Final[Mapping[str, Schema]] = {"answer_rating": one_of(LEVELS), "answer_label": one_of(ANSWER_LABELS)}

NAMES: Final[Mapping[Kind, str]] = {
    "full": "ragtrace_judgement",
    "extract": "ragtrace_extraction",
    "verify": "ragtrace_verification",
    "contradicted": "ragtrace_contradiction",
}
SCHEMAS: Final[Mapping[Kind, Schema]] = {
    "full": record(
        sentences=_SENTENCES,
        statements=list_of(id=text(), **_STATEMENT, **_VERDICT),
        chunks=_CHUNKS,
        citations=_CITATIONS,
        **_ANSWER,
    ),
    "extract": record(sentences=_SENTENCES, statements=list_of(id=text(), **_STATEMENT), **_ANSWER),
    "verify": record(statements=list_of(id=text(), **_VERDICT), chunks=_CHUNKS, citations=_CITATIONS),
    "contradicted": record(chunks=list_of(id=text(), contradicted=one_of(YES_NO))),
}


@dataclass(frozen=True, slots=True)
class LabelTask:
    """Items that one request asks the model to label; the reply must name exactly their ids."""

    kind: Kind
    query: str = ""
    sentences: tuple[Unit, ...] = ()
    """Sentences to label; of kind `contradicted`: what is held against the chunks."""
    chunks: tuple[Chunk, ...] = ()
    citations: tuple[Cited, ...] = ()
    parts: tuple[Unit, ...] = ()
    """Parts of the answer with citations: given by the application, or sentences that are not to be labelled."""
    given: Mapping[str, str] | None = None
    """Statements to verify, by id; gold checks are among them."""
    gold_checks: frozenset[str] = frozenset()
    """Ids of statements with a known label: a repair must not reveal what is wrong with their evidence."""

    @property
    def fields(self) -> frozenset[str]:
        """Top-level fields of the reply."""
        return frozenset(cast("Mapping[str, object]", SCHEMAS[self.kind]["properties"]))

    @property
    def ample_tokens(self) -> int:
        """More tokens than an honest reply has, by the number and length of the items."""
        items = len(self.sentences) + len(self.chunks) + len(self.citations)
        # Statements restate a sentence with names for pronouns, in any script; each has a quote and a dozen fields.
        statements = sum(250 + 5 * len(unit.text) for unit in self.sentences) if "sentences" in self.fields else 0
        return min(MOST_TOKENS, 500 + 30 * items + 250 * len(self.given or ()) + statements)

    def data(self) -> dict[str, object]:
        """Return what the user message shows the model."""
        data: dict[str, object] = {}
        if self.kind != "verdict":
            data["query"] = self.query
        if self.kind not in ("verify", "verdict"):
            data["answer_sentences"] = listed({unit.id: unit.text for unit in self.sentences})
        if self.parts:
            data["answer_parts"] = listed({unit.id: unit.text for unit in self.parts})
        if self.kind != "extract":
            data["chunks"] = listed({chunk.id: chunk.text for chunk in self.chunks})
        if self.kind in ("full", "verify"):
            data["citations"] = [
                {"id": cited.id, "sentence_id": cited.unit_id, "chunk_id": cited.chunk_id} for cited in self.citations
            ]
        if self.kind in ("full", "verify", "verdict"):
            data["given_statements"] = listed(self.given or {})
        return data
