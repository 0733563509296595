"""`LabelCollector`: asks the LLM for the labels of one call, at once or in steps that resist prompt injection.

**Data.** In: the call as prompts show it (`PromptInput`), and the labels that the metrics read, from `labels_for`. Out:
`Labels`, merged from all replies, from which `build_judgement` makes the judgement.

**Steps.** `plan_requests` alone decides, before any request, which labels are asked for and how: at once or in steps,
with gold checks or without, and what is done if a reply at once is cut off. Its `LabelPlan` is never changed; the
collector follows it, and at most once goes over to the plan that it names in `if_cut_off`. There are two kinds of
labels: of the `answer` (its sentences and statements, and how well it answers) and of the `chunks` (whether they
support the statements, are relevant, are contradicted, and whether the citations are right). A kind is asked for only
if a metric needs labels of it, and a request asks for no label that no metric reads: instructions, schema, data and the
reading of the reply follow from `request_parts`. Citations need both kinds, as the labels of the answer say which
sentences may cite at all, also where nothing was retrieved.

    mode of asking   labels wanted        requests (kind of `LabelTask`)
    at once          answer and chunks    `full`, one for every twelve sentences, with all chunks
                     answer               `extract`, one for every twelve sentences
                     chunks               `verify`, one, without statements, gold checks or citations
    in steps         answer               first `extract`, one for every twelve sentences, without a chunk: so no
                                          chunk can hide a statement
                     chunks               then `verify`, one for each group of chunks and batch of statements, with
                                          gold checks among the statements

At once, gold checks are in `full` requests, if they are wanted: the other two verify no statement that they could be
mixed in with.

The mode `careful` always asks in steps, the mode `fast` only about a call that is too long for one request, or whose
labels do not fit into one reply although it has one sentence. The mode `sentences` is in `sentence_questions.py`.

**Order of the file.** What comes out (`Labels`), what is decided (`LabelPlan`, `plan_requests`), what one request is
given to verify (`GivenStatements`), and `LabelCollector`: at once, in steps, and what both ways share.

**Invariants**, and under each its tests in `tests/unit/judges/test_label_collector.py`:
    requests of one step run concurrently, steps one after another
        `test_requests_of_a_step_run_at_the_same_time_and_the_steps_one_after_the_other`
    of a reply that is cut off, each half of its sentences, or statements, is asked about, or else each half of its
    chunks; a half is not halved again
        `test_a_cut_off_reply_is_asked_for_in_halves`
        `test_a_cut_off_reply_about_chunks_is_asked_for_in_halves_of_them`
        `test_a_cut_off_reply_about_one_statement_is_asked_for_in_halves_of_the_chunks`
        `test_a_half_that_is_cut_off_is_not_halved_again`
    of one sentence and several chunks that were asked about at once, the labels are asked for in steps
        `test_a_cut_off_reply_about_one_sentence_is_asked_for_in_steps`
        `test_one_sentence_and_several_chunks_have_a_second_plan`
    at once, a request that fails raises its error
        `test_a_failure_at_once_leaves_no_labels`
    in steps, one that fails leaves the labels of the other step, with the reason in `Labels.failed`
        `test_a_failed_extraction_leaves_the_labels_of_the_chunks`
        `test_a_failed_verification_leaves_the_labels_of_the_answer`
    it is raised all the same if a retry may help, or each step that was asked for failed
        `test_a_failure_in_steps_is_raised_if_a_retry_may_help_or_nothing_is_left`
        `test_both_steps_that_fail_leave_nothing`
    statements have one number in all requests, their index in `Labels.extraction.statements`; the ids g1, g2, ... are
    those of one request
        `test_what_cannot_be_checked_is_not_verified`
        `test_each_statement_is_verified_against_each_chunk`
    each citation is in one request for each group of chunks, unless its chunk is missing or blank: then in none
        `test_each_citation_is_in_one_request`
        `test_a_request_at_once_has_the_citations_of_its_sentences`
        `test_a_citation_of_no_chunk_is_in_no_request`
    a gold check looks like a statement, and its label is never among those of the answer
        `test_gold_checks_look_like_statements_and_are_none`
    gold checks are in the requests that verify statements, as the plan says
        `test_gold_checks_are_in_the_requests_where_the_plan_has_them`

**Changing it.** A further step: a `Step`, its condition in `plan_requests`, a block in `_collect_in_steps`. What every
request shows: `_ask`. Asking again for one metric only: not here, as this module knows fields and no metrics; ask a
second collector with fewer `needs`. A change by which a call is asked about in other requests, or is shown other texts,
may move labels as much as another prompt does: raise `VERSION` in `prompts/__init__.py`, which is part of the judge's
version, so that baselines and calibrations of before are not mixed with it. How many requests a call costs also stands
in docs/judges.md. Then run the tests above, `test_llm_judge.py` and `test_judge_injection.py` beside them (what a
hostile chunk can do in each mode), and `tests/simulation/test_gold_checks.py`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from ragtrace.core.errors import JudgeError
from ragtrace.judges.llm.chat import JudgeSession, ask_in_halves, run_concurrently
from ragtrace.judges.llm.gold_checks import GoldCheck, gold_checks
from ragtrace.judges.llm.label_reply import LabelReply, LabelTask, Verdict, label_prompt
from ragtrace.judges.llm.merging import Verification, merge_extractions, merge_verifications
from ragtrace.judges.llm.prompt import group_by_size
from ragtrace.judges.llm.prompt_input import AnswerUnit, DistinctCitation, PromptChunk, PromptInput
from ragtrace.judges.llm.prompts import Label
from ragtrace.system.event_loops import beside_loop

Mode: TypeAlias = Literal["fast", "careful", "sentences"]
Step: TypeAlias = Literal["answer", "chunks"]
"""Kind of labels: of the answer, or of comparing it with the chunks. In steps, each kind is a step."""
MOST_SENTENCES: Final = 12
"""Most sentences in one request: of more, models leave out some. Fewer cost more requests, each with its instructions.

Users read the number in docs/judges.md.
"""

_OF_CHUNKS: Final[frozenset[Label]] = frozenset({"support", "denial", "contradicted", "grade", "citations"})
_OF_FIELDS: Final[Mapping[str, frozenset[Label]]] = {
    "claims": frozenset({"statements", "relevant", "sentences", "support", "denial", "answer_label"}),
    "sentences": frozenset({"sentences"}),
    "parts": frozenset({"sentences"}),
    "citations": frozenset({"citations", "sentences"}),
    "chunks": frozenset({"contradicted", "grade"}),
    "answer_label": frozenset({"answer_label"}),
    "answer_rating": frozenset({"answer_rating"}),
}
"""Labels from which a field of the judgement is made. Whether the answer declines tells why it has no statements, and
the sentences tell which of them are filler, for the relevance of statements and as those that may cite."""

_NARROWED: Final[frozenset[Label]] = frozenset(
    {"statements", "relevant", "support", "denial", "contradicted", "grade", "answer_label"}
)
"""Labels that are not asked for where a metric says that it does not read them."""
_OF_GIVEN: Final[frozenset[Label]] = frozenset({"support"})
"""What is asked of statements that a request is given, also where they are gold checks alone."""

T = TypeVar("T")


# --- data ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Labels:
    """Labels that the LLM gave to one call, merged from all requests about that call."""

    mode: Mode
    """How the labels were asked for: `fast` at once, `careful` in steps, `sentences` one sentence at a time."""
    extraction: LabelReply = field(default_factory=LabelReply)
    """Labels of the answer, merged from all requests that showed a part of the answer."""
    verification: Verification = field(default_factory=Verification)
    failed: dict[Step, str] = field(default_factory=dict[Step, str])
    """Reason for the failure of each step that failed for a reason that a retry does not change."""
    suspect: bool = False
    """Whether gold checks, which are statements with a known label, got wrong labels."""


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """Which labels of a call the LLM is asked for, and how."""

    steps: frozenset[Step]
    """Kinds of labels that are asked for; none: no request is made."""
    labels: frozenset[Label]
    """Labels that the requests ask for."""
    only_statements: bool
    """Whether the chunks are only asked about to verify statements: not at all, then, if the answer makes none."""
    in_steps: bool
    """Whether the kinds of labels are asked for one after the other, rather than in one request."""
    with_gold_checks: bool
    """Whether statements with known labels are mixed in with those that are verified."""
    if_cut_off: LabelPlan | None = None
    """Plan in steps for a call whose labels do not fit into one reply; None: it fails, or is in steps already."""


@dataclass(frozen=True, slots=True)
class AnswerStatement:
    """Checkable statement that the LLM extracted from the answer."""

    index: int
    """Index in `Labels.extraction.statements`."""
    text: str


@dataclass(frozen=True, slots=True)
class GivenStatements:
    """Statements that one request gives the LLM to verify: those of the answer, and gold checks, which look alike."""

    by_id: Mapping[str, AnswerStatement | GoldCheck]
    """Statements by their id in the request: g1, g2, ..."""

    @classmethod
    def numbered(cls, statements: Iterable[AnswerStatement | GoldCheck]) -> GivenStatements:
        """Give *statements*, in their order, the ids g1, g2, ..."""
        return cls({f"g{number}": statement for number, statement in enumerate(statements, 1)})

    @property
    def texts(self) -> dict[str, str]:
        """Text of each statement, by id."""
        return {key: statement.text for key, statement in self.by_id.items()}

    @property
    def gold_check_ids(self) -> frozenset[str]:
        """Ids of the gold checks."""
        return frozenset(key for key, statement in self.by_id.items() if isinstance(statement, GoldCheck))

    def fails_gold_check(self, reply: LabelReply) -> bool:
        """Return whether the LLM labelled a gold check wrongly, or not at all."""
        checks = {key: statement for key, statement in self.by_id.items() if isinstance(statement, GoldCheck)}
        return any(check.failed(reply.given[key]) for key, check in checks.items())

    def verdicts(self, reply: LabelReply) -> list[tuple[int, Verdict]]:
        """Return the verdict on each statement of the answer, with the index of the statement."""
        return [
            (statement.index, _proven(reply.given[key]))
            for key, statement in self.by_id.items()
            if isinstance(statement, AnswerStatement)
        ]


def _proven(verdict: Verdict) -> Verdict:
    """Return *verdict*, or that nothing was found if its label has no evidence, even after a repair."""
    return replace(verdict, support="not_found", evidence=()) if verdict.unverified else verdict


class _VerifiedBatch(NamedTuple):
    """Reply to one request that verified a batch of statements, with its verdicts by index of the statement."""

    reply: LabelReply
    verdicts: list[tuple[int, Verdict]]


# --- decision --------------------------------------------------------------------------------------------------------


def labels_for(needs: frozenset[str], reads: frozenset[str] | None = None) -> frozenset[Label]:
    """Return the labels to ask for, from which the fields *needs* of a judgement are made.

    Args:
        reads: labels that are read of these fields, as in `Formula.reads`; None: all.
    """
    labels = frozenset[Label]().union(*(_OF_FIELDS.get(field, ()) for field in needs))
    if reads is None:
        return labels
    unread = _NARROWED - reads
    if "relevant" in unread and not needs & {"sentences", "parts", "citations"}:
        unread |= {"sentences"}
    return labels - unread


def plan_requests(
    source: PromptInput, labels: frozenset[Label], *, mode: Mode, max_chars: int, with_gold_checks: bool | None
) -> LabelPlan:
    """Decide which labels of a call are asked for, and how.

    Args:
        source: the call as the model is shown it.
        labels: labels that the metrics read.
        mode: how the labels are asked for.
        max_chars: most characters of one request; a longer call is asked about in steps, each with chunks or sentences
            of so many characters at most, beside question and statements.
        with_gold_checks: mix in statements with known labels where statements are verified; None: when asking in steps.
    """
    of_chunks = labels & _OF_CHUNKS
    steps: set[Step] = set()
    if source.sentences and labels - _OF_CHUNKS:
        steps.add("answer")
    if source.chunks and of_chunks and (source.sentences or of_chunks & {"contradicted", "grade"}):
        steps.add("chunks")
    plan_in_steps = LabelPlan(
        steps=frozenset(steps),
        labels=labels,
        only_statements="support" in of_chunks and of_chunks <= {"support", "denial"},
        in_steps=True,
        with_gold_checks=with_gold_checks is not False and "chunks" in steps,
    )
    if mode == "careful" or source.chars > max_chars:
        return plan_in_steps
    # A request for both kinds of labels is halved by its sentences. One sentence has no half, but each of the two steps
    # has a shorter reply, and the chunks of the second have halves.
    has_no_half = len(steps) == 2 and len(source.sentences) == 1 and len(source.chunks) > 1
    return replace(
        plan_in_steps,
        in_steps=False,
        with_gold_checks=bool(with_gold_checks) and len(steps) == 2 and "support" in labels,
        if_cut_off=plan_in_steps if has_no_half else None,
    )


# --- requests --------------------------------------------------------------------------------------------------------


class LabelCollector:
    """Collector that requests the labels of one call from the LLM and merges the replies.

    Args:
        session: sends the requests.
        source: the call as the model is shown it.
        labels: labels that the metrics read.
        mode: how the labels are asked for.
        statements_per_call: most statements verified in one request.
        max_chars: most characters of query, answer, chunks and earlier turns in one request; a longer call is asked
            about in steps, as `plan_requests` says.
        with_gold_checks: mix in statements with known labels; None: when asking in steps.
        chance: chooses the gold checks and, in steps, their places among the statements.
    """

    def __init__(
        self,
        session: JudgeSession,
        source: PromptInput,
        labels: frozenset[Label],
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
        self._plan = plan_requests(source, labels, mode=mode, max_chars=max_chars, with_gold_checks=with_gold_checks)
        """Plan that is followed. It becomes its own `if_cut_off` while no request is under way, and then stays."""
        self._failed_gold_check = False
        """Whether the LLM has labelled a gold check wrongly in any reply so far."""

    async def collect(self) -> Labels:
        """Ask the LLM for the labels of the call that the metrics need, and return these labels.

        Raises:
            JudgeError: asking again may help, or every step that was asked for has failed.
        """
        if not self._plan.steps:
            return Labels(self._mode)
        labels = await (self._collect_in_steps() if self._plan.in_steps else self._collect_at_once_or_if_cut_off())
        labels.suspect = self._failed_gold_check
        return labels

    async def _collect_at_once_or_if_cut_off(self) -> Labels:
        """Ask for both kinds of labels at once, or if that reply is cut off by the plan for it, if there is one."""
        try:
            return await self._collect_at_once()
        except JudgeError as error:
            if error.reason != "truncated" or self._plan.if_cut_off is None:
                raise
            self._plan = self._plan.if_cut_off
        return await self._collect_in_steps()

    # --- at once: one request for both kinds of labels ---------------------------------------------------------------

    async def _collect_at_once(self) -> Labels:
        """Ask for all wanted labels of a part of the answer, or of the chunks, in one request each.

        Raises the error of a request that fails: no label is kept.
        """
        if "answer" not in self._plan.steps:
            replies = await ask_in_halves(self._label_chunks, self._source.chunks)
        else:
            ask = self._label_all if "chunks" in self._plan.steps else self._extract
            replies = await self._ask_about_sentences(ask)
        extraction = merge_extractions(replies)
        # A full reply has its verdicts at its statements; the statements of all replies are numbered in one sequence.
        verdicts = [(index, statement.verdict) for index, statement in enumerate(extraction.statements or ())]
        return Labels("fast", extraction, merge_verifications(replies, verdicts))

    async def _label_chunks(self, chunks: Sequence[PromptChunk]) -> LabelReply:
        """Ask the LLM, in one request, to compare *chunks* with the whole answer, of which no label is wanted."""
        return await self._ask(LabelTask("verify", chunks=tuple(chunks), parts=self._source.sentences))

    async def _label_all(self, sentences: Sequence[AnswerUnit]) -> LabelReply:
        """Ask the LLM, in one request, for the labels of *sentences*, of their statements and of all chunks."""
        source = self._source
        shown = {unit.id for unit in (*sentences, *(source.parts or ()))}
        task = LabelTask(
            "full",
            sentences=tuple(sentences),
            chunks=source.chunks,
            citations=tuple(cited for cited in self._citations_of(source.chunks) if cited.unit_id in shown),
            parts=source.parts or (),
        )
        return await self._ask(task, GivenStatements.numbered(self._new_gold_checks(source.chunks)))

    # --- in steps: the answer, then the chunks -----------------------------------------------------------------------

    async def _collect_in_steps(self) -> Labels:
        """Ask for the labels of the answer without a chunk, then for those of the chunks with its statements.

        The labels of a step that fails are missing, with its reason in `Labels.failed`. The error is raised if a retry
        may help, and that of the last step if every step that was asked for has failed.
        """
        labels, asked = Labels("careful"), 0
        last: JudgeError | None = None
        try:
            if "answer" in self._plan.steps:
                asked += 1
                try:
                    labels.extraction = merge_extractions(await self._ask_about_sentences(self._extract))
                except JudgeError as error:
                    if error.retryable:
                        raise
                    labels.failed["answer"], last = error.reason, error
            statements = _checkable_statements(labels.extraction) if "support" in self._plan.labels else []
            # Where only statements are to be verified, the plan has a step that an answer without statements is not
            # asked.
            if "chunks" in self._plan.steps and (statements or not self._plan.only_statements):
                asked += 1
                try:
                    labels.verification = await self._verify_all(statements)
                except JudgeError as error:
                    if error.retryable:
                        raise
                    labels.failed["chunks"], last = error.reason, error
            if last is not None and len(labels.failed) == asked:
                raise last
            return labels
        finally:
            del last  # its traceback has this frame

    async def _extract(self, sentences: Sequence[AnswerUnit]) -> LabelReply:
        """Ask the LLM, in one request, for the labels of *sentences* and their statements, without a chunk."""
        return await self._ask(LabelTask("extract", sentences=tuple(sentences)))

    async def _verify_all(self, statements: Sequence[AnswerStatement]) -> Verification:
        """Ask the LLM to verify every statement against every chunk, and for the labels of chunks and citations."""
        most = self._statements_per_call
        # Without statements there is one empty batch: chunks and citations have labels of their own.
        batches = [statements[at : at + most] for at in range(0, len(statements), most)] or [statements]
        first = statements[0] if statements else None
        requests = [
            self._verify_in_halves(chunks, batch, first)
            for chunks in group_by_size(self._source.chunks, self._max_chars)
            for batch in batches
        ]
        verified = [batch for halves in await run_concurrently(requests) for batch in halves]
        return merge_verifications(
            [batch.reply for batch in verified], [verdict for batch in verified for verdict in batch.verdicts]
        )

    async def _verify_in_halves(
        self, chunks: Sequence[PromptChunk], batch: Sequence[AnswerStatement], first: AnswerStatement | None
    ) -> list[_VerifiedBatch]:
        """Do as `_verify`; if the reply is cut off, ask about half of the statements at a time, or of the chunks."""
        if len(batch) > 1:
            return await ask_in_halves(lambda half: self._verify(chunks, half, first), batch)
        return await ask_in_halves(lambda half: self._verify(half, batch, first), chunks)

    async def _verify(
        self, chunks: Sequence[PromptChunk], batch: Sequence[AnswerStatement], first: AnswerStatement | None
    ) -> _VerifiedBatch:
        """Ask the LLM, in one request, to verify the statements of *batch* against *chunks*.

        Args:
            chunks: one group of chunks.
            batch: statements; empty only if there are none at all.
            first: the first of all statements; None: there are none. The request whose batch begins with it asks about
                the citations, too: so each citation is in one request for each group of chunks, also where a batch is
                asked about in halves.
        """
        source = self._source
        citations = self._citations_of(chunks) if not batch or batch[0] == first else ()
        citing = {cited.unit_id for cited in citations}
        # Without statements, compare the chunks with the sentences: else no chunk could be found contradicted.
        parts = (
            tuple(unit for unit in source.parts or source.sentences if unit.id in citing) if batch else source.sentences
        )
        task = LabelTask("verify", chunks=tuple(chunks), citations=citations, parts=parts)
        given = GivenStatements.numbered(self._with_gold_checks(batch, chunks))
        reply = await self._ask(task, given)
        return _VerifiedBatch(reply, given.verdicts(reply))

    # --- both --------------------------------------------------------------------------------------------------------

    async def _ask(self, task: LabelTask, given: GivenStatements | None = None) -> LabelReply:
        """Send the request *task* to the LLM, and return the labels in its reply.

        Args:
            task: the request, without what every request shows: the query and the earlier turns.
            given: statements to verify; None: there are none.
        """
        given = given or GivenStatements({})
        task = replace(
            task,
            query=self._source.query,
            given=given.texts,
            gold_checks=given.gold_check_ids,
            earlier_turns=self._source.earlier_turns,
            labels=self._plan.labels | (_OF_GIVEN if given.by_id else frozenset()),
        )
        # In steps, missing evidence and a quote that does not occur where it should are worth a repair, too.
        shown: list[AnswerUnit | PromptChunk] = [*task.sentences, *task.parts, *task.chunks]
        chars = sum(len(each.text) for each in shown)
        prompt = await beside_loop(chars, partial(label_prompt, task, prove=self._plan.in_steps))
        reply = (await self._session.ask(prompt)).reply
        self._failed_gold_check |= given.fails_gold_check(reply)
        return reply

    async def _ask_about_sentences(
        self, ask: Callable[[Sequence[AnswerUnit]], Awaitable[LabelReply]]
    ) -> list[LabelReply]:
        """Call *ask* with groups of at most `MOST_SENTENCES` sentences, and return the LLM's replies in order."""

        def split() -> list[Sequence[AnswerUnit]]:
            by_size = group_by_size(self._source.sentences, self._max_chars)
            return [group for sentences in by_size for group in _split_evenly(sentences, MOST_SENTENCES)]

        groups = await beside_loop(self._source.chars, split)
        replies = await run_concurrently([ask_in_halves(ask, group) for group in groups])
        return [reply for halves in replies for reply in halves]

    def _citations_of(self, chunks: Sequence[PromptChunk]) -> tuple[DistinctCitation, ...]:
        """Return the citations of *chunks*. One of a missing or blank chunk is of none: there is nothing to show."""
        known = {chunk.id for chunk in chunks}
        return tuple(cited for cited in self._source.citations if cited.chunk_id in known)

    def _with_gold_checks(
        self, batch: Sequence[AnswerStatement], chunks: Sequence[PromptChunk]
    ) -> list[AnswerStatement | GoldCheck]:
        """Return the statements of *batch* with gold checks about *chunks* at random places among them."""
        mixed: list[AnswerStatement | GoldCheck] = list(batch)
        for check in self._new_gold_checks(chunks):
            mixed.insert(self._chance.randint(0, len(mixed)), check)
        return mixed

    def _new_gold_checks(self, chunks: Sequence[PromptChunk]) -> tuple[GoldCheck, ...]:
        return gold_checks(chunks, self._chance) if self._plan.with_gold_checks else ()


def _checkable_statements(extraction: LabelReply) -> list[AnswerStatement]:
    return [
        AnswerStatement(index, statement.text)
        for index, statement in enumerate(extraction.statements or ())
        if statement.checkable and statement.text
    ]


def _split_evenly(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Split *items*, in order, into the fewest groups of at most *most* items, all of about equal size."""
    groups = -(-len(items) // most)
    size = -(-len(items) // max(1, groups))
    return [items[at : at + size] for at in range(0, len(items), max(1, size))]
