"""What the chunks say about the words of one answer: which occur, where, next to which others, negated or not.

Only the answer's own vocabulary is indexed, so that memory grows with the answer and not with the chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ragtrace.judges.text import Lexicon, Word, pieces, words

WINDOW: Final = 8
"""Two words occur together when they lie within this many content words: about a clause. (5 to 20 were seen to make no
difference.)"""
MAX_QUOTE_CHARS: Final = 300
_POSTINGS: Final = 32
# Pieces are what a quote is chosen from: with a third of a quote before it, one fits in whole.
_PIECE_CHARS: Final = MAX_QUOTE_CHARS // 2
_QUOTED_PIECES: Final = 400
_SLACK: Final = 1e-9
_BREAK = re.compile(r"[.!?\u3002\uff01\uff1f][\"'\u201d\u2019)\]]{0,3}\s|[\u3002\uff01\uff1f]|\n")

PLAIN: Final = 1
NEGATED: Final = 2

_Piece: TypeAlias = "tuple[int, set[int]]"
"""Offset of a piece of a chunk, and the stems of the answer that occur in it."""


class Evidence:
    """Index of the chunks over the vocabulary of one answer."""

    def __init__(self, vocabulary: Mapping[str, int], apart: list[set[int]], lexicon: Lexicon) -> None:
        """*vocabulary*: the answer's stems, numbered from 0. *apart*: for each stem its neighbours there; a pair
        is taken out when it is found together in a chunk.
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

    def read(self, rank: int, text: str, steps: Iterator[tuple[int, int]]) -> Iterator[int]:
        """Index the chunk *text* at *rank*, yielding the characters done after each of the *steps* (ranges of it)."""
        done = self._pieces[rank] = list[_Piece]()
        line: list[int] = []
        negated = False
        for start, end in steps:
            line = line[-WINDOW:]
            for first, last in pieces(text, _PIECE_CHARS, end, start):
                before = len(line)
                negated = self._read_words(words(text, self._lexicon, first, last), line, negated)
                done.append((first, set(line[before:])))
            found = set(line)
            found.discard(-1)
            for stem in found:
                seen = self.ranks[stem]
                if not seen or (seen[-1] != rank and len(seen) < _POSTINGS):
                    seen.append(rank)
            yield end - start

    def _read_words(self, spoken: list[Word], line: list[int], negated: bool) -> bool:
        """Append the numbers of the content words *spoken* to *line*, -1 for those that the answer does not have.

        *negated*: whether a negation came last before them; returns whether one is the last of them.
        """
        # The inner loop of the judge: one look-up a word, the rest only for words of the answer.
        number_of, polarity, apart = self._vocabulary.get, self.polarity, self.apart
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
        return negated

    def quote(self, rank: int, text: str, wanted: Mapping[int, float]) -> str:
        """The excerpt (`MAX_QUOTE_CHARS` at most) of *text*, the chunk at *rank*, with most of the *wanted* stems."""
        best, best_at = 0.0, 0
        for start, stems in self._pieces[rank][:_QUOTED_PIECES]:
            held = sum([wanted[stem] for stem in stems.intersection(wanted)])
            if held > best + _SLACK:
                best, best_at = held, start
        return _excerpt(text, best_at)


def neighbours(stems: Sequence[int]) -> list[tuple[int, int]]:
    """Positions of neighbours (next, and next but one) among *stems* that are not the same word."""
    return [
        (at, at + step)
        for step in (1, 2)
        for at, (one, other) in enumerate(zip(stems, stems[step:], strict=False))
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
