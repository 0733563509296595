"""Summary of many evaluations: means over the scored calls, and counts of the unscored ones by reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ragtrace.core.cost import Cost
from ragtrace.core.unscored_reasons import status_of


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """Mean and counts of one metric over many calls."""

    metric: str
    mean: float | None
    """Mean over the scored calls; None if there are none."""
    scored: int
    unscored: Mapping[str, Mapping[str, int]]
    """Number of calls by status and reason."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Metrics and cost of judging over many calls."""

    calls: int
    failed: int
    """Calls with something unscored because a judge or a metric failed."""
    metrics: Mapping[str, MetricSummary]
    n_calls: int
    """Requests to the judge."""
    input_tokens: int
    output_tokens: int
    cost_usd: float
    """Sum over the calls whose price is known."""
    unpriced: int
    """Calls whose requests to the judge have no known price."""


class SummaryBuilder:
    """Running counts and sums of evaluations, one call at a time."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._scored: Counter[str] = Counter()
        self._unscored: dict[str, Counter[str]] = defaultdict(Counter)
        self._names: dict[str, None] = {}
        self._calls = self._failed = self._unpriced = 0
        self._cost = Cost()

    def add(self, values: Mapping[str, float | str], cost: Cost) -> None:
        """Add the results and the cost of one call.

        Args:
            values: by metric its score, or the reason why there is none.
            cost: what judging the call took.
        """
        self._calls += 1
        failed = False
        for name, value in values.items():
            self._names[name] = None
            if isinstance(value, str):
                self._unscored[name][value] += 1
                failed = failed or status_of(value) in ("judge_error", "judge_suspect")
            else:
                self._scored[name] += 1
                self._sums[name] += value
        self._failed += failed
        self._cost = self._cost.plus_known(cost)
        self._unpriced += cost.cost_usd is None and cost.n_calls > 0

    def summary(self) -> Summary:
        """Return the summary of the calls added so far."""
        return Summary(
            calls=self._calls,
            failed=self._failed,
            metrics={name: self._metric(name) for name in self._names},
            n_calls=self._cost.n_calls,
            input_tokens=self._cost.input_tokens,
            output_tokens=self._cost.output_tokens,
            cost_usd=self._cost.cost_usd or 0.0,
            unpriced=self._unpriced,
        )

    def _metric(self, name: str) -> MetricSummary:
        scored = self._scored[name]
        unscored: dict[str, dict[str, int]] = {}
        for reason, count in sorted(self._unscored[name].items()):
            unscored.setdefault(status_of(reason), {})[reason] = count
        return MetricSummary(name, self._sums[name] / scored if scored else None, scored, unscored)
