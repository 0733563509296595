"""Scripted judge, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall

_USUAL: Final = ("hallucinated", "faithfulness", "hallucination", "consistency", "answered")


class FakeJudge:
    """Judge that returns scripted judgements, or raises scripted errors, in order; the last one repeats.

    Args:
        *script: `Judgement`s and exceptions, in order.
        name: id of the judge.
        metrics: names of the metrics that the judge offers; None: hallucinated, faithfulness, hallucination,
            consistency, answered, and every metric that is not one of ragtrace's.
    """

    version = "1"
    type: EvaluatorType = "llm_judge"

    def __init__(
        self, *script: Judgement | BaseException, name: str = "fake", metrics: Sequence[str] | None = None
    ) -> None:
        if not script:
            raise ValueError("FakeJudge needs at least one judgement or exception")
        self.id = name
        self._script = list(script)
        self._metrics = metrics
        self.calls: list[RagCall] = []
        """Calls that the judge was asked about."""

    def offers(self, metric: Metric) -> bool:
        """Return whether the judge offers *metric*."""
        if self._metrics is not None:
            return metric.name in self._metrics
        return metric.name in _USUAL or not getattr(metric, "computes", False)

    async def judge(self, call: RagCall) -> Judgement:
        """Return, or raise, the next item of the script."""
        self.calls.append(call)
        item = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(item, BaseException):
            raise item
        return item


class FakeClock:
    """Clock that stands still until `advance`; calling it returns the time in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward by *seconds*."""
        self.now += seconds
