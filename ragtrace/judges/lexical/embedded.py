"""`EmbeddedJudge`: scores an answer by comparing its words with the retrieved chunks, without model or network.

Judging a call usually takes well under a millisecond. The judge cannot see a contradiction made of the chunks' own
words, and never uses the label `contradicted`.

Where its constants come from: the word lists are written by hand (see `words`), no frequency list is shipped, nothing
was trained. Human-labelled calls were used to compare about a dozen forms of the score, which differ little:
tests/benchmarks/README.md lists them with their figures. Each number says where it stands why it is as it is, and what
another one would do: those of what is read here, those of a score or a label in `statement_comparison`, those that
decide whether a call is judged at all in `shared_language`.

Every generator here yields what it has just done, in characters read: other work is counted as the reading of so many
characters as takes as long. So its caller can let other tasks run.

**The room.** `words` has the word lists, `lexicon` words, numbers and stems, `statements` the sentences of an answer,
`chunk_index` what the chunks say of its words, `statement_comparison` the score, `shared_language` whether it can be
computed, `languages` whether declining is understood. This file has the judge: the limits of what is read, the order of
the work, and the judgement.

**Order of a judgement**, in `EmbeddedJudge.steps`. Each part returns a value that nothing changes. The index alone is
filled bit by bit: with all statements, then with all chunks; from then on it is only read.
    1. read the answer     the language in which it is compared, its statements; they fill the index
    2. read the chunks     each distinct one once; script; words of the query; the chunks fill the index
    3. compare             a finding for each checkable statement; then the language, of answers with few words found
    4. make the judgement  claims with their closest chunks, `consistency`, the label, counts
Each way out before the end has a reason for what is missing: `_unjudged`, `_judgement`.

**Invariants**, and their tests in `tests/unit/judges/test_embedded.py`:
    no text breaks it, and no step is long    `test_no_text_breaks_it`,
                                              `test_long_hostile_text_is_dealt_with_in_small_steps`
    other tasks of the loop run in between    `test_other_tasks_run_while_it_judges`
    the same call has the same judgement,     `test_judgements_repeat`
        whatever was judged before
    what is not read of the answer, and which `test_limits_are_published`
        chunks are not read whole, is counted
    blank chunks change nothing               `test_blank_chunks_change_nothing`
    a missing value has a reason              `test_what_cannot_be_judged_says_why`
    claims are slices of the answer           `test_each_sentence_is_a_claim_with_offsets`
    no line of a code block is a claim, but   `test_code_states_nothing`, `test_words_of_code_count_for_consistency`
        its words count for `consistency`
    code is in no language                    `test_code_is_in_no_language`
    evidence is the chunks that say most      `test_chunks_with_four_fifths_of_the_closest_are_evidence_too`,
                                              `test_three_chunks_at_most_are_named_as_evidence`

**Changing it.** A change raises `EmbeddedJudge.version` if any call gets another `consistency`, another label or other
claims: of a word list, a stem, a threshold, the order of words, a rule of what is judged. It needs none if it changes
what a judgement shows beside these (`evidence`, `quote`, attributes), its speed, or how work is divided into steps.
A worked example in `tests/unit/judges/test_embedded.py` has the arithmetic of one call as literal values, and
`tests/benchmarks/accuracy.py` shows what a change does to the order of human-labelled answers, and what a call costs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar, cast

from ragtrace.core.labels import AnswerLabel, Claim
from ragtrace.core.text import LazyPattern
from ragtrace.core.types import Document, EvaluatorType, Judgement, Metric, Plain, RagCall
from ragtrace.judges.lexical.chunk_index import ChunkIndex
from ragtrace.judges.lexical.languages import is_known_language
from ragtrace.judges.lexical.lexicon import (
    SAMPLE_CHARS,
    Lexicon,
    cut_into_pieces,
    detect_language,
    one_line,
    tokens,
)
from ragtrace.judges.lexical.shared_language import (
    ANSWER_SAMPLE_CHARS,
    choose_language,
    shares_language,
    shares_script,
)
from ragtrace.judges.lexical.statement_comparison import Finding, NumberedStatement, compare_statements, consistency
from ragtrace.judges.lexical.statements import Statement, statements

MAX_ANSWER_CHARS: Final = 50_000
MAX_STATEMENTS: Final = 1_000
MAX_CONTEXT_CHARS: Final = 2_000_000
MAX_QUERY_CHARS: Final = 10_000
"""Limits of what is read. `truncated_answer_chars` and `truncated_chunks` count what answer and chunks have beyond.

Of a longer query the rest is neither looked at nor counted: no statement is made there. The limits bound the time of
one call: about 20 ms of CPU for the longest answer, 0.2 s with the longest contexts, in steps of `STEP_CHARS`. Chunks
beyond them are still hashed, as the distinct and the duplicate ones are counted: that is at least `_HASHED_CHARS` times
as fast as reading, and not bounded. A higher limit costs as much more where a text is as long, a lower one leaves more
unread. All are far above what usual applications retrieve and answer.
"""
T = TypeVar("T")

STEP_CHARS: Final = 1_500
"""Number of characters that are read, in about 0.3 ms, before other tasks of the event loop get to run.

The application's own tasks wait for so long: more characters make them wait longer, fewer cost more switches.
"""
_ONE_LINE_CHARS: Final = 8
"""Characters that are put into one line in the time of reading one: of a chunk 6 to 8, of an answer more than 20."""
_HASHED_CHARS: Final = 4
"""Characters that are put into one line and hashed in the time of reading one, rounded down: of a chunk about 5."""
_QUOTE_COST: Final = STEP_CHARS // 2
"""Characters that are read in the time that the longest search for a quote takes, rounded up."""
_OFFERED: Final = frozenset({"consistency", "answered", "answered_without_context"})
_OFFERED_EXTRACTIVE: Final = _OFFERED | {"faithfulness", "hallucination", "hallucinated"}
_CLOSEST_CHUNKS: Final = 3
"""Most chunks that are named as the evidence of a claim: as many as a person looks at. No score depends on it."""
_AS_CLOSE: Final = 0.8
"""Share of the closest chunk's weight from which on another chunk is evidence, too. No score depends on it.

Of five content words it may lack one. Less names chunks that share the subject alone, more hides those that say it too.
"""


class EmbeddedJudge:
    """Judge that compares the words of an answer with those of the retrieved chunks, without model or network.

    It is deterministic and takes about half a millisecond for 2,000 characters.

    Offers `consistency`, `answered` and `answered_without_context`, and shows which words of each statement no chunk
    has. Its `consistency` orders answers well, but its level depends on how freely an application words its answers: it
    says something only against the same application's usual level. Safe to share between threads and event loops.

    Examples:
        >>> judge = ragtrace.EmbeddedJudge(extractive=True)
        >>> scores = ragtrace.score(contexts=["It is in Paris."], answer="It is in Berlin.", judge=judge)
        >>> scores["hallucinated"]
        Score(1, metric='hallucinated', label='fail')

    Args:
        extractive: offer `faithfulness`, `hallucination` and `hallucinated`, too, from the same comparison. Fit only
            for an application whose answers quote their sources: elsewhere a true paraphrase counts as unsupported.
    """

    id = "embedded"
    version = "3"
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
        await _compile_patterns(call.answer or "", *(document.text for document in call.contexts or ()))
        return await _cooperatively(self.steps(call))

    def split(self, answer: str, context: str = "") -> Generator[int, None, SplitAnswer]:
        """Split *answer* into the statements that this judge compares with chunks, and yield the characters read.

        Args:
            answer: text of the answer.
            context: first retrieved text, which helps to find the language of a short answer.
        """
        spoken = detect_language(answer[:SAMPLE_CHARS])
        lexicon = self._lexicon(choose_language(answer, spoken=spoken, chunk=context))
        found: list[Statement] = []
        end = yield from _read_statements(answer, lexicon, found.append)
        return SplitAnswer(tuple(each for each in found if not each.code), lexicon, end == len(answer))

    async def split_cooperatively(self, answer: str, context: str = "") -> SplitAnswer:
        """Do as `split`, letting other tasks run after every `STEP_CHARS` characters."""
        await _compile_patterns(answer, context)
        return await _cooperatively(self.split(answer, context))

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
        texts = (document.text for document in call.contexts or ())
        first_chunk = next((chunk for chunk in texts if chunk and not chunk.isspace()), "")
        spoken = detect_language(text[:SAMPLE_CHARS])
        lexicon = self._lexicon(choose_language(text, spoken=spoken, chunk=first_chunk))
        index = ChunkIndex(lexicon)
        answer = yield from _parse_answer(text, lexicon, index)
        if spoken != "en":
            answer = yield from _with_known_language(answer, query=query, chunk=first_chunk)
        if call.contexts is None:
            return _unjudged(answer, "contexts_missing")
        chunks = yield from _choose_chunks(call.contexts)
        if not chunks.texts:  # every checkable statement is unsupported
            plain = tuple(_plain_claim(text, each.statement) for each in answer.prose)
            return _judgement(answer, chunks, plain, value=None, reasons={"consistency": "no_contexts"})
        has_words = any(each.terms for each in answer.statements)
        if not (yield from shares_script(text, chunks.texts.values(), has_words=has_words)):
            return _unjudged(answer, "unscorable_script", chunks)
        query_stems = yield from _stems_of_query(query, lexicon)
        for rank, chunk in chunks.texts.items():
            yield from index.add_chunk(rank, chunk, cut_into_pieces(chunk, STEP_CHARS, len(chunk)))
        findings = yield from compare_statements(answer.statements, index, query_stems)
        of_prose = [findings[at] for each in answer.prose if (at := each.statement.start) in findings]
        if of_prose and not shares_language(answer.text_without_code(), chunks.texts.values(), of_prose):
            return _unjudged(answer, "language_mismatch", chunks)
        claims = yield from _make_claims(answer, chunks, index, findings)
        if not any(claim.checkable for claim in claims):
            why = "abstained" if answer.abstained else "no_claims"
            return _judgement(answer, chunks, claims, value=None, reasons={"consistency": why})
        return _judgement(answer, chunks, claims, value=consistency(list(findings.values())), reasons={})


async def _compile_patterns(*texts: str) -> None:
    """Compile the patterns that a text beyond ASCII needs, where none was read yet, and let other tasks run between."""
    if not all(map(str.isascii, texts)):
        for _ in LazyPattern.compile_all():
            await asyncio.sleep(0)


async def _cooperatively(steps: Generator[int, None, T]) -> T:
    """Take all *steps*, which yield the characters read, let other tasks run in between, and return their result."""
    done = 0
    while True:
        try:
            done += next(steps)
        except StopIteration as stop:
            return cast("T", stop.value)
        if done >= STEP_CHARS:
            done = 0
            await asyncio.sleep(0)


class SplitAnswer(NamedTuple):
    """Statements of an answer as `EmbeddedJudge` finds them, without the lines of code blocks."""

    statements: tuple[Statement, ...]
    lexicon: Lexicon
    """Lexicon of the answer's language, by which words of other texts are compared with those of the statements."""
    whole: bool
    """Whether the whole answer was read; False: it has more characters or statements than are ever read."""


# --- the answer -------------------------------------------------------------------------------------------------------


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

    def text_without_code(self) -> str:
        """Return the text of the answer without the lines of code blocks, whose words are those of no language."""
        kept: list[str] = []
        at = 0
        for statement, _ in self.statements:
            if statement.code:
                kept.append(self.text[at : statement.start])
                at = statement.end
        return "".join([*kept, self.text[at:]])

    @property
    def abstained(self) -> bool:
        """Whether the answer mostly declines to answer the query.

        It does if its declining sentences have more words than its checkable statements. A declining sentence counts
        one word more than it has: "I don't know" may have none.
        """
        found = [each.statement for each in self.statements]
        declined = sum(len(statement.words) + 1 for statement in found if statement.declines)
        attempted = sum(len(s.words) for s in found if s.checkable and not s.declines and not s.code)
        return declined > attempted


def _read_statements(text: str, lexicon: Lexicon, keep: Callable[[Statement], object]) -> Generator[int, None, int]:
    """Call *keep* with each statement of an answer within the limits, and return the offset behind the last of them.

    Yields the characters of each statement after *keep* has returned, so that its work is part of the step.
    """
    end = min(len(text), MAX_ANSWER_CHARS)
    for number, statement in enumerate(statements(text, end, lexicon)):
        if number == MAX_STATEMENTS:
            return statement.start
        keep(statement)
        yield statement.end - statement.start
    return end


def _parse_answer(text: str, lexicon: Lexicon, index: ChunkIndex) -> Generator[int, None, _ParsedAnswer]:
    """Split an answer into statements, add each of them to *index*, and return the parsed answer."""
    found: list[NumberedStatement] = []

    def keep(statement: Statement) -> None:
        found.append(NumberedStatement(statement, index.add_statement(statement)))

    end = yield from _read_statements(text, lexicon, keep)
    return _ParsedAnswer(text, found, len(text) - end)


def _with_known_language(answer: _ParsedAnswer, *, query: str, chunk: str) -> Generator[int, None, _ParsedAnswer]:
    """Return *answer* with the knowledge whether its language is one in which declining is recognised.

    Read are the beginnings of the answer's prose, of the *query*, and of the first *chunk*.
    """
    query, chunk = query[:SAMPLE_CHARS], chunk[:SAMPLE_CHARS]
    sample: list[str] = []
    chars = 0
    for statement, _ in answer.prose:
        if chars < ANSWER_SAMPLE_CHARS:
            sample.append(answer.text[statement.start : statement.end])
            chars += len(sample[-1])
    known = is_known_language(sample, query=query, chunk=chunk)
    yield chars + len(query) + len(chunk)
    return replace(answer, known_language=known)


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
        yield len(text) // _ONE_LINE_CHARS + 1
        return one_line(text)
    digest, blank = hashlib.blake2b(digest_size=16), True
    for start, end in cut_into_pieces(text, _HASHED_CHARS * STEP_CHARS, len(text)):
        if words := one_line(text[start:end]):
            digest.update((words + " ").encode("utf-8", "surrogatepass"))
            blank = False
        yield (end - start) // _HASHED_CHARS
    return b"" if blank else digest.digest()


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
        yield _QUOTE_COST if claims[-1].quote else end - start
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
    return _judgement(answer, chunks, None, value=None, reasons={"claims": reason, "consistency": reason})


def _judgement(
    answer: _ParsedAnswer,
    chunks: _ChosenChunks | None,
    claims: tuple[Claim, ...] | None,
    *,
    value: float | None,
    reasons: Mapping[str, str],
) -> Judgement:
    """Return the judgement of a call, made of *claims* and the consistency *value*.

    Args:
        answer: the answer of the call.
        chunks: the chunks that were chosen; None: none were looked at.
        claims: the statements of the answer as claims.
        value: the consistency.
        reasons: why claims or value are None.
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
