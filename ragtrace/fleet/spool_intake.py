"""Intake of RAG calls from the spool file into the worker's queue."""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic
from typing import TYPE_CHECKING

from ragtrace.fleet.spooling import Spooling
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.shutdown import ShutdownBudget
from ragtrace.pipeline.work_items import CallItem, WorkItem
from ragtrace.pipeline.worker import Worker

if TYPE_CHECKING:
    from ragtrace.fleet.handover import FleetHandover


class SpoolIntake:
    """Intake of unscored RAG calls from the spool file, which are claimed and queued like calls of this process.

    Used by the worker's thread, periodically, and by threads that flush. `Spooling.claim` lets one of them in at a
    time.

    Args:
        spooling: access to the spool file.
        worker: takes the calls into its queue.
        outcomes: counts each call as offered, and those that are not queued after all.
        evaluators: ids of the evaluators that are configured now.
        most_queued: most items in the worker's queue up to which calls are claimed.
        handover: handover of calls to a fleet; None: there is no fleet.
    """

    def __init__(
        self,
        spooling: Spooling,
        worker: Worker[WorkItem],
        outcomes: CallOutcomes,
        evaluators: Collection[str],
        *,
        most_queued: int,
        handover: FleetHandover | None,
    ) -> None:
        self._spooling, self._worker, self._outcomes = spooling, worker, outcomes
        self._evaluators, self._most_queued, self._handover = frozenset(evaluators), most_queued, handover

    def tick(self) -> None:
        """Queue calls of the spool file, unless it has been searched a moment ago."""
        if self._spooling.is_due() and not self._fleet_is_away:
            self._queue_calls()

    def score_all(self, budget: ShutdownBudget) -> bool:
        """Score the calls of the spool file for a flush, and return whether nothing waits in the queue at its end."""
        spooling, scored = self._spooling, True
        more = not self._fleet_is_away
        while more and scored:
            queued = self._queue_calls(budget.seconds_left())
            more = queued > 0 or (spooling.is_scoring_suspect and self._worker.size > 0)
            scored = self._worker.wait_idle(budget.deadline - monotonic())  # for calls the worker claimed, too
        return scored

    @property
    def _fleet_is_away(self) -> bool:
        """Whether the broker of the fleet cannot be reached, so that spooled calls have to wait."""
        return self._handover is not None and self._handover.is_away

    def _queue_calls(self, timeout: float = 0.0) -> int:
        """Queue unscored calls from the spool file to be scored, and return their number.

        Args:
            timeout: seconds to wait for other threads and processes that claim calls.
        """
        queued = 0
        with self._spooling.claim(self._most_queued - self._worker.size, timeout) as calls:
            for claimed in calls:
                work = CallItem.from_unscored(claimed.unscored)
                work.spool_row = claimed.number
                if not self._outcomes.count_offered(work.pending_evaluators, work.step.workflow):
                    continue  # the call stays in the file
                for evaluator in work.pending_evaluators - self._evaluators:
                    self._outcomes.count(work, evaluator, "dropped", "not_configured")
                if self._worker.offer(work):
                    queued += 1
                else:
                    # The call stays in the file, and is released for another process at shutdown.
                    self._outcomes.count_pending(work, "dropped", "spooled")
        return queued
