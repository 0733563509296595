"""What the chunks say about the words of one answer: which occur, where, next to which others, negated or not.

Only the answer's own vocabulary is indexed, so that memory grows with the answer and not with the chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Final, TypeAlias

from ragtrace.judges.lexical.lexicon import NEGATION, Lexicon, stems
from ragtrace.judges.lexical.text import IS_UNSPACED, one_line, pieces

WINDOW: Final = 8
"""Two words occur together when they lie within this many content words: about a clause. (5 to 20 were seen to make no
difference.)"""
MAX_QUOTE_CHARS: Final = 300
UNSPACED_WINDOW: Final = 3 * WINDOW
"""The same where the words are overlapping pairs of characters, function words among them."""
_POSTINGS: Final = 32
# Pieces are what a quote is chosen from: with a third of a quote before it, one fits in whole.
_PIECE_CHARS: Final = MAX_QUOTE_CHARS // 2
_QUOTED_PIECES: Final = 400
_SAMPLE_CHARS: Final = 400
_SLACK: Final = 1e-9
# The end of a sentence, read backwards from the white space behind it. The set of all first characters comes first,
# what each of them needs later: only so are they found quickly.
_BREAK_BACKWARDS = re.compile(
    r"[\s\u3002\uff01\uff1f](?:(?<=[\n\u3002\uff01\uff1f])|[\"'\u201d\u2019)\]]{0,3}[.!?\u3002\uff01\uff1f])"
)
# What is read where the answer has no number for it.
_ELSEWHERE: Final = -1
_NEGATION: Final = -2

_Piece: TypeAlias = "tuple[int, set[int]]"
"""Offset of a piece of a chunk, and the numbers of what was read in it."""


class Evidence:
    """Index of the chunks over the vocabulary of one answer."""

    def __init__(self, vocabulary: Mapping[str, int], apart: dict[int, set[int]], lexicon: Lexicon) -> None:
        """*vocabulary*: the answer's stems, numbered from 0. *apart*: for each stem those that follow it there; one
        is taken out when it is found together with that stem in a chunk.
        """
        self._number_of = {**vocabulary, NEGATION: _NEGATION}.get
        self._lexicon = lexicon
        self._pieces: dict[int, list[_Piece]] = {}
        self.apart = apart
        """For each stem, those of the stems behind it that it occurs together with in no chunk."""
        self.plain: set[int] = set()
        """Stems that occur without a negation right before them; numbers below 0 in it mean nothing."""
        self.negated: set[int] = set()
        """Stems that occur right behind a negation; likewise."""
        self.ranks: list[list[int]] = [[] for _ in vocabulary]
        """For each stem, the ranks of the first chunks it occurs in."""

    def read(self, rank: int, text: str, steps: Iterator[tuple[int, int]]) -> Iterator[int]:
        """Index the chunk *text* at *rank*, yielding the characters done after each of the *steps* (ranges of it)."""
        self._pieces[rank] = []
        window = UNSPACED_WINDOW if not text.isascii() and IS_UNSPACED.search(text, 0, _SAMPLE_CHARS) else WINDOW
        line = [_ELSEWHERE] * (window - 1)
        negated = False
        for start, end in steps:
            read = self._read_pieces(rank, text, start, end)
            if negated or _NEGATION in read:
                read, negated = self._note_negations(read, negated)
            else:
                self.plain.update(read)
            self._note_rank(rank, set(read))
            # The last words are looked at once more, now that those behind them are known.
            line = line[2 - 2 * window :] + read
            self._unite(line, window)
            yield end - start

    def _read_pieces(self, rank: int, text: str, start: int, end: int) -> list[int]:
        """Numbers of the content words of ``text[start:end]``, `_ELSEWHERE`, and `_NEGATION` for a negation."""
        found: list[int] = []
        done, lexicon, number_of = self._pieces[rank], self._lexicon, self._number_of
        for first, last in pieces(text, _PIECE_CHARS, end, start):
            numbers = list(map(number_of, stems(text, lexicon, first, last), repeat(_ELSEWHERE)))
            if len(done) < _QUOTED_PIECES:
                done.append((first, set(numbers)))
            found += numbers
        return found

    def _note_rank(self, rank: int, read: set[int]) -> None:
        read.discard(_ELSEWHERE)
        ranks = self.ranks
        for stem in read:
            seen = ranks[stem]
            if not seen or (seen[-1] != rank and len(seen) < _POSTINGS):
                seen.append(rank)

    def _note_negations(self, read: list[int], negated: bool) -> tuple[list[int], bool]:
        """Note for each word whether it is *negated*; returns *read* without negations, and if one came last."""
        words: list[int] = []
        for number in read:
            if number == _NEGATION:
                negated = True
                continue
            (self.negated if negated else self.plain).add(number)
            words.append(number)
            negated = False
        return words, negated

    def _unite(self, line: list[int], window: int) -> None:
        """Take out of `apart` what occurs together in *line*; its first *window* - 1 words are neighbours only."""
        followers_of = self.apart.get
        for at, current in enumerate(line[window - 1 :], window - 1):
            if others := followers_of(current):
                others.difference_update(line[at - window + 1 : at + window])

    def quote(self, rank: int, text: str, wanted: Mapping[int, float]) -> str:
        """The excerpt (`MAX_QUOTE_CHARS` at most) of *text*, the chunk at *rank*, with most of the *wanted* stems."""
        best, best_at = 0.0, 0
        for start, read in self._pieces[rank]:
            common = read.intersection(wanted)
            # No weight is above 1.
            if len(common) > best and (held := sum([wanted[stem] for stem in common])) > best + _SLACK:
                best, best_at = held, start
        return _excerpt(text, best_at)


def _excerpt(text: str, at: int) -> str:
    """From the start of the sentence around *at* to the last end of a sentence that fits, or to a word's end."""
    start = max(0, at - MAX_QUOTE_CHARS // 3)
    begin = _last_break(text, start, at) or _next_space(text, start, at)
    limit = min(len(text), begin + MAX_QUOTE_CHARS)
    end = limit
    if limit < len(text):
        space = text.rfind(" ", begin, limit)
        end = _last_break(text, max(at, begin), limit) or (space if space > at else limit)
    return one_line(text[begin:end])


def _last_break(text: str, start: int, end: int) -> int:
    """Where the last sentence that ends in ``text[start:end]`` ends; 0 if none does."""
    found = _BREAK_BACKWARDS.search(text[start:end][::-1])
    return end - found.start() if found else 0


def _next_space(text: str, start: int, at: int) -> int:
    space = text.find(" ", start, at) if start else -1
    return space + 1 if space >= 0 else start
