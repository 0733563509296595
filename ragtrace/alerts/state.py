"""The states of an alert: whether the rate is all right, and, which is another matter, whether that is known."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal, TypeAlias

from ragtrace.alerts.detector import Detector

Condition: TypeAlias = Literal["ok", "spiking", "recovering"]
Trouble: TypeAlias = Literal["no_data", "judge_failing"]
State: TypeAlias = Literal["ok", "spiking", "recovering", "no_data", "judge_failing", "no_baseline"]
STATES: Final[tuple[State, ...]] = ("ok", "spiking", "recovering", "no_data", "judge_failing", "no_baseline")

_RECENT_SHARE: Final = 5
_ATTEMPTS: Final = 20
_IN_A_ROW: Final = 5


class Rate:
    """Whether the rate is within its bound. For one thread at a time.

    The evidence for a spike is the detector's. A spike is `recovering` while the mean of the last calls is within the
    bound, and over when that of `recovery` calls since the alarm is, too: then the detector starts without evidence.

    Args:
        min_calls: that the detector must have seen before there is a spike.
        recovery: calls since the alarm that decide about its end.
    """

    def __init__(self, detector: Detector, *, min_calls: int, recovery: int) -> None:
        self.detector = detector
        self.condition: Condition = "ok"
        self._min_calls, self._recovery = min_calls, recovery
        self._recent = -(-recovery // _RECENT_SHARE)
        self._after: deque[tuple[float, float]] = deque(maxlen=recovery)

    def add(self, badness: float, probability: float, share: float, question: str | None = None) -> None:
        """Take a scored call into account.

        Args:
            badness: in [0, 1], to be compared with the detector's bound.
            probability: with which the call was included, in (0, 1].
            share: of its place in the batch that it gets (`Detector.add`).
            question: what was asked; None: not known.
        """
        if self.condition == "ok":
            if self.detector.add(badness, share, question) and self.detector.calls >= self._min_calls:
                self.condition = "spiking"
                self._after.clear()
            return
        self._after.append((1.0 / probability, badness))
        if not self._within(self._recent):
            self.condition = "spiking"
        elif not self._within(self._recovery):
            self.condition = "recovering"
        else:
            self.condition = "ok"
            self.detector.reset()

    def _within(self, calls: int) -> bool:
        """Whether the mean of the last *calls* since the alarm is within the bound; no, if there were not so many."""
        if len(self._after) < calls:
            return False
        last = list(self._after)[-calls:]
        total = sum(weight for weight, _ in last)
        return sum(weight * badness for weight, badness in last) <= self.detector.bound * total


class Supply:
    """Whether there are scores to know the rate from. For one thread at a time.

    Args:
        window: seconds without any score after which there is no data.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._failed: deque[bool] = deque(maxlen=_ATTEMPTS)
        self._scored_at: float | None = None
        self._tried_at: float | None = None
        self._begun_at: float | None = None

    def scored(self, now: float) -> None:
        """A call got a score."""
        self._scored_at = now
        self.tried(now, failed=False)

    def tried(self, now: float, *, failed: bool) -> None:
        """An evaluator looked at a call, and failed, or found that the metric does not apply."""
        self._tried_at = now
        self._begun_at = now if self._begun_at is None else self._begun_at
        self._failed.append(failed)

    def overdue(self, now: float) -> bool:
        """Whether there should have been scores by now: the first call was looked at longer ago than the window."""
        return self._begun_at is not None and not self._is_recent(self._begun_at, now)

    def trouble(self, now: float) -> Trouble | None:
        """What keeps the rate from being known, at the time *now*."""
        if self._is_recent(self._tried_at, now) and self._failing:
            return "judge_failing"
        return None if self._is_recent(self._scored_at, now) else "no_data"

    def _is_recent(self, at: float | None, now: float) -> bool:
        return at is not None and now - at <= self._window

    @property
    def _failing(self) -> bool:
        """The last few failed, or more than half of the last ones did."""
        if len(self._failed) < _IN_A_ROW:
            return False
        return all(list(self._failed)[-_IN_A_ROW:]) or sum(self._failed) * 2 > len(self._failed)
