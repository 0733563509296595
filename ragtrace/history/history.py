"""The history of finished RAG calls with their scores, which a background thread writes to an SQLite file.

A call is in the file at most about a second after it was offered: a process that is killed loses what it was offered
since then, and nothing else. Every batch is one transaction, so no call is ever stored in part. (After a power failure
the last few batches may be missing too, as the file is not synced for each.)
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import ClassVar, Final

from ragtrace.core.alert_incident import AlertIncident
from ragtrace.core.feedback import Feedback
from ragtrace.core.part import Part
from ragtrace.core.score_sink import Refusal
from ragtrace.core.step import GuardVerdict
from ragtrace.core.types import Evaluation, RagCall
from ragtrace.history.schema import history_file, prepare
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, Queued, QueuedCall, QueuedVerdict
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import SQLiteFileError
from ragtrace.telemetry.export.outbox import Outbox

BATCH_SECONDS: Final = 0.5
"""Largest number of seconds that a call waits for others, to be written together."""
_MOST_CALLS: Final = 10_000
_MOST_BYTES: Final = 32 * 2**20
_FEEDBACK_BYTES: Final = 600
_VERDICT_BYTES: Final = 500
_ALERT_BYTES: Final = 1_000
_TRIES: Final = 3
_DAY_SECONDS: Final = 86_400.0
_PACK_SECONDS: Final = 1.0
"""Least number of seconds between two packings of a block of calls, each of which takes a tenth of a second."""
_PACK_SHARE: Final = 0.05
"""Largest share of the time in which a process packs blocks, as after it began to write to an older history."""


class HistoryRecorder(Part):
    """Observer of finished RAG calls, which stores calls and scores in an SQLite file and deletes old ones.

    Args:
        path: the file; several processes may share it.
        source: service, release and evaluators of this process.
        days: age at which a call is deleted.
        most_bytes: size that the file may have; the oldest calls are deleted first.
        texts: whether to store queries, documents and answers.
        clock: returns seconds since the epoch.
        passed: returns monotonic seconds.
    """

    what = "calls"
    batch_size = 500
    sees_early_scores: ClassVar[bool] = True

    def __init__(
        self,
        path: str,
        source: CallOrigin,
        *,
        days: float = 30.0,
        most_bytes: int = 2**30,
        texts: bool = True,
        clock: Callable[[], float] = time,
        passed: Callable[[], float] = monotonic,
    ) -> None:
        self.path, self._source, self._days, self._most_bytes, self._texts = path, source, days, most_bytes, texts
        self._clock, self._passed = clock, passed
        self._writer: HistoryWriter | None = None
        self._lock = threading.Lock()
        self._believed: tuple[float, float] | None = None
        self._next_packing = 0.0
        self._waiters: set[object] = set()  # flushes and a close, for which packing stops; changed by atomic operations
        self._outbox: Outbox[Queued] = Outbox(
            self,
            capacity=_MOST_CALLS,
            most_bytes=_MOST_BYTES,
            patience=_DAY_SECONDS,
            most_tries=_TRIES,
            batch_seconds=BATCH_SECONDS,
        )

    def prepare(self, origin: str) -> None:
        """Create the history file, or check that the existing file is a history.

        Args:
            origin: where the path came from, for the message.

        Raises:
            SettingsError: the file cannot be used.
        """
        prepare(history_file(self.path), origin)

    @property
    def lost(self) -> Counter[str]:
        """Number of RAG calls that could not be stored in the history file, by reason.

        The reasons are queue_full, write_failed, unreadable and closed.
        """
        counts = self._outbox.counts()
        lost = Counter(counts.failed) + Counter(counts.dropped)
        if "shutdown" in lost:
            lost["closed"] = lost.pop("shutdown")
        return lost

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object) -> None:
        """Queue a finished RAG call with its evaluations to be stored, without blocking."""
        offered = QueuedCall(call, tuple(evaluations), getattr(decision, "reason", None), self._clock())
        self._outbox.offer(offered, size=offered.memory_bytes)

    def add_feedback(self, feedback: Feedback) -> None:
        """Queue *feedback* to be stored, without blocking.

        The RAG call that it is about may be stored before or later.
        """
        texts = len(feedback.comment or "") + len(feedback.correction or "")
        self._outbox.offer(feedback, size=_FEEDBACK_BYTES + texts)

    def add_guard_verdict(self, call: RagCall, verdict: GuardVerdict) -> None:
        """Queue the *verdict* of a guard to be stored with a *call* that was queued before, without blocking."""
        if call.span is not None:  # by which the row of the call is found
            self._outbox.offer(QueuedVerdict(call.span, verdict), size=_VERDICT_BYTES)

    def add_alert(self, incident: AlertIncident) -> None:
        """Queue what is known of an alert's *incident* to be stored in place of what was known, without blocking."""
        self._outbox.offer(incident, size=_ALERT_BYTES)

    def flush(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds until every queued call is stored.

        Return False if that was too short or calls were lost.
        """
        waiter = object()
        self._waiters.add(waiter)
        try:
            return self._outbox.flush(timeout)
        finally:
            self._waiters.discard(waiter)

    def settled_until(self, moment: float) -> bool:
        """Return whether every call queued before the monotonic time *moment* is stored or counted as lost."""
        return self._outbox.settled_until(moment)

    def close(self, timeout: float) -> bool:
        """Store the queued calls within *timeout* seconds, close the history file, and return whether none was lost."""
        deadline = monotonic() + timeout
        self._waiters.add(self)
        flushed = self._outbox.close(timeout)
        # Least number of seconds that `close` waits for a batch that is being written.
        if self._lock.acquire(timeout=max(0.03, deadline - monotonic())):  # False: a batch is being written
            try:
                self._close_writer()
            finally:
                self._lock.release()
        return flushed

    # --- as the receiver of the outbox, on its thread -----------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the history file, for log lines."""
        return f"the history {self.path!r}"

    def send(self, batch: Sequence[Queued], timeout: float) -> Mapping[int, Refusal]:
        """Write a batch of queued calls, verdicts and feedback to the history file in one transaction.

        Returns:
            The refusals: of the whole batch, to be tried again, if the file cannot be written; of calls that cannot be
            stored as rows, for good.
        """
        with self._lock:
            try:
                unreadable = self._open_writer().write(batch)
            except (sqlite3.Error, OSError, SQLiteFileError) as error:
                faults.record("history: writing", error)
                self._close_writer()
                return dict.fromkeys(range(len(batch)), Refusal("write_failed", again=True, busy=True))
            self._prune()
            self._pack()
        # The indexes are arbitrary, as only the number of refusals is used.
        return dict.fromkeys(range(unreadable), Refusal("unreadable"))

    def warn_lost(self, reason: str, detail: str, count: int) -> None:
        """Count calls that could not be stored as faults, and log a warning at the first loss for each reason."""
        faults.warn_once(
            f"history: {reason}",
            "calls could not be kept in the history %r (%s); every further one is counted in ragtrace.stats().faults",
            *(self.path, reason),
            count=count,
        )

    def _open_writer(self) -> HistoryWriter:
        if self._writer is None:
            self._writer = HistoryWriter(self.path, self._source, most_bytes=self._most_bytes, texts=self._texts)
        if self._believed is None:  # read before the first write, as that may store times of a wrong clock
            newest = self._writer.newest_time
            self._believed = self._clock() if newest is None else newest, self._passed()
        return self._writer

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except sqlite3.Error as error:
                faults.record("history: closing", error)

    def _now(self) -> float:
        """Return the current time in seconds since the epoch, from which the age of stored calls is computed.

        Where the clock has jumped ahead by more than a day, the new time is believed only after a day: a clock that is
        set forward by mistake would have all calls deleted.
        """
        now, passed = self._clock(), self._passed()
        then, since = self._believed or (now, passed)
        if now - then > passed - since + _DAY_SECONDS and passed - since < _DAY_SECONDS:
            return then + passed - since
        self._believed = now, passed
        return now

    def _prune(self) -> None:
        """Delete old calls from the history file. A failure is counted as a fault and not raised."""
        try:
            early = 0 if self._writer is None else self._writer.prune(self._now() - self._days * _DAY_SECONDS)
        except sqlite3.Error as error:  # another process holds the lock for long; the next batch tries again
            faults.record("history: pruning", error)
            return
        if early:
            faults.warn_once(
                "history: pruned for its size",
                "the history %r has reached its size: the oldest calls are deleted before they are %g days old. Raise "
                "History(bytes=) to keep them longer",
                *(self.path, self._days),
                count=early,
            )

    def _pack(self) -> None:
        """Pack a block of calls, from which reports are fast. A failure is counted as a fault and not raised.

        The batch before it counts as stored only afterwards, so packing stops where a flush or a shutdown waits: that
        would count calls as lost which are stored.
        """
        began = self._passed()
        if self._writer is None or began < self._next_packing:
            return
        try:
            self._writer.pack_block(lambda: not self._waiters)
        except Exception as error:  # the rows stay what is read
            faults.record("history: packing", error)
        now = self._passed()
        self._next_packing = now + max(_PACK_SECONDS, (now - began) / _PACK_SHARE)
