"""How long to wait before a judge is asked again: as long as it said, or longer each time it fails."""

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
    """Seconds to wait after *tries* tries (at least 1) have failed: doubled each time, up to half of it by chance."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10)) * (0.5 + random() / 2)


class Gate:
    """Shut when a judge says "not before"; all calls share it. For one event loop at a time.

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
    def left(self) -> float:
        """Seconds until it opens; 0 if it is open."""
        return max(0.0, self._opens - self._clock())

    def shut(self, seconds: float) -> None:
        """Nobody passes for *seconds* from now, or for what was left of an earlier shut if that is longer."""
        if not seconds > 0:  # NaN as well: a judge may say anything
            return
        seconds = min(seconds, _LONGEST_SHUT_S)
        opens = self._clock() + seconds
        if opens > self._opens:
            self._opens = opens
            self._spread = min(_LONGEST_SPREAD_S, _SPREAD * seconds)

    def opens_before(self, deadline: float) -> bool:
        """Whether waiting for it makes sense to a call that must be done by *deadline*, on the clock."""
        return self.left == 0 or self._opens < deadline

    async def passed(self, deadline: float) -> bool:
        """Wait until it is open; False at once if that is not before *deadline*.

        Those who wait are let through one after the other, within a tenth of the time it was shut, so that they do not
        all arrive in the same moment, here and in the other processes that were told the same.
        """
        while (left := self.left) > 0:
            if not self.opens_before(deadline):
                return False
            room = deadline - self._opens
            await self._sleep(left + self._random() * min(self._spread, room / 2))
        return True
