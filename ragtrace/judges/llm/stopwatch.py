"""`Stopwatch`: stands where a judge would for metrics that need none, such as times."""

from __future__ import annotations

from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall


class Stopwatch:
    """Gives no labels; offers the metrics that read none."""

    computes = True
    """It asks nobody: there is nothing to wait for."""

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
        """Whether *metric* reads no label."""
        return not metric.needs

    async def judge(self, call: RagCall) -> Judgement:
        """No labels."""
        return Judgement()
