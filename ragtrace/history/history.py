"""Keeps calls in the file from a thread of its own; whoever offers a call never waits.

A call is in the file at most about a second after it was offered: a process that is killed loses what it was offered
since then, and nothing else. Every batch is one transaction, so nothing is ever half there. (After a power failure the
last few batches may be missing too, as the file is not synced for each.)
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Final

from ragtrace.core.types import Evaluation, RagCall
from ragtrace.history.records import Offered
from ragtrace.history.schema import history_file, prepare
from ragtrace.history.source import Source
from ragtrace.history.writing import Writer
from ragtrace.system.faults import faults
from ragtrace.system.sqlite_files import SQLiteFileError

BATCH_SECONDS: Final = 0.5
"""How long a call waits for others to be written with it."""
_BATCH: Final = 500
_MOST_CALLS: Final = 10_000
_MOST_BYTES: Final = 32 * 2**20
_TRIES: Final = 3
_PAUSE_SECONDS: Final = 1.0
_DAY_SECONDS: Final = 86_400.0
_parents: list[object] = []
"""What a forked child inherits and must neither use nor close: closing would meddle with the parent's file."""


class History:
    """An observer of finished calls that keeps them in the file at *path*.

    Args:
        path: the file; several processes may share it.
        source: what the calls of this process have in common.
        days: age at which a call is deleted.
        most_bytes: size that the file may have; the oldest calls go first.
        texts: whether to keep what was asked, retrieved and answered.
        clock: seconds since the epoch.
        passed: seconds that have really passed, since any moment.
    """

    def __init__(
        self,
        path: str,
        source: Source,
        *,
        days: float = 30.0,
        most_bytes: int = 2**30,
        texts: bool = True,
        clock: Callable[[], float] = time,
        passed: Callable[[], float] = monotonic,
    ) -> None:
        self.path = path
        self._source, self._days, self._most_bytes, self._texts, self._clock = source, days, most_bytes, texts, clock
        self._passed = passed
        self._begin()

    def _begin(self) -> None:
        # Re-entrant: garbage collection may end a stream, and with it a call, at any allocation.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[Offered] = deque()
        self._waiting_bytes = self._in_hand = 0
        self._thread: threading.Thread | None = None
        self._writer: Writer | None = None
        self._hurry = self._closed = False
        self._believed: tuple[float, float] | None = None
        self.lost: Counter[str] = Counter()
        """Calls that are not in the file, by reason: queue_full, write_failed, unreadable, closed, no_thread."""

    def prepare(self, origin: str) -> None:
        """Make the file, or see that it is one of ours.

        Args:
            origin: where the path came from, for the message.

        Raises:
            SettingsError: it cannot be used.
        """
        prepare(history_file(self.path), origin)

    # --- whoever offers a call ---------------------------------------------------------------------------------------

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object) -> None:
        """Have *call* kept soon; returns at once."""
        reason = getattr(decision, "reason", None)
        offered = Offered(call, tuple(evaluations), reason, self._clock())
        with self._changed:
            full = len(self._waiting) >= _MOST_CALLS or self._waiting_bytes >= _MOST_BYTES
            if self._closed or full:
                self._lose(1, "closed" if self._closed else "queue_full")
                return
            self._waiting_bytes += offered.weight
            self._waiting.append(offered)
            if len(self._waiting) == 1 or len(self._waiting) >= _BATCH:
                self._changed.notify_all()
            self._start()

    def flush(self, timeout: float) -> bool:
        """Write everything offered so far within *timeout* seconds; False if it was late, or anything was lost."""
        deadline = monotonic() + timeout
        with self._changed:
            lost = self.lost.total()
            self._hurry = True
            self._changed.notify_all()
            if self._thread is None:  # none could be started: the interpreter is shutting down
                self._write_waiting()
            self._changed.wait_for(self._is_done, timeout=max(0.0, deadline - monotonic()))
            self._hurry = False
            return self._is_done() and self.lost.total() == lost

    def close(self, timeout: float) -> bool:
        """The same, and close the file; what is offered later is lost."""
        deadline = monotonic() + timeout
        well = self.flush(timeout)
        with self._changed:
            self._closed = True
            if not self._is_done():
                self._lose(len(self._waiting) + self._in_hand, "closed")
                self._waiting.clear()
                self._waiting_bytes = self._in_hand = 0
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(max(0.03, deadline - monotonic()))
        elif self._writer is not None:
            self._writer.close()
            self._writer = None
        return well

    def reset(self) -> None:
        """In a forked child: start empty, what waits is the parent's."""
        _parents.append((self._writer, self._waiting, self._thread))
        self._begin()

    def _is_done(self) -> bool:
        return not self._waiting and not self._in_hand

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="ragtrace-history", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down; flush writes what is there
            return
        self._thread = thread

    def _lose(self, count: int, reason: str) -> None:
        self.lost[reason] += count
        faults.warn_once(
            f"history: {reason}",
            "calls could not be kept in the history %r (%s); every further one is counted in ragtrace.stats().faults",
            self.path,
            reason,
            count=count,
        )

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                self._write(self._take())
        except BaseException as error:
            faults.record("history", error)
            with self._changed:
                self._thread = None
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _wait(self) -> bool:
        """Until there is a batch; False: nothing will come any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._changed.wait_for(
                lambda: self._hurry or self._closed or len(self._waiting) >= _BATCH, timeout=BATCH_SECONDS
            )
            return bool(self._waiting) or not self._closed

    def _take(self) -> list[Offered]:
        with self._changed:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            self._waiting_bytes -= sum(offered.weight for offered in batch)
            self._in_hand = len(batch)
            return batch

    def _write(self, batch: Sequence[Offered]) -> None:
        unreadable, failed = 0, len(batch)
        for attempt in range(_TRIES):
            if attempt and not self._pause():
                break
            try:
                unreadable = self._opened().write(batch)
            except (sqlite3.Error, OSError, SQLiteFileError) as error:
                faults.record("history: writing", error)
                self._forget_writer()
            else:
                failed = 0
                break
        self._prune()
        with self._changed:
            if self._in_hand:  # else it has been given up meanwhile
                self._count_losses(failed, unreadable)
            self._in_hand = 0
            self._changed.notify_all()

    def _opened(self) -> Writer:
        if self._writer is None:
            self._writer = Writer(self.path, self._source, most_bytes=self._most_bytes, texts=self._texts)
        if self._believed is None:  # before anything is written by a clock that may be wrong
            newest = self._writer.newest
            self._believed = self._clock() if newest is None else newest, self._passed()
        return self._writer

    def _today(self) -> float:
        """Return the time by which calls are old, in seconds since the epoch.

        It is the clock's, unless that is more than a day ahead of what it was last, and of the newest call at the
        start: a clock that is set forward by mistake would have all calls deleted. It is believed after a day.
        """
        now, passed = self._clock(), self._passed()
        then, since = self._believed or (now, passed)
        if now - then > passed - since + _DAY_SECONDS and passed - since < _DAY_SECONDS:
            return then + passed - since
        self._believed = now, passed
        return now

    def _prune(self) -> None:
        """On its own: what is written stays written, whatever becomes of this."""
        try:
            early = 0 if self._writer is None else self._writer.prune(self._today() - self._days * _DAY_SECONDS)
        except sqlite3.Error as error:  # somebody else writes for long: the next batch tries again
            faults.record("history: pruning", error)
            return
        if early:
            faults.warn_once(
                "history: pruned for its size",
                "the history %r has reached its size: the oldest calls are deleted before they are %g days old. Raise "
                "store_bytes= to keep them longer",
                self.path,
                self._days,
                count=early,
            )

    def _count_losses(self, failed: int, unreadable: int) -> None:
        if failed:
            self._lose(failed, "write_failed")
        if unreadable:
            self._lose(unreadable, "unreadable")

    def _pause(self) -> bool:
        """Wait a moment before another attempt; False if there is no time for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed, timeout=_PAUSE_SECONDS)
            return not self._closed

    def _forget_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except sqlite3.Error as error:
                faults.record("history: closing", error)

    def _write_waiting(self) -> None:
        while self._waiting:
            self._write(self._take())
