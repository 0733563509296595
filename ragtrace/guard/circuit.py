"""Circuit breaker of guards, which lets answers leave at once while the judge does not answer in time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from ragtrace.core.types import BreakerState
from ragtrace.evaluation.judge_client import CircuitBreaker

_MOST_TOGETHER: Final = 5
"""Most late checks that count of those that were under way together: half of those that open the breaker."""


class GuardCircuit:
    """Circuit breaker of all guards that read the scores of one evaluator.

    It opens after ten checks in a row that were not ready by their deadline. Of checks that were under way together
    only five count: one pause of the machine makes all of them late, and says little about the judge. Open, it lets one
    check through now and then, as a probe. `state` may be read from any thread; all else is for one event loop.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._breaker = clock, CircuitBreaker(clock)
        self._first_late = float("-inf")
        """When the first of the checks that are late together was found to be late."""
        self._late_together = 0

    @property
    def state(self) -> BreakerState:
        """State of the circuit breaker: closed, open or half open."""
        return self._breaker.state

    def admit(self) -> int | None:
        """Let a check through and return a ticket for `record`, or None if the circuit breaker refuses."""
        return self._breaker.admit()

    def record(self, ticket: int, began: float, *, in_time: bool) -> None:
        """Count the end or the deadline of a check that was let through.

        Args:
            ticket: what `admit` returned for the check.
            began: when it was let through, in monotonic seconds.
            in_time: whether it ended before its deadline.
        """
        if in_time:
            self._breaker.record_outcome(ticket, well=True)
            return
        if began > self._first_late:
            self._first_late, self._late_together = self._clock(), 0
        self._late_together += 1
        self._breaker.record_outcome(ticket, well=False if self._late_together <= _MOST_TOGETHER else None)
