"""Budgets that lower sampling probabilities smoothly, and the mean cost of a judgement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ragtrace.system.faults import faults

_RULED_SHARE: Final = 0.9
_LEAST_CALLS: Final = 2.0
_KEPT: Final = 1.0
"""Most slacks that a quiet time saves for a busy one."""
_KEPT_FOR_RULES: Final = 4.0
"""Most slacks saved for `always` rules: their calls come in clumps (an outage) that should be judged completely."""
GUESS_USD: Final = 0.05
"""Cost of a judgement before the first report: 10,000 tokens read and 1,000 written at the prices of a large model.
High, so that the first calls do not spend the day's money."""
_REMEMBERED: Final = 50
_TRUST: Final = 0.1
"""Share of the guess that each report leaves, so that one report of a cheap (cached) judgement does not raise rates."""
_SILENT: Final = 3
_MOST_USD: Final = 1e6
"""Largest plausible cost of one judgement."""


class _Allowance:
    """Balance of income and spending in units of the slack; negative while spending is ahead.

    Args:
        level: balance at the start.
        most: largest balance.

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
        """Factor for probabilities, in (0, 1]."""
        return math.exp(min(0.0, self.level))

    def fill(self, slacks: float) -> float:
        """Add income of *slacks* up to the largest balance; return the rest."""
        taken = min(slacks, self._most - self.level)
        self.level += taken
        return slacks - taken


class Budget:
    """Budget of one process, in judge calls or in US dollars.

    It counts expected spending (probability times cost), not the outcome of the random draws: so a probability does not
    depend on earlier draws (except through the mean cost they revealed), and is exact also where one draw decides about
    several calls of a trace.

    Args:
        per_second: income a second.
        slack_seconds: seconds of income that spending may run ahead before probabilities fall.
        ruled: whether there are `always` rules; they get an allowance of their own, filled first with nine tenths of
            the income. Income that one allowance cannot hold goes to the other.
        clock: monotonic seconds.
    """

    def __init__(self, per_second: float, slack_seconds: float, *, ruled: bool, clock: Callable[[], float]) -> None:
        self._per_second, self._slack_seconds, self._clock = per_second, slack_seconds, clock
        self._ruled_share = _RULED_SHARE if ruled else 0.0
        self.reset()

    def reset(self) -> None:
        """Start anew with an even balance, and one slack saved for `always` rules."""
        self._ordinary, self._ruled = _Allowance(0.0, _KEPT), _Allowance(_KEPT, _KEPT_FOR_RULES)
        self._filled = self._clock()

    def factor(self, cost: float, *, ruled: bool) -> float:
        """Return the factor for the probability of a call at this moment, in (0, 1].

        Args:
            cost: cost of judging one call, in the unit of the budget.
            ruled: whether an `always` rule matches the call.
        """
        self._fill(cost)
        return (self._ruled if ruled else self._ordinary).factor

    def charge(self, probability: float, cost: float, *, ruled: bool) -> None:
        """Charge the expected cost of a call that is judged with *probability* at *cost*."""
        allowance = self._ruled if ruled else self._ordinary
        allowance.level -= probability * cost / self._slack(cost)

    def _slack(self, cost: float) -> float:
        return max(self._per_second * self._slack_seconds, _LEAST_CALLS * cost)

    def _fill(self, cost: float) -> None:
        # Income comes from the clock alone: a call that is not sampled returns nothing.
        now = self._clock()
        income = max(0.0, now - self._filled) * self._per_second / self._slack(cost)
        self._filled = max(now, self._filled)
        if not self._ruled_share:
            self._ordinary.fill(income)
            return
        reserved = income * self._ruled_share
        left = self._ordinary.fill(income - reserved + self._ruled.fill(reserved))
        self._ruled.fill(left)


class JudgementCosts:
    """Mean cost of a judgement, from the judge's reports: of all reports at first, of about the last fifty later."""

    def __init__(self) -> None:
        self._known = self._silent = 0
        self._recent = 0.0

    @property
    def mean_usd(self) -> float:
        """Mean cost in US dollars."""
        return max(self._recent, GUESS_USD * _TRUST**self._known)

    def add(self, cost_usd: float | None) -> None:
        """Add one report; None, or a value that is no amount of money, counts as no report."""
        # A user's judge may report anything.
        if isinstance(cost_usd, (int, float)) and not isinstance(cost_usd, bool) and 0 <= cost_usd < _MOST_USD:
            self._known += 1
            self._recent += (float(cost_usd) - self._recent) / min(self._known, _REMEMBERED)
            return
        self._silent += 1
        if not self._known and self._silent == _SILENT:
            faults.tell_once(
                "judgements without a cost",
                "usd_per_day= is set, but none of the first %d judgements said what it cost: each is counted as $%g. "
                "Tell the judge its price, OpenAIJudge(..., price=ragtrace.Price(input=0.15, output=0.6)), in US "
                "dollars for a million tokens, or limit per_minute= instead",
                _SILENT,
                GUESS_USD,
            )
