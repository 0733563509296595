"""`EmbeddedJudge`: judges a call by words alone, in well under a millisecond, with no model and no network.

It compares the words of each sentence of the answer with those of the retrieved chunks (see `support`). It therefore
cannot see a contradiction made of the chunks' own words, and never uses the label `contradicted`.

Where its constants come from: the word lists are written by hand (see `words`), no frequency list is shipped, nothing
was trained. Human-labelled calls were used to compare about a dozen forms of the score, which differ little:
tests/benchmarks/README.md lists them with their figures.

Every generator here yields the number of characters it has just read, so that its caller can let other tasks run.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from ragtrace.core.labels import AnswerLabel, Claim
from ragtrace.core.types import Document, EvaluatorType, Judgement, Metric, Plain, RagCall
from ragtrace.judges.lexical.lexicon import Lexicon, tokens
from ragtrace.judges.lexical.statements import Statement, statements
from ragtrace.judges.lexical.support import Evidence, Finding, compare, consistency
from ragtrace.judges.lexical.text import function_words, language, one_line, pieces, scripts

MAX_ANSWER_CHARS: Final = 50_000
MAX_STATEMENTS: Final = 1_000
MAX_CONTEXT_CHARS: Final = 2_000_000
MAX_QUERY_CHARS: Final = 10_000
"""Limits of what is read; the attributes `truncated_answer_chars` and `truncated_chunks` count the text beyond them."""
STEP_CHARS: Final = 1_500
"""Characters between two points at which other tasks of the event loop run: about 0.3 ms."""
SAMPLE_CHARS: Final = 400
"""Characters at the start of a text from which its language and script are recognised."""
_SAMPLED_CHUNKS: Final = 3
# Up to the rest, letters outside the chunks' scripts may be names and terms; beyond, the answer is in another script.
_SHARED_SCRIPT: Final = 0.6
# English text has 35 to 45 % function words, a sentence of twelve words practically never none.
_ENOUGH_WORDS: Final = 12
_FOREIGN_SHARE: Final = 0.04
_FEWEST_WORDS: Final = 3
_OFFERED: Final = frozenset({"consistency", "answered", "answered_without_context"})
_OFFERED_EXTRACTIVE: Final = _OFFERED | {"faithfulness", "hallucination", "hallucinated"}
_CLOSEST_CHUNKS: Final = 3
_AS_CLOSE: Final = 0.8


class EmbeddedJudge:
    """Judge that compares words: local, deterministic, about half a millisecond for 2,000 characters.

    Offers `consistency`, `answered` and `answered_without_context`, and shows which words of each statement no chunk
    has. Its `consistency` orders answers well, but its level depends on how freely an application words its answers: it
    says something only against the same application's usual level. Safe to share between threads and event loops.

    Args:
        extractive: offer `faithfulness`, `hallucination` and `hallucinated`, too, from the same comparison. Fit only
            for an application whose answers quote their sources: elsewhere a true paraphrase counts as unsupported.
    """

    computes = True  # never waits, so it needs no thread; gives way to other tasks by itself

    def __init__(self, *, extractive: bool = False) -> None:
        self._offered = _OFFERED_EXTRACTIVE if extractive else _OFFERED
        self._lexicons: dict[str, Lexicon] = {}

    @property
    def id(self) -> str:
        return "embedded"

    @property
    def version(self) -> str:
        return "2"

    @property
    def type(self) -> EvaluatorType:
        return "deterministic"

    def offers(self, metric: Metric) -> bool:
        """Return whether this judge gives the labels that *metric* reads."""
        return metric.name in self._offered

    async def judge(self, call: RagCall) -> Judgement:
        """Judge *call*, letting other tasks run after every `STEP_CHARS` characters. Raises nothing."""
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
        """Judge *call* in steps of about `STEP_CHARS` characters; yields the length of each, returns the judgement."""
        parsed = _ParsedCall(call.answer or "")
        if not parsed.answer or parsed.answer.isspace():
            return parsed.unjudged("empty_answer")
        first_chunk = next((document.text for document in call.contexts or () if document.text), "")
        code = _choose_language(parsed.answer, first_chunk)
        # Two threads may both make a lexicon; setdefault keeps the first, and either would do.
        lexicon = self._lexicons.get(code) or self._lexicons.setdefault(code, Lexicon(code))
        yield from parsed.read_answer(lexicon)
        if call.contexts is None:
            return parsed.unjudged("contexts_missing")
        yield from parsed.choose_chunks(call.contexts)
        if not parsed.chunks:  # every checkable statement is unsupported
            return parsed.judgement(tuple(map(parsed.unfounded, parsed.prose)), None, {"consistency": "no_contexts"})
        if not (yield from parsed.shares_script()):
            return parsed.unjudged("unscorable_script")
        query, stems = call.query or "", set[str]()
        for start, end in pieces(query, STEP_CHARS, min(len(query), MAX_QUERY_CHARS)):
            stems.update([word.stem for _, _, word in tokens(query, lexicon, start, end)])
            yield end - start
        query_stems = frozenset(stems)
        evidence = Evidence(parsed.numbers, parsed.followers, lexicon)
        for rank, text in parsed.chunks.items():
            yield from evidence.read(rank, text, pieces(text, STEP_CHARS, len(text)))
        findings: dict[int, Finding] = {}
        for statement in parsed.statements:
            if statement.checkable:
                findings[statement.start] = compare(statement, evidence, query_stems)
                yield statement.end - statement.start
        if findings and not parsed.shares_language(list(findings.values())):
            return parsed.unjudged("language_mismatch")
        claims: list[Claim] = []
        for statement in parsed.prose:
            finding = findings.get(statement.start)
            claims.append(parsed.claim(statement, finding, evidence) if finding else parsed.remark(statement))
            yield STEP_CHARS // 2 if claims[-1].quote else statement.end - statement.start
        if not any(claim.checkable for claim in claims):
            why = "abstained" if parsed.abstained else "no_claims"
            return parsed.judgement(tuple(claims), None, {"consistency": why})
        return parsed.judgement(tuple(claims), consistency(list(findings.values())), {})


@dataclass(slots=True)
class _ParsedCall:
    """One call as the embedded judge has read it so far: the statements of its answer, and its distinct chunks."""

    answer: str
    statements: list[Statement] = field(default_factory=list[Statement])
    numbers: dict[str, int] = field(default_factory=lambda: defaultdict[str, int](count().__next__))
    """A number for each stem of the answer, in order of appearance: looking up a new stem gives it the next one."""
    followers: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """For each stem of the checkable statements, the stems that stand right behind it there, or next but one."""
    chunks: dict[int, str] = field(default_factory=dict[int, str])
    """Distinct chunks that are not blank, by their first rank."""
    attributes: dict[str, Plain] = field(default_factory=dict[str, Plain])

    @property
    def prose(self) -> list[Statement]:
        """The statements that are no code."""
        return [statement for statement in self.statements if not statement.code]

    @property
    def abstained(self) -> bool:
        """Whether the answer declines, and has fewer words that could be an attempt at answering."""
        declined = sum(len(statement.words) + 1 for statement in self.statements if statement.declines)
        attempted = sum(len(s.words) for s in self.prose if s.checkable and not s.declines)
        return declined > attempted

    def read_answer(self, lexicon: Lexicon) -> Iterator[int]:
        """Split the answer into statements; number its stems, and note which follow which."""
        end = min(len(self.answer), MAX_ANSWER_CHARS)
        numbers, followers = self.numbers, self.followers
        for statement in statements(self.answer, end, lexicon):
            if len(self.statements) == MAX_STATEMENTS:
                end = statement.start
                break
            stems = statement.stems = [numbers[word.stem] for _, _, word in statement.words]
            if statement.checkable:
                for one, second, third in zip(stems, stems[1:], stems[2:], strict=False):
                    if one in followers:
                        followers[one].update((second, third))
                    else:
                        followers[one] = {second, third}
                if len(stems) > 1:
                    followers.setdefault(stems[-2], set()).add(stems[-1])
            self.statements.append(statement)
            yield statement.end - statement.start
        if len(self.answer) > end:
            self.attributes["truncated_answer_chars"] = len(self.answer) - end

    def choose_chunks(self, contexts: Iterable[Document]) -> Iterator[int]:
        """Keep each distinct chunk once, up to the limit of characters, and count the duplicate and the cut ones."""
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
        """Return whether the answer has words at all, most of whose letters belong to scripts that the chunks use."""
        if not self.numbers and not any(map(str.isalnum, self.answer[:SAMPLE_CHARS])):
            return False
        letters = scripts(self.answer[:SAMPLE_CHARS])
        known: set[str] = set()
        for text in self.chunks.values():
            if known.issuperset(letters):
                break
            known.update(scripts(text[:SAMPLE_CHARS]))
            yield SAMPLE_CHARS
        shared = sum(letters_of_script for name, letters_of_script in letters.items() if name in known)
        return shared >= _SHARED_SCRIPT * sum(letters.values())

    def shares_language(self, findings: Sequence[Finding]) -> bool:
        """Return False if answer and chunks are in different languages, so that a comparison of words says nothing.

        Where most words are found in the chunks anyway, it says something whatever the languages look like.
        """
        if sum((2 * finding.deficit - 1) * finding.weight for finding in findings) < 0:
            return True
        known = {language(text[:SAMPLE_CHARS], 2) for text in list(self.chunks.values())[:_SAMPLED_CHUNKS]} - {""}
        if not known:
            return True
        words, own, other = function_words(self.answer[: 4 * SAMPLE_CHARS], known)
        if own >= other and own:
            return words < _ENOUGH_WORDS or own > _FOREIGN_SHARE * words
        return words < _FEWEST_WORDS or (not other and words < _ENOUGH_WORDS)

    def claim(self, statement: Statement, finding: Finding, evidence: Evidence) -> Claim:
        """Return *statement* as a claim, with what the comparison found and the chunks closest to it."""
        wanted = dict(zip(statement.stems, statement.weights, strict=True))
        closest = _closest(wanted, evidence)
        # Quoting costs as much as everything else done for a claim; a supported one needs no defence.
        quoted = bool(closest) and finding.support != "supported"
        return Claim(
            text=self.answer[statement.start : statement.end],
            start=statement.start,
            end=statement.end,
            support=finding.support,
            evidence=closest,
            quote=evidence.quote(closest[0], self.chunks[closest[0]], wanted) if quoted else None,
            score=1 - finding.deficit,
            unsupported=finding.unsupported,
        )

    def remark(self, statement: Statement) -> Claim:
        """Return *statement*, a courtesy or the like that states no fact, as a claim that is not checkable."""
        start, end = statement.start, statement.end
        return Claim(self.answer[start:end], start, end, support=None, checkable=False)

    def unfounded(self, statement: Statement) -> Claim:
        """Return *statement* as a claim without any chunk that could support it."""
        start, end = statement.start, statement.end
        if not statement.checkable:
            return self.remark(statement)
        return Claim(self.answer[start:end], start, end, "not_found", score=0.0, unsupported=((start, end),))

    def unjudged(self, reason: str) -> Judgement:
        """Return a judgement without claims and consistency, for *reason*."""
        return self.judgement(None, None, {"claims": reason, "consistency": reason})

    def judgement(self, claims: tuple[Claim, ...] | None, value: float | None, reasons: Mapping[str, str]) -> Judgement:
        """Return the judgement with *claims*, and *value* as the consistency."""
        label: AnswerLabel = "abstained" if self.abstained or not self.answer.strip() else "answered"
        return Judgement(
            claims, label, value, reasons, mode="lexical", attributes={"method": "whole", **self.attributes}
        )


def _without_spacing(text: str) -> Generator[int, None, bytes | str]:
    """Return a key that is equal for chunks that differ in white space only; it is empty for a blank one."""
    if len(text) <= STEP_CHARS:
        yield len(text) // 8 + 1
        return one_line(text)
    digest, blank = hashlib.blake2b(digest_size=16), True
    for start, end in pieces(text, 4 * STEP_CHARS, len(text)):
        if words := one_line(text[start:end]):
            digest.update((words + " ").encode("utf-8", "surrogatepass"))
            blank = False
        yield (end - start) // 4
    return b"" if blank else digest.digest()


def _choose_language(answer: str, chunk: str) -> str:
    """Return the code of the language to read answer and chunks in; "" where neither text says."""
    spoken, written = language(answer[:SAMPLE_CHARS]), ""
    if spoken != "en":
        written = language(chunk[:SAMPLE_CHARS])
        if written and spoken and written != spoken:
            _, own, other = function_words(answer[:SAMPLE_CHARS], (written,))
            return written if own >= other else spoken
    return spoken or written


def _closest(wanted: Mapping[int, float], evidence: Evidence) -> tuple[int, ...]:
    """Return the ranks of the chunks with most of the *wanted* stems by weight, best first; of equals the earlier."""
    held: dict[int, float] = defaultdict(float)
    for stem, weight in wanted.items():
        for rank in evidence.ranks[stem]:
            held[rank] += weight
    if len(held) < 2:
        return tuple(held)
    enough = _AS_CLOSE * max(held.values())
    best = sorted([rank for rank in sorted(held) if held[rank] >= enough], key=held.__getitem__, reverse=True)
    return tuple(best[:_CLOSEST_CHUNKS])
