"""`EmbeddedJudge`: judges a call by words alone, in well under a millisecond, with no model and no network.

It compares the words of each sentence of the answer with those of the retrieved chunks (see `support`). It therefore
cannot see a contradiction made of the chunks' own words, and never uses the label `contradicted`.

Where its constants come from: the word lists are written by hand (see `words`), no frequency list is shipped, nothing
was trained. Human-labelled calls were used to compare about a dozen forms of the score, which differ little:
tests/benchmarks/README.md lists them with their figures.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Generator, Mapping
from typing import Final

from ragtrace.core.labels import AnswerLabel, Claim
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.judges.lexical.evidence import Evidence
from ragtrace.judges.lexical.lexicon import Lexicon
from ragtrace.judges.lexical.statements import Statement
from ragtrace.judges.lexical.support import Finding, consistency, find
from ragtrace.judges.lexical.text import pieces
from ragtrace.judges.llm.reading import (
    STEP_CHARS,
    Reading,
    choose_chunks,
    choose_language,
    read_answer,
    read_query,
    shares_language,
    shares_script,
)

_OFFERED: Final = frozenset({"consistency", "answered", "answered_without_context"})
_OFFERED_EXTRACTIVE: Final = _OFFERED | {"faithfulness", "hallucination", "hallucinated"}
_CLOSEST_CHUNKS: Final = 3
_AS_CLOSE: Final = 0.8
_MODE: Final = "lexical"


class EmbeddedJudge:
    """A judge that compares words: local, deterministic, about half a millisecond for 2,000 characters.

    Offers `consistency`, `answered` and `answered_without_context`, and shows which words of each statement no chunk
    has. Its `consistency` orders answers well, but its level depends on how freely an application words its answers: it
    says something only against the same application's usual level. Safe to share between threads and event loops.

    Args:
        extractive: offer `faithfulness`, `hallucination` and `hallucinated`, too, from the same comparison. Fit only
            for an application whose answers quote their sources: elsewhere a true paraphrase counts as unsupported.
    """

    computes = True  # it waits for nothing, and lets others run by itself

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
        """Whether this judge gives the labels that *metric* reads."""
        return metric.name in self._offered

    async def judge(self, call: RagCall) -> Judgement:
        """Judge *call*, letting other tasks run whenever another `STEP_CHARS` characters are done. Raises nothing."""
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
        """The work in pieces: yields the characters just dealt with (about `STEP_CHARS`), returns the judgement."""
        reading = Reading(call.answer or "")
        if not reading.answer or reading.answer.isspace():
            return _judgement(reading, None, None, dict.fromkeys(("claims", "consistency"), "empty_answer"))
        first_chunk = next((d.text for d in call.contexts or () if d.text), "")
        lexicon = self._lexicon(choose_language(reading.answer, first_chunk))
        yield from read_answer(reading, lexicon)
        if call.contexts is None:
            return _judgement(reading, None, None, dict.fromkeys(("claims", "consistency"), "contexts_missing"))
        yield from choose_chunks(reading, call.contexts)
        if not reading.chunks:
            return _without_chunks(reading)
        if not (yield from shares_script(reading)):
            return _unscorable(reading, "unscorable_script")
        asked = yield from read_query(call.query or "", lexicon)
        evidence = Evidence(reading.numbers, reading.followers, lexicon)
        for rank, text in reading.chunks.items():
            yield from evidence.read(rank, text, pieces(text, STEP_CHARS, len(text)))
        findings: dict[int, Finding] = {}
        for statement in reading.checkable:
            findings[statement.start] = find(statement, evidence, asked)
            yield statement.end - statement.start
        if findings and not shares_language(reading, list(findings.values())):
            return _unscorable(reading, "language_mismatch")
        return (yield from _conclude(reading, findings, evidence))

    def _lexicon(self, code: str) -> Lexicon:
        # Two threads may both make one; setdefault keeps the first, and either would do.
        return self._lexicons.get(code) or self._lexicons.setdefault(code, Lexicon(code))


def _conclude(reading: Reading, findings: Mapping[int, Finding], evidence: Evidence) -> Generator[int, None, Judgement]:
    claims: list[Claim] = []
    for statement in reading.prose:
        finding = findings.get(statement.start)
        claims.append(_claim(reading, statement, finding, evidence) if finding else _remark(reading, statement))
        yield STEP_CHARS // 2 if claims[-1].quote else statement.end - statement.start
    if not any(claim.checkable for claim in claims):
        reason = "abstained" if reading.abstained else "no_claims"
        return _judgement(reading, tuple(claims), None, {"consistency": reason})
    return _judgement(reading, tuple(claims), consistency(list(findings.values())), {})


def _claim(reading: Reading, statement: Statement, finding: Finding, evidence: Evidence) -> Claim:
    wanted = dict(zip(statement.stems, statement.weights, strict=True))
    closest = _closest(wanted, evidence)
    # Quoting costs as much as everything else done for a claim; a supported one needs no defence.
    quoted = bool(closest) and finding.support != "supported"
    return Claim(
        text=reading.answer[statement.start : statement.end],
        start=statement.start,
        end=statement.end,
        support=finding.support,
        evidence=closest,
        quote=evidence.quote(closest[0], reading.chunks[closest[0]], wanted) if quoted else None,
        score=1 - finding.deficit,
        unsupported=finding.unsupported,
    )


def _closest(wanted: Mapping[int, float], evidence: Evidence) -> tuple[int, ...]:
    """Ranks of the chunks that hold most of the *wanted* stems by weight, best first, the earlier one of equals."""
    held: dict[int, float] = defaultdict(float)
    for stem, weight in wanted.items():
        for rank in evidence.ranks[stem]:
            held[rank] += weight
    if len(held) < 2:
        return tuple(held)
    enough = _AS_CLOSE * max(held.values())
    best = sorted([rank for rank in sorted(held) if held[rank] >= enough], key=held.__getitem__, reverse=True)
    return tuple(best[:_CLOSEST_CHUNKS])


def _remark(reading: Reading, statement: Statement) -> Claim:
    text = reading.answer[statement.start : statement.end]
    return Claim(text, statement.start, statement.end, support=None, checkable=False)


def _without_chunks(reading: Reading) -> Judgement:
    """Retrieval returned nothing: every checkable statement is unsupported."""
    claims = tuple(
        Claim(reading.answer[s.start : s.end], s.start, s.end, "not_found", score=0.0, unsupported=((s.start, s.end),))
        if s.checkable
        else _remark(reading, s)
        for s in reading.prose
    )
    return _judgement(reading, claims, None, {"consistency": "no_contexts"})


def _unscorable(reading: Reading, reason: str) -> Judgement:
    return _judgement(reading, None, None, dict.fromkeys(("claims", "consistency"), reason))


def _judgement(
    reading: Reading, claims: tuple[Claim, ...] | None, value: float | None, reasons: Mapping[str, str]
) -> Judgement:
    label: AnswerLabel = "abstained" if reading.abstained or not reading.answer.strip() else "answered"
    attributes = {"method": "whole", **reading.attributes}
    return Judgement(claims, label, value, reasons, mode=_MODE, attributes=attributes)
