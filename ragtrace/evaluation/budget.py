"""A budget that lowers probabilities smoothly, so that a sample stays a sample however much traffic there is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

_RULED_SHARE: Final = 0.9
_LEAST_CALLS: Final = 2.0
_KEPT: Final = 1.0
"""Slacks that a quiet time leaves for a busy one."""
_KEPT_FOR_RULES: Final = 4.0
"""More, as what rules want comes in clumps (an outage), and is to be seen whole."""


class _Allowance:
    """How far spending is behind (above 0) or ahead (below 0) of income, in units of the slack.

    Args:
        level: at the start.
        most: what it can keep.

    Behind or level, calls keep their probability; ahead, it falls by e for each slack. Under a burst the nth call so
    gets about slack / n, as in a reservoir: the sum grows with the logarithm of the burst, while no call of it is out
    of reach. A factor in proportion to what is left would spend less, but fall exponentially: the end of a burst
    would in truth never be sampled, and estimates would be unbiased on paper only.
    """

    __slots__ = ("_most", "level")

    def __init__(self, level: float, most: float) -> None:
        self.level, self._most = level, most

    @property
    def factor(self) -> float:
        """What probabilities are to be multiplied with, in (0, 1]."""
        return math.exp(min(0.0, self.level))

    def fill(self, slacks: float) -> float:
        """Take up to *slacks*; returns what did not fit."""
        taken = min(slacks, self._most - self.level)
        self.level += taken
        return slacks - taken


class Budget:
    """One budget of one process, in judge calls or in US dollars.

    It counts expected spending (probability times cost), not what chance made of it: earlier draws then have no part in
    a probability (but through the mean cost they revealed), which so is exact also where one draw decides about several
    calls of a trace.

    Args:
        per_second: what may be spent a second.
        slack_seconds: for how long, at that pace, spending may run ahead before it is reined in.
        ruled: whether there are rules that always sample; they get an allowance of their own, filled first with nine
            tenths of the income. What one allowance cannot hold goes to the other.
        clock: monotonic seconds.
    """

    def __init__(self, per_second: float, slack_seconds: float, *, ruled: bool, clock: Callable[[], float]) -> None:
        self._per_second, self._slack_seconds, self._clock = per_second, slack_seconds, clock
        self._ruled_share = _RULED_SHARE if ruled else 0.0
        self.reset()

    def reset(self) -> None:
        """Start now: level, and with one slack for what rules want."""
        self._ordinary, self._ruled = _Allowance(0.0, _KEPT), _Allowance(_KEPT, _KEPT_FOR_RULES)
        self._filled = self._clock()

    def factor(self, cost: float, *, ruled: bool) -> float:
        """What the probability of a call is to be multiplied with now, in (0, 1].

        Args:
            cost: of judging one call, in the unit of the budget.
            ruled: whether a rule wants it.
        """
        self._fill(cost)
        return (self._ruled if ruled else self._ordinary).factor

    def charge(self, probability: float, cost: float, *, ruled: bool) -> None:
        """A call was given *probability* to be judged at *cost*."""
        allowance = self._ruled if ruled else self._ordinary
        allowance.level -= probability * cost / self._slack(cost)

    def _slack(self, cost: float) -> float:
        return max(self._per_second * self._slack_seconds, _LEAST_CALLS * cost)

    def _fill(self, cost: float) -> None:
        # By the clock alone: a call that was refused brings nothing back.
        now = self._clock()
        income = max(0.0, now - self._filled) * self._per_second / self._slack(cost)
        self._filled = max(now, self._filled)
        if not self._ruled_share:
            self._ordinary.fill(income)
            return
        reserved = income * self._ruled_share
        left = self._ordinary.fill(income - reserved + self._ruled.fill(reserved))
        self._ruled.fill(left)
