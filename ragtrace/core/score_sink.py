"""What a backend's own API is told of a score, where the backend does not read scores from OTLP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """One score of one call, as a backend's own API is told of it."""

    id: str
    """The same for every repeat of the same score, in whichever process: 32 hexadecimal digits."""
    trace_id: int
    span_id: int
    """Of the span that the call is known by."""
    name: str
    """Of the metric."""
    value: float
    label: str | None
    explanation: str | None
    annotator: Literal["LLM", "CODE", "HUMAN"]
    evaluator: str
    """id@version of the judge."""
    metric_version: str
    probability: float
    """How probable it was that the call was evaluated."""
    time_ns: int
    """When it was scored, since the epoch."""
    service: str = ""
    workflow: str = ""
    headline: bool = False
    """One of the few by which a list of traces is read: the judge's `hallucinated` and `faithfulness`, else the
    screen's `consistency` and `suspicious`, else `answered`, else each score of the call."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a backend did not take a score, and whether it may later."""

    reason: str
    """One word for the counts: `unavailable`, `unknown_trace`, `unauthorized`, `too_large`, `refused` ..."""
    again: bool = False
    """Whether the same score may be taken later."""
    busy: bool = False
    """Nothing at all will be taken for a while, so whatever else there is waits too."""
    after_s: float | None = None
    """In how many seconds it wants to be asked again (its Retry-After)."""
    detail: str = ""
    """What was seen, for the log: no secrets."""


@runtime_checkable
class ScoreSink(Protocol):
    """Posts scores to a backend by its own API. Called on one thread of its own, so it may wait for the network.

    One that knows no score before its trace has arrived may have an attribute `first_after_s`: a score is first posted
    so many seconds after the call was scored, or at the next flush.
    """

    @property
    def name(self) -> str:
        """Of the backend, for counts and the log."""
        ...

    @property
    def most_at_once(self) -> int:
        """How many scores one call of `post` may be given."""
        ...

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """Post *scores* within *timeout* seconds; returns by id those that were not taken, and why.

        A score may be posted again after its answer was lost: the backend should be told its id, to keep it once.
        """
        ...


@runtime_checkable
class ProbedSink(Protocol):
    """A sink that can be asked, from any thread, whether its backend is there and takes our keys; nothing is posted."""

    @property
    def where(self) -> str:
        """URL of its API, without secrets."""
        ...

    def probe(self, timeout: float) -> Refusal | None:
        """Ask within *timeout* seconds; None: all well."""
        ...
