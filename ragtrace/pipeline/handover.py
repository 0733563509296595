"""Scores of calls out of the spool, on their way from the file to the backend: taken out of the file when they arrived.

What was certainly not delivered when the process ends stays in the file, for the next process to send: the same scores,
not new ones. What may have been delivered is not sent again, and where that is not known, it is counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.export.receipts import Identity, Receipts

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from ragtrace.history.spool import Spool

_FORGET_SECONDS: Final = 0.2
_LAST_ANSWER_SECONDS: Final = 0.05
"""How long an exporter that has been told to stop is waited for."""
_PAUSE_SECONDS: Final = 0.005


@dataclass(slots=True)
class _Handed:
    """The scores of one call."""

    call: Identity
    before: frozenset[str]
    """Parts that an earlier process has sent."""
    whole: bool = False
    """Whether all of it has been handed over."""


class Handover:
    """Follows scores until they are delivered. Any thread may call; whatever the file does, nothing of it raises.

    Args:
        spool: holds the calls.
        receipts: knows of what goes through our own exporters.
    """

    def __init__(self, spool: Spool, receipts: Receipts) -> None:
        self._spool, self._receipts = spool, receipts
        self.reset()
        # At once: until a call is out of the file, a process that is killed leaves its scores to be sent again.
        receipts.when_delivered(lambda: self.settle(self.under_way, well=False))

    def reset(self) -> None:
        """After a fork: the scores are the parent's."""
        self._lock = threading.Lock()
        self._handed: dict[int, _Handed] = {}
        self._arrived: set[int] = set()

    def hand(
        self, number: int, span: SpanContext | None, send: Callable[[], object], before: frozenset[str] = frozenset()
    ) -> None:
        """Hand the scores of the call *number* over to telemetry by calling *send*; they are in the file."""
        call = (0, 0) if span is None else (span.trace_id, span.span_id)
        self._receipts.watch(call)
        with self._lock:
            handed = self._handed[number] = _Handed(call, before)
        with guarded("attaching scores"):
            send()
        handed.whole = True

    def arrived(self, numbers: Iterable[int]) -> None:
        """The scores of these calls are delivered, or there are none: they go out of the file."""
        with self._lock:
            for number in numbers:
                handed = self._handed.pop(number, None)
                if handed is not None:
                    self._receipts.forget(handed.call)
                self._arrived.add(number)
        self._forget()

    def _forget(self) -> None:
        numbers = set(self._arrived)
        with guarded("spool"):
            if numbers:
                self._spool.forget(numbers, _FORGET_SECONDS)
                self._arrived -= numbers

    @property
    def under_way(self) -> list[int]:
        """Calls whose scores have been handed over and are not known to be delivered."""
        with self._lock:
            return [number for number, handed in self._handed.items() if handed.whole]

    def settle(self, numbers: Iterable[int], *, well: bool) -> None:
        """A flush that began after *numbers* were handed over has ended, *well* or not."""
        with self._lock:
            followed = {number: self._handed[number].call for number in numbers if number in self._handed}
        done: list[int] = []
        for number, call in followed.items():
            states = self._receipts.parts(call).values()
            if all(state == "delivered" for state in states) if states else well:
                done.append(number)
        if done or self._arrived:
            self.arrived(done)

    def leave(self, timeout: float, *, well: bool) -> None:
        """The end: nothing is sent any more. Settle what has become of everything that was handed over.

        Args:
            timeout: seconds to wait for the file.
            well: whether the last flush went well.
        """
        self._await_answers()
        unknown = 0
        sent: dict[int, frozenset[str]] = {}
        refused: list[int] = []
        with self._lock:
            gone = set(self._arrived)
            for number, handed in self._handed.items():
                parts = self._receipts.parts(handed.call)
                states = set(parts.values())
                unknown += ("sending" in states) if parts else (handed.whole and not well)
                if handed.whole and not states & {"waiting", "refused"}:
                    gone.add(number)
                    continue
                went = (part for part, state in parts.items() if state in ("sending", "delivered"))
                sent[number] = handed.before.union(went)
                refused += [number] * ("refused" in states)
            self._handed.clear()
        with guarded("spool"):
            self._spool.leave(gone, sent, refused, timeout)
        if unknown:
            faults.warn_once(
                "spool: delivery not confirmed",
                "scores of calls from the spool were sent when the process ended, and whether they arrived is not "
                "known; they are not sent again. Give shutdown more time; every further one is counted in "
                "ragtrace.stats().faults",
                count=unknown,
            )

    def _await_answers(self) -> None:
        deadline = monotonic() + _LAST_ANSWER_SECONDS
        while self._receipts.any_sending and monotonic() < deadline:
            sleep(_PAUSE_SECONDS)
