"""`LabelCollector`: asks the LLM for the labels of one call, at once or in steps that resist prompt injection.

`fast`: one request for every twelve sentences. `careful`: a first request extracts the statements of the answer without
showing a chunk, so that no chunk can hide a statement; then the statements are verified, ten at a time, with gold
checks among them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, TypeAlias, TypeVar

from ragtrace.core.errors import JudgeError
from ragtrace.judges.llm.chat import JudgeSession, ask_in_halves, run_concurrently
from ragtrace.judges.llm.gold_checks import GoldCheck, gold_checks
from ragtrace.judges.llm.label_reply import LabelReply, LabelTask, Verdict, label_prompt
from ragtrace.judges.llm.merging import Verification, merge_extractions, merge_verifications
from ragtrace.judges.llm.prompt import group_by_size
from ragtrace.judges.llm.prompt_input import AnswerUnit, PromptChunk, PromptInput

Mode: TypeAlias = Literal["fast", "careful"]
MOST_SENTENCES: Final = 12
"""Most sentences in one request: of more, models leave out some."""

T = TypeVar("T")


@dataclass(slots=True)
class Labels:
    """Labels that the LLM gave to one call, merged from all requests about that call."""

    mode: Mode
    extraction: LabelReply = field(default_factory=LabelReply)
    """Labels of the answer, merged from all requests that showed a part of the answer."""
    verification: Verification = field(default_factory=Verification)
    failed: dict[Literal["answer", "chunks"], JudgeError] = field(
        default_factory=dict[Literal["answer", "chunks"], JudgeError]
    )
    """Error of each step that failed for a reason that a retry does not change."""
    suspect: bool = False
    """Whether gold checks, which are statements with a known label, got wrong labels."""


class LabelCollector:
    """Collector that requests the labels of one call from the LLM and merges the replies.

    Args:
        session: sends the requests.
        source: the call as the model is shown it.
        needs: fields of the judgement that the metrics read.
        mode: how the labels are asked for.
        statements_per_call: most statements verified in one request.
        max_chars: most characters of query, answer, chunks and earlier turns in one request; a longer call is asked
            about in steps.
        with_gold_checks: mix in statements with known labels; None: when asking in steps.
        chance: source of the orders and of the gold checks.
    """

    def __init__(
        self,
        session: JudgeSession,
        source: PromptInput,
        needs: frozenset[str],
        *,
        mode: Mode,
        statements_per_call: int,
        max_chars: int,
        with_gold_checks: bool | None,
        chance: random.Random,
    ) -> None:
        self._session, self._source, self._chance = session, source, chance
        self._mode: Mode = mode
        self._statements_per_call, self._max_chars = statements_per_call, max_chars
        of_chunks = needs & {"claims", "chunks", "citations"}
        self._asks_answer = bool(source.sentences and needs - {"chunks"})
        self._asks_chunks = bool(source.chunks and of_chunks and (source.sentences or "chunks" in needs))
        self._statements_only = of_chunks == frozenset({"claims"})
        # In steps, missing evidence and a quote that does not occur where it should are worth a repair, too.
        self._in_steps = mode != "fast" or source.chars > max_chars
        self._with_gold_checks = self._in_steps if with_gold_checks is None else with_gold_checks
        self._fails_gold_checks = False
        """Whether the LLM has failed a gold check: a test statement whose correct label is known."""

    async def collect(self) -> Labels:
        """Ask the LLM for the labels of the call that the metrics need, and return these labels.

        Raises:
            JudgeError: asking again may help, or no label was found at all.
        """
        if not (self._asks_answer or self._asks_chunks):
            return Labels(self._mode)
        return await (self._ask_in_steps() if self._in_steps else self._ask_at_once())

    async def _ask(self, task: LabelTask) -> LabelReply:
        return (await self._session.ask(label_prompt(task, prove=self._in_steps))).reply

    # --- fast --------------------------------------------------------------------------------------------------------

    async def _ask_at_once(self) -> Labels:
        """Ask the LLM for all labels at once, with one request per twelve sentences of the answer.

        If a reply is cut off, each half of its sentences is asked about.
        """
        source = self._source
        if not self._asks_answer:
            turns = source.earlier_turns
            task = LabelTask("verify", source.query, chunks=source.chunks, parts=source.sentences, earlier_turns=turns)
            replies = [await self._ask(task)]
        else:
            ask = self._request_labels if self._asks_chunks else self._extract
            replies = await self._ask_in_groups(ask, [source.sentences])
        extracted = merge_extractions(replies)
        # A full reply has its verdicts at its statements; the statements of all replies are numbered in one sequence.
        verdicts = [(index, statement.verdict) for index, statement in enumerate(extracted.statements or ())]
        return Labels("fast", extracted, merge_verifications(replies, verdicts), suspect=self._fails_gold_checks)

    async def _request_labels(self, units: Sequence[AnswerUnit]) -> LabelReply:
        """Ask the LLM, in one request, for all labels of *units*, which are sentences of the answer."""
        source = self._source
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
                earlier_turns=source.earlier_turns,
            )
        )
        self._note_gold_checks(checks, reply)
        return reply

    async def _ask_in_groups(
        self, ask: Callable[[Sequence[AnswerUnit]], Awaitable[LabelReply]], packs: Sequence[Sequence[AnswerUnit]]
    ) -> list[LabelReply]:
        """Call *ask* with groups of at most `MOST_SENTENCES` sentences, and return the LLM's replies in order."""
        groups = [group for pack in packs for group in split_evenly(pack, MOST_SENTENCES)]
        replies = await run_concurrently([ask_in_halves(ask, group) for group in groups])
        return [reply for group in replies for reply in group]

    # --- careful ----------------------------------------------------------------------------------------------------

    async def _ask_in_steps(self) -> Labels:
        """Ask the LLM first to extract the statements of the answer, then to verify them against the chunks."""
        labels = Labels("careful")
        if self._asks_answer:
            packs = list(group_by_size(self._source.sentences, self._max_chars))
            try:
                labels.extraction = merge_extractions(await self._ask_in_groups(self._extract, packs))
            except JudgeError as error:
                self._note_failure(labels, "answer", error)
        extracted = labels.extraction.statements or []
        checkable = {index: one.text for index, one in enumerate(extracted) if one.checkable and one.text}
        if self._asks_chunks and (checkable or not self._statements_only):
            try:
                labels.verification = await self._verify_all(checkable)
            except JudgeError as error:
                self._note_failure(labels, "chunks", error)
        labels.suspect = self._fails_gold_checks
        return labels

    def _note_failure(self, labels: Labels, step: Literal["answer", "chunks"], error: JudgeError) -> None:
        """Store the error of a failed step in *labels*, and raise it if a retry may help or all steps have failed.

        Args:
            labels: the labels that have been collected so far.
            step: the requests that failed: those about the answer, or those that compare statements with chunks.
            error: the error.
        """
        labels.failed[step] = error
        if error.retryable or len(labels.failed) == self._asks_answer + self._asks_chunks:
            raise error

    async def _extract(self, units: Sequence[AnswerUnit]) -> LabelReply:
        source = self._source
        return await self._ask(
            LabelTask("extract", source.query, sentences=tuple(units), earlier_turns=source.earlier_turns)
        )

    async def _verify_all(self, texts: Mapping[int, str]) -> Verification:
        """Ask the LLM to verify every statement against every chunk."""
        order = list(texts)
        most = self._statements_per_call
        batches = [order[at : at + most] for at in range(0, len(order), most)] or [[]]
        works = [
            ask_in_halves(partial(self._verify, group, texts, batches[0][:1]), batch)
            for group in group_by_size(self._source.chunks, self._max_chars)
            for batch in batches
        ]
        done = [result for results in await run_concurrently(works) for result in results]
        return merge_verifications([reply for reply, _ in done], [pair for _, pairs in done for pair in pairs])

    async def _verify(
        self,
        chunks: Sequence[PromptChunk],
        texts: Mapping[int, str],
        first: Sequence[int],
        batch: Sequence[int],
    ) -> tuple[LabelReply, list[tuple[int, Verdict]]]:
        """Ask the LLM, in one request, to verify the statements of *batch* against *chunks*.

        The citations go with the batch that begins with *first*.

        Args:
            texts: statements by their index.
        """
        source = self._source
        mixed: list[int | GoldCheck] = list(batch)
        for check in self._gold_checks(chunks):
            mixed.insert(self._chance.randint(0, len(mixed)), check)
        given = {f"g{number}": item for number, item in enumerate(mixed, 1)}
        checks = {key: item for key, item in given.items() if isinstance(item, GoldCheck)}
        known = {chunk.id for chunk in chunks}
        cites = list(batch[:1]) == list(first)
        citations = tuple(cited for cited in source.citations if cites and cited.chunk_id in known)
        citing = {cited.unit_id for cited in citations}
        reply = await self._ask(
            LabelTask(
                "verify",
                source.query,
                chunks=tuple(chunks),
                citations=citations,
                # Without statements, compare the chunks with the sentences: else no chunk could be found contradicted.
                parts=tuple(u for u in source.parts or source.sentences if u.id in citing)
                if texts
                else source.sentences,
                given={key: item.text if isinstance(item, GoldCheck) else texts[item] for key, item in given.items()},
                gold_checks=frozenset(checks),
                earlier_turns=source.earlier_turns,
            )
        )
        self._note_gold_checks(checks, reply)
        verdicts: list[tuple[int, Verdict]] = []
        for key, item in given.items():
            verdict = reply.given[key]
            if not isinstance(item, GoldCheck):
                # A label without evidence after a repair is not believed.
                proven = replace(verdict, support="not_found", evidence=()) if verdict.unverified else verdict
                verdicts.append((item, proven))
        return reply, verdicts

    def _gold_checks(self, chunks: Sequence[PromptChunk]) -> tuple[GoldCheck, ...]:
        return gold_checks(chunks, self._chance) if self._with_gold_checks else ()

    def _note_gold_checks(self, checks: Mapping[str, GoldCheck], reply: LabelReply) -> None:
        self._fails_gold_checks |= any(check.failed(reply.given[key]) for key, check in checks.items())


def split_evenly(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Split *items*, in order, into the fewest groups of at most *most* items, all of about equal size."""
    groups = -(-len(items) // most)
    size = -(-len(items) // max(1, groups))
    return [items[at : at + size] for at in range(0, len(items), max(1, size))]
