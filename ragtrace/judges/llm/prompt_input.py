"""`PromptInput`: a call as a model is shown it: cleaned, capped, with ids. Everything in it is hostile text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ragtrace.core.types import Document, Plain, RagCall
from ragtrace.judges.lexical.statements import sentences
from ragtrace.judges.llm.citation_marks import MOST_MARKS, CitationMark, citation_marks, cited_rank, with_their_marks
from ragtrace.judges.llm.injection_signals import has_injection_signal
from ragtrace.judges.llm.invisible_chars import Cleaned, remove_invisible, without_invisible
from ragtrace.judges.llm.quotes import TextTerms, fold

MAX_CHUNK_CHARS: Final = 8_000
MOST_CITATIONS: Final = 200
"""Citations in a request; those beyond are unjudged."""


class Unit(NamedTuple):
    """Sentence of the answer, or a part of it that the application gave."""

    id: str
    text: str
    start: int
    """Offset in the answer as the application gave it."""
    end: int


class Chunk:
    """Distinct retrieved passage that is not blank."""

    __slots__ = ("_folded", "_terms", "id", "rank", "text")

    def __init__(self, rank: int, text: str) -> None:
        self.id = f"c{rank + 1}"
        self.rank = rank
        """Rank of its first occurrence, from 0."""
        self.text = text
        self._folded: str | None = None
        self._terms: TextTerms | None = None

    @property
    def folded(self) -> str:
        """Text as quotes are compared with it; made on first use, once."""
        if self._folded is None:
            self._folded = fold(self.text)
        return self._folded

    @property
    def terms(self) -> TextTerms:
        """Numbers and words of the text; found on first use, once."""
        if self._terms is None:
            self._terms = TextTerms(self.text)
        return self._terms


class Cited(NamedTuple):
    """Distinct pair of a part of the answer and a passage that it cites."""

    id: str
    """"" if it is in no request: there is no such passage, it is blank, or there are too many citations."""
    part: int
    """Index of the sentence, or of the part that the application gave."""
    unit_id: str
    rank: int | None
    """Rank of the passage, of equal ones the first; None: there is no such passage."""
    chunk_id: str
    marker: str


@dataclass(frozen=True, slots=True)
class PromptInput:
    """Texts of one call, ready to be shown to a model, and what was noticed in them."""

    query: str
    answer: str
    """Answer as the application gave it."""
    sentences: tuple[Unit, ...]
    chunks: tuple[Chunk, ...]
    same_as: tuple[int | None, ...] | None
    """For each retrieved passage, the rank of the first that equals it; None: it is blank. None: not captured."""
    parts: tuple[Unit, ...] | None
    """Parts that may cite, as the application gave them; None: the sentences may."""
    citations: tuple[Cited, ...]
    attributes: Mapping[str, Plain]

    @property
    def chars(self) -> int:
        """Characters of query, answer and chunks."""
        return len(self.query) + sum(len(c.text) for c in self.chunks) + sum(len(s.text) for s in self.sentences)


def prepare(call: RagCall, max_chunk_chars: int = MAX_CHUNK_CHARS) -> PromptInput:
    """Return *call* without invisible characters, with ids; longer passages and queries are cut, and counted."""
    answer = remove_invisible(call.answer or "")
    query = remove_invisible(call.query or "")
    documents = call.contexts or ()
    ids = [document.id for document in documents]
    found = citation_marks(answer.text, ids)
    units = tuple(_units(answer, found))
    shown = _ChunkList(max_chunk_chars)
    same_as = None if call.contexts is None else shown.add(documents)
    parts = None if call.parts is None else tuple(_parts(call, max_chunk_chars))
    return PromptInput(
        query=query.text[:max_chunk_chars].strip(),
        answer=call.answer or "",
        sentences=units,
        chunks=tuple(shown.chunks),
        same_as=same_as,
        parts=parts,
        citations=tuple(_cited(_pairs(call, units, found, answer), parts or units, same_as or ())),
        attributes=_attributes(call, shown, answer, query, max_chunk_chars, found),
    )


def reference_chunks(
    documents: Sequence[Document], max_chunk_chars: int = MAX_CHUNK_CHARS
) -> tuple[tuple[Chunk, ...], tuple[str | None, ...]]:
    """Return the chunks to show for *documents*; and the id of the chunk of each distinct one that is not blank.

    An id is None if all characters of the document are invisible.
    """
    distinct = {key: document for document in reversed(documents) if (key := " ".join(document.text.split()))}
    shown = _ChunkList(max_chunk_chars)
    firsts = shown.add(list(reversed(distinct.values())))
    return tuple(shown.chunks), tuple(None if first is None else f"c{first + 1}" for first in firsts)


class _ChunkList:
    """Chunks to show, and counts of those that were cut or left out."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self.chunks: list[Chunk] = []
        self.truncated = self.duplicates = self.hidden = 0

    def add(self, documents: Sequence[Document]) -> tuple[int | None, ...]:
        """Add *documents*; return for each the rank of the first that equals it, None if it is blank."""
        first: dict[str, int] = {}
        return tuple(self._add(rank, document, first) for rank, document in enumerate(documents))

    def _add(self, rank: int, document: Document, first: dict[str, int]) -> int | None:
        cleaned = remove_invisible(document.text)
        self.hidden += cleaned.removed
        key = " ".join(cleaned.text.split())
        if not key:
            return None
        if key in first:
            self.duplicates += 1
            return first[key]
        first[key] = rank
        self.truncated += len(cleaned.text) > self._max_chars
        self.chunks.append(Chunk(rank, cleaned.text[: self._max_chars]))
        return rank


def _units(answer: Cleaned, found: Sequence[CitationMark]) -> Iterator[Unit]:
    ranges = list(sentences(answer.text))
    if found:
        ranges = with_their_marks(answer.text, ranges, found)
    for number, (start, end) in enumerate(ranges, 1):
        yield Unit(f"s{number}", answer.text[start:end], answer.original(start), answer.original(end, end=True))


def _parts(call: RagCall, max_chars: int) -> Iterator[Unit]:
    answer = call.answer or ""
    at = 0
    for number, part in enumerate(call.parts or (), 1):
        start = max(answer.find(part.text, at), 0)
        at = start + len(part.text)
        yield Unit(f"p{number}", without_invisible(part.text)[:max_chars], start, min(at, len(answer)))


def _pairs(
    call: RagCall, units: Sequence[Unit], found: Sequence[CitationMark], answer: Cleaned
) -> Iterator[tuple[int, str, int | None]]:
    """Yield (index of the part, marker, rank of the passage) of everything that is cited."""
    if call.parts is not None:
        ids = [document.id for document in call.contexts or ()]
        for index, part in enumerate(call.parts):
            for name in part.cited:
                yield index, without_invisible(name)[:80], cited_rank(name, ids)
        return
    starts = [unit.start for unit in units]
    for mark in found:
        start = answer.original(mark.start)
        index = bisect_right(starts, start) - 1
        if index >= 0 and start < units[index].end:
            yield index, mark.marker, mark.rank


def _cited(
    pairs: Iterator[tuple[int, str, int | None]], units: Sequence[Unit], same_as: Sequence[int | None]
) -> Iterator[Cited]:
    seen: set[tuple[int, int | str]] = set()
    for part, marker, rank in pairs:
        first = None if rank is None else same_as[rank]
        passage = first if first is not None else rank
        if (part, marker if passage is None else passage) in seen:
            continue
        seen.add((part, marker if passage is None else passage))
        asked = first is not None and len(seen) <= MOST_CITATIONS
        yield Cited(
            id=f"r{len(seen)}" if asked else "",
            part=part,
            unit_id=units[part].id,
            rank=passage,
            chunk_id=f"c{passage + 1}" if asked and passage is not None else "",
            marker=marker,
        )


def _attributes(
    call: RagCall, shown: _ChunkList, answer: Cleaned, query: Cleaned, max_chars: int, found: Sequence[CitationMark]
) -> dict[str, Plain]:
    hidden = shown.hidden + answer.removed + query.removed
    counts = {
        "duplicate_chunks": shown.duplicates,
        "truncated_chunks": shown.truncated,
        "hidden_chars": hidden,
        "truncated_query": len(query.text) > max_chars,
        "truncated_citations": len(found) >= MOST_MARKS,
    }
    texts = [query.text, answer.text, *(chunk.text for chunk in shown.chunks)]
    # Shown to a judge by the metrics that read them.
    others = [call.reference or "", *(turn.text for turn in call.turns or ())]
    texts += map(without_invisible, [*others, *(document.text for document in call.reference_contexts or ())])
    noticed: dict[str, Plain] = {name: count for name, count in counts.items() if count}
    return noticed | ({"injection_suspected": True} if has_injection_signal(texts, hidden) else {})
