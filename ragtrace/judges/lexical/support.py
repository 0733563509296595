"""Compares statements with chunks: how far these support each statement, and the answer as a whole.

A statement's *deficit* is the mean of two shares of its content words (framing words count a quarter):

- words: the share that occurs in no chunk. A word that only the query has counts as given, a number or name of it half:
  asking whether something is so does not make it so. A word whose negation differs from that of every occurrence in the
  chunks counts as absent, and so does a number that stands near none of its neighbours in any chunk;
- pairs: the share of its pairs of neighbouring words (next, and next but one) that occur together in no chunk, which
  finds what is put together wrongly out of the chunks' own words.

A missing number or name is no paraphrase: it takes half of the remaining support.

`consistency` is ``2 ** -(strength / HALF)`` with ``strength = sum(n * d**2) / N * sqrt(max(N, FEW_WORDS))`` over the
statements of n words and deficit d, N words in all. Squared, because paraphrase leaves single absent words everywhere
while an invention is absent as a whole. Times the square root, because by chance alone the share of absent words varies
as 1 / sqrt(N): the product is their number in units of its own standard deviation, so that an answer is neither excused
for being long nor condemned for it.

`Evidence` indexes what the chunks say about the words of one answer. Only the answer's own vocabulary is indexed, so
that memory grows with the answer and not with the chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, repeat
from typing import Final, NamedTuple

from ragtrace.core.labels import Support
from ragtrace.core.text import LazyPattern
from ragtrace.judges.lexical.lexicon import NEGATION, Lexicon, Token, stems
from ragtrace.judges.lexical.statements import Statement
from ragtrace.judges.lexical.text import IS_UNSPACED, one_line, pieces

IN_QUERY: Final = 0.5
"""Absence of a number or name that the query has and no chunk."""
FEW_WORDS: Final = 25
"""About two sentences. A shorter answer gets no discount: five wrong words out of five are not a matter of chance."""
HALF: Final = math.sqrt(2)
"""Strength at which consistency is one half: of five sentences of ten content words one is invented (10 / sqrt(50))."""
SUPPORTED: Final = 0.35
"""A deficit up to this is paraphrase: a fifth of the words absent, and the half of all pairs that takes apart."""
NOT_FOUND: Final = 0.7
"""Deficit from which on a statement counts as not found at all."""
WINDOW: Final = 8
"""Two words occur together when they lie within this many content words: about a clause. (5 to 20 were seen to make no
difference.)"""
MAX_QUOTE_CHARS: Final = 300
UNSPACED_WINDOW: Final = 3 * WINDOW
"""The window where the words are overlapping pairs of characters, function words among them."""
_POSTINGS: Final = 32
# Pieces are what a quote is chosen from: with a third of a quote before it, one fits in whole.
_PIECE_CHARS: Final = MAX_QUOTE_CHARS // 2
_QUOTED_PIECES: Final = 400
_SAMPLE_CHARS: Final = 400
_SLACK: Final = 1e-9
# The end of a sentence, read backwards from the white space behind it. The set of all first characters comes first,
# what each of them needs later: only so are they found quickly.
_BREAK_BACKWARDS = LazyPattern(
    r"[\s\u3002\uff01\uff1f](?:(?<=[\n\u3002\uff01\uff1f])|[\"'\u201d\u2019)\]]{0,3}[.!?\u3002\uff01\uff1f])"
)
# Numbers for words of a chunk that are none of the answer's.
_ELSEWHERE: Final = -1
_NEGATION: Final = -2


class Evidence:
    """Index of the chunks over one answer's vocabulary: which words occur where, near which others, negated or not.

    Args:
        vocabulary: the answer's stems, numbered from 0.
        never_together: for each stem, the stems that follow it in the answer. `read` removes a stem when a chunk has it
            together with the one before it.
    """

    def __init__(self, vocabulary: Mapping[str, int], never_together: dict[int, set[int]], lexicon: Lexicon) -> None:
        self._number_of = {**vocabulary, NEGATION: _NEGATION}.get
        self._lexicon = lexicon
        self._pieces: dict[int, list[tuple[int, set[int]]]] = {}
        """For each rank, the offset of each piece of the chunk, and the numbers of the words in it."""
        self.never_together = never_together
        """For each stem, those of the stems behind it that it occurs together with in no chunk."""
        self.affirmed: set[int] = set()
        """Stems that occur without a negation right before them; numbers below 0 in it mean nothing."""
        self.negated: set[int] = set()
        """Stems that occur right behind a negation; numbers below 0 in it mean nothing."""
        self.ranks: list[list[int]] = [[] for _ in vocabulary]
        """For each stem, the ranks of the first chunks it occurs in."""

    def read(self, rank: int, text: str, steps: Iterator[tuple[int, int]]) -> Iterator[int]:
        """Add the chunk *text* at *rank* to the index, in *steps* (ranges of it); yields the length of each."""
        self._pieces[rank] = []
        window = UNSPACED_WINDOW if not text.isascii() and IS_UNSPACED.search(text, 0, _SAMPLE_CHARS) else WINDOW
        line = [_ELSEWHERE] * (window - 1)
        negated, ranks, followers_of = False, self.ranks, self.never_together.get
        for start, end in steps:
            read = self._read_pieces(rank, text, start, end)
            if negated or _NEGATION in read:
                read, negated = self._note_negations(read, negated)
            else:
                self.affirmed.update(read)
            for stem in set(read) - {_ELSEWHERE}:
                seen = ranks[stem]
                if not seen or (seen[-1] != rank and len(seen) < _POSTINGS):
                    seen.append(rank)
            # The last words of the step before are looked at once more, now that those behind them are known.
            line = line[2 - 2 * window :] + read
            for at, current in enumerate(line[window - 1 :], window - 1):
                if others := followers_of(current):
                    others.difference_update(line[at - window + 1 : at + window])
            yield end - start

    def _read_pieces(self, rank: int, text: str, start: int, end: int) -> list[int]:
        """Return the numbers of the content words of ``text[start:end]``, `_ELSEWHERE` or `_NEGATION` among them."""
        found: list[int] = []
        done, lexicon, number_of = self._pieces[rank], self._lexicon, self._number_of
        for first, last in pieces(text, _PIECE_CHARS, end, start):
            numbers = list(map(number_of, stems(text, lexicon, first, last), repeat(_ELSEWHERE)))
            if len(done) < _QUOTED_PIECES:
                done.append((first, set(numbers)))
            found += numbers
        return found

    def _note_negations(self, read: list[int], negated: bool) -> tuple[list[int], bool]:
        """Note for each word whether it is *negated*; returns *read* without negations, and whether one came last."""
        words: list[int] = []
        for number in read:
            if number == _NEGATION:
                negated = True
                continue
            (self.negated if negated else self.affirmed).add(number)
            words.append(number)
            negated = False
        return words, negated

    def quote(self, rank: int, text: str, wanted: Mapping[int, float]) -> str:
        """Return the excerpt of *text*, the chunk at *rank*, that has most of the *wanted* stems by weight.

        It has at most `MAX_QUOTE_CHARS` characters, and begins and ends with a sentence, or else a word, where it can.
        """
        best, at = 0.0, 0
        for offset, read in self._pieces[rank]:
            common = read.intersection(wanted)
            # No weight is above 1.
            if len(common) > best and (held := sum([wanted[stem] for stem in common])) > best + _SLACK:
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
    """Return where the last sentence that ends in ``text[start:end]`` ends; 0 if none does."""
    found = _BREAK_BACKWARDS.search(text[start:end][::-1])
    return end - found.start() if found else 0


class Finding(NamedTuple):
    """Outcome of comparing one statement of the answer with the retrieved chunks."""

    weight: float
    """Number of the statement's content words; a framing word counts a quarter."""
    deficit: float
    """0: every word and pair is in the chunks; 1: none is."""
    support: Support
    unsupported: tuple[tuple[int, int], ...]
    """Ranges of the answer that no chunk supports."""


def compare(statement: Statement, evidence: Evidence, query_stems: frozenset[str]) -> Finding:
    """Compare *statement* with the chunks that *evidence* has indexed; *query_stems* are the stems of the query."""
    if statement.unspaced:
        statement = _without_joints(statement, evidence)
    words, weights, stems, affirmed = statement.words, statement.weights, statement.stems, evidence.affirmed
    negated, total = statement.negated, sum(weights)
    missed_pairs, alone = _missed_pairs(statement, evidence)
    missing: list[int] = []
    absent, fact_missing = 0.0, False
    for at, stem in enumerate(stems):
        if not (alone[at] or stem not in affirmed or (negated and words[at][0] in negated)):
            continue  # plainly there, as most words are
        if gap := _absence(statement, at, evidence, query_stems, alone=alone[at]):
            absent += weights[at] * gap
            fact_missing = fact_missing or _is_fact(words[at], statement)
            if weights[at] == 1:
                missing.append(at)
    absent /= total
    deficit = absent if missed_pairs is None else (absent + missed_pairs) / 2
    support: Support = "not_found" if deficit >= NOT_FOUND else "supported"
    if support == "supported" and (fact_missing or deficit > SUPPORTED):
        support = "partial"
    if fact_missing:
        deficit = (1 + deficit) / 2
    if support == "supported":
        return Finding(total, deficit, support, ())
    # Where no word is missing, the words without any of their neighbours are shown.
    shown: Sequence[int] = missing or [at for at, stem in enumerate(stems) if stem not in affirmed]
    shown = shown or [at for at, lost in enumerate(alone) if lost] or range(len(words))
    return Finding(total, deficit, support, _ranges(words, shown))


def _missed_pairs(statement: Statement, evidence: Evidence) -> tuple[float | None, list[bool]]:
    """Return the share of the neighbouring words that occur together in no chunk, and which words are in no pair.

    The share is None where the statement has no pair.
    """
    stems, weights, not_met = statement.stems, statement.weights, evidence.never_together
    tried = missed = 0.0
    alone, twins = [True] * len(stems), False
    for step in (1, 2):
        ahead = zip(count(), stems, stems[step:], weights, weights[step:], strict=False)
        for at, one, other, weight, other_weight in ahead:
            if one == other:
                twins = True
            else:
                if other_weight < weight:
                    weight = other_weight
                tried += weight
                if other in not_met[one]:
                    missed += weight
                else:
                    alone[at] = alone[at + step] = False
    if not missed:
        return (0.0 if tried else None), [False] * len(stems)
    if twins:  # a word all of whose neighbours are itself has none
        alone = [lost and len(set(stems[max(at - 2, 0) : at + 3])) > 1 for at, lost in enumerate(alone)]
    return missed / tried, alone


def _absence(statement: Statement, at: int, evidence: Evidence, query_stems: frozenset[str], *, alone: bool) -> float:
    """Return how much of the word at position *at* is missing from the chunks: 0, `IN_QUERY` or 1."""
    start, _, word = statement.words[at]
    stem = statement.stems[at]
    if stem in (evidence.negated if start in statement.negated else evidence.affirmed):
        return 1.0 if alone and word.number else 0.0
    if word.stem not in query_stems or stem in evidence.affirmed or stem in evidence.negated:
        return 1.0
    return IN_QUERY if _is_fact(statement.words[at], statement) else 0.0


def _without_joints(statement: Statement, evidence: Evidence) -> Statement:
    """Return *statement* without pairs of characters that no chunk has and that join a word it has with the next one.

    Of the three pairs that an absent word of two characters makes with its neighbours, two count then, as of any word.
    """
    words, stems, affirmed = statement.words, statement.stems, evidence.affirmed
    kept = [
        at
        for at, stem in enumerate(stems)
        if stem in affirmed
        or not 0 < at < len(words) - 1
        or not (words[at - 1][1] > words[at][0] and words[at][1] > words[at + 1][0])
        or stems[at - 1] not in affirmed
    ]
    return replace(
        statement,
        words=[words[at] for at in kept],
        stems=[stems[at] for at in kept],
        weights=[statement.weights[at] for at in kept],
    )


def _is_fact(token: Token, statement: Statement) -> bool:
    """Return whether *token* is a number or a name, of which there is no paraphrase."""
    start, _, word = token
    return word.number or (word.name and start > statement.start and word.weight == 1)


def _ranges(words: Sequence[Token], positions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of the answer in which the words at *positions* stand, those of neighbours joined."""
    ranges: list[tuple[int, int]] = []
    previous = -2
    for at in positions:
        start, end, _ = words[at]
        if at == previous + 1 and start - ranges[-1][1] <= 1:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
        previous = at
    return tuple(ranges)


def consistency(findings: Sequence[Finding]) -> float:
    """Return the support of a whole answer, in [0, 1], by at least one finding."""
    total = sum(finding.weight for finding in findings)
    unsupported = sum(finding.weight * finding.deficit**2 for finding in findings)
    strength = unsupported / total * math.sqrt(max(total, FEW_WORDS))
    return float(2 ** -(strength / HALF))
