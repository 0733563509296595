"""Outcomes of the most recent calls, with their reasons in words, for `ragtrace.doctor()`."""

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
"""API keys, which servers repeat in their error messages."""
_MOST_CHARS: Final = 200


class _Entry(NamedTuple):
    """An outcome as it is stored: raw, and formatted only when `doctor()` reads it."""

    at: float
    span: SpanContext | None
    workflow: str
    evaluator: str
    outcome: str
    reason: str
    probability: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class RecentOutcome:
    """Outcome of one call at one evaluator."""

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
    """Inclusion probability with which the judge was to see the call, where the sampler decided."""
    detail: str
    """What failed, in words of the judge or its server; empty if nothing did."""

    @property
    def why(self) -> str:
        """The reason in words."""
        return _in_words(self)


class RecentOutcomes:
    """Bounded list of the most recent outcomes; adding one is an append, and safe from any thread."""

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
        """Add the outcome of a call at *evaluator*."""
        self._entries.append(_Entry(time(), span, workflow, evaluator, outcome, reason, probability, detail))

    def last(self, most: int = MOST) -> list[RecentOutcome]:
        """Return the last *most* outcomes, oldest first."""
        return [_read(entry) for entry in list(self._entries)[-most:]]

    def reset(self) -> None:
        """Forget all outcomes after a fork: they are the parent's."""
        self._entries.clear()


def _read(entry: _Entry) -> RecentOutcome:
    span = entry.span
    return RecentOutcome(
        entry.at,
        "" if span is None else f"{span.trace_id:032x}",
        "" if span is None else f"{span.span_id:016x}",
        *entry[2:7],
        detail=printable(entry.detail, _MOST_CHARS),
    )


def failure_detail(evaluation: Evaluation) -> str:
    """Return the explanation of the first failure in *evaluation*, without keys; empty if there is none."""
    for result in evaluation.results.values():
        if isinstance(result, Unscored) and result.status in ("judge_error", "judge_suspect"):
            return _KEY.sub("***", result.explanation or "")
    return ""


def unscored_metrics(evaluation: Evaluation) -> str:
    """Return which metrics of *evaluation* have no score, and why; missing baselines are left out."""
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
    ("failed", "redaction"): "redaction failed, so no evaluator saw the call",
    ("failed", "internal"): "ragtrace itself failed; see the log",
}


def _in_words(outcome: RecentOutcome) -> str:
    words = _WORDS.get((outcome.outcome, outcome.reason), outcome.reason)
    if outcome.outcome == "sampled_out" and outcome.probability is not None:
        words = f"{words} at p={outcome.probability:.3g}"
    elif outcome.outcome == "partial":
        words = f"some metrics have no score: {words}"
    elif outcome.outcome == "scored":
        words = f"no metric applies: {words}" if words else ""
    return ": ".join(filter(None, (words, outcome.detail)))
