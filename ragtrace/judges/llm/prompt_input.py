"""`PromptInput`: the untrusted texts of a call as a prompt shows them: cleaned, shortened and with ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ragtrace.core.labels import Turn
from ragtrace.core.types import Document, Plain, RagCall
from ragtrace.judges.lexical.statements import sentences
from ragtrace.judges.llm.citation_marks import (
    MOST_MARKS,
    CitationMark,
    attach_trailing_citations,
    citation_marks,
    cited_rank,
)
from ragtrace.judges.llm.injection_signals import has_injection_signal
from ragtrace.judges.llm.invisible_chars import Cleaned, remove_invisible, without_invisible
from ragtrace.judges.llm.quotes import TextTerms, normalize_quote

MAX_CHUNK_CHARS: Final = 8_000
MOST_CITATIONS: Final = 200
"""Most citations in a request; further ones are unjudged."""


class AnswerUnit(NamedTuple):
    """Sentence of an answer, or a part into which the application divided the answer."""

    id: str
    text: str
    start: int
    """Offset in the unchanged answer."""
    end: int


class PromptChunk:
    """Retrieved passage as a prompt shows it. Passages with equal text share one chunk."""

    def __init__(self, rank: int, text: str) -> None:
        self.id = f"c{rank + 1}"
        self.rank = rank
        """Rank, from 0, of the first passage with this text."""
        self.text = text

    @cached_property
    def folded(self) -> str:
        """Normalized text of the chunk, without case, markup and typography, in which quotes are searched."""
        return normalize_quote(self.text)

    @cached_property
    def terms(self) -> TextTerms:
        """Numbers and words in the text of the chunk, with which statements are compared."""
        return TextTerms(self.text)


class DistinctCitation(NamedTuple):
    """Citation of a retrieved passage by a part of the answer, counted once if that part repeats it."""

    id: str
    """Id in requests; "" if none shows the citation: the passage is missing or blank, or citations are too many."""
    part: int
    """Index of the citing sentence, or of the citing part that the application gave."""
    unit_id: str
    rank: int | None
    """Rank of the first passage with the text of the cited one; None if there is no such passage."""
    chunk_id: str
    marker: str


@dataclass(frozen=True, slots=True)
class PromptInput:
    """Texts of one call, prepared for an LLM's prompt, with attributes that say what was cut or is suspicious."""

    query: str
    answer: str
    """Unchanged answer of the application."""
    sentences: tuple[AnswerUnit, ...]
    chunks: tuple[PromptChunk, ...]
    same_as: tuple[int | None, ...] | None
    """Rank of the first equal passage for each retrieved passage, None for a blank one; None if not captured."""
    parts: tuple[AnswerUnit, ...] | None
    """Parts of the answer that may cite, as the application gave them; None if the sentences may cite."""
    citations: tuple[DistinctCitation, ...]
    attributes: Mapping[str, Plain]
    earlier_turns: tuple[Turn, ...] = ()
    """Turns of the conversation before the query, which help to understand the query and are no evidence."""

    @property
    def chars(self) -> int:
        """Total number of characters of query, answer, chunks and earlier turns."""
        turns = sum(len(turn.text) for turn in self.earlier_turns)
        return (
            len(self.query) + sum(len(c.text) for c in self.chunks) + sum(len(s.text) for s in self.sentences) + turns
        )


def prepare_input(call: RagCall, max_chunk_chars: int = MAX_CHUNK_CHARS) -> PromptInput:
    """Prepare the texts of *call* for an LLM: remove invisible characters, cut long passages and queries, assign ids.

    Attributes count what was cut.
    """
    answer = remove_invisible(call.answer or "")
    query = remove_invisible(call.query or "")
    marks = citation_marks(answer.text, [document.id for document in call.contexts or ()])
    ranges = list(sentences(answer.text))
    if marks:
        ranges = attach_trailing_citations(answer.text, ranges, marks)
    units = tuple(
        AnswerUnit(f"s{number}", answer.text[start:end], answer.original(start), answer.original(end, end=True))
        for number, (start, end) in enumerate(ranges, 1)
    )
    shown = _ChunkList(call.contexts or (), max_chunk_chars)
    parts = None if call.parts is None else tuple(_given_parts(call, max_chunk_chars))
    turns = [(turn, remove_invisible(turn.text)) for turn in call.earlier_turns or ()]
    return PromptInput(
        query=query.text[:max_chunk_chars].strip(),
        answer=call.answer or "",
        sentences=units,
        chunks=tuple(shown.chunks),
        same_as=None if call.contexts is None else shown.same_as,
        parts=parts,
        citations=tuple(
            _distinct_citations(_citation_pairs(call, units, marks, answer), parts or units, shown.same_as)
        ),
        attributes=_attributes(call, shown, answer, query, [text for _, text in turns], max_chunk_chars, marks),
        earlier_turns=tuple(Turn(turn.role, words) for turn, text in turns if (words := text.text.strip())),
    )


def reference_chunks(
    documents: Sequence[Document], max_chunk_chars: int = MAX_CHUNK_CHARS
) -> tuple[tuple[PromptChunk, ...], tuple[str | None, ...]]:
    """Return *documents* as chunks for a prompt, and the chunk id of each distinct document that is not blank.

    An id is None if all characters of the document are invisible.
    """
    distinct = {key: document for document in reversed(documents) if (key := " ".join(document.text.split()))}
    shown = _ChunkList(list(reversed(distinct.values())), max_chunk_chars)
    return tuple(shown.chunks), tuple(None if first is None else f"c{first + 1}" for first in shown.same_as)


class _ChunkList:
    """Chunks that a prompt shows for some documents, and counts of the documents that were cut or left out."""

    def __init__(self, documents: Iterable[Document], max_chars: int) -> None:
        self.chunks: list[PromptChunk] = []
        self.truncated = self.duplicates = self.hidden = 0
        ranks: dict[str, int] = {}
        same_as: list[int | None] = []
        for rank, document in enumerate(documents):
            cleaned = remove_invisible(document.text)
            self.hidden += cleaned.removed
            key = " ".join(cleaned.text.split())
            if key in ranks:
                self.duplicates += 1
            elif key:
                ranks[key] = rank
                self.truncated += len(cleaned.text) > max_chars
                self.chunks.append(PromptChunk(rank, cleaned.text[:max_chars]))
            same_as.append(ranks.get(key))
        self.same_as = tuple(same_as)
        """Rank of the first equal document for each document; None for a blank one."""


def _given_parts(call: RagCall, max_chars: int) -> Iterator[AnswerUnit]:
    answer = call.answer or ""
    at = 0
    for number, part in enumerate(call.parts or (), 1):
        start = max(answer.find(part.text, at), 0)
        at = start + len(part.text)
        yield AnswerUnit(f"p{number}", without_invisible(part.text)[:max_chars], start, min(at, len(answer)))


def _citation_pairs(
    call: RagCall, units: Sequence[AnswerUnit], marks: Sequence[CitationMark], answer: Cleaned
) -> Iterator[tuple[int, str, int | None]]:
    """Yield each citation in the answer as a tuple: index of the citing part, text, rank of the cited passage."""
    if call.parts is not None:
        ids = [document.id for document in call.contexts or ()]
        for index, part in enumerate(call.parts):
            for name in part.cited:
                yield index, without_invisible(name)[:80], cited_rank(name, ids)
        return
    starts = [unit.start for unit in units]
    for mark in marks:
        start = answer.original(mark.start)
        index = bisect_right(starts, start) - 1
        if index >= 0 and start < units[index].end:
            yield index, mark.marker, mark.rank


def _distinct_citations(
    pairs: Iterator[tuple[int, str, int | None]], units: Sequence[AnswerUnit], same_as: Sequence[int | None]
) -> Iterator[DistinctCitation]:
    """Yield each distinct citation in *pairs* once, with an id if the LLM is to be asked about it."""
    seen: set[tuple[int, int | str]] = set()
    for part, marker, rank in pairs:
        first = None if rank is None else same_as[rank]
        passage = first if first is not None else rank
        pair = (part, marker if passage is None else passage)
        if pair in seen:
            continue
        seen.add(pair)
        asked = first is not None and len(seen) <= MOST_CITATIONS
        name, chunk_id = (f"r{len(seen)}", f"c{first + 1}") if asked and first is not None else ("", "")
        yield DistinctCitation(name, part, units[part].id, passage, chunk_id, marker)


def _attributes(
    call: RagCall,
    shown: _ChunkList,
    answer: Cleaned,
    query: Cleaned,
    turns: Sequence[Cleaned],
    max_chars: int,
    marks: Sequence[CitationMark],
) -> dict[str, Plain]:
    hidden = shown.hidden + answer.removed + query.removed + sum(turn.removed for turn in turns)
    counts: dict[str, Plain] = {
        "duplicate_chunks": shown.duplicates,
        "truncated_chunks": shown.truncated,
        "hidden_chars": hidden,
        "truncated_query": len(query.text) > max_chars,
        "truncated_citations": len(marks) >= MOST_MARKS,
    }
    texts = [query.text, answer.text, *(chunk.text for chunk in shown.chunks), *(turn.text for turn in turns)]
    # Texts that only the prompts of some metrics show.
    others = [call.reference or "", *(turn.text for turn in call.turns or ())]
    texts += map(without_invisible, [*others, *(document.text for document in call.reference_contexts or ())])
    noticed = {name: count for name, count in counts.items() if count}
    return noticed | ({"injection_suspected": True} if has_injection_signal(texts, hidden) else {})
