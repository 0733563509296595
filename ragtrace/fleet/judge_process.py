"""What a fleet's worker needs of the process that judges: the runtime that `configure` has built there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ragtrace.core.settings import Settings
    from ragtrace.estimates import RunningMoments
    from ragtrace.evaluation.sampling import Sampler
    from ragtrace.evaluation.scoring import Evaluators
    from ragtrace.pipeline.call_outcomes import CallOutcomes
    from ragtrace.pipeline.outputs import Outputs
    from ragtrace.telemetry.export.telemetry import Telemetry


class JudgingProcessor(Protocol):
    """Processor of calls, with what takes and counts the scores of a call."""

    outcomes: CallOutcomes
    outputs: Outputs


class JudgeProcess(Protocol):
    """Process that has a judge, and sends the scores of the calls which a worker hands to it."""

    settings: Settings
    telemetry: Telemetry
    evaluators: Evaluators
    moments: RunningMoments
    sampler: Sampler

    @property
    def processor(self) -> JudgingProcessor:
        """Processor whose outcomes and outputs the scores go to."""
        ...

    def run_job(self, job: Callable[[], Awaitable[None]]) -> bool:
        """Queue the coroutine function *job* to run on the process' event loop, and return whether there was room."""
        ...

    def deliver_scores(self, timeout: float) -> bool:
        """Deliver all scores sent so far within *timeout* seconds, and return whether that succeeded."""
        ...
