"""`Stopwatch`: the judge of metrics that need no labels, such as latencies."""

from __future__ import annotations

from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall


class Stopwatch:
    """Judge without labels, for metrics that compute from the call alone."""

    computes = True
    """Marks a judge that only computes: it needs no deadline, cache or queue."""

    @property
    def id(self) -> str:
        return "ragtrace"

    @property
    def version(self) -> str:
        return "1"

    @property
    def type(self) -> EvaluatorType:
        return "deterministic"

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* reads no label."""
        return not metric.needs

    async def judge(self, call: RagCall) -> Judgement:
        """Return a judgement without labels."""
        return Judgement()
