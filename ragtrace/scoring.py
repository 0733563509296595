"""One call and one judge to results: labels from the judge, arithmetic from the metrics, a reason for any failure."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from ragtrace.errors import JudgeError, faults
from ragtrace.model import JUDGE_ERROR, Evaluation, Judge, Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.redact import encodable

_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Evaluator:
    """A judge and the metrics that are computed from its labels."""

    judge: Judge
    metrics: tuple[Metric, ...]
    timeout: float | None = None
    """Seconds a call may be judged for; None for a judge that only computes."""

    @property
    def id(self) -> str:
        """The judge's id."""
        return self.judge.id


async def evaluate(evaluator: Evaluator, call: RagCall, probability: float = 1.0) -> Evaluation:
    """Judge *call* and compute all metrics of *evaluator*. Whatever goes wrong is a reason, not an exception."""
    began = perf_counter()
    judgement, reason, detail = await _judge(evaluator, call)
    if judgement is None:
        results = _all_unscored(evaluator.metrics, reason, detail)
        judgement = Judgement()
    else:
        results = {metric.name: _apply(metric, call, judgement) for metric in evaluator.metrics}
    identity = f"{evaluator.judge.id}@{evaluator.judge.version}"
    return Evaluation(
        evaluator=evaluator.judge.id,
        version=evaluator.judge.version,
        type=evaluator.judge.type,
        results={name: replace(result, evaluator=identity) for name, result in results.items()},
        probability=probability,
        duration_s=perf_counter() - began,
        n_calls=judgement.n_calls,
        input_tokens=judgement.input_tokens,
        output_tokens=judgement.output_tokens,
        cost_usd=judgement.cost_usd,
        error=reason or None,
    )


async def _judge(evaluator: Evaluator, call: RagCall) -> tuple[Judgement | None, str, str]:
    judging = asyncio.ensure_future(_labels(evaluator.judge, call))
    try:
        # Unlike wait_for, this tells our own cancellation from one that the judge raises or lets through.
        await asyncio.wait({judging}, timeout=evaluator.timeout)
    finally:
        late = not judging.done()
        judging.cancel()
    if late or judging.cancelled():
        return None, "timeout", f"no judgement within {evaluator.timeout} s" if late else "the judge was cancelled"
    return judging.result()


async def _labels(judge: Judge, call: RagCall) -> tuple[Judgement | None, str, str]:
    """What *judge* says of *call*; else None, a reason and a detail."""
    try:
        judgement: object = await judge.judge(call)
    except (TimeoutError, asyncio.TimeoutError) as error:
        return None, "timeout", str(error)
    except JudgeError as error:
        return None, error.reason if error.reason in JUDGE_ERROR else "unavailable", error.detail
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # a judge that calls sys.exit() must not end the background
        faults.record(f"judge {judge.id}", error)
        return None, "unavailable", type(error).__name__
    if not isinstance(judgement, Judgement):  # a user's judge may return anything
        return None, "unparsable", f"the judge returned {type(judgement).__name__}, not a Judgement"
    return judgement, "", ""


def _all_unscored(metrics: Sequence[Metric], reason: str, detail: str) -> dict[str, Result]:
    return {metric.name: _unscored(metric, reason, detail) for metric in metrics}


def _unscored(metric: Metric, reason: str, detail: str) -> Unscored:
    return Unscored(
        reason,
        metric=metric.name,
        metric_version=metric.version,
        higher_is_better=metric.higher_is_better,
        explanation=encodable(detail) or None,
    )


def _apply(metric: Metric, call: RagCall, judgement: Judgement) -> Result:
    try:
        result: object = metric(call, judgement)
        if isinstance(result, Score):
            result = replace(result, value=float(result.value))  # also of an int or a numpy number: a double goes out
    except Exception as error:
        faults.record(f"metric {metric.name}", error)
        return _unscored(metric, "metric_error", type(error).__name__)
    if not isinstance(result, (Score, Unscored)):  # a user's metric may return anything
        return _unscored(metric, "metric_error", f"it returned {type(result).__name__}, not a Score or an Unscored")
    low, high = metric.range
    if isinstance(result, Score) and not (low - _SLACK <= result.value <= high + _SLACK):
        reason = "out_of_range" if math.isfinite(result.value) else "non_finite"
        return _unscored(metric, reason, f"{result.value!r} is outside [{low:g}, {high:g}]")
    return replace(
        result,
        metric=metric.name,
        metric_version=metric.version,
        higher_is_better=metric.higher_is_better,
        explanation=None if result.explanation is None else encodable(result.explanation),
    )
