"""What passes between a runtime and the file."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.core.types import Evaluation, RagCall


@dataclass(frozen=True, slots=True)
class Kept:
    """A call that somebody still has to score."""

    call: RagCall
    """Redacted."""
    open: tuple[str, ...]
    """Ids of the evaluators that have not looked at it."""
    response_id: str | None = None
    probability: float | None = None
    """With which the judge was to see it; None: that was not decided."""

    @property
    def identity(self) -> str:
        """Trace id and span id, in hexadecimal; empty if the call has no span."""
        span = self.call.span
        return "" if span is None else f"{span.trace_id:032x}{span.span_id:016x}"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A call taken up by this process."""

    number: int
    kept: Kept
    scores: tuple[Evaluation, ...] | None = None
    """What a process before found, whose delivery is not certain: the call is not to be judged again. None: nothing."""
    sent: frozenset[str] | None = None
    """Of the scores: those that were delivered or may have been, by the names in `ragtrace.receipts`; they are not sent
    again. None: their process did not come to an orderly end, so all are sent, and observers told."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in the file at one moment."""

    calls: int
    bytes: int
    claimed: int
    """Of the calls: those being scored by some process, or by one that died."""
    scored: int = 0
    """Of the calls: those that are scored, and whose scores are not known to be delivered."""
