"""Turns a pure function over a judge's labels into a `Metric`.

The function's docstring is its reference. After the first sentence it has these sections, each label at the start of a
line, in this order; `docs/metrics.md` is made of them and of the metadata of the `Formula`:

    Inputs: what of the call it reads, and what of them it needs.
    Formula: how the number comes about.
    Range: the interval and the direction; of both, the metadata is what counts.
    Judge calls: what it costs beside the one call of the main reply.
    Unscored: `reason` (when), ...; what any metric can end in (a judge's failure, a policy) need not be repeated.
    Source: the publication or system the definition comes from.
    Labels: those of the scores, where they are others than `pass` and `fail`; else the section is left out.

A section ends at the next label or at an empty line. Any other paragraph is a note, and stands below the table.

A module of metrics lists those that are known by name in `METRICS`, and the functions that make others in `FACTORIES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, RagCall, Result, Score, Unscored

SLACK: Final = 1e-9
"""How far a value may lie beyond a boundary before it counts as beyond it."""
MAX_UNJUDGED: Final = 0.2
"""The share of items without a valid label above which there is no score."""
_NO_LABELS: Final = Judgement()


@dataclass(frozen=True, slots=True)
class Formula:
    """A metric: its metadata and the function that computes it.

    `compute` returns a `Score` with the bare value (and what else it wants to say) or an `Unscored` with its reason;
    name, version, direction, the threshold's label and what the judgement says of itself are filled in here.
    A variant is made with `dataclasses.replace(metric, threshold=0.8)`.
    """

    name: str
    version: str
    compute: Callable[[RagCall, Judgement], Result]
    needs: frozenset[str]
    higher_is_better: bool = True
    range: tuple[float, float] = (0.0, 1.0)
    threshold: float | None = None
    """A value strictly on the wrong side of it is labelled `fail`, any other `pass`; None: no such label."""
    opt_in: bool = False
    """Computed only where it is asked for by name: it costs judge calls of its own."""
    computes: bool = True
    """Pure arithmetic: called directly, without a thread."""
    settled: Callable[[RagCall], bool] | None = None
    """Whether the call alone says what the result is, so that no judge need be asked for it; None: it never does."""
    beside: tuple[str, ...] = ()
    """Metrics that are always computed with it: alone it would mislead."""

    def __call__(self, call: RagCall, judgement: Judgement = _NO_LABELS) -> Result:
        result = self.compute(call, judgement)
        attributes = {**judgement.attributes, **result.attributes} if judgement.attributes else result.attributes
        about = (judgement.mode, judgement.n_calls, judgement.input_tokens, judgement.output_tokens)
        # Made anew: dataclasses.replace costs more than most of the arithmetic.
        if isinstance(result, Score):
            return Score(
                result.value,
                self.name,
                self.version,
                self.higher_is_better,
                self._label(result),
                result.explanation,
                result.evaluator,
                *about,
                attributes,
                result.claims,
            )
        return Unscored(
            result.reason,
            self.name,
            self.version,
            self.higher_is_better,
            result.explanation,
            result.evaluator,
            *about,
            attributes,
        )

    def _label(self, score: Score) -> str | None:
        if score.label is not None or self.threshold is None:
            return score.label
        return "fail" if self.fails(score.value) else "pass"

    def fails(self, value: float) -> bool:
        """Whether *value* is strictly worse than the threshold, which must be set."""
        if self.threshold is None:
            raise ValueError(f"metric {self.name!r} has no threshold; pass threshold= when making it")
        worse = self.threshold - value if self.higher_is_better else value - self.threshold
        return worse > SLACK

    def tolerating(self, unjudged: float) -> Formula:
        """The same metric, scored as long as at most this share of its items has no valid label (default 0.2).

        Raises:
            SettingsError: *unjudged* is not in [0, 1), or the metric has no such limit.
        """
        if not 0 <= unjudged < 1:
            raise SettingsError(f"unjudged must be in [0, 1), got {unjudged!r}; for 10 % write 0.1")
        if "max_unjudged" not in inspect.signature(self.compute).parameters:
            raise SettingsError(f"metric {self.name!r} has no limit of unjudged items; leave out .tolerating(...)")
        compute: Callable[..., Result] = self.compute
        return replace(self, compute=partial(compute, max_unjudged=unjudged))
