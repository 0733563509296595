"""Scoring of one call without tracing (`score` and `ascore`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

from ragtrace.core.types import Evaluation, Judge, Metric, RagCall, Result, Results
from ragtrace.evaluation.metric_selection import check_type, embedded_judge, metrics_for
from ragtrace.offline.call_records import build_call
from ragtrace.offline.offline_evaluator import OfflineEvaluator
from ragtrace.system.sync_bridge import run_on_own_loop, suppress_instrumentation


def score(
    *,
    answer: str | None,
    contexts: object = None,
    query: str | None = None,
    reference: str | None = None,
    reference_contexts: object = None,
    turns: Sequence[object] | None = None,
    runs: Sequence[str] | None = None,
    parts: Sequence[object] | None = None,
    conversation_id: str | None = None,
    metrics: str | Sequence[str | Metric] | None = None,
    judge: Judge | None = None,
) -> Mapping[str, Result]:
    """Score one call without tracing, for instance in a test, a notebook or an offline run.

    Runs with or without an event loop in the caller's thread; in one that is running, `ascore` does not block it.

    Examples:
        >>> scores = ragtrace.score(
        ...     query="Where is the tower?",
        ...     contexts=["The tower is in Paris."],
        ...     answer="The tower is in Berlin.",
        ... )
        >>> scores["consistency"], scores["answered"]
        (Score(0.15316, metric='consistency'), Score(1, metric='answered', label='answered'))

    Args:
        answer: what the application answered.
        contexts: what it retrieved, in anything `@retrieve` understands; None: unknown, [] : nothing was found.
        query: what it was asked.
        reference: the right answer, for metrics that need one.
        reference_contexts: the passages a right answer rests on, like `contexts`.
        turns: the conversation up to and including this answer: `Turn` objects or {"role": ..., "text": ...}. A judge
            is shown the latest six before the query, to understand it.
        runs: answers of repeated runs of the same query, in order.
        parts: the answer's parts and what each cites: `CitedPart` objects or {"text": ..., "cited": [...]}; None:
            citation markers are read.
        conversation_id: which conversation the call belongs to.
        metrics: names or `Metric` objects; default: the usual ones that the judge offers; "all": every one that
            costs no judge calls of its own.
        judge: default `EmbeddedJudge()`.

    Returns:
        For each metric a `Score`, or an `Unscored` that says why there is none.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: the judge does not offer that metric, or a part of the call cannot be understood.
    """
    call = build_call(
        answer=answer, contexts=contexts, query=query, reference=reference, reference_contexts=reference_contexts,
        turns=turns, runs=runs, parts=parts, conversation_id=conversation_id,
    )  # fmt: skip
    return Results(evaluate_call(call, metrics, judge).results)


async def ascore(
    *,
    answer: str | None,
    contexts: object = None,
    query: str | None = None,
    reference: str | None = None,
    reference_contexts: object = None,
    turns: Sequence[object] | None = None,
    runs: Sequence[str] | None = None,
    parts: Sequence[object] | None = None,
    conversation_id: str | None = None,
    metrics: str | Sequence[str | Metric] | None = None,
    judge: Judge | None = None,
) -> Mapping[str, Result]:
    """Score one call without tracing, as `score` does, but without blocking the event loop.

    Calls that overlap on one event loop with the same judge share its bounded concurrency; its connections are closed
    when the last of them is done.

    Examples:
        >>> import asyncio
        >>> scores = asyncio.run(ragtrace.ascore(contexts=["The tower is in Paris."], answer="In Paris."))
        >>> scores["consistency"].value
        1.0

    Args:
        answer: and all others: as of `score`.

    Returns:
        For each metric a `Score`, or an `Unscored` that says why there is none.

    Raises:
        UnknownMetricError: no metric has that name.
        SettingsError: the judge does not offer that metric, or a part of the call cannot be understood.
    """
    call = build_call(
        answer=answer, contexts=contexts, query=query, reference=reference, reference_contexts=reference_contexts,
        turns=turns, runs=runs, parts=parts, conversation_id=conversation_id,
    )  # fmt: skip
    return Results((await _evaluate(call, metrics, judge)).results)


def evaluate_call(call: RagCall, metrics: str | Sequence[str | Metric] | None, judge: Judge | None) -> Evaluation:
    """Evaluate one call on a new event loop, whether or not the caller's thread has a running one."""
    return run_on_own_loop(lambda: _evaluate(call, metrics, judge))


async def _evaluate(call: RagCall, metrics: str | Sequence[str | Metric] | None, judge: Judge | None) -> Evaluation:
    check_type("judge", judge, Judge)
    judge = judge or embedded_judge()
    wanted = metrics_for(judge, metrics)
    with suppress_instrumentation():
        async with _shared_evaluator(judge, wanted) as evaluator:
            return await evaluator.evaluate(call)


class _SharedEvaluator:
    """Evaluators with one judge on one event loop, shared by overlapping scoring calls, with a reference count."""

    def __init__(self) -> None:
        self.users = 0
        self.evaluators: dict[tuple[int, ...], OfflineEvaluator] = {}


_uses: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, _SharedEvaluator]]] = WeakKeyDictionary()


@asynccontextmanager
async def _shared_evaluator(judge: Judge, metrics: tuple[Metric, ...]) -> AsyncGenerator[OfflineEvaluator, None]:
    """Yield an evaluator that overlapping scoring calls with the same judge share.

    The last of these calls closes it.
    """
    uses = _uses.setdefault(asyncio.get_running_loop(), {})
    use = uses.setdefault(id(judge), _SharedEvaluator())
    use.users += 1
    try:
        key = tuple(id(metric) for metric in metrics)
        if key not in use.evaluators:
            use.evaluators[key] = OfflineEvaluator(judge, metrics)
        yield use.evaluators[key]
    finally:
        use.users -= 1
        if not use.users:
            uses.pop(id(judge), None)
            for evaluator in use.evaluators.values():
                await evaluator.aclose()
