"""How a call is put to a model: all in one request (`fast`), or in steps that guard against it (`careful`, `strict`).

`fast`: one request for every twelve sentences. `careful`: first the answer is taken apart by a request that sees no
chunk, so that no chunk can hide a statement; then its statements are verified, ten at a time, control items among them.
`strict`: the second step three times, in other orders, and the majority counts.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, TypeVar

from ragtrace.core.errors import JudgeError
from ragtrace.judges.llm.gold_checks import Control, controls
from ragtrace.judges.llm.judge_session import Inquiry, in_halves, together
from ragtrace.judges.llm.merging import Extraction, Verification, extraction, verification, vote
from ragtrace.judges.llm.prompt import Asked
from ragtrace.judges.llm.prompt_input import Chunk, Sheet, Unit
from ragtrace.judges.llm.reply import Reply, Verdict
from ragtrace.judges.llm.verdicts import one_by_one, stated

Mode: TypeAlias = Literal["fast", "careful", "strict"]
ROUNDS: Final = 3
MOST_SENTENCES: Final = 12
"""In one request: of more, models leave out some."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may hold."""

    statements: int = 10
    chars: int = 48_000
    """Of query, answer and chunks."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is asked for."""

    answer: bool
    """Sentences, statements, rating and label of the answer."""
    chunks: bool
    """How statements, chunks and citations stand to each other."""
    statements_only: bool = False
    """Of the latter, only how the statements stand."""


@dataclass(slots=True)
class Labels:
    """What was found out about a call."""

    mode: Mode | Literal["single"]
    extraction: Extraction = field(default_factory=Extraction)
    verification: Verification = field(default_factory=Verification)
    failed: dict[Literal["answer", "chunks"], JudgeError] = field(
        default_factory=dict[Literal["answer", "chunks"], JudgeError]
    )
    """What of the scope failed for a reason that asking again does not change."""
    suspect: bool = False
    """A control item was labelled wrongly."""
    disagreement: float | None = None
    """Share of items on which the rounds were not unanimous; None: there was one round."""


class Interview:
    """One call before the model.

    Args:
        with_controls: mix control items in.
        chance: orders and control items come from it.
    """

    def __init__(
        self,
        inquiry: Inquiry,
        sheet: Sheet,
        scope: Scope,
        limits: Limits,
        *,
        with_controls: bool,
        chance: random.Random,
    ) -> None:
        self._inquiry, self._sheet, self._scope, self._limits = inquiry, sheet, scope, limits
        self._with_controls, self._chance = with_controls, chance
        self._planned: dict[Hashable, tuple[Control, ...]] = {}
        self._failures: dict[Hashable, list[bool]] = {}

    @property
    def _suspect(self) -> bool:
        """Whether a control item got a wrong label at least every second time."""
        return any(2 * sum(failed) >= len(failed) for failed in self._failures.values())

    # --- fast --------------------------------------------------------------------------------------------------------

    async def whole(self) -> Labels:
        """Ask everything in one request for every twelve sentences; in two halves if the reply to one was cut off.

        Raises:
            JudgeError: there is no reply that can be read.
        """
        sheet, scope = self._sheet, self._scope
        if not scope.answer:
            asked = Asked("verify", sheet.query, chunks=sheet.chunks, parts=sheet.sentences)
            replies = [await self._inquiry.ask(asked)]
        elif not scope.chunks:
            replies = await self._in_groups(self._extract, [sheet.sentences])
        else:
            replies = await self._in_groups(self._judge, [sheet.sentences])
        extracted = extraction(replies)
        # The verdicts of a full reply stand with its statements, which are numbered over all replies.
        verdicts = [(index, statement.verdict) for index, statement in enumerate(extracted.statements or ())]
        return Labels("fast", extracted, verification(replies, verdicts), suspect=self._suspect)

    async def _judge(self, units: Sequence[Unit]) -> Reply:
        sheet = self._sheet
        shown = {unit.id for unit in units} | {part.id for part in sheet.parts or ()}
        items = {f"g{number}": item for number, item in enumerate(self._controls(sheet.chunks), 1)}
        reply = await self._inquiry.ask(
            Asked(
                "full",
                sheet.query,
                sentences=tuple(units),
                chunks=sheet.chunks,
                citations=tuple(cited for cited in sheet.citations if cited.id and cited.unit_id in shown),
                parts=sheet.parts or (),
                given={key: item.text for key, item in items.items()},
                controls=frozenset(items),
            )
        )
        self._check(units[0].id, items, reply)
        return reply

    # --- the lowest rung ---------------------------------------------------------------------------------------------

    async def one_by_one(self) -> Labels:
        """Every statement in a request of its own, for models that write no JSON.

        Raises:
            JudgeError: no reply could be read.
        """
        labels = Labels("single", stated(self._sheet))
        texts = {index: one.text for index, one in enumerate(labels.extraction.statements or ()) if one.checkable}
        items = {len(self._sheet.sentences) + n: item for n, item in enumerate(self._controls(self._sheet.chunks))}
        texts |= {index: item.text for index, item in items.items()}
        groups = list(packed(self._sheet.chunks, self._limits.chars))
        labels.verification = await one_by_one(self._inquiry, groups, texts)
        verdicts = labels.verification.verdicts
        labels.suspect = any(item.failed(verdicts.pop(index)) for index, item in items.items())
        return labels

    # --- careful, strict ---------------------------------------------------------------------------------------------

    async def in_steps(self, rounds: int = 1) -> Labels:
        """Extraction, then verification, *rounds* times.

        Raises:
            JudgeError: asking again may help, or nothing at all was found out.
        """
        labels = Labels("strict" if rounds > 1 else "careful")
        if self._scope.answer:
            try:
                labels.extraction = await self._extraction()
            except JudgeError as error:
                self._note(labels, "answer", error)
        statements = labels.extraction.statements or []
        checkable = {index: one.text for index, one in enumerate(statements) if one.checkable and one.text}
        if self._scope.chunks and (checkable or not self._scope.statements_only):
            try:
                done = await together([self._round(checkable, turn) for turn in range(rounds)])
                labels.verification, disagreement = vote(done) if rounds > 1 else (done[0], None)
                labels.disagreement = disagreement
            except JudgeError as error:
                self._note(labels, "chunks", error)
        labels.suspect = self._suspect
        return labels

    def _note(self, labels: Labels, part: Literal["answer", "chunks"], error: JudgeError) -> None:
        """What failed for good is missing; the rest of the call is not lost with it."""
        wanted = {"answer": self._scope.answer, "chunks": self._scope.chunks}
        labels.failed[part] = error
        if error.retryable or len(labels.failed) == sum(wanted.values()):
            raise error

    async def _extraction(self) -> Extraction:
        packs = list(packed(self._sheet.sentences, self._limits.chars))
        return extraction(await self._in_groups(self._extract, packs))

    async def _in_groups(
        self, ask: Callable[[Sequence[Unit]], Awaitable[Reply]], packs: Sequence[Sequence[Unit]]
    ) -> list[Reply]:
        """Return the replies about all sentences, in their order; each is about at most `MOST_SENTENCES` of them."""
        groups = [group for pack in packs for group in evenly(pack, MOST_SENTENCES)]
        replies = await together([in_halves(ask, group) for group in groups])
        return [reply for group in replies for reply in group]

    async def _extract(self, units: Sequence[Unit]) -> Reply:
        return await self._inquiry.ask(Asked("extract", self._sheet.query, sentences=tuple(units)))

    async def _round(self, checkable: dict[int, str], turn: int) -> Verification:
        """Every statement held against every chunk, once; the first round keeps their order.

        The same chunks are in a request together in every round: their control items are voted on, too.
        """
        groups = [(number, list(group)) for number, group in enumerate(packed(self._sheet.chunks, self._limits.chars))]
        statements = list(checkable)
        if turn:
            for _, group in groups:
                self._chance.shuffle(group)
            self._chance.shuffle(groups)
            self._chance.shuffle(statements)
        most = self._limits.statements
        batches = [statements[at : at + most] for at in range(0, len(statements), most)] or [[]]
        works = [
            self._batch(group, batch, checkable, (group_number, number))
            for group_number, group in groups
            for number, batch in enumerate(batches)
        ]
        done = [result for results in await together(works) for result in results]
        verdicts = [pair for _, pairs in done for pair in pairs]
        return verification([reply for reply, _ in done], verdicts)

    async def _batch(
        self, chunks: Sequence[Chunk], statements: Sequence[int], texts: dict[int, str], where: tuple[int, int]
    ) -> list[tuple[Reply, list[tuple[int, Verdict]]]]:
        """*statements* (indices) held against *chunks*; the citations of these chunks go with the first batch."""

        async def verify(batch: Sequence[int]) -> tuple[Reply, list[tuple[int, Verdict]]]:
            cites = where[1] == 0 and batch[:1] == statements[:1]
            return await self._verify(chunks, batch, texts, where, cites=cites)

        return await in_halves(verify, statements)

    async def _verify(
        self,
        chunks: Sequence[Chunk],
        statements: Sequence[int],
        texts: dict[int, str],
        where: tuple[int, int],
        *,
        cites: bool,
    ) -> tuple[Reply, list[tuple[int, Verdict]]]:
        sheet = self._sheet
        mixed: list[int | Control] = list(statements)
        if where not in self._planned:
            self._planned[where] = self._controls(chunks)
        for item in self._planned[where]:
            mixed.insert(self._chance.randint(0, len(mixed)), item)
        given = {f"g{number}": item for number, item in enumerate(mixed, 1)}
        items = {key: item for key, item in given.items() if isinstance(item, Control)}
        known = {chunk.id for chunk in chunks}
        citations = tuple(cited for cited in sheet.citations if cites and cited.chunk_id in known)
        citing = {cited.unit_id for cited in citations}
        reply = await self._inquiry.ask(
            Asked(
                "verify",
                sheet.query,
                chunks=tuple(chunks),
                citations=citations,
                # Without statements the chunks are held against the sentences: else nothing could contradict them.
                parts=tuple(u for u in sheet.parts or sheet.sentences if u.id in citing) if texts else sheet.sentences,
                given={key: item.text if isinstance(item, Control) else texts[item] for key, item in given.items()},
                controls=frozenset(items),
            )
        )
        self._check(where, items, reply)
        return reply, [(item, _proven(reply.given[key])) for key, item in given.items() if isinstance(item, int)]

    def _check(self, where: Hashable, items: Mapping[str, Control], reply: Reply) -> None:
        for key, item in items.items():
            self._failures.setdefault((where, item.text), []).append(item.failed(reply.given[key]))

    def _controls(self, chunks: Sequence[Chunk]) -> tuple[Control, ...]:
        return controls(chunks, self._chance) if self._with_controls else ()


def _proven(verdict: Verdict) -> Verdict:
    """After a repair, a label that nothing shows counts as if nothing had been found."""
    return replace(verdict, support="not_found", evidence=()) if verdict.unverified else verdict


def evenly(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return *items*, in order, in as few groups of at most *most* as there can be, all about as large."""
    groups = -(-len(items) // most)
    size = -(-len(items) // max(1, groups))
    return [items[at : at + size] for at in range(0, len(items), max(1, size))]


def packed(items: Sequence[T], chars: int) -> Iterator[Sequence[T]]:
    """*items*, in order, in groups of at most *chars* characters, or of one."""
    group: list[T] = []
    total = 0
    for item in items:
        length = len(getattr(item, "text", ""))
        if group and total + length > chars:
            yield group
            group, total = [], 0
        group.append(item)
        total += length
    if group:
        yield group
