"""How far the chunks support each statement, and the answer as a whole.

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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple

from ragtrace.core.labels import Support
from ragtrace.judges.lexical.evidence import Evidence
from ragtrace.judges.lexical.lexicon import Token
from ragtrace.judges.lexical.statements import Statement

ASKED: Final = 0.5
"""What a number or name counts that no chunk has but the query does."""
FEW_WORDS: Final = 25
"""About two sentences. A shorter answer gets no discount: five wrong words out of five are not a matter of chance."""
HALF: Final = math.sqrt(2)
"""Strength at which consistency is one half: of five sentences of ten content words one is invented (10 / sqrt(50))."""
SUPPORTED: Final = 0.35
"""A deficit up to this is paraphrase: a fifth of the words absent, and the half of all pairs that takes apart."""
NOT_FOUND: Final = 0.7
"""From this deficit on nothing worth naming is left of a statement."""


class Finding(NamedTuple):
    """How one statement fared."""

    weight: float
    """Number of its content words; a framing word counts a quarter."""
    deficit: float
    """0: every word and pair is in the chunks; 1: none is."""
    support: Support
    unsupported: tuple[tuple[int, int], ...]
    """Ranges of the answer to show a reader."""


def find(statement: Statement, evidence: Evidence, asked: frozenset[str]) -> Finding:
    """Hold *statement* against the *evidence*; *asked* are the stems of the query."""
    if statement.unspaced:
        statement = _without_joints(statement, evidence)
    words, weights = statement.words, statement.weights
    total = sum(weights)
    mismatched, apart = _company(statement, evidence)
    missing: list[int] = []
    absent, fact_missing = 0.0, False
    for at in _doubtful(statement, evidence, apart):
        if gap := _gap(statement, at, evidence, asked, stray=apart[at]):
            absent += weights[at] * gap
            fact_missing = fact_missing or _is_fact(words[at], statement)
            if weights[at] == 1:
                missing.append(at)
    absent /= total
    deficit = absent if mismatched is None else (absent + mismatched) / 2
    support = _label(deficit, fact_missing)
    if fact_missing:
        deficit = (1 + deficit) / 2
    if support == "supported":
        return Finding(total, deficit, support, ())
    shown: Sequence[int] = missing or [at for at, stem in enumerate(statement.stems) if stem not in evidence.plain]
    # Where no word is missing, the words in wrong company are shown.
    shown = shown or [at for at, alone in enumerate(apart) if alone] or range(len(words))
    return Finding(total, deficit, support, _ranges(words, shown))


def _doubtful(statement: Statement, evidence: Evidence, apart: Sequence[bool]) -> list[int]:
    """Positions of the words that may be missing: all but those found plainly, in company and not negated here."""
    plain, negated, words = evidence.plain, statement.negated, statement.words
    return [
        at
        for at, stem in enumerate(statement.stems)
        if apart[at] or stem not in plain or (negated and words[at][0] in negated)
    ]


def _company(statement: Statement, evidence: Evidence) -> tuple[float | None, list[bool]]:
    """Share of the pairs that occur together nowhere (None: no pair); for each word, if it is near no neighbour."""
    stems, weights, not_met = statement.stems, statement.weights, evidence.apart
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


def _gap(statement: Statement, at: int, evidence: Evidence, asked: frozenset[str], *, stray: bool) -> float:
    """How much of the word at position *at* is missing from the chunks: 0, `ASKED` or 1."""
    start, _, word = statement.words[at]
    stem = statement.stems[at]
    if stem in (evidence.negated if start in statement.negated else evidence.plain):
        return 1.0 if stray and word.number else 0.0
    if word.stem not in asked or stem in evidence.plain or stem in evidence.negated:
        return 1.0
    return ASKED if _is_fact(statement.words[at], statement) else 0.0


def _without_joints(statement: Statement, evidence: Evidence) -> Statement:
    """Return *statement* without pairs of characters that no chunk has and that join a word it has with the next one.

    Of the three pairs that an absent word of two characters makes with its neighbours, two count then, as of any word.
    """
    words, stems, plain = statement.words, statement.stems, evidence.plain
    kept = [
        at
        for at, stem in enumerate(stems)
        if stem in plain
        or not 0 < at < len(words) - 1
        or not (words[at - 1][1] > words[at][0] and words[at][1] > words[at + 1][0])
        or stems[at - 1] not in plain
    ]
    return replace(
        statement,
        words=[words[at] for at in kept],
        stems=[stems[at] for at in kept],
        weights=[statement.weights[at] for at in kept],
    )


def _is_fact(token: Token, statement: Statement) -> bool:
    """A number or a name: nothing to paraphrase."""
    start, _, word = token
    return word.number or (word.name and start > statement.start and word.weight == 1)


def _label(deficit: float, fact_missing: bool) -> Support:
    if deficit >= NOT_FOUND:
        return "not_found"
    return "partial" if fact_missing or deficit > SUPPORTED else "supported"


def _ranges(words: Sequence[Token], positions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Where the words at these *positions* stand in the answer, neighbours joined."""
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
    """Support of a whole answer in [0, 1]; at least one finding is needed."""
    total = sum(finding.weight for finding in findings)
    unsupported = sum(finding.weight * finding.deficit**2 for finding in findings)
    strength = unsupported / total * math.sqrt(max(total, FEW_WORDS))
    return float(2 ** -(strength / HALF))
