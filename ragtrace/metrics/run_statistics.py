"""`run_consistency_mean`, `_variance`, `_coefficient_of_variation`: how a metric varies over repeated runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import Formula, formula
from ragtrace.metrics.run_consistency import LEAST_RUNS

Results: TypeAlias = "Sequence[Result | float]"


@formula(range=(-math.inf, math.inf), opt_in=True)
def run_consistency_mean(
    call: RagCall, _: Judgement, *, results: Results | None = None, base: Metric | None = None, ddof: int = 0
) -> Result:
    """Mean score of one metric over repeated runs of one query.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sum / number; runs without a score are left out.
    Range: that of the base metric, and its direction.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values).
    Source: the run statistics of the open-rag-eval framework.
    """
    return _statistic(call, results, base, ddof, lambda mean, _: mean)


@formula(range=(0.0, math.inf), higher_is_better=False, opt_in=True)
def run_consistency_variance(
    call: RagCall, _: Judgement, *, results: Results | None = None, base: Metric | None = None, ddof: int = 0
) -> Result:
    """Variance of the scores of one metric over repeated runs of one query.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sum of (value - mean)^2 / (number - ddof), ddof = 0 unless set otherwise.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values).
    Source: the run statistics of the open-rag-eval framework.
    """
    return _statistic(call, results, base, ddof, lambda _, variance: variance)


@formula(range=(0.0, math.inf), higher_is_better=False, opt_in=True)
def run_consistency_coefficient_of_variation(
    call: RagCall, _: Judgement, *, results: Results | None = None, base: Metric | None = None, ddof: int = 0
) -> Result:
    """Standard deviation of the scores of one metric over repeated runs, relative to their mean.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sqrt(variance) / |mean|.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values); `zero_mean`.
    Source: the usual coefficient of variation; not mean / (1 + standard deviation), which some systems call so.
    """
    return _statistic(
        call, results, base, ddof, lambda mean, variance: math.sqrt(variance) / abs(mean) if mean else None
    )


def _statistic(
    call: RagCall,
    results: Results | None,
    base: Metric | None,
    ddof: int,
    compute: Callable[[float, float], float | None],
) -> Result:
    """Return what *compute* makes of mean and variance of *results*, one a run; those without a score are left out.

    Without *results*, *base* (which needs no judge) is computed for each of the runs of *call*.
    """
    if results is None:
        if base is None or len(call.runs or ()) < LEAST_RUNS:
            why = None if base else "no base metric: see run_statistics"
            return Unscored("needs_runs", explanation=why if call.runs else "the call has no runs")
        results = [base(replace(call, answer=run, runs=None), Judgement()) for run in call.runs or ()]
    given = [result.value if isinstance(result, Score) else result for result in results]
    values = [float(value) for value in given if not isinstance(value, Unscored)]
    attributes: dict[str, Plain] = {"runs": len(values), "ddof": ddof}
    more: dict[str, Plain] = {"unscored_runs": len(results) - len(values), "base_metric": _base_name(results, base)}
    if len(values) < LEAST_RUNS:
        seen = f"{len(values)} scored values, at least {LEAST_RUNS} are needed"
        return Unscored("needs_runs", explanation=seen, attributes=attributes | more)
    if not all(math.isfinite(value) for value in values):
        return Unscored("non_finite", attributes=attributes | more)
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof)
    attributes |= {"std": math.sqrt(variance), "values": tuple(values), **more}
    value = compute(mean, variance)
    return Unscored("zero_mean", attributes=attributes) if value is None else Score(value, attributes=attributes)


def _base_name(results: Results, base: Metric | None) -> str:
    names = {result.metric for result in results if isinstance(result, (Score, Unscored)) and result.metric}
    if base is not None:
        names.add(base.name)
    if len(names) > 1:
        raise ValueError(f"statistics are over one metric, got results of {', '.join(sorted(names))}; split them")
    return next(iter(names), "")


METRICS: Final = (run_consistency_mean, run_consistency_variance, run_consistency_coefficient_of_variation)
STATISTICS: Final = {metric.name.removeprefix("run_consistency_"): metric for metric in METRICS}


def run_statistic(statistic: str, base: Metric | None = None, *, ddof: int = 0) -> Formula:
    """Return the metric `run_consistency_{statistic}` of *base*, a metric that needs no judge.

    Args:
        statistic: mean, variance or coefficient_of_variation.
        base: computed for each of the `runs` of a call, as its answer.
        ddof: 0 for the population form, 1 for that of a sample.

    Raises:
        SettingsError: there is no such statistic, *ddof* is neither 0 nor 1, or *base* needs a judge's labels.
    """
    if statistic not in STATISTICS:
        raise SettingsError(f"statistic must be one of {', '.join(STATISTICS)}, got {statistic!r}")
    if ddof not in (0, 1):
        raise SettingsError(f"ddof must be 0 or 1, got {ddof!r}")
    if base is not None and base.needs:
        raise SettingsError(
            f"{base.name!r} needs a judge, so its runs cannot be scored here; score each run and use run_statistics"
        )
    made = STATISTICS[statistic]
    computes = base is None or bool(getattr(base, "computes", False))
    if base is not None and statistic == "mean":
        made = replace(made, higher_is_better=base.higher_is_better, range=base.range)
    return replace(made.variant(made.name, base=base, ddof=ddof), computes=computes)


def run_statistics(results: Results, *, base: Metric | None = None, ddof: int = 0) -> dict[str, Result]:
    """Return mean, variance and coefficient of variation of one metric's results over repeated runs of one query.

    Example: `ragtrace.run_statistics([score["faithfulness"] for score in scores_of_five_runs])`

    Args:
        results: at least three results of one metric, one a run; those without a score are left out and counted.
        base: the metric, for the direction and range of the mean; by default the direction is that of the results.
        ddof: 0 for the population form, 1 for that of a sample.

    Returns:
        The results of `run_consistency_mean`, `run_consistency_variance`, `run_consistency_coefficient_of_variation`.

    Raises:
        ValueError: the results are of more than one metric.
    """
    up = not any(isinstance(result, (Score, Unscored)) and not result.higher_is_better for result in results)
    found: dict[str, Result] = {}
    for made in METRICS:
        if made is run_consistency_mean:
            made = replace(made, higher_is_better=up if base is None else base.higher_is_better)
        metric = made.variant(made.name, results=results, base=base, ddof=ddof)
        found[metric.name] = metric(RagCall(query=None, contexts=None, answer=None))
    return found


FACTORIES: Final = (run_statistic,)
