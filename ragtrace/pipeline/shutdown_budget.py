"""How a shutdown divides its time."""

from __future__ import annotations

from time import monotonic
from typing import Final

EXIT_SECONDS: Final = 5.0
"""Of a shutdown at exit."""
HURRIED_SECONDS: Final = 1.0
"""Of a shutdown that a signal interrupts: for what is not scored to be kept and counted."""
_STORE_SECONDS: Final = 0.05
"""At least, for a disk to take what goes into a spool."""
AT_LEAST_SECONDS: Final = 0.03
"""For each thing that is worth a try when there is no time left."""
_OVERTIME_SECONDS: Final = 0.06
"""For all of those together: a shutdown and a flush keep their promise to the tenth of a second."""
_AFTER_SECONDS: Final = 1.0
_AFTER_AT_LEAST_SECONDS: Final = 0.1
_SPOOL_SECONDS: Final = 1.0
_COLLECTED_SECONDS: Final = 0.000_02
"""For the collector of cycles to look at what one item consists of, during which nobody does anything else."""
_ITEM_SECONDS: Final = 2 * _COLLECTED_SECONDS
"""The same, and to count it as lost."""
_SPOOLED_ITEM_SECONDS: Final = 0.000_2
"""The same where calls are spooled, most of it for a call and little for a step."""
_MOST_AFTER: Final = 0.6
_CLOSING_SHARE: Final = 1 / 6
_CLOSING_SECONDS: Final = 0.15


def patience(deadline: float) -> float:
    """Seconds for which a file that others have locked may be waited for until *deadline*, in monotonic seconds."""
    return max(_STORE_SECONDS, deadline - monotonic())


class Time:
    """What is left of a flush or a shutdown of *timeout* seconds.

    Args:
        waiting: steps and calls that have not been dealt with.
    """

    def __init__(self, timeout: float, waiting: int = 0) -> None:
        now = monotonic()
        self.deadline = now + timeout
        self.closing = min(_CLOSING_SECONDS + waiting * _COLLECTED_SECONDS, timeout * _CLOSING_SHARE)
        """Seconds, of a shutdown, for what comes after the last call: spans, a last export."""
        self._latest = max(now, self.deadline) + _OVERTIME_SECONDS

    def cut_short(self) -> None:
        """Leave `HURRIED_SECONDS` at most."""
        now = monotonic()
        self.deadline = min(self.deadline, now + HURRIED_SECONDS)
        self._latest = min(self._latest, now + HURRIED_SECONDS + _OVERTIME_SECONDS)

    def left(self, *, kept: float = 0.0) -> float:
        """Seconds that the next thing may take, if *kept* are to remain: a moment even after the deadline."""
        now = monotonic()
        return max(0.0, self.deadline - kept - now, min(AT_LEAST_SECONDS, self._latest - now))

    def until_stored(self) -> float:
        """Monotonic seconds until which calls may be written into a spool."""
        return monotonic() + patience(self.deadline - self.closing)

    def until(self, *, kept: float = 0.0) -> float:
        """The same as a moment, in monotonic seconds."""
        return monotonic() + self.left(kept=kept)


def kept_for_after(timeout: float, waiting: int, *, spools: bool) -> float:
    """Seconds, of a shutdown of *timeout* seconds, for what comes after the scoring.

    More where calls are spooled, and the more, the more of them are left: a call that is not scored in time should at
    least be kept, and all of them are to be counted.

    Args:
        waiting: steps and calls that have not been dealt with.
    """
    share = max(timeout / 4, min(_AFTER_AT_LEAST_SECONDS, timeout / 2))
    least = min(_SPOOL_SECONDS if spools else _AFTER_SECONDS, share)
    wanted = _AFTER_AT_LEAST_SECONDS + waiting * (_SPOOLED_ITEM_SECONDS if spools else _ITEM_SECONDS)
    return max(least, min(wanted, timeout * _MOST_AFTER))
