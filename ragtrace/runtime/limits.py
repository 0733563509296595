"""How a shutdown divides its time."""

from __future__ import annotations

from time import monotonic
from typing import Final

EXIT_SECONDS: Final = 5.0
"""Of a shutdown at exit."""
STORE_SECONDS: Final = 0.2
"""At least, for a disk to take what goes into a spool; a shutdown of less than a second may be late by that."""
AT_LEAST_SECONDS: Final = 0.03
"""For each thing that is worth a try when there is no time left."""
_OVERTIME_SECONDS: Final = 0.06
"""For all of those together: a shutdown and a flush keep their promise to the tenth of a second."""
_AFTER_SECONDS: Final = 0.25
_AFTER_AT_LEAST_SECONDS: Final = 0.1
_SPOOL_SECONDS: Final = 1.0


class Time:
    """What is left of a flush or a shutdown of *timeout* seconds."""

    def __init__(self, timeout: float) -> None:
        now = monotonic()
        self.deadline = now + timeout
        self._latest = max(now, self.deadline) + _OVERTIME_SECONDS

    def left(self, *, kept: float = 0.0) -> float:
        """Seconds that the next thing may take, if *kept* are to remain: a moment even after the deadline."""
        now = monotonic()
        return max(0.0, self.deadline - kept - now, min(AT_LEAST_SECONDS, self._latest - now))

    def until(self) -> float:
        """The same as a moment, in monotonic seconds."""
        return monotonic() + self.left()


def kept_for_after(timeout: float, *, spools: bool) -> float:
    """Seconds, of a shutdown of *timeout* seconds, for what comes after the scoring; more where calls are spooled."""
    share = max(timeout / 4, min(_AFTER_AT_LEAST_SECONDS, timeout / 2))
    return min(_SPOOL_SECONDS if spools else _AFTER_SECONDS, share)
