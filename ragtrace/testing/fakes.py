"""A judge with a script, and a clock that you move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall

_USUAL: Final = ("hallucinated", "faithfulness", "hallucination", "consistency", "answered")


class FakeJudge:
    """A judge that gives the judgements, or raises the errors, it was told; the last one for ever.

    Args:
        *script: `Judgement`s and exceptions, in order.
        name: its id.
        metrics: names of the metrics it offers; None: hallucinated, faithfulness, hallucination, consistency,
            answered, and every metric that is not one of ragtrace's.
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
        """The calls it was asked about."""

    def offers(self, metric: Metric) -> bool:
        """Whether *metric* is among those it was made for."""
        if self._metrics is not None:
            return metric.name in self._metrics
        return metric.name in _USUAL or not getattr(metric, "computes", False)  # of another's metric nobody knows

    async def judge(self, call: RagCall) -> Judgement:
        """The next item of the script."""
        self.calls.append(call)
        item = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(item, BaseException):
            raise item
        return item


class FakeClock:
    """Seconds that pass only when you say so; call it to read it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self.now += seconds
