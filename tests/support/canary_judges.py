"""Simulated judges that judge canaries, with error rates that change at some moment."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from ragtrace.alerts.canary_drift import CANARY_LABELS, AgreementMonitor, CanaryLabel, Drift


class ErrorRates(NamedTuple):
    """How often a judge errs on canaries that are labelled bad, and on those that are labelled good."""

    bad: float
    good: float


USUAL: Final = ErrorRates(bad=0.1, good=0.05)
"""Sensitivity 0.9 and specificity 0.95."""
LESS_SENSITIVE: Final = ErrorRates(bad=0.4, good=0.05)
"""Sensitivity 0.6."""


class CanaryStream:
    """Stream of the judgements of one simulated judge, added to a monitor.

    Args:
        seed: of the random numbers.
        canaries: number of different canaries of each label; each is always judged alike, but for a change of the error
            rates. None: every judgement errs independently.
    """

    def __init__(self, seed: int, canaries: int | None = None) -> None:
        self.monitor = AgreementMonitor()
        self._random = random.Random(seed)
        self._canaries = canaries
        # With fixed draws, a canary is judged wrongly from the error rate on at which its draw lies.
        self._draws = {label: [(at + 0.5) / (canaries or 1) for at in range(canaries or 0)] for label in CANARY_LABELS}

    def judge(self, rates: ErrorRates) -> bool:
        """Add one judgement with these error *rates*; return whether an alarm begins with it."""
        label: CanaryLabel = "bad" if self._random.random() < 0.5 else "good"
        rate = rates.bad if label == "bad" else rates.good
        draw = self._random.choice(self._draws[label]) if self._canaries else self._random.random()
        return self.monitor.add(label, error=draw < rate, draw=self._random.random()) == "drifted"

    def judgements_until_alarm(self, rates: ErrorRates, most: int) -> int:
        """Add judgements with these error *rates* until an alarm; return how many it took, *most* if there is none."""
        return next((number for number in range(1, most + 1) if self.judge(rates)), most)

    def run(self, rates: ErrorRates, count: int) -> int:
        """Add *count* judgements with these error *rates*; return the number of alarms, each ended at once."""
        alarms = 0
        for _ in range(count):
            alarms += self.judge(rates)
            if self.monitor.drift is not None:
                self.monitor = AgreementMonitor()
        return alarms

    @property
    def drift(self) -> Drift | None:
        """The fall of the agreement that has raised an alarm."""
        return self.monitor.drift
