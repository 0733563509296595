"""Scoring of one call: labels from the judge, scores computed from the labels, a reason for every missing score."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any, Final, NamedTuple

from ragtrace.core.cost import Cost, turn_tokens
from ragtrace.core.errors import JudgeError
from ragtrace.core.text import OwnText, encodable, encodable_name
from ragtrace.core.types import (
    Closable,
    Evaluation,
    EvaluatorType,
    Judge,
    Judgement,
    Metric,
    Plain,
    RagCall,
    Result,
    Score,
    Unscored,
)
from ragtrace.evaluation.earlier_turns import MOST_TURNS, with_earlier_turns
from ragtrace.evaluation.judge_client import JudgeClient, is_cached
from ragtrace.system.fair_semaphore import TimeLimitError, WorkCancelledError, run_within
from ragtrace.system.faults import faults
from ragtrace.system.threads import BlockingCalls, NoThreadError

_SLACK: Final = 1e-9
"""Distance by which a score may overstep its metric's range, because of rounding."""
_TRUNCATED: Final = "texts_truncated"
TRUNCATED_ANSWER: Final = "truncated_answer_chars"
"""Attribute of a score: number of characters at the end of the answer that were not judged."""
TRUNCATED_CHUNKS: Final = "truncated_chunks"
"""Attribute of a score: number of chunks of which the end was not judged."""
_IN_PART: Final = "contexts_in_part"
"""Attribute of a score: whether the retrieval returned more documents than were read."""
_REASONING: Final = "reasoning_chars"
"""Attribute of a score: number of characters of reasoning before the answer that were not judged."""
JUDGE_INPUT_TRUNCATED: Final = "judge_input_truncated"
"""Attribute of a score: whether the judge's server cut its input, which may be any of the texts."""
_DEFECTS: Final[Mapping[str, str]] = {
    "contexts_without_text": "the spans of the retrieval have the ids of the documents but not their texts; switch on "
    "the capture of contents in that instrumentation, or have ragtrace listen to the framework itself",
    "contexts_ambiguous": "several generations under the same span ran at the same time, and which of them used which "
    "documents cannot be seen in their prompts; give each request a span of its own",
    _TRUNCATED: "texts of the call were cut before they reached its spans: raise the limit of the instrumentation, or "
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT; or a retrieval returned more documents than ragtrace reads: return fewer, "
    "or choose them with documents=; or what came with the answer are beginnings of documents: return them whole, or "
    "decorate what retrieves",
}
"""Explanation of each defect that a call may have."""


class LabelFreeJudge:
    """Judge that gives no labels, for metrics that are computed from the call alone, such as latencies."""

    computes = True
    """Whether the judge only computes, so that it is asked without deadline, cache or queue.

    The attribute of a metric of the same name marks pure arithmetic, which needs no thread.
    """
    id, version = "ragtrace", "1"
    type: EvaluatorType = "deterministic"

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* can be computed without a judge's labels."""
        return not metric.needs

    async def judge(self, call: RagCall) -> Judgement:
        """Return an empty judgement, without any label."""
        return Judgement()


class Evaluator:
    """Evaluator of calls: a judge with its client, and the metrics that are computed from its labels.

    Args:
        judge: the judge.
        metrics: the metrics.
        timeout: seconds that judging a call may take, retries included, and then again each metric that is not pure
            arithmetic, as a user's own; None: no limit.
        concurrency: calls that the judge sees at a time.
        judge_turns: most earlier turns of a conversation that the judge is shown.
    """

    def __init__(
        self,
        judge: Judge,
        metrics: tuple[Metric, ...],
        timeout: float | None = None,
        *,
        concurrency: int = 16,
        judge_turns: int = MOST_TURNS,
    ) -> None:
        self.judge, self.metrics, self.timeout, self.judge_turns = judge, metrics, timeout, judge_turns
        self.concurrency = concurrency
        self.judge_client = JudgeClient(judge, timeout=timeout, concurrency=concurrency)
        self.threads = BlockingCalls(concurrency, f"metrics of {judge.id}")

    async def aclose(self) -> None:
        """Close the judge after the last call, so that it releases its connections."""
        if isinstance(self.judge, Closable):
            try:
                await self.judge.aclose()
            except Exception as error:
                faults.record(f"closing judge {self.id}", error)

    @property
    def id(self) -> str:
        """Id of the evaluator: the id of its judge."""
        return self.judge.id

    @property
    def identity(self) -> str:
        """Id and version of the evaluator as `id@version`, which every result carries."""
        return f"{self.judge.id}@{self.judge.version}"


class Evaluators(NamedTuple):
    """The evaluators of one process, in the order in which they evaluate a call.

    An evaluator that is not configured is None.
    """

    measure: Evaluator | None
    """Evaluator of the metrics that need no labels, such as latencies, for every call (`LabelFreeJudge`)."""
    screen: Evaluator | None
    """Evaluator that is cheap enough for every call, by default with the embedded judge, which asks no model. What it
    finds may make it more probable that the judge sees a call."""
    judge: Evaluator | None
    """Evaluator, usually with a language model, that sees the sampled calls."""

    async def aclose(self) -> None:
        """Close the judges of all evaluators after the last call, so that they release their connections."""
        for evaluator in self:
            if evaluator is not None:
                await evaluator.aclose()


class _Failure(NamedTuple):
    """What is kept of the `JudgeError` of a call.

    Not the error itself: the frame that keeps an error is in the error's traceback, so that the texts of the call would
    wait for the garbage collector.
    """

    reason: str
    detail: str
    deferred: bool


async def evaluate(
    evaluator: Evaluator,
    call: RagCall,
    probability: float = 1.0,
    on_begin: Callable[[], object] | None = None,
    *,
    bypass_cache: bool = False,
) -> Evaluation:
    """Ask the judge about a call and compute the evaluator's metrics. Failures become unscored results, not exceptions.

    Args:
        evaluator: the evaluator.
        call: the call.
        probability: inclusion probability of the call, in (0, 1].
        on_begin: called once, after the wait in the admission queue and just before the judge is asked; not called if
            the call must not be judged.
        bypass_cache: whether the judge is asked also where an identical call was judged before.
    """
    if not call.answer_captured or call.defect == _TRUNCATED:
        # Where the spans have a defect, too, it is the reason: it says what to change.
        return await _without_judging(evaluator, call, probability, call.defect or "answer_not_captured")
    client = evaluator.judge_client
    if not client.computes:
        call = with_earlier_turns(call, evaluator.judge_turns)
    failed: _Failure | None = None
    # In a burst, calls wait here, before their time limit starts.
    async with nullcontext() if client.computes else client.admission_queue:
        if on_begin is not None:
            on_begin()
        started_at = perf_counter()
        try:
            # Retryable errors are retried, but not while the circuit is open: four tries at most. If there is a time
            # limit, tries that the judge answers with a Retry-After do not count.
            judgement = await client.ask(call, bypass_cache=bypass_cache)
        except JudgeError as error:  # has the cost of the requests that were made, as a judgement has
            judgement = Cost.from_report(error).set_on_judgement(Judgement())
            failed = _Failure(error.reason, error.detail, error.deferred)
        took = perf_counter() - started_at
        if not client.computes:
            # Computing scores blocks the event loop. In a burst, another call waits in `ask` for the slot of the judge
            # that this one has left (the admission queue lets in twice as many as the judge sees): it goes first.
            # Turns of the event loop that pass between the judge's reply and the computation of the call's scores. In
            # the third turn, the judge's coroutine begins for the next call, which has got the slot that the reply has
            # freed; the fourth is for what this coroutine awaits first. With fewer turns, the next request would wait
            # for the computation.
            for _ in range(4):
                await asyncio.sleep(0)
        if failed is None:
            results = {
                metric.name: await _compute_metric(evaluator, metric, call, judgement) for metric in evaluator.metrics
            }
        else:
            why, detail, _ = failed
            results = {metric.name: _unscored(evaluator, metric, why, detail) for metric in evaluator.metrics}
    if cut := _cuts(call):
        computed = {each.name for each in evaluator.metrics if not each.needs and getattr(each, "computes", False)}
        skipped = computed if client.computes else set[str]()  # latencies, say, which read no texts
        results = {name: result if name in skipped else _with_cuts(result, cut) for name, result in results.items()}
    if call.contexts_in_part:
        results = {each.name: _of_part(evaluator, each, results[each.name]) for each in evaluator.metrics}
    if call.defect:
        results = {name: _with_defect(result, call.defect) for name, result in results.items()}
    return Evaluation(
        evaluator=evaluator.judge.id,
        version=evaluator.judge.version,
        type=evaluator.judge.type,
        results=results,
        probability=probability,
        duration_s=took,
        n_calls=judgement.n_calls,
        input_tokens=judgement.input_tokens,
        output_tokens=judgement.output_tokens,
        cost_usd=judgement.cost_usd,
        error=None if failed is None else failed.reason,
        cached=is_cached(judgement),
        turn_tokens=0 if is_cached(judgement) else turn_tokens(judgement),
        served_model=judgement.served_model,
        deferred=failed is not None and failed.deferred,  # no request was made, or the judge asked for a pause
    )


def _cuts(call: RagCall) -> Mapping[str, int]:
    """Return how much of the texts of *call* nobody judges, as attributes of its scores."""
    counts = {
        _REASONING: call.reasoning_chars,
        TRUNCATED_ANSWER: call.answer_cut_chars,
        TRUNCATED_CHUNKS: sum(document.cut_chars > 0 for document in call.contexts or ()),
        _IN_PART: call.contexts_in_part,
    }
    return {name: count for name, count in counts.items() if count}


def _with_cuts(result: Result, cut: Mapping[str, int]) -> Result:
    """Return *result* with what was *cut* before the judge saw the call, which may have cut more by itself."""
    given: object = result.attributes  # a user's metric may have set attributes of any type
    if not isinstance(result, Score) or not isinstance(given, Mapping):
        return result
    attributes: Mapping[str, Plain] = result.attributes
    own = {name: found for name in cut if isinstance(found := attributes.get(name), int)}
    return replace(result, attributes={**attributes, **{name: max(n, own.get(name, 0)) for name, n in cut.items()}})


def _of_part(evaluator: Evaluator, metric: Metric, result: Result) -> Result:
    """Return the *result* of a call whose contexts are a part of what was retrieved, or why there is none.

    What was not read may support a statement, and may contradict it.
    """
    if not isinstance(result, Score):
        return result
    reads: frozenset[str] | None = getattr(metric, "reads", None)
    if reads is None:  # a metric that does not say what it reads of the statements may read all of it
        reads = frozenset({"support", "denial"} if "claims" in metric.needs else ())
    of_support = "support" in reads or bool({"consistency", "citations"} & metric.needs)
    is_best = result.value == metric.range[1 if metric.higher_is_better else 0]
    if not of_support or (is_best and "denial" not in reads):
        return result
    return _unscored(evaluator, metric, _TRUNCATED, _DEFECTS[_TRUNCATED])


def _with_defect(result: Result, defect: str) -> Result:
    """Return *result* with the reason `contexts_missing` replaced by *defect*, the more specific reason."""
    if isinstance(result, Unscored) and result.reason == "contexts_missing":
        return replace(result, reason=defect, explanation=OwnText(_DEFECTS[defect]) if defect in _DEFECTS else None)
    return result


async def _without_judging(evaluator: Evaluator, call: RagCall, probability: float, reason: str) -> Evaluation:
    """Evaluate, without asking the judge, a call whose answer was not captured or whose texts were cut.

    Metrics that need no labels and are pure arithmetic, such as latencies, have scores; all others are unscored.

    Args:
        reason: the reason of the unscored metrics.
    """
    results: dict[str, Result] = {}
    for metric in evaluator.metrics:
        if not metric.needs and getattr(metric, "computes", False):
            results[metric.name] = await _compute_metric(evaluator, metric, call, Judgement())
        else:
            results[metric.name] = _unscored(evaluator, metric, reason, _DEFECTS.get(reason, ""))
    judge = evaluator.judge
    return Evaluation(judge.id, judge.version, judge.type, results, probability, cost_usd=0.0)


def _unscored(evaluator: Evaluator, metric: Metric, reason: str, detail: str) -> Unscored:
    return Unscored(
        reason,
        metric=metric.name,
        metric_version=metric.version,
        higher_is_better=metric.higher_is_better,
        explanation=OwnText(encodable(detail)) if detail else None,
        evaluator=evaluator.identity,
    )


async def _compute_metric(evaluator: Evaluator, metric: Metric, call: RagCall, judgement: Judgement) -> Result:
    """Compute one metric of a call.

    Unless the metric is pure arithmetic, it runs on a thread and within the time limit.
    """
    try:
        if getattr(metric, "computes", False):
            return _validated_result(evaluator, metric, metric(call, judgement))
        work = evaluator.threads.run(metric, call, judgement)
        return _validated_result(evaluator, metric, await run_within(evaluator.timeout, work))
    except (TimeLimitError, WorkCancelledError, NoThreadError) as error:
        return _unscored(evaluator, metric, "metric_error", str(error))
    except Exception as error:
        faults.record(f"metric {metric.name}", error)
        return _unscored(evaluator, metric, "metric_error", type(error).__name__)


def _validated_result(evaluator: Evaluator, metric: Metric, result: object) -> Result:
    if not isinstance(result, (Score, Unscored)):  # a user's metric may return any type
        wrong = f"it returned {type(result).__name__}, not a Score or an Unscored"
        return _unscored(evaluator, metric, "metric_error", wrong)
    value = 0.0
    if isinstance(result, Score):
        low, high = metric.range
        value = float(result.value)  # exports an int or a numpy number as a float
        if not (low - _SLACK <= value <= high + _SLACK):
            reason = "out_of_range" if math.isfinite(value) else "non_finite"
            return _unscored(evaluator, metric, reason, f"{value!r} is outside [{low:g}, {high:g}]")
    name, version, up = metric.name, metric.version, metric.higher_is_better
    why, identity = result.explanation, evaluator.identity
    why = None if why is None else encodable(why)
    # Not dataclasses.replace, which takes longer than most metrics do.
    about = (result.mode, result.n_calls, result.input_tokens, result.output_tokens, result.attributes)
    label = None if isinstance(result, Unscored) or result.label is None else encodable_name(result.label)
    if type(result) is Score:
        return Score(value, name, version, up, label, why, identity, *about, result.claims)
    if type(result) is Unscored:
        return Unscored(result.reason, name, version, up, why, identity, *about)
    changes: dict[str, Any] = {"metric": name, "metric_version": version, "higher_is_better": up, "explanation": why}
    if isinstance(result, Score):
        changes |= {"value": value, "label": label}
    return replace(result, evaluator=identity, **changes)  # a subclass, by a metric of the user's
