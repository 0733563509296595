"""The circuit breaker around a judge: opens when the judge keeps failing, and then admits one probe call at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ragtrace.core.types import BreakerState

_FAILURES: Final = 10
"""Failures in a row. Even if every third call fails, ten in a row are rarer than one in 50,000."""
_WINDOW: Final = 40
_SHARE: Final = 0.75
"""Share of failures among the last `_WINDOW` outcomes: more than retries can make up for."""
_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 60.0


class CircuitBreaker:
    """Circuit breaker that opens after ten failures in a row, or when three quarters of the last 40 calls failed.

    It stays open for five seconds, twice as long after each probe that fails, a minute at most; a probe that succeeds
    closes it. For one event loop; `state` may be read from any thread.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._outcomes: deque[bool] = deque(maxlen=_WINDOW)
        self._in_a_row = 0
        self._until: float | None = None
        """When the pause is over; None: closed."""
        self._openings = 0
        """How often the breaker opened since it was last closed."""
        self._epoch = 0
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """BreakerState of the breaker at this moment."""
        until = self._until  # read once: another thread may be looking
        if until is None:
            return "closed"
        return "open" if self._clock() < until else "half_open"

    @property
    def seconds_open(self) -> float:
        """Seconds until a probe is admitted; 0 if one is admitted now."""
        return 0.0 if self._until is None else max(0.0, self._until - self._clock())

    @property
    def refuses(self) -> bool:
        """Whether no call is admitted now: the breaker is open, or a probe is under way."""
        return self._until is not None and (self.state == "open" or self._probing)

    def admit(self) -> int | None:
        """Admit a call and return its ticket for `settle`; return None if no call is admitted now."""
        if self.refuses:
            return None
        self._probing = self._until is not None
        return self._epoch

    def settle(self, ticket: int, well: bool | None) -> None:
        """Count the outcome of the call with *ticket*; *well* None: the call says nothing about the judge."""
        if ticket != self._epoch:  # admitted before the breaker opened
            return
        if self._until is not None:
            self._probed(well)
        elif well is not None:
            self._count(well)

    def _count(self, well: bool) -> None:
        self._outcomes.append(well)
        self._in_a_row = 0 if well else self._in_a_row + 1
        full = len(self._outcomes) == _WINDOW
        if self._in_a_row >= _FAILURES or (full and self._outcomes.count(False) >= _SHARE * _WINDOW):
            self._open()

    def _probed(self, well: bool | None) -> None:
        self._probing = False
        if well:
            self._until = None
            self._openings = 0
        elif well is False:
            self._open()

    def _open(self) -> None:
        pause = min(_LONGEST_PAUSE_S, _PAUSE_S * 2**self._openings)
        self._until = self._clock() + pause
        self._openings += 1
        self._epoch += 1
        self._in_a_row = 0
        self._outcomes.clear()
