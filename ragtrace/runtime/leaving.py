"""Calls that a runtime will not score any more, on their way into the spool at its end.

From the moment a call is taken, nothing that the background finds out about it counts or is sent: it is the next
process's. And what became of it is decided once: either it is in the file and counted so, or neither.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ragtrace.runtime.finished import Finished
from ragtrace.runtime.revival import Revival
from ragtrace.spool import Kept

_AT_ONCE: Final = 256


class Leaving:
    """Takes the calls among *works* to the spool, for as long as there is time.

    Args:
        works: what was not finished.
        revival: the spool; None: there is none.
        ready: puts a call together, as far as that was not done; False if nobody is to score it.
        settle: enters the end of a call for one evaluator, and its reason, into the books.
    """

    def __init__(
        self,
        works: Sequence[Finished],
        revival: Revival | None,
        ready: Callable[[Finished], bool],
        settle: Callable[[Finished, str, str], object],
    ) -> None:
        # One that was broken off a moment too late is among those that could not be broken off, too.
        self._works = list(dict.fromkeys(works))
        self._revival, self._ready, self._settle = revival, ready, settle
        self._lock = threading.Lock()
        self._over = False
        self._taken: dict[Finished, Kept] = {}
        self._reasons: dict[Finished, str] = {}

    def run(self) -> None:
        """Store the calls, some at a time; `end` may come at any moment."""
        for start in range(0, len(self._works), _AT_ONCE):
            works = [work for work in self._works[start : start + _AT_ONCE] if self._take(work)]
            self._put_back([work for work in works if work.revived])
            self._keep([work for work in works if not work.revived])
            if self._over:
                return

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
        if not self._revival.keep([self._taken[work] for work in works], partial(self._agree, works)):
            self._agree(works, [False] * len(works))

    def _agree(self, works: Sequence[Finished], kept: Sequence[bool]) -> bool:
        with self._lock:
            if self._over:
                return False
            for work, stored in zip(works, kept, strict=True):
                self._reasons[work] = "spooled" if stored else "not_spooled"
            return True

    def end(self) -> None:
        """There is no more time: what is not in the file by now is lost. Enters everything into the books."""
        with self._lock:
            self._over = True
        for work in self._works:
            kept = self._taken.get(work)
            names = work.take() if kept is None else kept.open
            if names:
                # One that came out of the file is still there.
                work.dropped = self._reasons.get(work, "spooled" if work.revived else "shutdown")
            for evaluator in names:
                self._settle(work, evaluator, work.dropped)
