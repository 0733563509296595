"""Calls that a runtime will not score any more, on their way into the spool at its end.

From the moment a call is taken, nothing that the background finds out about it counts or is sent: it is the next
process's. And what became of it is decided once: either it is in the file and counted so, or neither.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final

from ragtrace.core.ledger import Ledger
from ragtrace.history.spool_records import Kept
from ragtrace.pipeline.recent_outcomes import MOST, Fates
from ragtrace.pipeline.revival import Revival
from ragtrace.pipeline.shutdown_budget import AT_LEAST_SECONDS
from ragtrace.pipeline.work_item import Finished

_AT_ONCE: Final = 128
_AT_LEAST: Final = 16
_STORE_SECONDS: Final = 0.005
"""For the file to take them."""
_CALL_SECONDS: Final = 0.000_1
"""For one to be written down."""


class Leaving:
    """Takes the calls among *works* to the spool, for as long as there is time.

    Args:
        works: what was not finished.
        revival: the spool; None: there is none.
        ready: puts a call together, as far as that was not done; False if nobody is to score it.
        ledger: the books, in which their end is entered.
        fates: what became of the last calls.
    """

    def __init__(
        self,
        works: Sequence[Finished],
        revival: Revival | None,
        ready: Callable[[Finished], bool],
        ledger: Ledger,
        fates: Fates,
    ) -> None:
        # One that was broken off a moment too late is among those that could not be broken off, too.
        self._works = list(dict.fromkeys(work for work in works if work.open))
        self._revival, self._ready, self._ledger, self._fates = revival, ready, ledger, fates
        self._lock = threading.Lock()
        self._over = False
        self._written = threading.Event()
        self._written.set()
        self._taken: dict[Finished, Kept] = {}
        self._reasons: dict[Finished, str] = {}

    def run(self, until: float) -> None:
        """Store the calls, some at a time, after the scores that still wait; `end` may come at any moment.

        Args:
            until: monotonic seconds; takes no call for which there would be no time by then, except for the first few.
        """
        if self._revival is None:
            return
        self._revival.save_again()
        with self._revival.storing():
            self._store(until)

    def _store(self, until: float) -> None:
        left = self._works[::-1]
        while left and not self._over:
            works = self._take_some(left, until)
            self._put_back([work for work in works if work.revived])
            self._keep([work for work in works if not work.revived])
            if monotonic() > until - _STORE_SECONDS:
                return

    def _take_some(self, left: list[Finished], until: float) -> list[Finished]:
        works: list[Finished] = []
        while left and len(works) < _AT_ONCE:
            if len(works) >= _AT_LEAST and monotonic() > until - _STORE_SECONDS - _CALL_SECONDS * len(works):
                break
            work = left.pop()
            if self._take(work):
                works.append(work)
        return works

    def _take(self, work: Finished) -> bool:
        if not work.open or not self._ready(work) or work.call is None:
            return False
        with self._lock:
            if self._over:
                return False
            work.dropped = work.dropped or "spooled"
            self._taken[work] = Kept(work.call, work.take(), work.step.response_id, work.probability)
        return True

    def _put_back(self, works: Sequence[Finished]) -> None:
        calls = {work.revived: self._taken[work] for work in works if self._taken[work].open}
        if calls and self._revival is not None:
            self._revival.put_back(calls)

    def _keep(self, works: Sequence[Finished]) -> None:
        works = [work for work in works if self._taken[work].open]
        if not works or self._revival is None:
            return
        try:
            if not self._revival.keep([self._taken[work] for work in works], partial(self._agree, works)):
                self._note(works, [False] * len(works))
        finally:
            self._written.set()

    def _agree(self, works: Sequence[Finished], kept: Sequence[bool]) -> bool:
        with self._lock:
            if self._over:
                return False
            self._written.clear()
            self._note(works, kept)
            return True

    def _note(self, works: Sequence[Finished], kept: Sequence[bool]) -> None:
        for work, stored in zip(works, kept, strict=True):
            self._reasons[work] = "spooled" if stored else "not_spooled"

    def end(self) -> None:
        """There is no more time: what is not in the file by now is lost. Enters everything into the books."""
        with self._lock:
            self._over = True
        self._written.wait(AT_LEAST_SECONDS)  # what has been agreed on is in the file in a moment
        lost = "shutdown" if self._revival is None else "not_spooled"
        ends: list[tuple[Finished, tuple[str, ...]]] = []
        for work in self._works:
            kept = self._taken.get(work)
            names = work.take() if kept is None else kept.open
            if names:
                # One that came out of the file is still there.
                work.dropped = self._reasons.get(work, "spooled" if work.revived else lost)
                ends.append((work, names))
        self._book(ends)

    def _book(self, ends: Sequence[tuple[Finished, tuple[str, ...]]]) -> None:
        """One entry for all calls of a workflow that came to the same end: there may be thousands, and no time."""
        counts = Counter((evaluator, work.step.workflow, work.dropped) for work, names in ends for evaluator in names)
        for (evaluator, workflow, reason), calls in counts.items():
            self._ledger.settle(evaluator, workflow, "dropped", reason, calls=calls)
        for work, names in ends[-MOST:]:
            for evaluator in names:
                self._fates.add(work.step.span_context, work.step.workflow, evaluator, "dropped", work.dropped)
