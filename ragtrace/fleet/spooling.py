"""Storing of unscored RAG calls in the spool file, and claiming of calls from the spool file to be scored.

Calls are stored at shutdown, and while the broker of a fleet cannot be reached. The former are claimed by
another process that shares the file, the latter by any such process, this one included.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from ragtrace.pipeline.shutdown import file_timeout
from ragtrace.system.faults import faults, guarded
from ragtrace.system.threads import run_bounded, run_in_background

if TYPE_CHECKING:
    from ragtrace.core.unscored_call import UnscoredCall
    from ragtrace.fleet.spool import ClaimedCall, Spool, SpoolContents
    from ragtrace.telemetry.export.telemetry import Telemetry

_POLL_SECONDS: Final = 2.0
"""Time until the file is searched again after a search that found no call to claim."""
_RENEW_SECONDS: Final = 15.0
"""Time between two renewals of this process's claims on spooled calls: a quarter of their lease."""
_FLUSH_SECONDS: Final = 10.0
"""Time limit of a flush that confirms the delivery of scores; also the time from its start to the next if it fails, so
that flushes follow one another while a backend is away."""
_CONFIRM_SECONDS: Final = 1.0
"""Time between two flushes that confirm the delivery of scores, while they succeed."""
_RELEASE_SECONDS: Final = 1.0
"""Least time that a shutdown allows for releasing the claimed calls, even if its deadline comes sooner."""
_MOST_CLAIMED: Final = 64
"""Most calls that are claimed at a time: the others are left for other processes, and for the next claim."""
_CLAIM_SECONDS: Final = 0.2
"""Least time for which a claim of calls waits for other writers of the file."""
_DELETE_SECONDS: Final = 0.2
"""Least time for which a deletion of delivered calls waits for other writers of the file, also after its deadline."""
_CONTENTS_SECONDS: Final = 0.2
"""Time for which a reader of the statistics waits for the file."""


class Storable(Protocol):
    """Interface of an item whose unscored call may be stored in the spool file."""

    is_spooled: bool
    """Whether this process has stored the call in the spool file."""


class CommitsClosedError(Exception):
    """Raised instead of a commit to the spool file after a shutdown has begun to count what is in the file."""


class CommitGate:
    """Gate through which every commit of calls to the spool file passes.

    A call must be counted as spooled if and only if it is in the file, but a thread that stores calls may be stopped
    for long just before its commit, or just after it. So a shutdown closes the gate before it counts: then no commit
    begins any more, and for each call it is known whether the call is in the file.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._in_progress: list[Sequence[Storable]] = []

    @contextmanager
    def commit(self, items: Sequence[Storable], stored: Sequence[bool]) -> Generator[None, None, None]:
        """Commit calls in a `with` block, and then mark the items of the stored calls, unless the block raises.

        Args:
            items: the items of the calls.
            stored: for each of them, whether the commit stores its call.

        Raises:
            CommitsClosedError: the gate is closed.
        """
        with self._changed:
            if self._closed:
                raise CommitsClosedError(f"{sum(stored)} calls could not be stored in time; give shutdown more time")
            self._in_progress.append(items)
        try:
            yield
            for item, is_in in zip(items, stored, strict=True):
                item.is_spooled = item.is_spooled or is_in
        finally:
            with self._changed:
                self._in_progress.remove(items)
                self._changed.notify_all()

    def close(self, timeout: float | None) -> Sequence[Storable]:
        """Close the gate, and wait for the commits in progress to end.

        Args:
            timeout: seconds to wait; None: without a limit.

        Returns:
            The items of which it is not known whether their calls are in the file, as a commit is still in progress.
        """
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._in_progress, timeout)
            return [item for items in self._in_progress for item in items]


class Spooling:
    """Access of a runtime to its spool file, the file of unscored RAG calls.

    To claim a call is to mark it as being scored by this process. The worker's thread claims calls periodically, and so
    does the thread that flushes (`SpoolIntake`); both queue them for scoring. Failures of the file are counted as
    faults and never raised.

    Scores of a claimed call are sent like any others, and the call is deleted from the file when telemetry, score sinks
    and the history have delivered them. Until then another process may score it again if this one is killed.

    Args:
        spool: the prepared file.
        telemetry: tells whether scores have been delivered.
        clock: monotonic seconds, for the times of periodic work. Deadlines and times of offers are those of
            `time.monotonic`, which shutdown and outboxes use.
    """

    def __init__(self, spool: Spool, telemetry: Telemetry, *, clock: Callable[[], float] = monotonic) -> None:
        self._spool, self._telemetry, self._clock = spool, telemetry, clock
        self.commits = CommitGate()
        self._claiming = threading.Lock()
        self._is_confirming = self._closed = False
        # Row numbers of claimed calls. The worker's thread adds to the first two sets; a confirming thread, a flush or
        # a shutdown moves a snapshot of `_sent` to `_delivered`. The sets need no lock: an operation on a set of
        # integers is atomic, a number is added to `_delivered` before it is removed from `_sent`, and moving or
        # deleting a number twice does no harm.
        self._begun: set[int] = set()
        """Calls that are being scored or have been, until they are deleted from the file."""
        self._sent: set[int] = set()
        """Calls whose scores were sent, and are not known to be delivered."""
        self._delivered: set[int] = set()
        """Calls whose scores were delivered, and which are still in the file."""
        self._ever_claimed = False
        self._next_poll = self._next_renewal = self._next_confirmation = 0.0

    # --- out of the file ---------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether it is time to search the spool file for unscored calls again."""
        return self._clock() >= self._next_poll

    @contextmanager
    def claim(self, room: int, timeout: float = 0.0) -> Generator[list[ClaimedCall], None, None]:
        """Claim unscored calls in the spool file, and yield them to a `with` block that queues them.

        The calls are queued inside the block because a shutdown waits for the end of the block before it releases the
        claims. So it releases no call that is about to be queued.

        Args:
            room: most calls to claim.
            timeout: seconds to wait for other threads and processes that claim calls.
        """
        if room <= 0 or not self._claiming.acquire(timeout=max(0.0, timeout)):
            yield []
            return
        try:
            claimed: list[ClaimedCall] = []
            if not self._closed:
                with guarded("spool"):
                    claimed = self._spool.claim(min(room, _MOST_CLAIMED), max(_CLAIM_SECONDS, timeout))
            self._ever_claimed = self._ever_claimed or bool(claimed)
            self._next_poll = 0.0 if claimed else self._clock() + _POLL_SECONDS
            yield claimed
        finally:
            self._claiming.release()

    @property
    def is_scoring_suspect(self) -> bool:
        """Whether this process is scoring a spooled call that may have caused earlier crashes.

        Such a call was in progress when earlier processes crashed. Only one such call is taken at a time.
        """
        return self._spool.has_suspect

    def count_attempt(self, number: int) -> None:
        """Record in the spool file that this process begins to score the spooled call *number*."""
        if number not in self._begun:
            self._begun.add(number)
            with guarded("spool"):
                self._spool.count_attempt(number)

    def mark_sent(self, number: int) -> None:
        """Note that the scores of the claimed call *number* were sent, so that it is deleted once they are
        delivered.
        """
        self._spool.clear_suspicion(number)
        self._sent.add(number)

    def tick(self) -> None:
        """Do periodic work: renew the claims on spooled calls, and delete calls whose scores have been delivered.

        Called a few times a second on the worker's thread. The flush that confirms a delivery may take seconds, so it
        is done on another thread.
        """
        now = self._clock()
        if self._ever_claimed and now >= self._next_renewal:
            self._next_renewal = now + _RENEW_SECONDS
            with guarded("spool"):
                self._spool.renew_leases()
        if (self._sent or self._delivered) and not self._is_confirming and now >= self._next_confirmation:
            self._is_confirming, self._next_confirmation = True, now + _FLUSH_SECONDS
            if not run_in_background(self._confirm_delivery):
                self._is_confirming = False

    def _confirm_delivery(self) -> None:
        """Flush the telemetry, and delete the spooled calls whose scores were delivered."""

        def deliver() -> bool:
            began = monotonic()  # the clock of the outboxes; the scores of all calls in `_sent` have been queued by now
            flushed = self._telemetry.flush(_FLUSH_SECONDS, release_held=False)
            return flushed and self._telemetry.scores_settled_until(began)

        with guarded("spool"):
            if self.deliver_and_delete(deliver, monotonic() + _FLUSH_SECONDS):
                self._next_confirmation = self._clock() + _CONFIRM_SECONDS
        self._is_confirming = False

    def deliver_and_delete(self, deliver: Callable[[], bool], deadline: float) -> bool:
        """Export all telemetry by calling *deliver*, and return whether the export succeeded.

        If the result is True, delete the spooled calls whose scores were delivered.

        Args:
            deliver: exports all telemetry, and returns whether sinks and history have everything, too.
            deadline: monotonic seconds until which the deletion waits for other writers of the file.
        """
        sent = self._sent.copy()
        done = deliver()
        if done:
            self._mark_delivered(sent)
        delivered = self._delivered.copy()
        if delivered:
            with guarded("spool"):
                self._spool.delete(delivered, max(_DELETE_SECONDS, deadline - monotonic()))
                self._delivered -= delivered
                self._begun -= delivered
        return done

    def _mark_delivered(self, sent: set[int]) -> None:
        self._delivered |= sent
        self._sent -= sent

    def close(self, deadline: float, *, delivered: bool) -> None:
        """Delete the calls whose scores were delivered from the spool file, and release the other claimed calls.

        Called at shutdown: this process claims no more calls, and another one scores the released calls.

        Args:
            deadline: monotonic seconds.
            delivered: whether telemetry, sinks and history were closed with everything delivered.
        """
        if delivered:
            self._mark_delivered(self._sent.copy())
        if self._ever_claimed:
            run_bounded(lambda: self._release(file_timeout(deadline)), max(monotonic() + _RELEASE_SECONDS, deadline))

    def _release(self, timeout: float) -> None:
        with self._claiming:
            self._closed = True
        with guarded("spool"):
            self._spool.delete(self._delivered.copy(), timeout)  # a flush that goes on may still change the set
            # All claims are released. The argument is the calls whose attempt was cancelled and does not count.
            self._spool.release_claims(self._begun - self._sent - self._delivered, timeout)
        with guarded("spool"):
            self._spool.close()

    @property
    def contents(self) -> SpoolContents | None:
        """Number and size of the calls in the spool file, or None if the file cannot be read."""
        try:
            return self._spool.contents(_CONTENTS_SECONDS)
        except Exception as error:
            faults.record("spool", error)
            return None

    # --- into the file -----------------------------------------------------------------------------------------------

    @contextmanager
    def keep_open(self) -> Generator[None, None, None]:
        """Keep the spool file open for the duration of a `with` block, to make repeated `add` calls faster."""
        with ExitStack() as opened:
            with suppress(Exception):
                opened.enter_context(self._spool.keep_open())
            yield

    def add(self, items: Sequence[Storable], calls: Sequence[UnscoredCall], timeout: float) -> None:
        """Store unscored calls in the spool file, and mark the items of those that were stored (`is_spooled`)."""
        with guarded("spool"):
            self._spool.add(calls, timeout, partial(self.commits.commit, items))
