"""Pauses before a judge is asked again: exponential back-off, and the gate that a Retry-After shuts for all calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_LONGEST_SHUT_S: Final = 3600.0
"""A judge that says "come back next year" is asked again after an hour."""
_SPREAD: Final = 0.1
_LONGEST_SPREAD_S: Final = 1.0


def back_off(tries: int, random: Callable[[], float]) -> float:
    """Return the seconds to wait after *tries* failed tries (at least 1): doubled each time, half of it random."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10)) * (0.5 + random() / 2)


class RetryAfterGate:
    """Gate in front of a judge, shut for all calls while a Retry-After of the judge lasts.

    One event loop at a time may use it.

    Args:
        clock: monotonic seconds.
        sleep: waits that many seconds.
        random: a number in [0, 1).
    """

    def __init__(
        self, *, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]], random: Callable[[], float]
    ) -> None:
        self._clock, self._sleep, self._random = clock, sleep, random
        self._opens = 0.0
        self._spread = 0.0

    @property
    def seconds_shut(self) -> float:
        """Seconds until the gate opens; 0 if it is open."""
        return max(0.0, self._opens - self._clock())

    def shut(self, seconds: float) -> None:
        """Shut the gate for *seconds* from now; an earlier shut that ends later stays in force."""
        if not seconds > 0:  # NaN as well: a judge may say anything
            return
        seconds = min(seconds, _LONGEST_SHUT_S)
        opens = self._clock() + seconds
        if opens > self._opens:
            self._opens = opens
            self._spread = min(_LONGEST_SPREAD_S, _SPREAD * seconds)

    def opens_before(self, deadline: float) -> bool:
        """Return whether the gate is open, or opens before *deadline* on the clock."""
        return self.seconds_shut == 0 or self._opens < deadline

    async def passed(self, deadline: float) -> bool:
        """Wait until the gate is open and return True; return False at once if it opens only after *deadline*.

        Waiting calls pass one after the other, within a tenth of the time that the gate was shut, so that they do not
        all arrive at the same moment, here and in other processes with the same Retry-After.
        """
        while (left := self.seconds_shut) > 0:
            if not self.opens_before(deadline):
                return False
            room = deadline - self._opens
            await self._sleep(left + self._random() * min(self._spread, room / 2))
        return True
