"""Takes calls out of the spool, sees that they are scored, and forgets them when their scores have been delivered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from ragtrace.core.types import Evaluation
from ragtrace.history.spool_records import Claimed, Contents, Kept
from ragtrace.pipeline.handover import Handover
from ragtrace.pipeline.shutdown_budget import patience
from ragtrace.system.daemon_pool import bounded
from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.export.receipts import Receipts

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from ragtrace.history.spool import Spool

_LOOK_SECONDS: Final = 2.0
_RENEW_SECONDS: Final = 15.0
"""A quarter of a lease."""
_DELIVER_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 0.2
_LEAVE_SECONDS: Final = 1.0
"""At least, for a thread to start and to write a few lines, where that takes a machine so long."""
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Reviving:
    """What the spool needs of the runtime."""

    offer: Callable[[Claimed], bool]
    """Have a call scored; False if there is no room for it now."""
    resend: Callable[[Claimed], None]
    """Send the scores that a process before has found."""
    has_room: Callable[[], bool]
    """Whether the queue is short enough for calls that have waited for so long anyway."""
    flush: Callable[[float], bool]
    """Deliver all telemetry within so many seconds."""


@dataclass(frozen=True, slots=True)
class _Scored:
    """A call whose scores are to be noted in the file, and then sent."""

    number: int
    span: SpanContext | None
    evaluations: Sequence[Evaluation]
    send: Callable[[], object]


class Revival:
    """The traffic between a runtime and its spool. Whatever the file does, nothing of it raises.

    Args:
        spool: prepared.
        runtime: what to do with calls.
        receipts: knows what has been delivered by our own exporters.
        clock: monotonic seconds.
    """

    def __init__(
        self, spool: Spool, runtime: Reviving, receipts: Receipts, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._spool, self._runtime, self._clock = spool, runtime, clock
        self._handover = Handover(spool, receipts)
        self.reset()

    def reset(self) -> None:
        """After a fork: what was claimed is the parent's."""
        self._handover.reset()
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._left = self._delivering = False
        self._owns_some = False
        self._unsaved: list[_Scored] = []
        self._look_at = self._renew_at = self._deliver_at = 0.0

    # --- into the file -----------------------------------------------------------------------------------------------

    def keep(self, calls: Sequence[Kept], decide: Callable[[list[bool]], bool], timeout: float = 1.0) -> bool:
        """Store calls that will not be scored here any more; *decide* as for the spool. False if that failed."""
        try:
            self._spool.keep(calls, timeout, decide=decide)
        except Exception as error:
            faults.record("spool", error)
            return False
        return True

    @contextmanager
    def storing(self) -> Generator[None, None, None]:
        """Around what stores much in a short time."""
        with ExitStack() as opened:
            with suppress(Exception):  # it only makes things faster
                opened.enter_context(self._spool.staying_open())
            yield

    def put_back(self, calls: Mapping[int, Kept]) -> None:
        """Calls that were claimed and are not scored are for the next process, as far as they have come."""
        with guarded("spool"):
            self._spool.put_back(calls, _PATIENCE_SECONDS)

    # --- out of the file ---------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Called a few times a second: look for calls, keep claims alive, have finished ones delivered."""
        now = self._clock()
        self.save_again()
        if now >= self._look_at:
            self._look_at = now + (0.0 if self.take_up() else _LOOK_SECONDS)
        if self._owns_some and now >= self._renew_at:
            self._renew_at = now + _RENEW_SECONDS
            with guarded("spool"):
                self._spool.renew()
        if not self._delivering and now >= self._deliver_at and self._handover.under_way:
            self._delivering, self._deliver_at = True, now + _DELIVER_SECONDS
            with guarded("spool"):
                threading.Thread(target=self._deliver, name="ragtrace-spool", daemon=True).start()

    def take_up(self) -> int:
        """Claim calls and have them scored, or their scores sent, as far as there is room; returns how many."""
        if not self._runtime.has_room() or not self._lock.acquire(blocking=False):
            return 0
        try:
            return 0 if self._left else self._take_up()
        finally:
            self._lock.release()

    def _take_up(self) -> int:
        claimed: list[Claimed] = []
        with guarded("spool"):
            claimed = self._spool.claim(_AT_ONCE)
        self._owns_some = self._owns_some or bool(claimed)
        refused: list[int] = []
        for call in claimed:
            if call.scores is not None:
                send, span = lambda call=call: self._runtime.resend(call), call.kept.call.span
                self._handover.hand(call.number, span, send, call.sent or frozenset())
            elif not self._runtime.offer(call):
                refused.append(call.number)
        if refused:
            with guarded("spool"):
                self._spool.release(refused, _PATIENCE_SECONDS)
        return len(claimed) - len(refused)

    def begun(self, number: int) -> None:
        """A claimed call is being judged from now on."""
        with guarded("spool"):
            self._spool.begin(number)

    # --- scores ------------------------------------------------------------------------------------------------------

    def is_ours(self, number: int) -> bool:
        """Whether nobody else has taken the call up while it was being scored here; asked before its scores go out."""
        try:
            return self._spool.is_mine(number)
        except Exception as error:
            faults.record("spool", error)
            return True  # twice, with the same score ids, is better than not at all

    def scored(
        self, number: int, span: SpanContext | None, evaluations: Sequence[Evaluation], send: Callable[[], object]
    ) -> None:
        """A call is decided: note its scores in the file, then send them; it is forgotten when they are delivered."""
        if not evaluations:
            self._handover.arrived([number])
        else:
            self._unsaved.append(_Scored(number, span, evaluations, send))
            if len(self._unsaved) == 1:  # else it was locked a moment ago
                self.save_again()

    def _save(self, scored: _Scored) -> bool:
        """False if others kept the file locked for too long."""
        ours: bool | None
        try:
            ours = self._spool.score(scored.number, scored.evaluations)
        except Exception as error:
            faults.record("spool", error)
            ours = True  # a file that is broken has nobody else's claim either
        if ours:
            self._handover.hand(scored.number, scored.span, scored.send)
        return ours is not None

    def save_again(self) -> bool:
        """Note and send scores for which the file was locked; False if it still is. On the background's thread, or
        when that has ended.
        """
        with self._saving:
            while self._unsaved:
                if not self._save(self._unsaved[0]):
                    return False
                del self._unsaved[0]
        return True

    def _deliver(self) -> None:
        with guarded("spool"):
            if delivering(self, lambda: self._runtime.flush(_DELIVER_SECONDS)):
                self._deliver_at = 0.0
        self._delivering = False

    def under_way(self) -> list[int]:
        """The calls whose scores have gone out; for whoever is about to flush, and then calls `settle`."""
        return self._handover.under_way

    def settle(self, numbers: list[int], *, well: bool) -> bool:
        """A flush after `under_way` has ended, *well* or not; False if scores still wait for the file."""
        self._handover.settle(numbers, well=well)
        return not self._unsaved

    def leave(self, deadline: float, *, well: bool) -> None:
        """The end of the runtime: what is not delivered is left to the next process, with the scores that it has.

        Args:
            deadline: monotonic time until which it may take; at least as long as a file or machine that is busy needs.
            well: whether the last flush went well.
        """
        if self._owns_some:
            bounded(lambda: self._leave(patience(deadline), well=well), max(monotonic() + _LEAVE_SECONDS, deadline))

    def _leave(self, timeout: float, *, well: bool) -> None:
        with self._lock:
            self._left = True
        if self._unsaved:
            faults.warn_once(
                "spool: scores not kept",
                "the spool was locked for too long to note the scores of %d calls; they will be judged again",
                len(self._unsaved),
                count=len(self._unsaved),
            )
        self._handover.leave(timeout, well=well)

    @property
    def contents(self) -> Contents | None:
        """What is in the file; None if it cannot be read."""
        try:
            return self._spool.contents()
        except Exception as error:
            faults.record("spool", error)
            return None


def delivering(revival: Revival | None, deliver: Callable[[], bool]) -> bool:
    """Deliver all telemetry by calling *deliver*; what is known by then to have arrived goes out of the spool."""
    numbers = [] if revival is None else revival.under_way()
    well = deliver()
    return revival.settle(numbers, well=well) and well if revival is not None else well
