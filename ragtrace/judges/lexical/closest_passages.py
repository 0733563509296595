"""The passages of the retrieved chunks whose words are closest to a statement, for whoever checks the statement.

People are shown them beside it, small models behind the chunks. They say where to look, and nothing of whether the
statement is supported: the search compares words alone, whatever a judge said of the statement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from ragtrace.judges.lexical.lexicon import NEGATION, SAMPLE_CHARS, Lexicon, detect_language, one_line, stems
from ragtrace.judges.lexical.statements import sentences

_READ_CHARS: Final = 200_000
"""Most characters of all chunks that are searched, so that a page with very long chunks does not take long."""
_SECOND_SHARE: Final = 0.2
"""Least share of a statement's words, by weight, that a further passage must add to those before."""


class Passage(NamedTuple):
    """Sentence of a retrieved chunk."""

    rank: int
    """Rank of the chunk in the retrieval, counted from 1."""
    text: str
    """Text of the sentence, on one line."""


class PassageSearch:
    """Search for the sentences of retrieved chunks that share most words with a statement.

    A word counts the more, the fewer sentences have it.

    Args:
        chunks: texts of the chunks in order of rank.
        answer: the answer, whose language decides how words are compared.
    """

    def __init__(self, chunks: Sequence[str], answer: str) -> None:
        self._lexicon = Lexicon(detect_language(answer[:SAMPLE_CHARS]))
        self._passages: list[tuple[Passage, frozenset[str]]] = []
        self.is_whole: Final = sum(map(len, chunks)) <= _READ_CHARS
        """Whether all of the chunks is searched, and not only their beginning."""
        left = _READ_CHARS
        for rank, text in enumerate(chunks, 1):
            for start, end in sentences(text, left):
                if words := self._words(text, start, end):
                    self._passages.append((Passage(rank, one_line(text[start:end])), words))
            left = max(0, left - len(text))
        seen = Counter(word for _, words in self._passages for word in words)
        self._weights = {word: math.log1p(len(self._passages) / count) for word, count in seen.items()}

    def _words(self, text: str, start: int, end: int) -> frozenset[str]:
        return frozenset(stems(text, self._lexicon, start, end)) - {NEGATION}

    def closest(self, statement: str, most: int = 2) -> list[Passage]:
        """Return the passage that shares most words with *statement*, and some that have many of the other words.

        There are at most *most* passages, in the order of their chunks; none if none shares a word with the statement.
        """
        wanted = self._words(statement, 0, len(statement))
        # A word that no passage has counts as one that a single passage has.
        whole = sum(self._weights.get(word, math.log1p(len(self._passages))) for word in wanted)
        found, least = list[int](), 0.0
        for _ in range(most):
            shared = [self._shared_weight(wanted, words) for _, words in self._passages]
            best = max(range(len(shared)), key=shared.__getitem__, default=None)
            if best is None or shared[best] <= least:
                break
            found.append(best)
            wanted -= self._passages[best][1]
            least = _SECOND_SHARE * whole
        return [self._passages[at][0] for at in sorted(found)]

    def _shared_weight(self, wanted: frozenset[str], words: frozenset[str]) -> float:
        return sum(self._weights[word] for word in wanted & words)
