"""The other processes that a process knows: a fleet that judges sampled calls, and those that share its spool file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from ragtrace.core.ledger import FLEET
from ragtrace.core.part import Part
from ragtrace.fleet.handover import FleetHandover
from ragtrace.fleet.shutdown_spooling import ShutdownSpooling
from ragtrace.fleet.spool_intake import SpoolIntake
from ragtrace.fleet.spooling import Spooling
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.elsewhere import Elsewhere, Engine
from ragtrace.pipeline.shutdown import ShutdownBudget
from ragtrace.pipeline.unscored_calls import UnscoredCalls
from ragtrace.pipeline.work_items import CallItem

if TYPE_CHECKING:
    from ragtrace.fleet.publisher import FleetPublisher
    from ragtrace.fleet.spool import SpoolContents

_MOST_SPOOLED_SHARE: Final = 0.5
"""Share of the queue's capacity that calls of the spool file may fill, as calls of this process go first."""


class OtherProcesses(Elsewhere):
    """A fleet whose workers judge sampled calls, a spool file that other processes share, or both.

    Args:
        publisher: puts sampled calls into the queue of the fleet; None: there is no fleet.
        spooling: access to the spool file; None: there is none.
    """

    def __init__(self, publisher: FleetPublisher | None, spooling: Spooling | None) -> None:
        self.publisher, self.spooling = publisher, spooling
        self._handover: FleetHandover | None = None
        if publisher is not None:
            self.evaluator, self.judge_turns, self.load = FLEET, publisher.judge_turns, publisher.load

    @property
    def parts(self) -> Sequence[Part]:
        """The publisher."""
        return () if self.publisher is None else (self.publisher,)

    def hurried(self) -> AbstractContextManager[None]:
        """Have calls published without waiting for fuller batches."""
        return super().hurried() if self.publisher is None else self.publisher.hurried()

    def judging(self, outcomes: CallOutcomes) -> FleetHandover | None:
        """Return what hands sampled calls over to the fleet."""
        if self.publisher is not None:
            self._handover = FleetHandover(self.publisher, outcomes, self.spooling)
        return self._handover

    def unscored_calls(self, engine: Engine) -> UnscoredCalls:
        """Return what keeps the calls that a shutdown leaves in the spool file, if there is one."""
        if self.spooling is None:
            return super().unscored_calls(engine)
        return SpooledCalls(engine, self.spooling, self._handover)


class SpooledCalls(UnscoredCalls):
    """Calls that a shutdown leaves unscored, stored in the spool file, and those of the file that this process scores.

    Args:
        engine: takes the calls of the file.
        spooling: access to the file.
        handover: hands calls over to a fleet; None: there is no fleet.
    """

    keeps = True

    def __init__(self, engine: Engine, spooling: Spooling, handover: FleetHandover | None) -> None:
        super().__init__(engine.outcomes)
        self._spooling, self._handover = spooling, handover
        self._intake = SpoolIntake(
            spooling,
            engine.worker,
            engine.outcomes,
            engine.evaluators,
            most_queued=int(engine.capacity * _MOST_SPOOLED_SHARE),
            handover=handover,
        )
        self._shutdown = ShutdownSpooling(engine.preparation, engine.outcomes, spooling)

    @property
    def contents(self) -> SpoolContents | None:
        """Number and size of the calls in the spool file, or None if it cannot be read."""
        return self._spooling.contents

    @property
    def recovered(self) -> int:
        """Number of calls that were counted as spooled, and handed over to the fleet later by this process."""
        return 0 if self._handover is None else self._handover.recovered

    def tick(self) -> None:
        """Renew claims, delete delivered calls, and queue calls of the file, each when it is due."""
        self._spooling.tick()
        self._intake.tick()

    def score_all(self, budget: ShutdownBudget) -> bool:
        """Score the calls of the file for a flush, and return whether nothing waits in the queue at its end."""
        return self._intake.score_all(budget)

    def count_attempt(self, work: CallItem) -> None:
        """Record in the file that an evaluator is about to be asked about a call of it."""
        if work.spool_row is not None:
            self._spooling.count_attempt(work.spool_row)

    def mark_sent(self, work: CallItem) -> None:
        """Note that the scores of a call of the file were sent, so that it is deleted once they are delivered."""
        if work.spool_row is not None:
            self._spooling.mark_sent(work.spool_row)

    def deliver(self, deliver: Callable[[], bool], deadline: float) -> bool:
        """Call *deliver*, and delete the calls whose scores were delivered from the file."""
        return self._spooling.deliver_and_delete(deliver, deadline)

    def keep_interrupted(self, work: CallItem) -> bool:
        """Keep a call whose scoring the shutdown has cancelled."""
        self._shutdown.keep_interrupted(work)
        return True

    def store_or_drop(self, works: Sequence[CallItem], budget: ShutdownBudget) -> None:
        """Store all unscored calls in the file, drop those for which there is no time, and count their outcomes."""
        self._shutdown.store_or_drop(works, budget)

    def close(self, deadline: float, *, delivered: bool) -> None:
        """Delete delivered calls from the file, and release the others that this process has claimed."""
        self._spooling.close(deadline, delivered=delivered)
