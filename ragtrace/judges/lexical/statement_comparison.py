"""Compares one statement of an answer with the retrieved chunks, and makes a score of the findings for all statements.

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

**Order of the file.** What a comparison takes and gives (`NumberedStatement`, `Finding`); `compare_statements` for a
whole answer and `compare_statement` for one statement; its two shares (`_missed_pairs` for the pairs, `_absence` for a
word); what is marked (`_positions_to_mark`, `_covered_ranges`) and what is left out (`_without_straddling_pairs`);
`consistency`.

**Names.** A *stem* is a text: the part of a word that its spellings share (`Word.stem`). A *term* is the number of a
stem in the vocabulary of the answer, which `ChunkIndex.add_statement` gives out. A `Token` is ``start, end, word``.

**Invariants**, and their tests in `tests/unit/judges/test_statement_comparison.py`, unless a file is named:
    the arithmetic above, and each number below    the tests named after them; of a whole call
                                                   `test_a_worked_example_gives_these_numbers` (`test_embedded.py`)
    comparing changes nothing in the index, so     `test_comparing_changes_nothing_in_the_index`,
        neither the order of statements nor that   `test_the_order_of_the_chunks_does_not_matter_to_a_finding`
        of chunks matters
    a statement without full support shows a word  `test_whatever_is_flagged_is_marked` (`test_embedded.py`)
    deficit and consistency are in [0, 1], for     `test_no_text_breaks_it` (`test_embedded.py`)
        any text

**Changing it.** Every number here is part of a score or of a label: a change of one, or of an equation, raises
`EmbeddedJudge.version` (`embedded`, "Changing it"). What it does to the order of human-labelled answers is printed by
`tests/benchmarks/accuracy.py`; the README beside it has the forms that were tried. `compare_statement` runs for each
sentence of each call, of which the application pays the CPU: the same script prints that, to be compared with the
commit before.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence, Set
from itertools import count
from typing import Final, NamedTuple

from ragtrace.core.labels import Support
from ragtrace.judges.lexical.chunk_index import ChunkIndex
from ragtrace.judges.lexical.lexicon import GENERIC_WEIGHT, Token, Word
from ragtrace.judges.lexical.statements import Statement

IN_QUERY: Final = 0.5
"""Absence, from 0 to 1, of a number or name that the query has but no chunk.

At 0, "Yes, the tower is in Berlin" would be supported by "Is the tower in Berlin?". At 1, an answer that repeats the
name it was asked about is held to have invented it. Labelled answers do not decide it: 0, 0.5 and 1 order those of
MTRAG alike (AUROC .921), and those of RAGTruth nearly so (.825, .819, .819).
"""
FEW_WORDS: Final = 25
"""Words of about two sentences. A shorter answer counts as this long: five wrong words of five are no chance.

With more, a single absent word condemns a short answer; with fewer, a short answer that is wrong throughout keeps a
high score (of five wrong words .33 with 5, .09 with 25). 12 orders the labelled answers of RAGTruth better and those of
MTRAG worse (AUROC .823, .914; with 25 .819, .921), 50 the other way round (.809, .927).
"""
HALF: Final = math.sqrt(2)
"""Strength at which consistency is 0.5: of five sentences of ten content words one is invented (10 / sqrt(50)).

It says where the scores lie, and not in which order: another value moves every baseline.
"""
SUPPORTED: Final = 0.35
"""Highest deficit of a paraphrase: a fifth of the words is absent, which breaks up half of the pairs ((.2 + .5) / 2).

It decides labels, and what is marked, but not `consistency`. 54 % of the RAGTruth answers that people approved have a
statement that is not supported, and 92 % of the rejected ones; at .45 they are 41 and 86 %, at .25 68 and 96 %.
"""
NOT_FOUND: Final = 0.7
"""Lowest deficit at which a statement is labelled `not_found`, before a missing fact raises the deficit.

Twice `SUPPORTED`: between them a statement is `partial`. It decides between these two labels, and no deficit.
"""


class NumberedStatement(NamedTuple):
    """Statement of an answer, with the terms of its words."""

    statement: Statement
    terms: Sequence[int]
    """For each of `statement.words`, the number of its stem in the vocabulary of the answer."""


class Finding(NamedTuple):
    """Result of comparing one statement of the answer with the retrieved chunks."""

    weight: float
    """Number of content words of the statement; a framing word counts a quarter.

    In a script without spaces, it is the number of pairs of characters. A pair that says little counts a quarter, too.
    """
    deficit: float
    """Degree, from 0 to 1, to which words and pairs of the statement are absent from the chunks."""
    support: Support
    unsupported: tuple[tuple[int, int], ...]
    """Ranges of characters in the answer that no chunk supports; empty for a supported statement."""


class _Words(NamedTuple):
    """Content words of a statement that are compared: three sequences of one length, with one entry a word."""

    tokens: Sequence[Token]
    weights: Sequence[float]
    terms: Sequence[int]


def compare_statements(
    statements: Iterable[NumberedStatement], index: ChunkIndex, query_stems: frozenset[str]
) -> Generator[int, None, dict[int, Finding]]:
    """Compare all checkable statements of an answer, and return the finding for each by the start of the statement.

    Yields the characters of each. Lines of code are among them: what they share with the chunks counts for consistency,
    though none becomes a claim.
    """
    findings: dict[int, Finding] = {}
    for each in statements:
        if each.statement.checkable:
            findings[each.statement.start] = compare_statement(each, index, query_stems)
            yield each.statement.end - each.statement.start
    return findings


def compare_statement(numbered: NumberedStatement, index: ChunkIndex, query_stems: frozenset[str]) -> Finding:
    """Compare a statement of the answer with the indexed chunks, and return how well the chunks support it.

    Args:
        numbered: the statement, which is checkable.
        index: index of the retrieved chunks, complete.
        query_stems: stems of the words of the user's query.
    """
    statement, affirmed = numbered.statement, index.affirmed
    words = _Words(statement.words, statement.weights, numbered.terms)
    if statement.unspaced:
        words = _without_straddling_pairs(words, affirmed)
    negated, total = statement.negated, sum(words.weights)
    missed_pairs, alone = _missed_pairs(words, index.apart)
    missing: list[int] = []
    absent, fact_missing = 0.0, False
    for at, term in enumerate(words.terms):
        if term in affirmed and not alone[at] and not negated:
            continue  # a shortcut for words that are in the chunks, as most are
        start, _, word = token = words.tokens[at]
        if gap := _absence(token, term, statement, index, query_stems, alone=alone[at]):
            absent += words.weights[at] * gap
            fact_missing = fact_missing or _is_fact(word, start, statement)
            if not _only_frames(words.weights[at]):
                missing.append(at)
    absent /= total
    of_words = absent if missed_pairs is None else (absent + missed_pairs) / 2
    support = _support_of(of_words, fact_missing=fact_missing)
    if support == "supported":
        return Finding(total, of_words, support, ())
    # One wrong number or name makes a statement wrong, however many of its other words are in the chunks.
    deficit = (1 + of_words) / 2 if fact_missing else of_words
    marked = missing or _positions_to_mark(words, alone, affirmed)
    return Finding(total, deficit, support, _covered_ranges(words.tokens, marked))


def _support_of(deficit: float, *, fact_missing: bool) -> Support:
    """Return the label of a statement of whose words and pairs the share *deficit* is in no chunk.

    *fact_missing* says whether a number or a name is among them.
    """
    if deficit >= NOT_FOUND:
        return "not_found"
    return "partial" if fact_missing or deficit > SUPPORTED else "supported"


def _missed_pairs(words: _Words, apart: Mapping[int, Set[int]]) -> tuple[float | None, list[bool]]:
    """Return the share of a statement's pairs of neighbouring words that occur together in no chunk.

    The share is None if there is no pair. The list says of each word whether no chunk has it together with any of its
    neighbours.

    Args:
        words: the words of a checkable statement.
        apart: for each term, those of its neighbours that occur together with it in no chunk.
    """
    terms, weights = words.terms, words.weights
    tried = missed = 0.0
    alone, twins = [True] * len(terms), False
    for step in (1, 2):  # `ChunkIndex.add_statement` notes these pairs, and no others
        ahead = zip(count(), terms, terms[step:], weights, weights[step:], strict=False)
        for at, one, other, weight, other_weight in ahead:
            if one == other:
                twins = True
            else:
                if other_weight < weight:
                    weight = other_weight
                tried += weight
                if other in apart[one]:
                    missed += weight
                else:
                    alone[at] = alone[at + step] = False
    if not missed:
        return (0.0 if tried else None), [False] * len(terms)
    if twins:  # a word all of whose neighbours repeat it is not alone
        alone = [lost and len(set(terms[max(at - 2, 0) : at + 3])) > 1 for at, lost in enumerate(alone)]
    return missed / tried, alone


def _absence(
    token: Token, term: int, statement: Statement, index: ChunkIndex, query_stems: frozenset[str], *, alone: bool
) -> float:
    """Return how far one word of a statement is missing from the chunks, as a number from 0 to 1.

    The number is 0, 1 or, for a number or name that only the query has, `IN_QUERY`.

    Args:
        token: the word.
        term: its number in the vocabulary of the answer.
        statement: the statement that it is a word of.
        index: index of the retrieved chunks, complete.
        query_stems: stems of the words of the user's query.
        alone: whether no chunk has the word together with any of its neighbours.
    """
    start, _, word = token
    if term in (index.negated if start in statement.negated else index.affirmed):
        return 1.0 if alone and word.number else 0.0
    if word.stem not in query_stems or term in index.affirmed or term in index.negated:
        return 1.0
    return IN_QUERY if _is_fact(word, start, statement) else 0.0


def _positions_to_mark(words: _Words, alone: Sequence[bool], affirmed: Set[int]) -> Sequence[int]:
    """Return the positions of the words to be marked in a statement that is not supported, though no word is missing.

    There is at least one. They are the words that no chunk affirms, which only the query has or which only frame; or
    else those that no chunk has together with a neighbour; or else all.
    """
    unaffirmed = [at for at, term in enumerate(words.terms) if term not in affirmed]
    return unaffirmed or [at for at, lost in enumerate(alone) if lost] or range(len(words.terms))


def _without_straddling_pairs(words: _Words, affirmed: Set[int]) -> _Words:
    """Return *words* without the pairs of characters that belong to two different words.

    In a script without spaces, overlapping pairs of characters stand for words. Only those pairs are left out whose
    second word is absent from the chunks. An absent word of two characters takes part in three of the overlapping
    pairs; without the first one it counts as much as any word.

    Words that stand next to each other only because one between them was left out are not known to the index as
    neighbours, and count as found together. That raises true and false answers alike, by .02 to .05 in Chinese and
    Japanese; to leave such neighbours out, or to look for them, made no difference to the order of the scores.

    Args:
        words: the words of a statement in such a script.
        affirmed: terms that the chunks contain.
    """
    tokens, weights, terms = words
    kept: list[int] = []
    for at, term in enumerate(terms):
        if term not in affirmed and 0 < at < len(terms) - 1 and terms[at - 1] in affirmed:
            (_, end_before, _), (start, end, _), (start_behind, _, _) = tokens[at - 1 : at + 2]
            if end_before > start and end > start_behind:
                continue  # it overlaps both neighbours
        kept.append(at)
    return _Words([tokens[at] for at in kept], [weights[at] for at in kept], [terms[at] for at in kept])


def _is_fact(word: Word, start: int, statement: Statement) -> bool:
    """Return whether a word of *statement*, which starts at *start*, is a number or a name: neither has a paraphrase.

    A capital says nothing of the first word of a sentence.
    """
    return word.number or (word.name and start > statement.start and not _only_frames(word.weight))


def _only_frames(weight: float) -> bool:
    """Return whether a content word of this weight says little: a framing word, or such a pair of characters."""
    return weight <= GENERIC_WEIGHT


def _covered_ranges(words: Sequence[Token], positions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the character ranges of the words at *positions*, with the ranges of adjacent words joined."""
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
    """Return how well the chunks support an answer, from 0 to 1, given the findings for its statements.

    There must be at least one finding.
    """
    total = sum(finding.weight for finding in findings)
    unsupported = sum(finding.weight * finding.deficit**2 for finding in findings)
    strength = unsupported / total * math.sqrt(max(total, FEW_WORDS))
    return float(2 ** -(strength / HALF))
