"""What the retrieved chunks say about the words of one answer: which occur, where, next to which others, negated or not.

Only the answer's own vocabulary is indexed, so that memory grows with the answer and not with the chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.judges.text import Lexicon, Word, tokens, words

WINDOW: Final = 8
"""Two words occur together when fewer than this many content words lie between the first and the end of the second: about a
clause. (Windows of 5 to 20 words were seen to make no difference.)"""
MAX_QUOTE_CHARS: Final = 300
_POSTINGS: Final = 32
_QUOTED_PIECES: Final = 200
_BREAK = re.compile(r"[.!?\u3002\uff01\uff1f][\"'\u201d\u2019)\]]{0,3}\s|[\u3002\uff01\uff1f]|\n")

PLAIN: Final = 1
NEGATED: Final = 2


class Evidence:
    """Index of the chunks over the vocabulary of one answer."""

    def __init__(self, vocabulary: Mapping[str, int], apart: list[set[int]], lexicon: Lexicon) -> None:
        """*vocabulary*: the answer's stems, numbered from 0. *apart*: for each stem its neighbours in the answer; they are
        taken out as the two are found together in a chunk.
        """
        self._vocabulary = vocabulary
        self._lexicon = lexicon
        self._pieces: dict[int, list[_Piece]] = {}
        self.apart = apart
        """For each stem, those of its neighbours that it occurs together with in no chunk."""
        self.polarity = bytearray(len(vocabulary))
        """For each stem, the or of `PLAIN` and `NEGATED` over its occurrences; 0: it occurs nowhere."""
        self.ranks: list[list[int]] = [[] for _ in vocabulary]
        """For each stem, the ranks of the first chunks it occurs in."""

    def read(self, rank: int, text: str, pieces: Iterator[tuple[int, int]]) -> Iterator[int]:
        """Index the chunk *text* at *rank*, yielding the characters done after each of its *pieces*."""
        done = self._pieces[rank] = list[_Piece]()
        line: list[int] = []
        for start, end in pieces:
            line = line[-WINDOW:]
            carried = len(line)
            self._read_words(words(text, self._lexicon, start, end), line)
            found = set(line[carried:])
            found.discard(-1)
            for stem in found:
                seen = self.ranks[stem]
                if not seen or (seen[-1] != rank and len(seen) < _POSTINGS):
                    seen.append(rank)
            done.append(_Piece(start, end, found))
            yield end - start

    def _read_words(self, spoken: list[Word], line: list[int]) -> None:
        """Append the numbers of the content words *spoken* to *line*, -1 for those that the answer does not have."""
        # The inner loop of the judge: one look-up a word, the rest only for words of the answer.
        number_of, polarity, apart = self._vocabulary.get, self.polarity, self.apart
        negated = False
        for stem, weight, _, _, negation, _, _ in spoken:
            if not weight:
                negated = negated or negation
                continue
            current = number_of(stem, -1)
            line.append(current)
            if current >= 0:
                polarity[current] |= NEGATED if negated else PLAIN
                others = apart[current]
                if others:
                    for other in others.intersection(line[-WINDOW:-1]):
                        others.discard(other)
                        apart[other].discard(current)
            negated = False

    def quote(self, rank: int, text: str, wanted: Mapping[int, float]) -> str:
        """The excerpt of the chunk *text* that holds most of the *wanted* stems (by weight), at most `MAX_QUOTE_CHARS` long."""
        held = self._pieces[rank][:_QUOTED_PIECES]
        piece = max(held, key=lambda piece: sum(wanted[stem] for stem in piece.stems.intersection(wanted)))
        best, best_at, total, left = 0.0, piece.start, 0.0, 0
        inside: dict[int, int] = {}
        places = [(at, stem) for at, stem in self._places(piece, text) if stem in wanted]
        for at, stem in places:
            inside[stem] = inside.get(stem, 0) + 1
            total += wanted[stem] if inside[stem] == 1 else 0.0
            while at - places[left][0] > MAX_QUOTE_CHARS // 2:
                gone = places[left][1]
                left += 1
                inside[gone] -= 1
                total -= wanted[gone] if not inside[gone] else 0.0
            if total > best + 1e-9:
                best, best_at = total, places[left][0]
        return _excerpt(text, best_at)

    def _places(self, piece: _Piece, text: str) -> list[tuple[int, int]]:
        """Offset and stem of the answer's words in a *piece*; worked out for the few pieces that are quoted."""
        if piece.places is None:
            numbers = self._vocabulary
            found = tokens(text, self._lexicon, piece.start, piece.end)
            piece.places = [(start, numbers[word.stem]) for start, _, word in found if word.weight and word.stem in numbers]
        return piece.places


@dataclass(slots=True)
class _Piece:
    """A range of a chunk, and the stems of the answer that occur in it."""

    start: int
    end: int
    stems: set[int]
    places: list[tuple[int, int]] | None = None


def neighbours(stems: Sequence[int]) -> list[tuple[int, int]]:
    """Positions of neighbours (next, and next but one) among *stems* that are not the same word."""
    return [
        (at, at + step)
        for step in (1, 2)
        for at, (one, other) in enumerate(zip(stems, stems[step:]))
        if one != other
    ]


def _excerpt(text: str, at: int) -> str:
    """From the start of the sentence around *at* to the last end of a sentence that fits, or to a word's end."""
    start = max(0, at - MAX_QUOTE_CHARS // 3)
    breaks = [match.end() for match in _BREAK.finditer(text, start, at)]
    begin = breaks[-1] if breaks else _next_space(text, start, at)
    limit = min(len(text), begin + MAX_QUOTE_CHARS)
    ends = [match.end() for match in _BREAK.finditer(text, max(at, begin), limit)]
    if limit == len(text):
        end = limit
    elif ends:
        end = ends[-1]
    else:
        end = max(text.rfind(" ", begin, limit), at) if text.rfind(" ", begin, limit) > at else limit
    return " ".join(text[begin:end].split())


def _next_space(text: str, start: int, at: int) -> int:
    space = text.find(" ", start, at) if start else -1
    return space + 1 if space >= 0 else start
