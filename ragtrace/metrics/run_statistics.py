"""`run_consistency_mean`, `_variance`, `_coefficient_of_variation`: how much a metric scatters over repeated runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, Metric, Plain, RagCall, Result, Score, Unscored

STATISTICS: Final = ("mean", "variance", "coefficient_of_variation")
LEAST_RUNS: Final = 3
_NOTHING: Final = Judgement()


def mean_of(values: Sequence[float], *, ddof: int = 0) -> Result:
    """Mean score of one metric over repeated runs of one query.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sum / number; runs without a score are left out.
    Range: that of the base metric, and its direction.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values).
    Source: the run statistics of the open-rag-eval framework.
    """
    return _statistic(values, ddof, _mean)


def variance_of(values: Sequence[float], *, ddof: int = 0) -> Result:
    """Variance of the scores of one metric over repeated runs of one query.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sum of (value - mean)^2 / (number - ddof), ddof = 0 unless set otherwise.
    Range: [0, inf), lower is better.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values).
    Source: the run statistics of the open-rag-eval framework.
    """
    return _statistic(values, ddof, _variance)


def coefficient_of_variation_of(values: Sequence[float], *, ddof: int = 0) -> Result:
    """Standard deviation of the scores of one metric over repeated runs, relative to their mean.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sqrt(variance) / |mean|.
    Range: [0, inf), lower is better.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values); `zero_mean`.
    Source: the usual coefficient of variation; not mean / (1 + standard deviation), which some systems call so.
    """
    return _statistic(values, ddof, _coefficient)


def _statistic(values: Sequence[float], ddof: int, compute: Callable[[Sequence[float], int], float | None]) -> Result:
    if len(values) < LEAST_RUNS:
        seen = f"{len(values)} scored values, at least {LEAST_RUNS} are needed"
        return Unscored("needs_runs", explanation=seen, attributes={"runs": len(values), "ddof": ddof})
    if not all(math.isfinite(value) for value in values):
        return Unscored("non_finite", attributes={"runs": len(values), "ddof": ddof})
    value = compute(values, ddof)
    std = math.sqrt(_variance(values, ddof))
    attributes: dict[str, Plain] = {"runs": len(values), "ddof": ddof, "std": std, "values": tuple(values)}
    return Unscored("zero_mean", attributes=attributes) if value is None else Score(value, attributes=attributes)


def _mean(values: Sequence[float], _: int) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float], ddof: int) -> float:
    mean = _mean(values, ddof)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof)


def _coefficient(values: Sequence[float], ddof: int) -> float | None:
    mean = _mean(values, ddof)
    return math.sqrt(_variance(values, ddof)) / abs(mean) if mean else None


_COMPUTE: Final = {"mean": mean_of, "variance": variance_of, "coefficient_of_variation": coefficient_of_variation_of}


@dataclass(frozen=True, slots=True)
class RunStatistic:
    """`run_consistency_mean`, `_variance` or `_coefficient_of_variation` of a base metric over the runs of a call.

    On a call with `runs` the base metric, which must need no judge, is computed for each of them as the answer. Scores
    that a judge gave are put to `run_statistics` instead.
    """

    name: str
    statistic: str
    base: Metric | None
    ddof: int = 0
    base_up: bool = True
    """Direction of a base metric that is not known itself."""
    opt_in: bool = True
    version: str = "1"
    threshold: float | None = None
    beside: tuple[str, ...] = ()

    @property
    def compute(self) -> Callable[..., Result]:
        """The arithmetic, for the reference."""
        return _COMPUTE[self.statistic]

    @property
    def higher_is_better(self) -> bool:
        """Of a mean, as of the base metric; scatter is better low."""
        return self.statistic == "mean" and (self.base_up if self.base is None else self.base.higher_is_better)

    @property
    def range(self) -> tuple[float, float]:
        """Of a mean, as of the base metric."""
        if self.statistic != "mean":
            return 0.0, math.inf
        return (-math.inf, math.inf) if self.base is None else self.base.range

    @property
    def needs(self) -> frozenset[str]:
        """No labels."""
        return frozenset()

    @property
    def computes(self) -> bool:
        """As the base metric."""
        return self.base is None or bool(getattr(self.base, "computes", False))

    def __call__(self, call: RagCall, judgement: Judgement = _NOTHING) -> Result:
        if self.base is None or len(call.runs or ()) < LEAST_RUNS:
            why = "" if call.runs else "the call has no runs"
            why = "no base metric: see run_statistics" if call.runs and self.base is None else why
            return self._filled(Unscored("needs_runs", explanation=why or None))
        base = self.base
        return self.of([base(replace(call, answer=run, runs=None), _NOTHING) for run in call.runs or ()])

    def of(self, results: Sequence[Result | float]) -> Result:
        """The statistic of *results* of the base metric, one a run; those without a score are left out."""
        values = [result.value if isinstance(result, Score) else result for result in results]
        scored = [float(value) for value in values if not isinstance(value, Unscored)]
        result = self.compute(scored, ddof=self.ddof)
        extra: dict[str, Plain] = {"unscored_runs": len(results) - len(scored), "base_metric": self._base_name(results)}
        return self._filled(replace(result, attributes={**result.attributes, **extra}))

    def _base_name(self, results: Sequence[Result | float]) -> str:
        names = {result.metric for result in results if isinstance(result, (Score, Unscored)) and result.metric}
        if self.base is not None:
            names.add(self.base.name)
        if len(names) > 1:
            raise ValueError(f"statistics are over one metric, got results of {', '.join(sorted(names))}; split them")
        return next(iter(names), "")

    def _filled(self, result: Result) -> Result:
        return replace(result, metric=self.name, metric_version=self.version, higher_is_better=self.higher_is_better)


def run_statistic(statistic: str, base: Metric | None = None, *, ddof: int = 0) -> RunStatistic:
    """The metric `run_consistency_{statistic}` of *base*, a metric that needs no judge.

    Args:
        statistic: mean, variance or coefficient_of_variation.
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
    return RunStatistic(f"run_consistency_{statistic}", statistic, base, ddof)


def run_statistics(
    results: Sequence[Result | float], *, base: Metric | None = None, ddof: int = 0
) -> dict[str, Result]:
    """Mean, variance and coefficient of variation of one metric's results over repeated runs of one query.

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
    made = [RunStatistic(f"run_consistency_{name}", name, base, ddof, up) for name in STATISTICS]
    return {statistic.name: statistic.of(results) for statistic in made}


METRICS: Final[tuple[Metric, ...]] = tuple(run_statistic(statistic) for statistic in STATISTICS)
FACTORIES: Final = (run_statistic,)
