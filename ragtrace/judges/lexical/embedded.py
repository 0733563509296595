"""`EmbeddedJudge`: scores an answer by comparing its words with the retrieved chunks, without model or network.

Judging a call usually takes well under a millisecond. The judge cannot see a contradiction made of the chunks' own
words, and never uses the label `contradicted`.

Where its constants come from: the word lists are written by hand (see `words`), no frequency list is shipped, nothing
was trained. Human-labelled calls were used to compare about a dozen forms of the score, which differ little:
tests/benchmarks/README.md lists them with their figures.

Every generator here yields the number of characters it has just read, so that its caller can let other tasks run.

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

`ChunkIndex` indexes what the chunks say about the words of one answer. Only the answer's own vocabulary is indexed, so
that memory grows with the answer and not with the chunks.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from typing import Final, NamedTuple

from ragtrace.core.labels import AnswerLabel, Claim, Support
from ragtrace.core.text import LazyPattern
from ragtrace.core.types import Document, EvaluatorType, Judgement, Metric, Plain, RagCall
from ragtrace.judges.lexical.languages import is_known_language
from ragtrace.judges.lexical.lexicon import (
    IS_UNSPACED,
    NEGATION,
    Lexicon,
    Token,
    count_function_words,
    count_scripts,
    cut_into_pieces,
    detect_language,
    one_line,
    stems,
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
SAMPLE_CHARS: Final = 400
"""Number of characters at the start of a text that language and script are recognised from."""
_SAMPLED_CHUNKS: Final = 3
# Least share of letters in the chunks' scripts: the others may be names and terms. Below, the script is another one.
_SHARED_SCRIPT: Final = 0.6
# English text has 35 to 45 % function words, a sentence of twelve words practically never none.
_ENOUGH_WORDS: Final = 12
_FOREIGN_SHARE: Final = 0.04
_FEWEST_WORDS: Final = 3
_OFFERED: Final = frozenset({"consistency", "answered", "answered_without_context"})
_OFFERED_EXTRACTIVE: Final = _OFFERED | {"faithfulness", "hallucination", "hallucinated"}
_CLOSEST_CHUNKS: Final = 3
_AS_CLOSE: Final = 0.8
IN_QUERY: Final = 0.5
"""Absence, from 0 to 1, of a number or name that the query has but no chunk."""
FEW_WORDS: Final = 25
"""Words of about two sentences. A shorter answer counts as this long: five wrong words of five are no chance."""
HALF: Final = math.sqrt(2)
"""Strength at which consistency is 0.5: of five sentences of ten content words one is invented (10 / sqrt(50))."""
SUPPORTED: Final = 0.35
"""Highest deficit of a paraphrase: a fifth of the words is absent, which breaks up half of the pairs."""
NOT_FOUND: Final = 0.7
"""Lowest deficit at which a statement is labelled `not_found`."""
WINDOW: Final = 8
"""Number of content words, about a clause, within which two words occur together. (5 to 20 made no difference.)"""
MAX_QUOTE_CHARS: Final = 300
UNSPACED_WINDOW: Final = 3 * WINDOW
"""`WINDOW` of scripts without spaces, whose words are overlapping pairs of characters, function words among them."""
_POSTINGS: Final = 32
# A quote begins up to a third of its length before the best piece: half a quote is the longest piece that fits whole.
_PIECE_CHARS: Final = MAX_QUOTE_CHARS // 2
_QUOTED_PIECES: Final = 400
_SLACK: Final = 1e-9
# The end of a sentence, in reversed text. The pattern begins with the set of all first characters, and states the
# conditions of each later, as the search is fast only then.
_BREAK_BACKWARDS = LazyPattern(
    r"[\s\u3002\uff01\uff1f](?:(?<=[\n\u3002\uff01\uff1f])|[\"'\u201d\u2019)\]]{0,3}[.!?\u3002\uff01\uff1f])"
)
# Numbers of words in a chunk that the answer does not have.
_ELSEWHERE: Final = -1
_NEGATION: Final = -2


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

    def steps(self, call: RagCall) -> Generator[int, None, Judgement]:
        """Judge *call* step by step: yield the number of characters read in each step, and return the judgement.

        A step has about `STEP_CHARS` characters.
        """
        parsed = _ParsedCall(call.answer or "")
        if not parsed.answer or parsed.answer.isspace():
            return parsed.unjudged("empty_answer")
        first_chunk = next((document.text for document in call.contexts or () if document.text), "")
        spoken = detect_language(parsed.answer[:SAMPLE_CHARS])
        code = _choose_language(parsed.answer, spoken, first_chunk)
        # Two threads may both make a lexicon; setdefault keeps the first, and either would do.
        lexicon = self._lexicons.get(code) or self._lexicons.setdefault(code, Lexicon(code))
        yield from parsed.read_answer(lexicon)
        if spoken != "en":
            yield from parsed.read_language((call.query or "")[:SAMPLE_CHARS], first_chunk[:SAMPLE_CHARS])
        if call.contexts is None:
            return parsed.unjudged("contexts_missing")
        yield from parsed.choose_chunks(call.contexts)
        if not parsed.chunks:  # every checkable statement is unsupported
            return parsed.judgement(tuple(map(parsed.plain_claim, parsed.prose)), None, {"consistency": "no_contexts"})
        if not (yield from parsed.shares_script()):
            return parsed.unjudged("unscorable_script")
        query, stems = call.query or "", set[str]()
        for start, end in cut_into_pieces(query, STEP_CHARS, min(len(query), MAX_QUERY_CHARS)):
            stems.update([word.stem for _, _, word in tokens(query, lexicon, start, end)])
            yield end - start
        query_stems = frozenset(stems)
        evidence = ChunkIndex(parsed.numbers, parsed.followers, lexicon)
        for rank, text in parsed.chunks.items():
            yield from evidence.add_chunk(rank, text, cut_into_pieces(text, STEP_CHARS, len(text)))
        findings: dict[int, Finding] = {}
        for statement in parsed.statements:
            if statement.checkable:
                findings[statement.start] = compare_statement(statement, evidence, query_stems)
                yield statement.end - statement.start
        if findings and not parsed.shares_language(list(findings.values())):
            return parsed.unjudged("language_mismatch")
        claims: list[Claim] = []
        for statement in parsed.prose:
            finding = findings.get(statement.start)
            claims.append(parsed.claim(statement, finding, evidence) if finding else parsed.plain_claim(statement))
            yield STEP_CHARS // 2 if claims[-1].quote else statement.end - statement.start
        if not any(claim.checkable for claim in claims):
            why = "abstained" if parsed.abstained else "no_claims"
            return parsed.judgement(tuple(claims), None, {"consistency": why})
        return parsed.judgement(tuple(claims), consistency(list(findings.values())), {})


@dataclass(slots=True, eq=False, repr=False)
class _ParsedCall:
    """RAG call as the embedded judge parses it: statements of the answer, and the distinct retrieved chunks."""

    answer: str
    statements: list[Statement] = field(default_factory=list[Statement])
    numbers: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](count().__next__))
    """Numbers of the answer's stems, in order of appearance: looking up a new stem gives the stem the next number."""
    followers: dict[int, set[int]] = field(default_factory=lambda: defaultdict[int, set[int]](set))
    """For each stem of a checkable statement, the stems one or two words behind that stem in any of the statements."""
    chunks: dict[int, str] = field(default_factory=dict[int, str])
    """Distinct chunks that are not blank, by the rank at which the chunk first occurs."""
    attributes: dict[str, Plain] = field(default_factory=dict[str, Plain])
    known_language: bool = True
    """Whether it is recognised in the answer's language that an answer declines."""

    @property
    def prose(self) -> list[Statement]:
        """Statements of the answer that are not lines of a code block."""
        return [statement for statement in self.statements if not statement.code]

    @property
    def abstained(self) -> bool:
        """Whether the answer mostly declines to answer the query.

        It does if its declining sentences have more words than its checkable statements.
        """
        declined = sum(len(statement.words) + 1 for statement in self.statements if statement.declines)
        attempted = sum(len(s.words) for s in self.prose if s.checkable and not s.declines)
        return declined > attempted

    def read_answer(self, lexicon: Lexicon) -> Iterator[int]:
        """Split the answer into statements, and assign a number to each distinct word stem.

        Also records in `followers` which stems follow each other in checkable statements.
        """
        end = min(len(self.answer), MAX_ANSWER_CHARS)
        numbers, followers = self.numbers, self.followers
        for statement in statements(self.answer, end, lexicon):
            if len(self.statements) == MAX_STATEMENTS:
                end = statement.start
                break
            stems = statement.stems = [numbers[word.stem] for _, _, word in statement.words]
            if statement.checkable:
                for one, second, third in zip(stems, stems[1:], stems[2:], strict=False):
                    followers[one].update((second, third))
                if len(stems) > 1:
                    followers[stems[-2]].add(stems[-1])
            self.statements.append(statement)
            yield statement.end - statement.start
        if len(self.answer) > end:
            self.attributes["truncated_answer_chars"] = len(self.answer) - end

    def read_language(self, query: str, chunk: str) -> Iterator[int]:
        """Find out whether the language of the answer is one in which declining is recognised."""
        sample: list[str] = []
        chars = 0
        for statement in self.prose:
            if chars < 4 * SAMPLE_CHARS:
                sample.append(self.answer[statement.start : statement.end])
                chars += len(sample[-1])
        self.known_language = is_known_language(sample, query, chunk)
        if not self.known_language:
            self.attributes["unknown_language"] = True
        yield chars + len(query) + len(chunk)

    def choose_chunks(self, contexts: Iterable[Document]) -> Iterator[int]:
        """Keep each distinct retrieved chunk once, up to a total of `MAX_CONTEXT_CHARS` characters.

        Counts the duplicate and the truncated chunks.
        """
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
                self.chunks[rank] = kept
        self.attributes.update({"chunks": len(seen), "duplicate_chunks": duplicates, "truncated_chunks": truncated})

    def shares_script(self) -> Generator[int, None, bool]:
        """Return whether most letters of the answer are in a script, such as Latin, that the chunks use.

        False for an answer without a word.
        """
        if not self.numbers and not any(map(str.isalnum, self.answer[:SAMPLE_CHARS])):
            return False
        letters = count_scripts(self.answer[:SAMPLE_CHARS])
        known: set[str] = set()
        for text in self.chunks.values():
            if known.issuperset(letters):
                break
            known.update(count_scripts(text[:SAMPLE_CHARS]))
            yield SAMPLE_CHARS
        shared = sum(letters_of_script for name, letters_of_script in letters.items() if name in known)
        return shared >= _SHARED_SCRIPT * sum(letters.values())

    def shares_language(self, findings: Sequence[Finding]) -> bool:
        """Return whether answer and chunks seem to be in one language, so that their words can be compared.

        True, too, where a language is not recognised or most words are found in the chunks anyway.
        """
        if sum((2 * finding.deficit - 1) * finding.weight for finding in findings) < 0:
            return True
        known = {detect_language(text[:SAMPLE_CHARS], 2) for text in list(self.chunks.values())[:_SAMPLED_CHUNKS]} - {
            ""
        }
        if not known:
            return True
        words, own, other = count_function_words(self.answer[: 4 * SAMPLE_CHARS], known)
        if own >= other and own:
            return words < _ENOUGH_WORDS or own > _FOREIGN_SHARE * words
        return words < _FEWEST_WORDS or (not other and words < _ENOUGH_WORDS)

    def claim(self, statement: Statement, finding: Finding, evidence: ChunkIndex) -> Claim:
        """Return *statement* as a `Claim` with its support label, its unsupported words and the closest chunks."""
        wanted = dict(zip(statement.stems, statement.weights, strict=True))
        closest = _closest_chunks(wanted, evidence)
        # Quoting costs as much as all other work for a claim, and a supported claim needs no quote.
        quoted = bool(closest) and finding.support != "supported"
        quote = evidence.quote(closest[0], self.chunks[closest[0]], wanted) if quoted else None
        start, end, support = statement.start, statement.end, finding.support
        score, unsupported = 1 - finding.deficit, finding.unsupported
        text = self.answer[start:end]
        return Claim(text, start, end, support, evidence=closest, quote=quote, score=score, unsupported=unsupported)

    def plain_claim(self, statement: Statement) -> Claim:
        """Return *statement* as a `Claim` that is not compared with chunks.

        It states no fact, or there is no chunk that could support it.
        """
        start, end = statement.start, statement.end
        if not statement.checkable:
            return Claim(self.answer[start:end], start, end, None, checkable=False)
        return Claim(self.answer[start:end], start, end, "not_found", score=0.0, unsupported=((start, end),))

    def unjudged(self, reason: str) -> Judgement:
        """Return a `Judgement` that has neither claims nor consistency, because of *reason*."""
        return self.judgement(None, None, {"claims": reason, "consistency": reason})

    def judgement(self, claims: tuple[Claim, ...] | None, value: float | None, reasons: Mapping[str, str]) -> Judgement:
        """Return the judgement of the call, made of *claims* and the consistency *value*.

        The *reasons* say why one of the two is None.
        """
        label: AnswerLabel | None = "abstained" if self.abstained or not self.answer.strip() else "answered"
        if not self.known_language:
            label, reasons = None, {**reasons, "answer_label": "unknown_language"}
        return Judgement(
            claims, label, value, reasons, mode="lexical", attributes={"method": "whole", **self.attributes}
        )


def _without_spacing(text: str) -> Generator[int, None, bytes | str]:
    """Return a key for finding duplicate chunks: texts that differ only in white space have the same key.

    The key is empty for a blank text.
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


def _closest_chunks(wanted: Mapping[int, float], evidence: ChunkIndex) -> tuple[int, ...]:
    """Return the ranks of the retrieved chunks that contain most of the *wanted* word stems, best chunk first.

    Each stem counts with its weight. Of chunks that contain as much, the earlier comes first.
    """
    held: dict[int, float] = defaultdict(float)
    for stem, weight in wanted.items():
        for rank in evidence.ranks[stem]:
            held[rank] += weight
    if len(held) < 2:
        return tuple(held)
    enough = _AS_CLOSE * max(held.values())
    best = sorted([rank for rank in sorted(held) if held[rank] >= enough], key=held.__getitem__, reverse=True)
    return tuple(best[:_CLOSEST_CHUNKS])


class ChunkIndex:
    """Index of the retrieved chunks, restricted to the words of one answer.

    It records which chunks contain a word, which words occur near each other, and which are negated.

    Args:
        vocabulary: the answer's stems, numbered from 0.
        never_together: for each stem, the stems that follow it in the answer. `add_chunk` removes a stem when a chunk
            has it together with the one before it.
    """

    def __init__(self, vocabulary: Mapping[str, int], never_together: dict[int, set[int]], lexicon: Lexicon) -> None:
        self._number_of = {**vocabulary, NEGATION: _NEGATION}.get
        self._lexicon = lexicon
        self._pieces: dict[int, list[tuple[int, set[int]]]] = {}
        """For each rank, the pieces of the chunk: offset of the piece, and numbers of its words."""
        self.never_together = never_together
        """For each stem, the stems that follow it in the answer and occur together with it in no chunk."""
        self.affirmed: set[int] = set()
        """Numbers of stems that occur without a negation right before the word; numbers below 0 mean nothing."""
        self.negated: set[int] = set()
        """Numbers of stems that occur right behind a negation; numbers below 0 mean nothing."""
        self.ranks: list[list[int]] = [[] for _ in vocabulary]
        """For each stem, the ranks of the first `_POSTINGS` chunks that contain the stem."""

    def add_chunk(self, rank: int, text: str, steps: Iterator[tuple[int, int]]) -> Iterator[int]:
        """Add a retrieved chunk to the index, and yield the number of characters read in each step.

        Args:
            rank: rank of the chunk.
            text: the whole chunk.
            steps: consecutive ranges of *text*, each read in one step.
        """
        self._pieces[rank] = []
        window = UNSPACED_WINDOW if not text.isascii() and IS_UNSPACED.search(text, 0, SAMPLE_CHARS) else WINDOW
        line = [_ELSEWHERE] * (window - 1)
        negated, ranks, followers_of = False, self.ranks, self.never_together.get
        for start, end in steps:
            read = self._word_numbers(rank, text, start, end)
            if negated or _NEGATION in read:
                read, negated = self._separate_negations(read, negated)
            else:
                self.affirmed.update(read)
            for stem in set(read) - {_ELSEWHERE}:
                seen = ranks[stem]
                if not seen or (seen[-1] != rank and len(seen) < _POSTINGS):
                    seen.append(rank)
            # The last words of the step before come once more now that the words behind them are known.
            line = line[2 - 2 * window :] + read
            for at, current in enumerate(line[window - 1 :], window - 1):
                if others := followers_of(current):
                    others.difference_update(line[at - window + 1 : at + window])
            yield end - start

    def _word_numbers(self, rank: int, text: str, start: int, end: int) -> list[int]:
        """Return the word stems of ``text[start:end]`` as numbers, for content words and negations only.

        The number is the place of the stem in the answer's vocabulary, `_ELSEWHERE` for a stem that the answer has not,
        and `_NEGATION` for a negation.
        """
        found: list[int] = []
        done, lexicon, number_of = self._pieces[rank], self._lexicon, self._number_of
        for first, last in cut_into_pieces(text, _PIECE_CHARS, end, start):
            numbers = list(map(number_of, stems(text, lexicon, first, last), repeat(_ELSEWHERE)))
            if len(done) < _QUOTED_PIECES:
                done.append((first, set(numbers)))
            found += numbers
        return found

    def _separate_negations(self, read: list[int], negated: bool) -> tuple[list[int], bool]:
        """Record which words of a text piece follow a negation, and return the words without the negations.

        The second value says whether the piece ends with a negation; *negated* says so of the piece before.
        """
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
        """Return the excerpt of a retrieved chunk that contains most of the *wanted* word stems.

        *text* is the chunk, and *rank* its rank. Each stem counts with its weight. The excerpt has at most
        `MAX_QUOTE_CHARS` characters, and begins and ends with a sentence, or else a word, where it can.
        """
        best, at = 0.0, 0
        for offset, read in self._pieces[rank]:
            common = read.intersection(wanted)
            # The first comparison is a shortcut: no weight is above 1.
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
    """Return the offset after the last sentence that ends within ``text[start:end]``, or 0 if none ends there."""
    found = _BREAK_BACKWARDS.search(text[start:end][::-1])
    return end - found.start() if found else 0


class Finding(NamedTuple):
    """Result of comparing one statement of the answer with the retrieved chunks."""

    weight: float
    """Number of content words of the statement; a framing word counts a quarter."""
    deficit: float
    """Degree, from 0 to 1, to which words and pairs of the statement are absent from the chunks."""
    support: Support
    unsupported: tuple[tuple[int, int], ...]
    """Ranges of characters in the answer that no chunk supports; empty for a supported statement."""


def compare_statement(statement: Statement, evidence: ChunkIndex, query_stems: frozenset[str]) -> Finding:
    """Compare a statement of the answer with the indexed chunks, and return how well the chunks support it.

    Args:
        evidence: index of the retrieved chunks.
        query_stems: stems of the words of the user's query.
    """
    if statement.unspaced:
        statement = _without_straddling_pairs(statement, evidence)
    words, weights, stems, affirmed = statement.words, statement.weights, statement.stems, evidence.affirmed
    negated, total = statement.negated, sum(weights)
    missed_pairs, alone = _missed_pairs(statement, evidence)
    missing: list[int] = []
    absent, fact_missing = 0.0, False
    for at, stem in enumerate(stems):
        if not (alone[at] or stem not in affirmed or (negated and words[at][0] in negated)):
            continue  # in the chunks, as most words are
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
    # Where no word is missing, show the words that occur in no chunk together with a neighbour.
    shown: Sequence[int] = missing or [at for at, stem in enumerate(stems) if stem not in affirmed]
    shown = shown or [at for at, lost in enumerate(alone) if lost] or range(len(words))
    return Finding(total, deficit, support, _covered_ranges(words, shown))


def _missed_pairs(statement: Statement, evidence: ChunkIndex) -> tuple[float | None, list[bool]]:
    """Return the share of a statement's pairs of neighbouring words that occur together in no chunk.

    The share is None if there is no pair. The list says of each word whether no chunk has it together with any of its
    neighbours.
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
    if twins:  # a word all of whose neighbours repeat it is not alone
        alone = [lost and len(set(stems[max(at - 2, 0) : at + 3])) > 1 for at, lost in enumerate(alone)]
    return missed / tried, alone


def _absence(statement: Statement, at: int, evidence: ChunkIndex, query_stems: frozenset[str], *, alone: bool) -> float:
    """Return how far one word of a statement is missing from the chunks, as a number from 0 to 1.

    The word is at position *at*. The number is 0, 1 or, for a number or name that only the query has, `IN_QUERY`.
    """
    start, _, word = statement.words[at]
    stem = statement.stems[at]
    if stem in (evidence.negated if start in statement.negated else evidence.affirmed):
        return 1.0 if alone and word.number else 0.0
    if word.stem not in query_stems or stem in evidence.affirmed or stem in evidence.negated:
        return 1.0
    return IN_QUERY if _is_fact(statement.words[at], statement) else 0.0


def _without_straddling_pairs(statement: Statement, evidence: ChunkIndex) -> Statement:
    """Return *statement* without the pairs of characters that belong to two different words.

    In a script without spaces, overlapping pairs of characters stand for words. Only those pairs are left out whose
    second word is absent from the chunks. An absent word of two characters takes part in three of the overlapping
    pairs; without the first one it counts as much as any word.
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
