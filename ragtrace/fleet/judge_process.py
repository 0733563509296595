"""What a fleet's worker needs of the process that judges: the runtime that `configure` has built there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ragtrace.core.settings import Settings
    from ragtrace.core.unscored_call import UnscoredCall
    from ragtrace.estimates import RunningMoments
    from ragtrace.evaluation.scoring import Evaluators
    from ragtrace.telemetry.export.telemetry import Telemetry


class JudgedCall(Protocol):
    """Outcome of one attempt to judge a RAG call."""

    @property
    def status(self) -> str:
        """Whether the call was scored, or what becomes of it."""
        ...

    @property
    def reason(self) -> str:
        """Reason why the judge failed, or empty."""
        ...


class JudgingProcessor(Protocol):
    """Processor of calls that has a judge score calls of other processes."""

    async def judge(
        self, unscored: UnscoredCall, *, last_try: bool, taken_over: Callable[[], Awaitable[bool]]
    ) -> JudgedCall:
        """Have the judge score a RAG call that another process has handed over, and return the outcome.

        Args:
            unscored: the redacted call.
            last_try: whether a failure of the judge is final, so that it is sent like a score.
            taken_over: returns, after the judge's answer, whether another process judges the call.
        """
        ...


class JudgeProcess(Protocol):
    """Process that has a judge, and sends the scores of the calls which a worker hands to it."""

    settings: Settings
    telemetry: Telemetry
    evaluators: Evaluators
    moments: RunningMoments

    @property
    def processor(self) -> JudgingProcessor:
        """Processor that has the judge score calls."""
        ...

    def run_job(self, job: Callable[[], Awaitable[None]]) -> bool:
        """Queue the coroutine function *job* to run on the process' event loop, and return whether there was room."""
        ...

    def deliver_scores(self, timeout: float) -> bool:
        """Deliver all scores sent so far within *timeout* seconds, and return whether that succeeded."""
        ...
