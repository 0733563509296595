"""Interface of score sinks, which send scores to backends that do not read them from OTLP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """One score of one call, as it is sent to the score API of a backend."""

    id: str
    """Score id of 32 hexadecimal digits, the same for every repeat of the score in any process."""
    trace_id: int
    span_id: int
    """Id of the root span of the call."""
    name: str
    """Name of the metric."""
    value: float
    label: str | None
    explanation: str | None
    annotator: Literal["LLM", "CODE", "HUMAN"]
    evaluator: str
    """Evaluator that gave the score, as `id@version`."""
    metric_version: str
    probability: float
    """Probability with which the call was sampled for evaluation, in (0, 1]."""
    time_ns: int
    """Time of the evaluation, in nanoseconds since the epoch."""
    service: str = ""
    workflow: str = ""
    headline: bool = False
    """Whether a list of traces shows this score: the judge's `hallucinated` and `faithfulness`, else the screen's
    `consistency` and `suspicious`, else `answered`, else every score of the call."""


class Refusal(NamedTuple):
    """Refusal of a score or an alert by its receiver: the reason, and whether the item may be sent again."""

    reason: str
    """Reason in one word, for the counts: `unavailable`, `unknown_trace`, `unauthorized`, `too_large`, `refused` ..."""
    again: bool = False
    """Whether the receiver may accept the same item later."""
    busy: bool = False
    """Whether the receiver accepts nothing at all for a while, so that all other items wait, too."""
    after_s: float | None = None
    """Seconds until the receiver wants the next request (`Retry-After`); None: the receiver named no time."""
    detail: str = ""
    """Observed problem as text without secrets, for log lines."""


@runtime_checkable
class ScoreSink(Protocol):
    """Sink that posts scores to a backend through the backend's own score API.

    It is called on a thread of its own, so it may wait for the network.

    A sink whose backend refuses scores of traces that have not arrived may have an attribute `first_after_s`: then a
    score is first posted that many seconds after the call was scored, or at the next flush.
    """

    @property
    def name(self) -> str:
        """Name of the backend, for counts and log lines."""
        ...

    @property
    def most_at_once(self) -> int:
        """Largest number of scores that may be passed to one call of `post`."""
        ...

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """Post *scores* to the backend within *timeout* seconds, and return the refusals by score id.

        A score may be posted again after its response was lost: send the id along, so that the backend keeps it once.
        """
        ...


@runtime_checkable
class ProbedSink(Protocol):
    """Score sink that can check, without posting anything, that its backend answers and accepts the API keys.

    It may be called on any thread.
    """

    @property
    def where(self) -> str:
        """URL of the backend's score API, without secrets."""
        ...

    def probe(self, timeout: float) -> Refusal | None:
        """Check within *timeout* seconds that the backend answers and accepts the API keys.

        Returns None if so, else the backend's refusal.
        """
        ...
