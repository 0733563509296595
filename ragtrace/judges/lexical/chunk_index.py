"""`ChunkIndex`: what the retrieved chunks say about the words of one answer.

Only the answer's own vocabulary is indexed, so that memory grows with the answer and not with the chunks.

**Names.** A *stem* is a text: the part of a word that its spellings share (`Word.stem`). A *term* is the number of a
stem in the vocabulary of the answer, which `ChunkIndex.add_statement` gives out.

**Order of use**, which nothing checks: `add_statement` for each statement, `add_chunk` for each chunk, then questions.

**Invariants**, and their tests in `tests/unit/judges/test_chunk_index.py`, unless a file is named:
    a stem has one term in all statements, from 1 on    `test_a_word_has_one_number_in_all_statements`
    `apart` has the pairs that no chunk has together    `test_each_chunk_removes_the_pairs_of_neighbours_that_it_has`
    together is within `WINDOW` words, also where a     `test_words_occur_together_within_a_window`
        chunk is read in several steps
    memory is that of the answer, not of the chunks     `test_of_many_chunks_the_first_are_known_to_have_a_word`
    a quote is a slice of its chunk in one line         `test_a_quote_is_the_best_excerpt_by_sentences`
    both ways of reading find the same words            `test_both_ways_of_reading_find_the_same_words`
                                                        (`test_lexicon.py`)

**Changing it.** What changes `affirmed`, `negated` or `apart` changes scores, and raises `EmbeddedJudge.version`.
`ranks` and quotes are only shown. `add_chunk` reads every character of every chunk of every call: compare the CPU time
that `tests/benchmarks/accuracy.py` prints with that of the commit before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final

from ragtrace.core.text import LazyPattern
from ragtrace.judges.lexical.lexicon import (
    IS_UNSPACED,
    NEGATION,
    SAMPLE_CHARS,
    Lexicon,
    cut_into_pieces,
    one_line,
    stems,
)
from ragtrace.judges.lexical.statements import Statement

WINDOW: Final = 8
"""Number of content words, about a clause, within which two words occur together. (5 to 20 made no difference.)"""
MAX_QUOTE_CHARS: Final = 300
"""Most characters of a quote: two sentences or three. No score depends on it."""
UNSPACED_WINDOW: Final = 3 * WINDOW
"""`WINDOW` of scripts without spaces, whose words are overlapping pairs of characters, function words among them."""
_POSTINGS: Final = 32
"""Most chunks that are known to have a word, the first ones, of which the closest are named. No score depends on it.

It bounds memory: ten thousand chunks may all have a word. With fewer, a later chunk is not named as the closest.
"""
# A quote begins up to a third of its length before the best piece: half a quote is the longest piece that fits whole.
_PIECE_CHARS: Final = MAX_QUOTE_CHARS // 2
_QUOTED_PIECES: Final = 400
"""Most pieces of a chunk that a quote is looked for in, which are 60,000 characters: it bounds memory and time."""
_SLACK: Final = 1e-9
"""Difference of two sums of weights that is rounding: of pieces that have as much, the first is quoted."""
# The end of a sentence, in reversed text. The pattern begins with the set of all first characters, and states the
# conditions of each later, as the search is fast only then.
_BREAK_BACKWARDS = LazyPattern(
    r"[\s\u3002\uff01\uff1f](?:(?<=[\n\u3002\uff01\uff1f])|[\"'\u201d\u2019)\]]{0,3}[.!?\u3002\uff01\uff1f])"
)
_NEGATION_TERM: Final = 0
"""Term of every negation. The stems of an answer have terms from 1 on."""
_NO_TERM: Final = -1
"""Stands for a word that a chunk has, but the answer has not."""


class ChunkIndex:
    """Index of the retrieved chunks, restricted to the words of one answer.

    It records which chunks contain a word, which words occur near each other, and which are negated. It is filled in
    two phases: `add_statement` for every statement of the answer, then `add_chunk` for every chunk. The fields are
    complete, and the rest can be asked, only after both.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._terms: dict[str, int] = {NEGATION: _NEGATION_TERM}
        """Vocabulary of the answer: the term of each stem."""
        self._pieces: dict[int, list[tuple[int, set[int]]]] = {}
        """For each rank, the pieces of the chunk: offset of the piece, and terms of its words."""
        self.apart: dict[int, set[int]] = {}
        """For each term, those one or two words behind it in a checkable statement that occur near it in no chunk. A
        statement adds its pairs of neighbours; each chunk removes the pairs that it has."""
        self.affirmed: set[int] = set()
        """Terms that occur without a negation right before the word; `_NO_TERM` may be among them."""
        self.negated: set[int] = set()
        """Terms that occur right behind a negation; `_NO_TERM` may be among them."""
        self.ranks: list[list[int]] = [[]]
        """For each term, the ranks of the first `_POSTINGS` chunks that contain the word."""

    # --- first phase: the answer --------------------------------------------------------------------------------------

    def add_statement(self, statement: Statement) -> Sequence[int]:
        """Add the words of a statement to the vocabulary, and return the term of each word, in order.

        Of a checkable statement, also add the pairs of words that are next to each other, or next but one.
        """
        vocabulary, apart = self._terms, self.apart
        terms = [vocabulary.setdefault(word.stem, len(vocabulary)) for _, _, word in statement.words]
        self.ranks += [[] for _ in range(len(vocabulary) - len(self.ranks))]
        if statement.checkable:
            for one, second, third in zip(terms, terms[1:], terms[2:], strict=False):
                apart.setdefault(one, set()).update((second, third))
            if len(terms) > 1:
                apart.setdefault(terms[-2], set()).add(terms[-1])
        return terms

    # --- second phase: the chunks -------------------------------------------------------------------------------------

    def add_chunk(self, rank: int, text: str, steps: Iterator[tuple[int, int]]) -> Iterator[int]:
        """Add a retrieved chunk to the index, and yield the number of characters read in each step.

        Args:
            rank: rank of the chunk.
            text: the whole chunk.
            steps: consecutive ranges of *text*, each read in one step.
        """
        self._pieces[rank] = []
        window = UNSPACED_WINDOW if not text.isascii() and IS_UNSPACED.search(text, 0, SAMPLE_CHARS) else WINDOW
        line = [_NO_TERM] * (window - 1)
        negated, ranks, apart_from = False, self.ranks, self.apart.get
        for start, end in steps:
            read = self._read_terms(rank, text, start, end)
            if negated or _NEGATION_TERM in read:
                read, negated = self._separate_negations(read, negated)
            else:
                self.affirmed.update(read)
            for term in set(read) - {_NO_TERM}:
                seen = ranks[term]
                if not seen or (seen[-1] != rank and len(seen) < _POSTINGS):
                    seen.append(rank)
            # The last words of the step before come once more now that the words behind them are known.
            line = line[2 - 2 * window :] + read
            for at, current in enumerate(line[window - 1 :], window - 1):
                if others := apart_from(current):
                    others.difference_update(line[at - window + 1 : at + window])
            yield end - start

    def _read_terms(self, rank: int, text: str, start: int, end: int) -> list[int]:
        """Return the terms of the content words and negations in ``text[start:end]``, and keep them for `quote`.

        The term is `_NO_TERM` for a word that the answer has not, and `_NEGATION_TERM` for a negation.
        """
        found: list[int] = []
        done, lexicon, term_of = self._pieces[rank], self._lexicon, self._terms.get
        for first, last in cut_into_pieces(text, _PIECE_CHARS, end, start):
            terms = list(map(term_of, stems(text, lexicon, first, last), repeat(_NO_TERM)))
            if len(done) < _QUOTED_PIECES:
                done.append((first, set(terms)))
            found += terms
        return found

    def _separate_negations(self, read: list[int], negated: bool) -> tuple[list[int], bool]:
        """Record which words of a text piece follow a negation, and return their terms without the negations.

        The second value says whether the piece ends with a negation; *negated* says so of the piece before.
        """
        words: list[int] = []
        for term in read:
            if term == _NEGATION_TERM:
                negated = True
                continue
            (self.negated if negated else self.affirmed).add(term)
            words.append(term)
            negated = False
        return words, negated

    # --- when both are complete ---------------------------------------------------------------------------------------

    def quote(self, rank: int, text: str, wanted: Mapping[int, float]) -> str:
        """Return the excerpt of a retrieved chunk that contains most of the *wanted* terms.

        *text* is the chunk, and *rank* its rank. Each term counts with its weight. The excerpt has at most
        `MAX_QUOTE_CHARS` characters, and begins and ends with a sentence, or else a word, where it can.
        """
        best, at = 0.0, 0
        for offset, read in self._pieces[rank]:
            common = read.intersection(wanted)
            # The first comparison is a shortcut: no weight is above 1.
            if len(common) > best and (held := sum([wanted[term] for term in common])) > best + _SLACK:
                best, at = held, offset
        start = max(0, at - MAX_QUOTE_CHARS // 3)
        space = text.find(" ", start, at) if start else -1
        begin = _last_break(text, start, at) or (space + 1 if space >= 0 else start)
        end = limit = min(len(text), begin + MAX_QUOTE_CHARS)
        if limit < len(text):
            space = text.rfind(" ", begin, limit)
            end = _last_break(text, max(at, begin), limit) or (space if space > at else limit)
        return one_line(text[begin:end])


def _last_break(text: str, start: int, end: int) -> int:
    """Return the offset after the last sentence that ends within ``text[start:end]``, or 0 if none ends there."""
    found = _BREAK_BACKWARDS.search(text[start:end][::-1])
    return end - found.start() if found else 0
