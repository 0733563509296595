"""What many evaluations come to: means over what was scored, and how much was not, by reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ragtrace.core.unscored_reasons import status_of


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric over many calls."""

    metric: str
    mean: float | None
    """Over the scored calls alone; None if there is none."""
    scored: int
    unscored: Mapping[str, Mapping[str, int]]
    """Calls by status and reason."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Many calls: each metric, and what judging cost."""

    calls: int
    failed: int
    """Calls of which a fault of judge or metric left something unscored."""
    metrics: Mapping[str, MetricSummary]
    n_calls: int
    """Requests to the judge."""
    input_tokens: int
    output_tokens: int
    cost_usd: float
    """Of the calls whose price is known."""
    unpriced: int
    """Calls for which the judge was asked at a price that is not known."""


class Tallier:
    """Adds results up, one call at a time."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._scored: Counter[str] = Counter()
        self._unscored: dict[str, Counter[str]] = defaultdict(Counter)
        self._names: dict[str, None] = {}
        self.calls = self.failed = self.n_calls = self.input_tokens = self.output_tokens = self.unpriced = 0
        self.cost_usd = 0.0

    def add(self, values: Mapping[str, float | str], cost: Cost) -> None:
        """Count one call.

        Args:
            values: by metric its score, or the reason why there is none.
        """
        self.calls += 1
        failed = False
        for name, value in values.items():
            self._names[name] = None
            if isinstance(value, str):
                self._unscored[name][value] += 1
                failed = failed or status_of(value) in ("judge_error", "judge_suspect")
            else:
                self._scored[name] += 1
                self._sums[name] += value
        self.failed += failed
        self.n_calls += cost.n_calls
        self.input_tokens += cost.input_tokens
        self.output_tokens += cost.output_tokens
        self.cost_usd += cost.cost_usd or 0.0
        self.unpriced += cost.cost_usd is None and cost.n_calls > 0

    def summary(self) -> Summary:
        """What was added so far."""
        return Summary(
            calls=self.calls,
            failed=self.failed,
            metrics={name: self._metric(name) for name in self._names},
            n_calls=self.n_calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd,
            unpriced=self.unpriced,
        )

    def _metric(self, name: str) -> MetricSummary:
        scored = self._scored[name]
        unscored: dict[str, dict[str, int]] = {}
        for reason, count in sorted(self._unscored[name].items()):
            unscored.setdefault(status_of(reason), {})[reason] = count
        return MetricSummary(name, self._sums[name] / scored if scored else None, scored, unscored)


@dataclass(frozen=True, slots=True)
class Cost:
    """What judging one call cost."""

    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None: not known."""
