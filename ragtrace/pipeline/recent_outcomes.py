"""What became of the last calls, and why: what `ragtrace.doctor()` tells."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ragtrace.core.types import Evaluation, Unscored
from ragtrace.system.faults import printable

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

MOST: Final = 300
"""A hundred calls with three evaluators."""
_KEY: Final = re.compile(r"\b(?:sk|pk)-[\w*-]{6,}|\bBearer\s+\S+")
"""Keys as servers repeat them in what they say."""
_MOST_CHARS: Final = 200


class _Entry(NamedTuple):
    """As it is noted: nothing is formatted before somebody asks."""

    at: float
    span: SpanContext | None
    workflow: str
    evaluator: str
    outcome: str
    reason: str
    probability: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one call at one evaluator."""

    at: float
    """Seconds since the epoch."""
    trace_id: str
    """32 hexadecimal digits; empty if there was no span."""
    span_id: str
    workflow: str
    evaluator: str
    outcome: str
    """sampled_out, scored, partial, failed or dropped."""
    reason: str
    probability: float | None
    """With which the judge was to see it, where that was decided."""
    detail: str
    """What was seen, where something was."""

    @property
    def why(self) -> str:
        """The reason in words."""
        return _told(self)


class Fates:
    """The last few, in order. Adding costs an append and may happen on any thread."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque(maxlen=MOST)

    def add(
        self,
        span: SpanContext | None,
        workflow: str,
        evaluator: str,
        outcome: str,
        reason: str = "",
        probability: float | None = None,
        detail: str = "",
    ) -> None:
        """Note one."""
        self._entries.append(_Entry(time(), span, workflow, evaluator, outcome, reason, probability, detail))

    def last(self, most: int = MOST) -> list[Fate]:
        """The last *most* of them, oldest first."""
        return [_read(entry) for entry in list(self._entries)[-most:]]

    def reset(self) -> None:
        """Forget all: after a fork they are the parent's."""
        self._entries.clear()


def _read(entry: _Entry) -> Fate:
    span = entry.span
    return Fate(
        entry.at,
        "" if span is None else f"{span.trace_id:032x}",
        "" if span is None else f"{span.span_id:016x}",
        *entry[2:7],
        detail=printable(entry.detail, _MOST_CHARS),
    )


def detail_of(evaluation: Evaluation) -> str:
    """What the first failure of *evaluation* says of itself; empty if it says nothing, or nothing failed."""
    for result in evaluation.results.values():
        if isinstance(result, Unscored) and result.status in ("judge_error", "judge_suspect"):
            return _KEY.sub("***", result.explanation or "")
    return ""


def left_out_of(evaluation: Evaluation) -> str:
    """Return which metrics of a scored *evaluation* have no score, and why; a baseline still to be learned aside."""
    by_reason: dict[str, list[str]] = {}
    for name, result in evaluation.results.items():
        if isinstance(result, Unscored) and result.reason != "no_baseline":
            by_reason.setdefault(result.reason, []).append(name)
    return "; ".join(f"no {', '.join(names)}: {reason}" for reason, names in by_reason.items())


_WORDS: Final[Mapping[tuple[str, str], str]] = {
    ("sampled_out", "not_sampled"): "sampled out",
    ("sampled_out", "budget"): "sampled out, as the budget allows no more",
    ("sampled_out", "never_rule"): "left out by a rule of Sampling(never=...)",
    ("sampled_out", "head_dropped"): "head sampling dropped its trace, see Sampling(score_head_dropped=)",
    ("sampled_out", "call_failed"): "the application failed before there was an answer",
    ("dropped", "queue_full"): "queue full: raise capacity=, or make the evaluators faster",
    ("dropped", "shutdown"): "the process ended before it was scored (spool= keeps such calls)",
    ("dropped", "spooled"): "the process ended before it was scored; it is in the spool for the next",
    ("dropped", "not_spooled"): "the process ended before it was scored, and the spool could not take it",
    ("dropped", "not_configured"): "it came from the spool, and its evaluator is not configured any more",
    ("failed", "redaction"): "redaction failed, so nobody was shown the call",
    ("failed", "internal"): "ragtrace itself failed; see the log",
}


def _told(fate: Fate) -> str:
    words = _WORDS.get((fate.outcome, fate.reason), fate.reason)
    if fate.outcome == "sampled_out" and fate.probability is not None:
        words = f"{words} at p={fate.probability:.3g}"
    elif fate.outcome == "partial":
        words = f"some metrics have no score: {words}"
    elif fate.outcome == "scored":
        words = f"no metric applies: {words}" if words else ""
    return ": ".join(filter(None, (words, fate.detail)))
