"""What judging one call costs, learned from what the judge reports."""

from __future__ import annotations

from typing import Final

from ragtrace.system.faults import faults

GUESS_USD: Final = 0.05
"""Before the first report: 10,000 tokens read and 1,000 written at the prices of a large model. High, so that the
first calls do not spend the day's money."""
_REMEMBERED: Final = 50
_TRUST: Final = 0.1
"""Each report takes nine tenths off the guess: one that is far too low (a cached judgement) does not open the gates."""
_SILENT: Final = 3
_MOST_USD: Final = 1e6
"""What costs more is a mistake of the judge's."""


class Prices:
    """The mean cost of a judgement: of all at first, of about the last fifty later."""

    def __init__(self) -> None:
        self._known = self._silent = 0
        self._recent = 0.0

    @property
    def mean(self) -> float:
        """In US dollars."""
        return max(self._recent, GUESS_USD * _TRUST**self._known)

    def add(self, cost_usd: float | None) -> None:
        """Learn from one report; None, or what is no amount of money, is none."""
        if not _is_money(cost_usd):
            self._missed()
            return
        self._known += 1
        self._recent += (float(cost_usd or 0.0) - self._recent) / min(self._known, _REMEMBERED)

    def _missed(self) -> None:
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


def _is_money(cost_usd: object) -> bool:
    """A user's judge may report anything."""
    return isinstance(cost_usd, (int, float)) and not isinstance(cost_usd, bool) and 0 <= cost_usd < _MOST_USD
