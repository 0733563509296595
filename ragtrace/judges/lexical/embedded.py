"""`EmbeddedJudge`: scores an answer by comparing its words with the retrieved chunks, without model or network.

Judging a call usually takes well under a millisecond. The judge cannot see a contradiction made of the chunks' own
words, and never uses the label `contradicted`.

Where its constants come from: the word lists are written by hand (see `words`), no frequency list is shipped, nothing
was trained. Human-labelled calls were used to compare about a dozen forms of the score, which differ little:
tests/benchmarks/README.md lists them with their figures.

Every generator here yields what it has just done, in characters read: other work is counted as the reading of so many
characters as takes as long. So its caller can let other tasks run.

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

`ChunkIndex` (`chunk_index`) has what the chunks say about the words of one answer. A *stem* is a text: the part of a
word that its spellings share (`Word.stem`). A *term* is the number of a stem in the vocabulary of the answer.

**Changing it.** A change raises `EmbeddedJudge.version` if any call gets another `consistency`, another label or other
claims: of a word list, a stem, a threshold, the order of words, a rule of what is judged. It needs none if it changes
what a judgement shows beside these (`evidence`, `quote`, attributes), its speed, or how work is divided into steps.
A worked example in `tests/unit/judges/test_embedded.py` has the arithmetic of one call as literal values, and
`tests/benchmarks/accuracy.py` shows what a change does to the order of human-labelled answers.

**Thresholds.** Those of a score (`FEW_WORDS`, `HALF`, `SUPPORTED`) follow from an example that stands with each. Those
that decide whether a call is judged at all are `_SHARED_SCRIPT`, `_ENOUGH_WORDS`, `_FOREIGN_SHARE`, `_FEWEST_WORDS`.

**Order.** `EmbeddedJudge.steps` reads the answer, then the chunks, then compares. Each part returns a value that
nothing changes. The index alone is filled bit by bit: with all statements, then with all chunks; from then on it is
only read.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count, islice
from typing import Final, NamedTuple

from ragtrace.core.labels import AnswerLabel, Claim, Support
from ragtrace.core.types import Document, EvaluatorType, Judgement, Metric, Plain, RagCall
from ragtrace.judges.lexical.chunk_index import ChunkIndex
from ragtrace.judges.lexical.languages import is_known_language
from ragtrace.judges.lexical.lexicon import (
    SAMPLE_CHARS,
    Lexicon,
    Token,
    count_function_words,
    count_scripts,
    cut_into_pieces,
    detect_language,
    one_line,
    tokens,
)
from ragtrace.judges.lexical.statements import Statement, statements

MAX_ANSWER_CHARS: Final = 50_000
MAX_STATEMENTS: Final = 1_000
MAX_CONTEXT_CHARS: Final = 2_000_000
MAX_QUERY_CHARS: Final = 10_000
"""Limits of what is read. `truncated_answer_chars` and `truncated_chunks` count what answer and chunks have beyond."""
STEP_CHARS: Final = 1_500
"""Number of characters that are read, in about 0.3 ms, before other tasks of the event loop get to run."""
_SAMPLED_CHUNKS: Final = 3
"""Number of first chunks in which the language of the chunks is looked for."""
# Least share of letters in the chunks' scripts: the others may be names and terms. Below, the script is another one.
_SHARED_SCRIPT: Final = 0.6
# English text has 35 to 45 % function words, a sentence of twelve words practically never none.
_ENOUGH_WORDS: Final = 12
_FOREIGN_SHARE: Final = 0.04
"""Share of function words of the chunks' languages up to which an answer of `_ENOUGH_WORDS` is in another language."""
_FEWEST_WORDS: Final = 3
"""Words of an answer from which on function words of another language alone say that it is in that language."""
_OFFERED: Final = frozenset({"consistency", "answered", "answered_without_context"})
_OFFERED_EXTRACTIVE: Final = _OFFERED | {"faithfulness", "hallucination", "hallucinated"}
_CLOSEST_CHUNKS: Final = 3
"""Most chunks that are named as the evidence of a claim."""
_AS_CLOSE: Final = 0.8
"""Share of the closest chunk's weight from which on another chunk is evidence, too."""
IN_QUERY: Final = 0.5
"""Absence, from 0 to 1, of a number or name that the query has but no chunk."""
FEW_WORDS: Final = 25
"""Words of about two sentences. A shorter answer counts as this long: five wrong words of five are no chance."""
HALF: Final = math.sqrt(2)
"""Strength at which consistency is 0.5: of five sentences of ten content words one is invented (10 / sqrt(50))."""
SUPPORTED: Final = 0.35
"""Highest deficit of a paraphrase: a fifth of the words is absent, which breaks up half of the pairs."""
NOT_FOUND: Final = 0.7
"""Lowest deficit at which a statement is labelled `not_found`, before a missing fact raises the deficit."""


class EmbeddedJudge:
    """Judge that compares the words of an answer with those of the retrieved chunks, without model or network.

    It is deterministic and takes about half a millisecond for 2,000 characters.

    Offers `consistency`, `answered` and `answered_without_context`, and shows which words of each statement no chunk
    has. Its `consistency` orders answers well, but its level depends on how freely an application words its answers: it
    says something only against the same application's usual level. Safe to share between threads and event loops.

    Args:
        extractive: offer `faithfulness`, `hallucination` and `hallucinated`, too, from the same comparison. Fit only
            for an application whose answers quote their sources: elsewhere a true paraphrase counts as unsupported.
    """

    id = "embedded"
    version = "2"
    """Raised with every change of a score: baselines and calibrations hold for one version alone."""
    type: EvaluatorType = "deterministic"
    computes = True  # never waits, so it needs no thread; gives way to other tasks by itself

    def __init__(self, *, extractive: bool = False) -> None:
        self._offered = _OFFERED_EXTRACTIVE if extractive else _OFFERED
        self._lexicons: dict[str, Lexicon] = {}

    def offers(self, metric: Metric) -> bool:
        """Return whether this judge gives the labels that *metric* is computed from."""
        return metric.name in self._offered

    async def judge(self, call: RagCall) -> Judgement:
        """Judge the answer of *call* by its words, letting other asyncio tasks run in between.

        They run after every `STEP_CHARS` characters. Raises nothing.
        """
        steps, done = self.steps(call), 0
        while True:
            try:
                done += next(steps)
            except StopIteration as stop:
                judgement: Judgement = stop.value
                return judgement
            if done >= STEP_CHARS:
                done = 0
                await asyncio.sleep(0)

    def split(self, answer: str, context: str = "") -> Generator[int, None, SplitAnswer]:
        """Split *answer* into the statements that this judge compares with chunks, and yield the characters read.

        Args:
            answer: text of the answer.
            context: first retrieved text, which helps to find the language of a short answer.
        """
        lexicon = self._lexicon(_choose_language(answer, detect_language(answer[:SAMPLE_CHARS]), context))
        end, found = min(len(answer), MAX_ANSWER_CHARS), list[Statement]()
        for statement in statements(answer, end, lexicon):
            if len(found) == MAX_STATEMENTS:
                end = statement.start
                break
            found.append(statement)
            yield statement.end - statement.start
        return SplitAnswer(tuple(each for each in found if not each.code), lexicon, end == len(answer))

    def _lexicon(self, code: str) -> Lexicon:
        # Two threads may both make a lexicon; setdefault keeps the first, and either would do.
        return self._lexicons.get(code) or self._lexicons.setdefault(code, Lexicon(code))

    def steps(self, call: RagCall) -> Generator[int, None, Judgement]:
        """Judge *call* step by step: yield what each step did, in characters read, and return the judgement.

        A step has about `STEP_CHARS` characters.
        """
        text, query = call.answer or "", call.query or ""
        if not text or text.isspace():
            return _unjudged(_ParsedAnswer(text), "empty_answer")
        first_chunk = next((document.text for document in call.contexts or () if document.text), "")
        spoken = detect_language(text[:SAMPLE_CHARS])
        lexicon = self._lexicon(_choose_language(text, spoken, first_chunk))
        index = ChunkIndex(lexicon)
        answer = yield from _parse_answer(text, lexicon, index)
        if spoken != "en":
            answer = yield from _with_known_language(answer, query[:SAMPLE_CHARS], first_chunk[:SAMPLE_CHARS])
        if call.contexts is None:
            return _unjudged(answer, "contexts_missing")
        chunks = yield from _choose_chunks(call.contexts)
        if not chunks.texts:  # every checkable statement is unsupported
            plain = tuple(_plain_claim(text, each.statement) for each in answer.prose)
            return _judgement(answer, chunks, plain, None, {"consistency": "no_contexts"})
        if not (yield from _shares_script(answer, chunks)):
            return _unjudged(answer, "unscorable_script", chunks)
        query_stems = yield from _stems_of_query(query, lexicon)
        for rank, chunk in chunks.texts.items():
            yield from index.add_chunk(rank, chunk, cut_into_pieces(chunk, STEP_CHARS, len(chunk)))
        findings = yield from _compare_statements(answer, index, query_stems)
        if findings and not _shares_language(answer, chunks, list(findings.values())):
            return _unjudged(answer, "language_mismatch", chunks)
        claims = yield from _make_claims(answer, chunks, index, findings)
        if not any(claim.checkable for claim in claims):
            why = "abstained" if answer.abstained else "no_claims"
            return _judgement(answer, chunks, claims, None, {"consistency": why})
        return _judgement(answer, chunks, claims, consistency(list(findings.values())), {})


class SplitAnswer(NamedTuple):
    """Statements of an answer as `EmbeddedJudge` finds them, without the lines of code blocks."""

    statements: tuple[Statement, ...]
    lexicon: Lexicon
    """Lexicon of the answer's language, by which words of other texts are compared with those of the statements."""
    whole: bool
    """Whether the whole answer was read; False: it has more characters or statements than are ever read."""


# --- the answer -------------------------------------------------------------------------------------------------------


class NumberedStatement(NamedTuple):
    """Statement of an answer, with the terms of its words."""

    statement: Statement
    terms: Sequence[int]
    """For each of `statement.words`, the number of its stem in the vocabulary of the answer."""


@dataclass(frozen=True, slots=True)
class _ParsedAnswer:
    """Answer as the embedded judge has read it."""

    text: str
    statements: Sequence[NumberedStatement] = ()
    unread_chars: int = 0
    """Number of characters of the answer beyond those that are read."""
    known_language: bool = True
    """Whether it is recognised in the answer's language that an answer declines."""

    @property
    def prose(self) -> list[NumberedStatement]:
        """Statements of the answer that are not lines of a code block."""
        return [each for each in self.statements if not each.statement.code]

    @property
    def abstained(self) -> bool:
        """Whether the answer mostly declines to answer the query.

        It does if its declining sentences have more words than its checkable statements.
        """
        found = [each.statement for each in self.statements]
        declined = sum(len(statement.words) + 1 for statement in found if statement.declines)
        attempted = sum(len(s.words) for s in found if s.checkable and not s.declines and not s.code)
        return declined > attempted


def _parse_answer(text: str, lexicon: Lexicon, index: ChunkIndex) -> Generator[int, None, _ParsedAnswer]:
    """Split an answer into statements, add each of them to *index*, and return the parsed answer."""
    end = min(len(text), MAX_ANSWER_CHARS)
    found: list[NumberedStatement] = []
    for statement in statements(text, end, lexicon):
        if len(found) == MAX_STATEMENTS:
            end = statement.start
            break
        found.append(NumberedStatement(statement, index.add_statement(statement)))
        yield statement.end - statement.start
    return _ParsedAnswer(text, found, len(text) - end)


def _with_known_language(answer: _ParsedAnswer, query: str, chunk: str) -> Generator[int, None, _ParsedAnswer]:
    """Return *answer* with the knowledge whether its language is one in which declining is recognised.

    *query* and *chunk* are the beginnings of the query and of the first chunk.
    """
    sample: list[str] = []
    chars = 0
    for statement, _ in answer.prose:
        if chars < 4 * SAMPLE_CHARS:
            sample.append(answer.text[statement.start : statement.end])
            chars += len(sample[-1])
    known = is_known_language(sample, query, chunk)
    yield chars + len(query) + len(chunk)
    return _ParsedAnswer(answer.text, answer.statements, answer.unread_chars, known)


def _stems_of_query(query: str, lexicon: Lexicon) -> Generator[int, None, frozenset[str]]:
    """Return the stems of the words in the first `MAX_QUERY_CHARS` characters of the user's *query*."""
    found: set[str] = set()
    for start, end in cut_into_pieces(query, STEP_CHARS, min(len(query), MAX_QUERY_CHARS)):
        found.update([word.stem for _, _, word in tokens(query, lexicon, start, end)])
        yield end - start
    return frozenset(found)


# --- the chunks -------------------------------------------------------------------------------------------------------


class _ChosenChunks(NamedTuple):
    """Distinct retrieved chunks that are not blank, up to a total of `MAX_CONTEXT_CHARS` characters."""

    texts: Mapping[int, str]
    """Text of each chunk that is read, by the rank at which the chunk first occurs."""
    counts: Mapping[str, Plain]
    """Attributes of the judgement: how many chunks there are, how many are duplicates and how many are truncated."""


def _choose_chunks(contexts: Iterable[Document]) -> Generator[int, None, _ChosenChunks]:
    """Return each distinct retrieved chunk once, and count the duplicate and the truncated chunks."""
    texts: dict[int, str] = {}
    seen: set[bytes | str] = set()
    duplicates = truncated = chars = 0
    for rank, document in enumerate(contexts):
        key = yield from _without_spacing(document.text)
        if not key:
            continue
        if key in seen:
            duplicates += 1
            continue
        seen.add(key)
        kept = document.text[: MAX_CONTEXT_CHARS - chars]
        truncated += len(kept) < len(document.text)
        chars += len(kept)
        if kept:
            texts[rank] = kept
    counts = {"chunks": len(seen), "duplicate_chunks": duplicates, "truncated_chunks": truncated}
    return _ChosenChunks(texts, counts)


def _without_spacing(text: str) -> Generator[int, None, bytes | str]:
    """Return a key for finding duplicate chunks: texts that differ only in white space have the same key, as a rule.

    Exceptions are texts of which one alone is longer than a step, and long ones with a word that is cut differently:
    they count as two chunks. The key is empty for a blank text.
    """
    if len(text) <= STEP_CHARS:
        yield len(text) // 8 + 1
        return one_line(text)
    digest, blank = hashlib.blake2b(digest_size=16), True
    for start, end in cut_into_pieces(text, 4 * STEP_CHARS, len(text)):
        if words := one_line(text[start:end]):
            digest.update((words + " ").encode("utf-8", "surrogatepass"))
            blank = False
        yield (end - start) // 4
    return b"" if blank else digest.digest()


def _choose_language(answer: str, spoken: str, chunk: str) -> str:
    """Return the code of the language in which to compare *answer* and *chunk*, or "" if it is not clear.

    *spoken* is the language that was detected in the answer.
    """
    written = ""
    if spoken != "en":
        written = detect_language(chunk[:SAMPLE_CHARS])
        if written and spoken and written != spoken:
            _, own, other = count_function_words(answer[:SAMPLE_CHARS], (written,))
            return written if own >= other else spoken
    return spoken or written


def _shares_script(answer: _ParsedAnswer, chunks: _ChosenChunks) -> Generator[int, None, bool]:
    """Return whether most letters of the answer are in a script, such as Latin, that the chunks use.

    False for an answer without a word.
    """
    beginning = answer.text[:SAMPLE_CHARS]
    if not any(each.terms for each in answer.statements) and not any(map(str.isalnum, beginning)):
        return False
    letters = count_scripts(beginning)
    known: set[str] = set()
    for text in chunks.texts.values():
        if known.issuperset(letters):
            break
        known.update(count_scripts(text[:SAMPLE_CHARS]))
        yield SAMPLE_CHARS
    shared = sum(letters_of_script for name, letters_of_script in letters.items() if name in known)
    return shared >= _SHARED_SCRIPT * sum(letters.values())


def _shares_language(answer: _ParsedAnswer, chunks: _ChosenChunks, findings: Sequence[Finding]) -> bool:
    """Return whether answer and chunks seem to be in one language, so that their words can be compared.

    True, too, where a language is not recognised or most words are found in the chunks anyway.
    """
    if sum((2 * finding.deficit - 1) * finding.weight for finding in findings) < 0:
        return True
    sampled = islice(chunks.texts.values(), _SAMPLED_CHUNKS)
    known = {detect_language(text[:SAMPLE_CHARS], 2) for text in sampled} - {""}
    if not known:
        return True
    words, own, other = count_function_words(answer.text[: 4 * SAMPLE_CHARS], known)
    if own >= other and own:
        return words < _ENOUGH_WORDS or own > _FOREIGN_SHARE * words
    return words < _FEWEST_WORDS or (not other and words < _ENOUGH_WORDS)


# --- the comparison of a statement with the chunks --------------------------------------------------------------------


class Finding(NamedTuple):
    """Result of comparing one statement of the answer with the retrieved chunks."""

    weight: float
    """Number of content words of the statement; a framing word counts a quarter."""
    deficit: float
    """Degree, from 0 to 1, to which words and pairs of the statement are absent from the chunks."""
    support: Support
    unsupported: tuple[tuple[int, int], ...]
    """Ranges of characters in the answer that no chunk supports; empty for a supported statement."""


class _Words(NamedTuple):
    """Content words of a statement that are compared: three sequences with one entry a word."""

    tokens: Sequence[Token]
    weights: Sequence[float]
    terms: Sequence[int]


def _compare_statements(
    answer: _ParsedAnswer, index: ChunkIndex, query_stems: frozenset[str]
) -> Generator[int, None, dict[int, Finding]]:
    """Compare all checkable statements of an answer, and return the finding for each by the start of the statement.

    Lines of code are among them: what they share with the chunks counts for consistency, though none becomes a claim.
    """
    findings: dict[int, Finding] = {}
    for each in answer.statements:
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
        token = words.tokens[at]
        if not (alone[at] or term not in affirmed or (negated and token[0] in negated)):
            continue  # in the chunks, as most words are
        if gap := _absence(statement, token, term, index, query_stems, alone=alone[at]):
            absent += words.weights[at] * gap
            fact_missing = fact_missing or _is_fact(token, statement)
            if words.weights[at] == 1:
                missing.append(at)
    absent /= total
    of_words = absent if missed_pairs is None else (absent + missed_pairs) / 2
    support = _support_of(of_words, fact_missing=fact_missing)
    if support == "supported":
        return Finding(total, of_words, support, ())
    # One wrong number or name makes a statement wrong, however many of its other words are in the chunks.
    deficit = (1 + of_words) / 2 if fact_missing else of_words
    # Where no word is missing, show the words that occur in no chunk together with a neighbour.
    shown: Sequence[int] = missing or [at for at, term in enumerate(words.terms) if term not in affirmed]
    shown = shown or [at for at, lost in enumerate(alone) if lost] or range(len(words.tokens))
    return Finding(total, deficit, support, _covered_ranges(words.tokens, shown))


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
    for step in (1, 2):
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
    statement: Statement, token: Token, term: int, index: ChunkIndex, query_stems: frozenset[str], *, alone: bool
) -> float:
    """Return how far one word of a statement is missing from the chunks, as a number from 0 to 1.

    The number is 0, 1 or, for a number or name that only the query has, `IN_QUERY`.

    Args:
        statement: the statement.
        token: the word in it.
        term: the word's number in the vocabulary of the answer.
        index: index of the retrieved chunks, complete.
        query_stems: stems of the words of the user's query.
        alone: whether no chunk has the word together with any of its neighbours.
    """
    start, _, word = token
    if term in (index.negated if start in statement.negated else index.affirmed):
        return 1.0 if alone and word.number else 0.0
    if word.stem not in query_stems or term in index.affirmed or term in index.negated:
        return 1.0
    return IN_QUERY if _is_fact(token, statement) else 0.0


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
    found, terms = words.tokens, words.terms
    kept = [
        at
        for at, term in enumerate(terms)
        if term in affirmed
        or not 0 < at < len(found) - 1
        or not (found[at - 1][1] > found[at][0] and found[at][1] > found[at + 1][0])
        or terms[at - 1] not in affirmed
    ]
    return _Words([found[at] for at in kept], [words.weights[at] for at in kept], [terms[at] for at in kept])


def _is_fact(token: Token, statement: Statement) -> bool:
    """Return whether *token* is a number or a name, for which no paraphrase exists."""
    start, _, word = token
    return word.number or (word.name and start > statement.start and word.weight == 1)


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


# --- the judgement ----------------------------------------------------------------------------------------------------


def _make_claims(
    answer: _ParsedAnswer, chunks: _ChosenChunks, index: ChunkIndex, findings: Mapping[int, Finding]
) -> Generator[int, None, tuple[Claim, ...]]:
    """Return the statements of an answer, without lines of code, as claims.

    *findings* has the finding for each checkable statement by the start of the statement.
    """
    claims: list[Claim] = []
    for each in answer.prose:
        start, end = each.statement.start, each.statement.end
        finding = findings.get(start)
        claims.append(
            _compared_claim(answer.text, each, finding, index, chunks)
            if finding
            else _plain_claim(answer.text, each.statement)
        )
        yield STEP_CHARS // 2 if claims[-1].quote else end - start
    return tuple(claims)


def _compared_claim(
    answer: str, numbered: NumberedStatement, finding: Finding, index: ChunkIndex, chunks: _ChosenChunks
) -> Claim:
    """Return a statement of *answer* as a `Claim` with its support label, unsupported words and closest chunks."""
    statement, wanted = numbered.statement, dict(zip(numbered.terms, numbered.statement.weights, strict=True))
    closest = _closest_chunks(wanted, index)
    # Quoting costs as much as all other work for a claim, and a supported claim needs no quote.
    quoted = bool(closest) and finding.support != "supported"
    return Claim(
        answer[statement.start : statement.end],
        statement.start,
        statement.end,
        finding.support,
        evidence=closest,
        quote=index.quote(closest[0], chunks.texts[closest[0]], wanted) if quoted else None,
        score=1 - finding.deficit,
        unsupported=finding.unsupported,
    )


def _plain_claim(answer: str, statement: Statement) -> Claim:
    """Return a statement of *answer* as a `Claim` that is not compared with chunks.

    It states no fact, or there is no chunk that could support it.
    """
    start, end = statement.start, statement.end
    if not statement.checkable:
        return Claim(answer[start:end], start, end, None, checkable=False)
    return Claim(answer[start:end], start, end, "not_found", score=0.0, unsupported=((start, end),))


def _closest_chunks(wanted: Mapping[int, float], index: ChunkIndex) -> tuple[int, ...]:
    """Return the ranks of the retrieved chunks that contain most of the *wanted* terms, best chunk first.

    Each term counts with its weight. Of chunks that contain as much, the earlier comes first.
    """
    held: dict[int, float] = defaultdict(float)
    for term, weight in wanted.items():
        for rank in index.ranks[term]:
            held[rank] += weight
    if len(held) < 2:
        return tuple(held)
    enough = _AS_CLOSE * max(held.values())
    best = sorted([rank for rank in sorted(held) if held[rank] >= enough], key=held.__getitem__, reverse=True)
    return tuple(best[:_CLOSEST_CHUNKS])


def _unjudged(answer: _ParsedAnswer, reason: str, chunks: _ChosenChunks | None = None) -> Judgement:
    """Return a `Judgement` that has neither claims nor consistency, because of *reason*."""
    return _judgement(answer, chunks, None, None, {"claims": reason, "consistency": reason})


def _judgement(
    answer: _ParsedAnswer,
    chunks: _ChosenChunks | None,
    claims: tuple[Claim, ...] | None,
    value: float | None,
    reasons: Mapping[str, str],
) -> Judgement:
    """Return the judgement of a call, made of *claims* and the consistency *value*.

    Args:
        answer: the answer of the call.
        chunks: the chunks that were chosen; None: none were looked at.
        claims: the statements of the answer as claims.
        value: the consistency.
        reasons: why one of the two is None.
    """
    attributes: dict[str, Plain] = {"method": "whole"}
    if answer.unread_chars:
        attributes["truncated_answer_chars"] = answer.unread_chars
    label: AnswerLabel | None = "abstained" if answer.abstained or not answer.text.strip() else "answered"
    if not answer.known_language:
        attributes["unknown_language"] = True
        label, reasons = None, {**reasons, "answer_label": "unknown_language"}
    if chunks is not None:
        attributes.update(chunks.counts)
    return Judgement(claims, label, value, reasons, mode="lexical", attributes=attributes)
