"""The requests of the main reply: all labels in one request (`fast`), or in steps that resist attacks.

`fast`: one request for every twelve sentences. `careful`: a first request extracts the statements of the answer without
showing a chunk, so that no chunk can hide a statement; then the statements are verified, ten at a time, with gold
checks among them. `strict`: the second step three times, in other orders, and the majority counts. Small local models
that write no JSON get one statement a request and reply in one word.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, TypeVar, cast

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Support
from ragtrace.judges.lexical.lexicon import Lexicon, language
from ragtrace.judges.lexical.statements import statements
from ragtrace.judges.llm.chat import JudgeSession, in_halves, together
from ragtrace.judges.llm.gold_checks import GoldCheck, gold_checks
from ragtrace.judges.llm.json_reading import ReadingError, parse_verdict
from ragtrace.judges.llm.main_reply import UNJUDGED, ExtractedStatement, LabelTask, MainReply, Verdict, main_prompt
from ragtrace.judges.llm.merging import Extraction, Verification, extraction, verification, vote
from ragtrace.judges.llm.prompt import packed, user_message
from ragtrace.judges.llm.prompt_input import Chunk, PromptInput, Unit
from ragtrace.judges.llm.prompts import system_message

Mode: TypeAlias = Literal["fast", "careful", "strict"]
ROUNDS: Final = 3
MOST_SENTENCES: Final = 12
"""Sentences in one request: of more, models leave out some."""
_SAMPLE_CHARS: Final = 400
_VERDICT_REPAIR: Final = "\nYour last reply had no such line. Write that line and nothing else."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Most items and characters of one request."""

    statements: int = 10
    chars: int = 48_000
    """Characters of query, answer and chunks."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which labels the metrics need."""

    answer: bool
    """Sentences, statements, rating and label of the answer."""
    chunks: bool
    """Statements, chunks and citations held against each other."""
    statements_only: bool = False
    """Of `chunks`, only the support of the statements."""


@dataclass(slots=True)
class Labels:
    """Labels of one call, from all its requests."""

    mode: Mode | Literal["single"]
    extraction: Extraction = field(default_factory=Extraction)
    verification: Verification = field(default_factory=Verification)
    failed: dict[Literal["answer", "chunks"], JudgeError] = field(
        default_factory=dict[Literal["answer", "chunks"], JudgeError]
    )
    """Parts of the scope that failed for a reason that asking again does not change."""
    suspect: bool = False
    """A gold check got a wrong label."""
    disagreement: float | None = None
    """Share of items on which the rounds were not unanimous; None: there was one round."""


class Interview:
    """Requests of the main reply about one call, and their labels.

    Args:
        prove: ask for a repair, too, when evidence is missing or a quote does not occur where it should.
        with_gold_checks: mix statements with known labels in.
        chance: source of the orders and of the gold checks.
    """

    def __init__(
        self,
        session: JudgeSession,
        prompt_input: PromptInput,
        scope: Scope,
        limits: Limits,
        *,
        prove: bool,
        with_gold_checks: bool,
        chance: random.Random,
    ) -> None:
        self._session, self._input, self._scope, self._limits = session, prompt_input, scope, limits
        self._prove, self._with_gold_checks, self._chance = prove, with_gold_checks, chance
        self._planned: dict[Hashable, tuple[GoldCheck, ...]] = {}
        self._failures: dict[Hashable, list[bool]] = {}

    async def _ask(self, task: LabelTask) -> MainReply:
        return (await self._session.ask(main_prompt(task, prove=self._prove))).reply

    @property
    def _suspect(self) -> bool:
        """Whether a gold check got a wrong label at least every second time."""
        return any(2 * sum(failed) >= len(failed) for failed in self._failures.values())

    # --- fast --------------------------------------------------------------------------------------------------------

    async def whole(self) -> Labels:
        """Ask for everything in one request for every twelve sentences; in two halves if its reply was cut off.

        Raises:
            JudgeError: there is no reply that can be read.
        """
        source, scope = self._input, self._scope
        if not scope.answer:
            replies = [await self._ask(LabelTask("verify", source.query, chunks=source.chunks, parts=source.sentences))]
        else:
            replies = await self._in_groups(self._judge if scope.chunks else self._extract, [source.sentences])
        extracted = extraction(replies)
        # The verdicts of a full reply stand with its statements, which are numbered over all replies.
        verdicts = [(index, statement.verdict) for index, statement in enumerate(extracted.statements or ())]
        return Labels("fast", extracted, verification(replies, verdicts), suspect=self._suspect)

    async def _judge(self, units: Sequence[Unit]) -> MainReply:
        source = self._input
        shown = {unit.id for unit in units} | {part.id for part in source.parts or ()}
        checks = {f"g{number}": check for number, check in enumerate(self._gold_checks(source.chunks), 1)}
        reply = await self._ask(
            LabelTask(
                "full",
                source.query,
                sentences=tuple(units),
                chunks=source.chunks,
                citations=tuple(cited for cited in source.citations if cited.id and cited.unit_id in shown),
                parts=source.parts or (),
                given={key: check.text for key, check in checks.items()},
                gold_checks=frozenset(checks),
            )
        )
        self._note_checks(units[0].id, checks, reply)
        return reply

    # --- careful, strict ---------------------------------------------------------------------------------------------

    async def in_steps(self, rounds: int = 1) -> Labels:
        """Extract the statements, then verify them, *rounds* times.

        Raises:
            JudgeError: asking again may help, or no label was found at all.
        """
        labels = Labels("strict" if rounds > 1 else "careful")
        if self._scope.answer:
            packs = list(packed(self._input.sentences, self._limits.chars))
            try:
                labels.extraction = extraction(await self._in_groups(self._extract, packs))
            except JudgeError as error:
                self._note_failure(labels, "answer", error)
        extracted = labels.extraction.statements or []
        checkable = {index: one.text for index, one in enumerate(extracted) if one.checkable and one.text}
        if self._scope.chunks and (checkable or not self._scope.statements_only):
            try:
                done = await together([self._round(checkable, turn) for turn in range(rounds)])
                labels.verification, disagreement = vote(done) if rounds > 1 else (done[0], None)
                labels.disagreement = disagreement
            except JudgeError as error:
                self._note_failure(labels, "chunks", error)
        labels.suspect = self._suspect
        return labels

    def _note_failure(self, labels: Labels, part: Literal["answer", "chunks"], error: JudgeError) -> None:
        """Keep the rest of the call if *part* failed for good; else raise *error*."""
        labels.failed[part] = error
        if error.retryable or len(labels.failed) == self._scope.answer + self._scope.chunks:
            raise error

    async def _in_groups(
        self, ask: Callable[[Sequence[Unit]], Awaitable[MainReply]], packs: Sequence[Sequence[Unit]]
    ) -> list[MainReply]:
        """Return the replies about all sentences, in their order; each is about at most `MOST_SENTENCES` of them."""
        groups = [group for pack in packs for group in evenly(pack, MOST_SENTENCES)]
        replies = await together([in_halves(ask, group) for group in groups])
        return [reply for group in replies for reply in group]

    async def _extract(self, units: Sequence[Unit]) -> MainReply:
        return await self._ask(LabelTask("extract", self._input.query, sentences=tuple(units)))

    async def _round(self, checkable: dict[int, str], turn: int) -> Verification:
        """Verify every statement with every chunk, once; the first round keeps their order.

        The same chunks are in a request together in every round: their gold checks are voted on, too.
        """
        groups = [(number, list(group)) for number, group in enumerate(packed(self._input.chunks, self._limits.chars))]
        order = list(checkable)
        if turn:
            for _, group in groups:
                self._chance.shuffle(group)
            self._chance.shuffle(groups)
            self._chance.shuffle(order)
        most = self._limits.statements
        batches = [order[at : at + most] for at in range(0, len(order), most)] or [[]]
        works = [
            self._batch(group, batch, checkable, (group_number, number))
            for group_number, group in groups
            for number, batch in enumerate(batches)
        ]
        done = [result for results in await together(works) for result in results]
        verdicts = [pair for _, pairs in done for pair in pairs]
        return verification([reply for reply, _ in done], verdicts)

    async def _batch(
        self, chunks: Sequence[Chunk], batch: Sequence[int], texts: dict[int, str], where: tuple[int, int]
    ) -> list[tuple[MainReply, list[tuple[int, Verdict]]]]:
        """Verify the statements of *batch* with *chunks*; the citations of these chunks go with the first batch."""

        async def verify(part: Sequence[int]) -> tuple[MainReply, list[tuple[int, Verdict]]]:
            cites = where[1] == 0 and part[:1] == batch[:1]
            return await self._verify(chunks, part, texts, where, cites=cites)

        return await in_halves(verify, batch)

    async def _verify(
        self,
        chunks: Sequence[Chunk],
        batch: Sequence[int],
        texts: dict[int, str],
        where: tuple[int, int],
        *,
        cites: bool,
    ) -> tuple[MainReply, list[tuple[int, Verdict]]]:
        source = self._input
        mixed: list[int | GoldCheck] = list(batch)
        if where not in self._planned:
            self._planned[where] = self._gold_checks(chunks)
        for check in self._planned[where]:
            mixed.insert(self._chance.randint(0, len(mixed)), check)
        given = {f"g{number}": item for number, item in enumerate(mixed, 1)}
        checks = {key: item for key, item in given.items() if isinstance(item, GoldCheck)}
        known = {chunk.id for chunk in chunks}
        citations = tuple(cited for cited in source.citations if cites and cited.chunk_id in known)
        citing = {cited.unit_id for cited in citations}
        reply = await self._ask(
            LabelTask(
                "verify",
                source.query,
                chunks=tuple(chunks),
                citations=citations,
                # Without statements the chunks are held against the sentences: else nothing could contradict them.
                parts=tuple(u for u in source.parts or source.sentences if u.id in citing)
                if texts
                else source.sentences,
                given={key: item.text if isinstance(item, GoldCheck) else texts[item] for key, item in given.items()},
                gold_checks=frozenset(checks),
            )
        )
        self._note_checks(where, checks, reply)
        return reply, [(item, _proven(reply.given[key])) for key, item in given.items() if isinstance(item, int)]

    def _note_checks(self, where: Hashable, checks: Mapping[str, GoldCheck], reply: MainReply) -> None:
        for key, check in checks.items():
            self._failures.setdefault((where, check.text), []).append(check.failed(reply.given[key]))

    def _gold_checks(self, chunks: Sequence[Chunk]) -> tuple[GoldCheck, ...]:
        return gold_checks(chunks, self._chance) if self._with_gold_checks else ()

    # --- models that write no JSON -----------------------------------------------------------------------------------

    async def one_by_one(self) -> Labels:
        """Ask for every statement in a request of its own; the sentences of the answer are the statements.

        A rule decides which of them state a fact. The model gives the support and no evidence for it: support counts as
        unverified.

        Raises:
            JudgeError: a request failed, or no reply had a verdict.
        """
        source = self._input
        lexicon = Lexicon(language(source.answer[:_SAMPLE_CHARS]))
        labels = Labels("single")
        labels.extraction.statements = [
            ExtractedStatement(unit.text, (index,), _states_fact(unit.text, lexicon), None)
            for index, unit in enumerate(source.sentences)
        ]
        texts = {index: one.text for index, one in enumerate(labels.extraction.statements) if one.checkable}
        checks = {len(source.sentences) + n: check for n, check in enumerate(self._gold_checks(source.chunks))}
        texts |= {index: check.text for index, check in checks.items()}
        groups = list(packed(source.chunks, self._limits.chars))
        pairs = [(index, group) for index in texts for group in groups]
        found = await together([self._verdict(texts[index], group) for index, group in pairs])
        if found and all(verdict.support is None for verdict in found):
            raise JudgeError("unparsable", "no reply had a line with VERDICT: and one of its labels", retryable=False)
        labels.verification = verification((), zip((index for index, _ in pairs), found, strict=True))
        verdicts = labels.verification.verdicts
        labels.suspect = any(check.failed(verdicts.pop(index)) for index, check in checks.items())
        return labels

    async def _verdict(self, text: str, chunks: Sequence[Chunk]) -> Verdict:
        task = LabelTask("verdict", chunks=tuple(chunks), given={"g1": text})
        for repair in ("", _VERDICT_REPAIR):
            reply = await self._session.text(system_message("verdict") + repair, user_message(task.data()))
            try:
                label = parse_verdict(reply)
            except ReadingError:
                continue
            if label in ("not_supported", "not_found"):
                return Verdict("not_found")
            # With one chunk there is no doubt which one is meant; that it says so is not shown all the same.
            evidence = (chunks[0].rank,) if len(chunks) == 1 else ()
            return Verdict(cast("Support", label), evidence, unverified=True)
        return UNJUDGED


def _states_fact(text: str, lexicon: Lexicon) -> bool:
    return any(statement.checkable for statement in statements(text, len(text), lexicon))


def _proven(verdict: Verdict) -> Verdict:
    """Return *verdict*, or `not_found` in place of a label that nothing shows after a repair."""
    return replace(verdict, support="not_found", evidence=()) if verdict.unverified else verdict


def evenly(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return *items*, in order, in as few groups of at most *most* as there can be, all about as large."""
    groups = -(-len(items) // most)
    size = -(-len(items) // max(1, groups))
    return [items[at : at + size] for at in range(0, len(items), max(1, size))]
