"""Scoring of stored RAG calls with another judge.

The scores are added to those that the history (an SQLite file of RAG calls) already has.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.price import Price, TokenUsage
from ragtrace.core.reasoning import without_reasoning
from ragtrace.core.types import Document, Evaluation, Judge, Metric, RagCall, Score, Usage, is_uncalibrated
from ragtrace.history.reading import HistoryReader
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter
from ragtrace.offline.batch import Summary, SummaryBuilder
from ragtrace.offline.offline_evaluator import RETRYABLE, OfflineEvaluator, Timeout
from ragtrace.offline.progress import Progress, show_progress
from ragtrace.system.sync_bridge import suppress_instrumentation

if TYPE_CHECKING:
    from ragtrace.history.reading import CallColumns

_CHARS_A_TOKEN: Final = 4.0
_SENTENCE_CHARS: Final = 80.0
_SENTENCES_A_REQUEST: Final = 12


@dataclass(frozen=True, slots=True)
class StoredCalls:
    """Stored RAG calls of a period: those to judge, those judged already and those that cannot be judged."""

    calls: int
    to_judge: tuple[int, ...]
    """Row numbers in an order that is unrelated to the calls, so that a run that stops early has a random sample."""
    judged: int
    """Number of calls that have results of this judge for all metrics."""
    no_content: int
    """Number of calls whose texts are not stored (`capture_content="NO_CONTENT"`)."""
    no_answer: int
    """Number of calls without an answer: the call failed, or no answer was captured."""


@dataclass(frozen=True, slots=True)
class Preview:
    """Number of stored RAG calls that would be judged, with the estimated requests, tokens and cost."""

    calls: int
    to_judge: int
    judged: int
    no_content: int
    no_answer: int
    n_calls: int
    """Estimated number of requests to the judge."""
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """Estimated cost in US dollars; None: the price is not known."""
    basis: str
    """Basis of the estimate in words: earlier calls of a judge, or the lengths of the texts."""


@dataclass(frozen=True, slots=True)
class BackfillOutcome:
    """Result of scoring the calls of a history with a judge."""

    summary: Summary
    """Scores of the calls that were judged in this run."""
    in_period: int
    judged: int
    """Number of calls that had results of this judge before the run."""
    no_content: int
    no_answer: int
    left: int
    """Number of calls that were not judged because the money limit was reached."""
    again: int
    """Number of calls that failed for a reason that may pass, so that a repeated command judges them again."""
    deleted: int
    """Number of calls that were deleted from the history during the run."""
    duration_s: float


def select_calls(
    path: str,
    start: float,
    end: float,
    workflow: str | None,
    judge: Judge,
    metrics: Sequence[Metric],
    *,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> StoredCalls:
    """Select the stored RAG calls that *judge* has not scored yet, and count the other calls by reason.

    Args:
        path: file of the history.
        start: time of the first call, in seconds since the epoch.
        end: time before which the calls end.
        workflow: workflow of the calls; None: all.
        judge: the judge.
        metrics: metrics that are computed from its labels.
        tags: texts of the values of tags that each call has, by name.

    Raises:
        SettingsError: the judge has scored a sample of these calls in the running application.
        SQLiteFileError: there is no history.
        sqlite3.Error: it cannot be read.
    """
    evaluator = f"{judge.id}@{judge.version}"
    with closing(HistoryReader(path, tags=tags)) as reader:
        columns = reader.columns(start, end, workflow)
        _check_probabilities(columns, evaluator)
        done = reader.judged_calls(evaluator, {metric.name: metric.version for metric in metrics})
        to_judge: list[int] = []
        judged = no_content = no_answer = 0
        for number in columns.number.tolist():
            if number in done:
                judged += 1
                continue
            body = reader.body(number)
            if not body or body.get("without_texts"):
                no_content += 1
            elif body.get("answer") is None:
                no_answer += 1
            else:
                to_judge.append(number)
    to_judge.sort(key=lambda number: hashlib.blake2b(b"%d" % number, digest_size=8).digest())
    return StoredCalls(len(columns), tuple(to_judge), judged, no_content, no_answer)


def _check_probabilities(columns: CallColumns, evaluator: str) -> None:
    numbers = [number for number, identity in columns.evaluators.items() if identity == evaluator]
    if (columns.probability[np.isin(columns.evaluator, numbers)] < 1.0).any():
        raise SettingsError(
            f"{evaluator} has judged a sample of these calls as they came, from which their rates are estimated; "
            "scores of the other calls would spoil that sample. Use another judge, model or mode, or other times"
        )


def preview(path: str, chosen: StoredCalls, judge: Judge) -> Preview:
    """Estimate the requests, tokens and cost of judging the selected calls, without sending any request.

    The estimate rests on what this judge took for calls of this history; else on what another LLM judge took there;
    else on the number of characters.
    """
    count = len(chosen.to_judge)
    if judge.type != "llm_judge" and not hasattr(judge, "price"):
        total, basis = Cost(cost_usd=0.0), "this judge sends no requests to a model"
    else:
        total, basis = _by_experience(path, f"{judge.id}@{judge.version}", count) or (
            _by_characters(path, chosen.to_judge, judge),
            "the number of characters: a rough estimate",
        )
    if total.cost_usd is None:
        total = _priced(total, judge)
    known = chosen.calls, count, chosen.judged, chosen.no_content, chosen.no_answer
    return Preview(*known, total.n_calls, total.input_tokens, total.output_tokens, total.cost_usd, basis)


def _by_experience(path: str, evaluator: str, count: int) -> tuple[Cost, str] | None:
    """Estimate the requests, tokens and cost of judging *count* calls from the averages of calls judged earlier.

    Returns:
        The cost, with its price only if *evaluator* itself took it, and which judge took it for how many calls; None if
        no LLM judge has judged calls.
    """
    with closing(HistoryReader(path)) as reader:
        columns = reader.columns(float("-inf"), float("inf"))
    asked = columns.requests > 0
    times = {name: asked & (columns.evaluator == number) for number, name in columns.evaluators.items()}
    name = evaluator if evaluator in times and times[evaluator].any() else ""
    name = name or max(times, key=lambda each: int(times[each].sum()), default="")
    if not name or not times[name].any():
        return None
    rows = times[name]
    counts = (columns.requests, columns.input_tokens, columns.output_tokens)
    requests, read, written = (round(float(each[rows].mean()) * count) for each in counts)
    usd = float(columns.cost_usd[rows].mean()) if name == evaluator else math.nan
    total = Cost(requests, read, written, None if math.isnan(usd) else usd * count)
    return total, f"what {name} took for {int(rows.sum()):,} calls of this history"


def _by_characters(path: str, numbers: Sequence[int], judge: Judge) -> Cost:
    """Estimate the requests and tokens of judging stored calls from the length of their texts.

    A judge in a careful or strict mode sends more requests.
    """
    version = judge.version
    verifications = 3 if "/strict/" in version else int("/careful/" in version)
    requests = read = written = 0
    with closing(HistoryReader(path)) as reader:
        for number in numbers:
            call = stored_call(reader.body(number))
            texts = (call.query or "", call.answer or "", *(document.text for document in call.contexts or ()))
            sentences = max(1.0, len(call.answer or "") / _SENTENCE_CHARS)
            if judge.type != "llm_judge":  # a decision model: one request with short questions, and no text in reply
                requests += 1
                questions = sentences + len(call.contexts or ()) + 2
                # Tokens of a question to a decision model, with its name.
                read += round(sum(map(len, texts)) / _CHARS_A_TOKEN + 30 * questions)
                continue
            mine = math.ceil(sentences / _SENTENCES_A_REQUEST) * (1 + verifications)
            requests += mine
            # Largest number of characters of instructions in a request of ragtrace's LLM judge.
            read += round(mine * (6_000 + sum(map(len, texts))) / _CHARS_A_TOKEN)
            # Number of output tokens assumed for each sentence of the answer.
            written += round(sentences * 60.0 * (1 + verifications))
    return Cost(requests, read, written)


def _priced(cost: Cost, judge: Judge) -> Cost:
    """Return a copy of *cost* with the price of the tokens in dollars.

    The price is None if the price of the judge's model is unknown.
    """
    price: object = getattr(judge, "price", None)
    usd = price.of(TokenUsage(cost.input_tokens, cost.output_tokens)) if isinstance(price, Price) else None
    return replace(cost, cost_usd=usd)


def stored_call(body: Mapping[str, Any]) -> RagCall:
    """Build a `RagCall` from the *body* stored in a history, without earlier turns of the conversation."""
    contexts: Sequence[Mapping[str, Any]] | None = body.get("contexts")
    found = (
        None
        if contexts is None
        else tuple(
            Document(
                each.get("text") or "",
                each.get("id"),
                each.get("score"),
                bool(each.get("duplicate")),
                each.get("cut_chars") or 0,
            )
            for each in contexts
        )
    )
    call = RagCall(
        body.get("query"),
        found,
        body.get("answer"),
        reference=body.get("reference"),
        error=body.get("error"),
        cut_chars=body.get("cut_chars") or 0,
        answer_cut_chars=body.get("answer_cut_chars") or 0,
        contexts_in_part=bool(body.get("contexts_in_part")),
        defect=body.get("defect") or "",
        usage=Usage(body.get("input_tokens"), body.get("output_tokens")),
    )
    return without_reasoning(call)  # which earlier releases have stored


def backfill(
    path: str,
    chosen: StoredCalls,
    *,
    judge: Judge,
    metrics: Sequence[Metric],
    max_usd: float | None = None,
    concurrency: int | None = None,
    timeout: Timeout = "judge",
    quiet: bool = False,
) -> BackfillOutcome:
    """Score the selected calls with *judge*, and add each evaluation to the history file immediately.

    Killed at any moment and started again, it judges the calls that have no results of this judge yet.

    Args:
        path: the history.
        chosen: the calls.
        judge: the judge.
        metrics: metrics to compute from the judge's labels.
        max_usd: money that this run may spend; None: no limit. No call is begun that may exceed it, if it costs as much
            as the most expensive one so far.
        concurrency: calls the judge sees at a time; None: as the judge's own `JudgeLimits` say, or 16.
        timeout: seconds for one call; None: no limit;
            "judge": as the judge's own `JudgeLimits` say, or 120.
        quiet: show no progress.

    Raises:
        JudgeError: the judge kept failing; what it had judged is stored.
        SettingsError: *max_usd* is given, and the judge does not say what it costs.
        sqlite3.Error: the history cannot be written; what was judged is stored.
    """
    began = monotonic()
    writer = HistoryWriter(path, CallOrigin(), most_bytes=0, texts=True)
    with closing(writer), show_progress(len(chosen.to_judge), quiet=quiet) as progress, suppress_instrumentation():
        run = _Backfill(path, writer, progress, max_usd)
        evaluator = OfflineEvaluator(judge, metrics, timeout=timeout, concurrency=concurrency)
        asyncio.run(run.judge_all(evaluator, chosen.to_judge))
    return BackfillOutcome(
        run.builder.summary(),
        chosen.calls,
        chosen.judged,
        chosen.no_content,
        chosen.no_answer,
        len(chosen.to_judge) - run.begun,
        run.again,
        run.deleted,
        monotonic() - began,
    )


class _Backfill:
    """State of one `backfill` in progress: money spent, calls in flight and calls judged."""

    def __init__(self, path: str, writer: HistoryWriter, progress: Progress, max_usd: float | None) -> None:
        self._path, self._writer, self._progress, self._max_usd = path, writer, progress, max_usd
        self._spent = self._dearest = 0.0
        self._in_flight = 0
        self._stopped = False
        self.builder = SummaryBuilder()
        self.begun = self.again = self.deleted = 0

    async def judge_all(self, evaluator: OfflineEvaluator, numbers: Sequence[int]) -> None:
        self._changed = asyncio.Condition()
        async with aclosing(evaluator):
            await evaluator.for_each(self._until_stopped(numbers), lambda number: self._judge(evaluator, number))

    def _until_stopped(self, numbers: Sequence[int]) -> Iterator[int]:
        for number in numbers:
            if self._stopped:
                return
            yield number

    async def _judge(self, evaluator: OfflineEvaluator, number: int) -> None:
        if not await self._admit():
            return
        self.begun += 1
        try:
            with closing(HistoryReader(self._path)) as reader:  # not for longer: an open reader makes the file grow
                body = reader.body(number)
            if not body:
                self.deleted += 1
                return
            evaluation = await evaluator.evaluate_with_retries(stored_call(body))
            self._store(number, evaluation)
        finally:
            async with self._changed:
                self._in_flight -= 1
                self._changed.notify_all()
        if evaluation.error is not None and evaluator.given_up:
            detail = next((result.explanation for result in evaluation.results.values() if result.explanation), "")
            raise JudgeError(evaluation.error, detail)

    async def _admit(self) -> bool:
        """Wait until another call may be started, and return False if the money limit is reached.

        Until the cost of one call is known, calls are judged one by one.
        """
        async with self._changed:
            if self._max_usd is not None:
                await self._changed.wait_for(lambda: self._in_flight == 0 or self._dearest > 0.0 or self._stopped)
                while not self._stopped and self._spent + (self._in_flight + 1) * self._dearest > self._max_usd:
                    if self._in_flight == 0:
                        self._stopped = True
                    else:
                        await self._changed.wait()
            if not self._stopped:
                self._in_flight += 1
            return not self._stopped

    def _store(self, number: int, evaluation: Evaluation) -> None:
        # No await between the judge's answer and the history, so that each evaluation that was paid for is stored.
        cost = Cost.from_report(evaluation)
        self._spent += cost.cost_usd or 0.0
        self._dearest = max(self._dearest, cost.cost_usd or 0.0)
        if evaluation.error in RETRYABLE:  # says nothing about the call: the next run judges the call again
            self.again += 1
        elif not self._writer.add_evaluation(number, evaluation):
            self.deleted += 1
        values = {name: r.value if isinstance(r, Score) else r.reason for name, r in evaluation.results.items()}
        self.builder.add(values, cost, [name for name, r in evaluation.results.items() if is_uncalibrated(r)])
        self._progress.add(cost)
        if self._max_usd is not None and cost.n_calls and cost.cost_usd is None:
            raise SettingsError(
                "--max-usd cannot be kept: the judge does not say what a call costs. Give it a price "
                "(OpenAIJudge(..., price=Price(...)) by module:object), or leave --max-usd out; what was "
                "judged is stored"
            )
