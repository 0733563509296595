"""What can be seen of a runtime from outside: the doctor's view, of one moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragtrace.core.settings import Settings
    from ragtrace.estimates import Learner
    from ragtrace.evaluation.policy import Sampling
    from ragtrace.evaluation.scoring import Evaluators
    from ragtrace.pipeline.recent_outcomes import Fates
    from ragtrace.pipeline.spooling import Spooling
    from ragtrace.runtime.health import Health
    from ragtrace.telemetry.export.providers import Telemetry


@dataclass(frozen=True, slots=True)
class Insides:
    """The parts of a runtime that have something to tell."""

    settings: Settings
    sampling: Sampling
    telemetry: Telemetry
    evaluators: Evaluators
    fates: Fates
    spooling: Spooling | None
    """None: there is no spool."""
    health: Health
    learner: Learner
    queued: int
    held: int
    run: Callable[[Callable[[], Awaitable[None]]], bool]
    """Have something done on the event loop that judges are asked on; False if the background takes nothing more."""
