"""Turns a pure function over a judge's labels into a `Metric`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from ragtrace.model import Judgement, RagCall, Result, Score

SLACK: Final = 1e-9
"""How far a value may lie beyond a boundary before it counts as beyond it."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A metric: its metadata and the function that computes it.

    `compute` returns a `Score` with the bare value (and what else it wants to say) or an `Unscored` with its reason;
    name, version, direction, the threshold's label and what the judgement says of itself are filled in here.
    """

    name: str
    version: str
    compute: Callable[[RagCall, Judgement], Result]
    needs: frozenset[str]
    higher_is_better: bool = True
    range: tuple[float, float] = (0.0, 1.0)
    threshold: float | None = None
    """A value strictly on the wrong side of it is labelled `fail`, any other `pass`; None: no such label."""
    computes: ClassVar[bool] = True  # pure arithmetic needs no thread

    def __call__(self, call: RagCall, judgement: Judgement) -> Result:
        result = self.compute(call, judgement)
        if isinstance(result, Score) and result.label is None and self.threshold is not None:
            result = replace(result, label="fail" if self.fails(result.value) else "pass")
        return replace(
            result,
            metric=self.name,
            metric_version=self.version,
            higher_is_better=self.higher_is_better,
            mode=judgement.mode,
            n_calls=judgement.n_calls,
            input_tokens=judgement.input_tokens,
            output_tokens=judgement.output_tokens,
            attributes={**judgement.attributes, **result.attributes},
        )

    def fails(self, value: float) -> bool:
        """Whether *value* is strictly worse than the threshold, which must be set."""
        if self.threshold is None:
            raise ValueError(f"metric {self.name!r} has no threshold; pass threshold= when making it")
        worse = self.threshold - value if self.higher_is_better else value - self.threshold
        return worse > SLACK
