"""Calls that this process does not score before it ends: dropped, or kept where other processes find them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragtrace.pipeline.call_ends import SHUT_DOWN
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.shutdown import ShutdownBudget
from ragtrace.pipeline.work_items import CallItem


class UnscoredCalls:
    """What becomes of calls that a shutdown leaves unscored: they are dropped, and counted.

    A subclass keeps them, and gives the worker those that other processes have kept. The methods by which it does that
    do nothing here.

    Args:
        outcomes: counts what becomes of each call.
    """

    keeps = False
    """Whether unscored calls are kept for another process."""

    def __init__(self, outcomes: CallOutcomes) -> None:
        self._outcomes = outcomes

    @property
    def recovered(self) -> int:
        """Number of calls that were counted as kept, and scored or handed over later by this process."""
        return 0

    # --- calls of other processes ------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Queue kept calls, on the worker's thread, about four times a second."""

    def score_all(self, budget: ShutdownBudget) -> bool:
        """Score the kept calls for a flush, and return whether nothing waits in the queue at its end."""
        return True

    def count_attempt(self, work: CallItem) -> None:
        """Note that an evaluator is about to be asked about a kept call."""

    def mark_sent(self, work: CallItem) -> None:
        """Note that the scores of a kept call were sent."""

    def deliver(self, deliver: Callable[[], bool], deadline: float) -> bool:
        """Call *deliver*, which exports everything, and return its result; then let go of calls with delivered scores.

        Args:
            deliver: exports everything, and returns whether that succeeded.
            deadline: monotonic seconds.
        """
        return deliver()

    # --- at a shutdown -----------------------------------------------------------------------------------------------

    def keep_interrupted(self, work: CallItem) -> bool:
        """Keep a call whose scoring the shutdown has cancelled, and return False if none is kept."""
        return False

    def store_or_drop(self, works: Sequence[CallItem], budget: ShutdownBudget) -> None:
        """Store or drop all unscored calls, and count their outcomes.

        Args:
            works: items that `Worker.stop` has returned; calls whose scoring was cancelled are added.
            budget: time budget of the shutdown.
        """
        # From here on, scores that the worker may still finish for these calls are neither counted nor sent.
        claimed = {work: names for work in dict.fromkeys(works) if (names := work.claim_pending_evaluators())}
        for work in claimed:
            work.dropped_at_shutdown = SHUT_DOWN.reason
        self._outcomes.count_claimed(claimed, dict.fromkeys(claimed, SHUT_DOWN))

    def close(self, deadline: float, *, delivered: bool) -> None:
        """Let go of the kept calls that this process has taken up.

        Args:
            deadline: monotonic seconds.
            delivered: whether all scores were delivered.
        """
