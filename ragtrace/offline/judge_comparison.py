"""Comparison of judges on the same human-labelled calls: what scores tell, cost and latency, and repeatability."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judge, Metric, Score
from ragtrace.estimates.agreement import Interval
from ragtrace.estimates.curve_fitting import DiagramBar, fit_scores, reliability_diagram
from ragtrace.estimates.discrimination import BAD, Discrimination, auroc_difference, discrimination
from ragtrace.estimates.formulas import Floats, wilson_interval
from ragtrace.estimates.score_curve import ScoreCalibration
from ragtrace.offline.labelled_calls import LabelledFileCall
from ragtrace.offline.offline_evaluator import OfflineEvaluator, Timeout
from ragtrace.system.sync_bridge import suppress_instrumentation


@dataclass(frozen=True, slots=True)
class Contestant:
    """Judge that takes part in a comparison, with the metric whose score is held against the labels."""

    name: str
    """As the user wrote it."""
    judge: Judge
    metric: Metric


@dataclass(frozen=True, slots=True)
class CalibratedScores:
    """What the labels make of a judge's scores: curves that were not fitted to the calls they are measured on."""

    quality: Discrimination
    calibration: ScoreCalibration
    diagram: tuple[DiagramBar, ...]


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """What one judge's scores tell about the labels, and what they took."""

    name: str
    evaluator: str
    """As id@version."""
    metric: str
    served_models: tuple[str, ...]
    """Models that the judge's server said it ran."""
    unscored: Mapping[str, int]
    """Number of calls without a score in the first run, by reason."""
    quality: Discrimination | None
    """Quality of the scores as they are, on the calls that all judges scored; None: there is no such call."""
    calibrated: CalibratedScores | None
    same_verdict: Interval | None
    """Share of the calls with the same verdict in two runs; None: there was one run, or no call was scored twice."""
    mean_change: float | None
    """Mean absolute difference of the scores of two runs."""
    usd_a_call: float | None
    """Mean cost of a call in US dollars; None: the price is not known."""
    seconds_a_call: float
    below_best: Interval | None
    """AUROC of the best judge less this one's, on the same calls; None: this is the best, or labels are of one kind."""

    @property
    def is_worse(self) -> bool:
        """Whether the judge is significantly worse than the best one."""
        return self.below_best is not None and self.below_best.low > 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of judges on the calls that all of them scored."""

    results: tuple[JudgeResult, ...]
    compared: int
    """Number of labelled calls that all judges scored."""
    bad: int
    best: str
    """Name of the judge with the highest AUROC; empty: labels are of one kind."""
    cheapest: str
    """Name of the cheapest judge that is not significantly worse than the best; empty: no price is known."""


@dataclass(slots=True)
class _Run:
    """Scores of all calls by one judge in one run, as badness by position."""

    badness: dict[int, float]
    unscored: Counter[str]
    models: set[str]
    usd: list[float | None]
    seconds: list[float]


def compare_judges(
    contestants: Sequence[Contestant],
    calls: Sequence[LabelledFileCall],
    *,
    runs: int = 2,
    timeout: Timeout = "judge",
    concurrency: int | None = None,
) -> Comparison:
    """Have each judge score all labelled calls, and compare the scores with the labels and with each other.

    Args:
        contestants: the judges, with different names.
        calls: the labelled calls.
        runs: 1 or 2: how often each judge scores each call; the second run shows how far it agrees with itself.
        timeout: seconds a judge has for a call; None: no limit;
            "judge": as the judge's own `JudgeLimits` say, or 120.
        concurrency: calls that a judge sees at a time; None: as the judge's own `JudgeLimits` say, or 16.

    Raises:
        SettingsError: two judges have one name.
    """
    if len({each.name for each in contestants}) < len(contestants):
        raise SettingsError("two judges are the same; name each of them once")

    async def run_all() -> list[list[_Run]]:
        compared: list[list[_Run]] = []
        for each in contestants:  # Python 3.10 has no asynchronous comprehension inside another comprehension
            compared.append([await _run(each, calls, timeout, concurrency) for _ in range(runs)])  # noqa: PERF401
        return compared

    with suppress_instrumentation():
        found = asyncio.run(run_all())
    scored = [at for at in range(len(calls)) if all(at in mine[0].badness for mine in found)]
    labels = [calls[at].bad for at in scored]
    groups = [calls[at].question or ("", at) for at in scored]
    scores = [[mine[0].badness[at] for at in scored] for mine in found]
    qualities = [discrimination(labels, mine, groups) if scored else None for mine in scores]
    best = _best(qualities)
    results: list[JudgeResult] = []
    for place, (each, mine) in enumerate(zip(contestants, found, strict=True)):
        first, prices = mine[0], [price for run in mine for price in run.usd]
        same, change = _repeated(mine)
        behind = (
            None if best is None or best == place else auroc_difference(labels, scores[best], scores[place], groups)
        )
        results.append(
            JudgeResult(
                each.name, f"{each.judge.id}@{each.judge.version}", each.metric.name,
                tuple(sorted({model for run in mine for model in run.models})),
                dict(first.unscored), qualities[place],
                _calibrated(labels, scores[place], groups) if scored else None, same, change,
                None if None in prices else fmean(price for price in prices if price is not None),
                fmean(first.seconds), behind,
            )
        )  # fmt: skip
    return Comparison(
        tuple(results), len(scored), sum(labels), "" if best is None else results[best].name, _cheapest(results, best)
    )


async def _run(each: Contestant, calls: Sequence[LabelledFileCall], timeout: Timeout, concurrency: int | None) -> _Run:
    run = _Run({}, Counter(), set(), [], [])
    made = OfflineEvaluator(each.judge, [each.metric], timeout=timeout, concurrency=concurrency)
    async with aclosing(made) as evaluator:

        async def score(at: int) -> None:
            evaluation = await evaluator.evaluate_with_retries(calls[at].call)
            result = evaluation.results[each.metric.name]
            run.seconds.append(evaluation.duration_s)
            # A judge that sends no requests costs nothing.
            run.usd.append(evaluation.cost_usd if evaluation.n_calls else evaluation.cost_usd or 0.0)
            if evaluation.served_model:
                run.models.add(evaluation.served_model)
            if isinstance(result, Score):
                value = min(1.0, max(0.0, result.value))
                run.badness[at] = 1.0 - value if result.higher_is_better else value
            else:
                run.unscored[result.reason] += 1

        await evaluator.for_each(range(len(calls)), score)
    return run


def _best(qualities: Sequence[Discrimination | None]) -> int | None:
    """Return the position of the judge with the highest AUROC, or None if there is no AUROC."""
    values = [-1.0 if each is None or each.auroc is None else each.auroc.value for each in qualities]
    return None if not values or max(values) < 0.0 else int(np.argmax(values))


def _repeated(runs: Sequence[_Run]) -> tuple[Interval | None, float | None]:
    """Return the share of the calls with the same verdict in both runs, and the mean change of their scores."""
    both = [at for at in runs[0].badness if at in runs[-1].badness] if len(runs) > 1 else []
    if not both:
        return None, None
    pairs = [(runs[0].badness[at], runs[1].badness[at]) for at in both]
    share = fmean((first >= BAD) == (second >= BAD) for first, second in pairs)
    low, high = wilson_interval(share, float(len(pairs)), Floats())
    return Interval(share, low, high), fmean(abs(first - second) for first, second in pairs)


def _calibrated(labels: Sequence[bool], scores: Sequence[float], groups: Sequence[object]) -> CalibratedScores:
    values = [float(label) for label in labels]
    weights = [1.0] * len(scores)
    fitted = fit_scores(scores, values, weights, [repr(group) for group in groups], np.array(scores))
    mine = fitted.labelled.tolist()
    return CalibratedScores(
        discrimination(labels, mine, [repr(group) for group in groups]),
        fitted.calibration,
        tuple(reliability_diagram(mine, values, weights)),
    )


def _cheapest(results: Sequence[JudgeResult], best: int | None) -> str:
    """Return the name of the cheapest judge that is not significantly worse than the best, the better of equal ones."""
    if best is None:
        return ""
    able = [each for each in results if not each.is_worse and each.usd_a_call is not None]
    return min(able, key=lambda each: (each.usd_a_call or 0.0, -_auroc(each))).name if able else ""


def _auroc(each: JudgeResult) -> float:
    return each.quality.auroc.value if each.quality is not None and each.quality.auroc is not None else -math.inf
