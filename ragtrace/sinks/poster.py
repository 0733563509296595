"""Posts scores by a backend's own API, on a thread of its own: nothing waits for it but a flush."""

from __future__ import annotations

import contextvars
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time_ns
from typing import Final

from opentelemetry.context import attach, detach, set_value

from ragtrace.errors import faults, say
from ragtrace.ledger import HEAD_DROPPED, Posted
from ragtrace.model import Evaluation, RagCall
from ragtrace.native import Refusal, ScoreRecord, ScoreSink
from ragtrace.sinks.queue import Entry, ScoreQueue
from ragtrace.sinks.records import records_of
from ragtrace.spare import bounded, prepare

_CAPACITY: Final = 4_096
_MOST_BYTES: Final = 8 << 20
_PATIENCE_SECONDS: Final = 600.0
"""How long a score is offered to a backend that does not know its trace yet, or is away."""
_LONGEST_TOLD_SECONDS: Final = 300.0
_POST_SECONDS: Final = 10.0
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0
_HURRIED_PAUSE_SECONDS: Final = 0.2
_SHORTEST_IDLE_SECONDS: Final = 0.02
_NOT_ALL_THE_SAME: Final = frozenset({"refused", "too_large"})
"""Refusals that a single score may have brought upon all that went with it."""


class ScorePoster:
    """Queues the scores of finished calls and posts them to one backend.

    An observer of calls: it returns at once. Bounded in number and bytes; each score once by its id; tried again with
    growing pauses, at the backend's own word where it gives one; whatever is lost is counted by reason and logged once.

    Args:
        sink: the backend's API.
        service: name of the application.
        evidence: quote the claims that are not supported.
        capacity: most scores that may wait.
        most_bytes: most bytes that they may take.
        patience: seconds after which a score that could not be posted is given up.
        post_seconds: time limit of one request.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        sink: ScoreSink,
        *,
        service: str = "",
        evidence: bool = False,
        capacity: int = _CAPACITY,
        most_bytes: int = _MOST_BYTES,
        patience: float = _PATIENCE_SECONDS,
        post_seconds: float = _POST_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._sink, self._service, self._evidence, self._clock = sink, service, evidence, clock
        self._patience, self._post_seconds = patience, post_seconds
        self._limits = capacity, most_bytes
        self.reset()

    def reset(self) -> None:
        """Start afresh: after a fork what waits is the parent's, and there is no thread."""
        self._changed = threading.Condition(threading.RLock())
        self._queue = ScoreQueue(*self._limits)
        self._in_hand: list[Entry] = []
        self._thread: threading.Thread | None = None
        self._paused_until = self._told_until = 0.0
        self._told_of = 0
        self._hurried = 0
        self._closed = self._over = False

    @property
    def sink(self) -> ScoreSink:
        """The backend's API."""
        return self._sink

    @property
    def name(self) -> str:
        """Of the backend."""
        return self._sink.name

    def books(self) -> Posted:
        """What became of the scores so far."""
        with self._changed:
            return self._queue.books()

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Queue the scores of *call*."""
        if call.span is None:
            return
        records = records_of(call, evaluations, service=self._service, evidence=self._evidence, time_ns=time_ns())
        with self._changed:
            lost = "" if call.span.trace_flags.sampled else HEAD_DROPPED
            lost = lost or ("shutdown" if self._closed else "")
            dropped = [self._offer(record, lost) for record in records]
        if any(dropped):
            self._warn("queue_full", "the queue is full", "the backend is slower than the scores come, or away")

    def _offer(self, record: ScoreRecord, lost: str) -> bool:
        """Queue *record*; True if there is no room for it."""
        if lost:
            self._queue.refuse(lost)
            return False
        dropped = self._queue.offer(record, self._clock(), getattr(self._sink, "first_after_s", 0.0))
        if self._thread is None:
            self._start()
        self._changed.notify_all()
        return bool(dropped)

    def flush(self, timeout: float) -> bool:
        """Post everything within *timeout* seconds.

        Returns:
            False if something could not be posted in that time, or was lost since the last flush.
        """
        deadline = self._clock() + timeout
        if self._thread is None and self._queue.pending:
            bounded(self._drain, monotonic() + timeout)
        with self._changed:
            self._hurried += 1
            if self._queue.pending:  # else nothing would tell whether the backend still wants to be left alone
                self._hurry()
            try:
                while self._queue.pending:
                    left = deadline - self._clock()
                    if left <= 0 or threading.current_thread() is self._thread:
                        return False
                    self._changed.wait(left)
            finally:
                self._hurried -= 1
            told, self._told_of = self._told_of, self._queue.lost
            return told == self._told_of

    def _hurry(self) -> None:
        """Try at once what waits, unless the backend itself asked to be left alone."""
        self._queue.hurry()
        self._paused_until = self._told_until
        self._changed.notify_all()

    def close(self, timeout: float) -> bool:
        """Take no more, post what is left within *timeout* seconds, give up the rest. False if any of it was lost."""
        with self._changed:
            self._closed = True
        well = self.flush(timeout)
        with self._changed:
            self._over = True
            lost = self._queue.drop(self._in_hand, "shutdown")
            self._changed.notify_all()
        if lost:
            say(logging.WARNING, "scores that were not posted to %s before the shutdown: %d", self.name, lost)
        return well and not lost

    # --- on its own thread -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        # An empty context: what is posted is no part of the request that happened to come first.
        run = contextvars.Context().run
        thread = threading.Thread(target=run, args=(self._run,), name="ragtrace-scores", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the machine has no room for a thread, or the interpreter is shutting down
            return  # the next flush, at the latest that of the shutdown, finds somebody
        self._thread = thread
        prepare()

    def _drain(self) -> None:
        """Post what there is, on whichever thread there is."""
        with self._changed:
            self._hurry()
        self._run(to_the_end=True)

    def _run(self, *, to_the_end: bool = False) -> None:
        # Instrumented HTTP clients look for this key: our posts are not the application's.
        token = attach(set_value("suppress_instrumentation", True))
        try:
            self._serve(to_the_end=to_the_end)
        finally:
            detach(token)

    def _serve(self, *, to_the_end: bool) -> None:
        while batch := self._next(to_the_end=to_the_end):
            refusals = self._post(batch)
            with self._changed:
                self._in_hand = [entry for entry in self._in_hand if entry not in batch]
                complaints = self._settle_all(batch, refusals)
                self._changed.notify_all()
            for reason, what in complaints.items():  # not under the lock: a log handler may do anything
                self._warn(reason, what)

    def _next(self, *, to_the_end: bool) -> list[Entry]:
        """Wait for scores that are due; [] when it is all over, or nothing is left and that is all there was to do."""
        with self._changed:
            while not self._over and (self._queue.pending or not to_the_end):
                now = self._clock()
                if now >= self._paused_until and (batch := self._queue.take(self._sink.most_at_once, now)):
                    self._in_hand += batch
                    return batch
                self._changed.wait(self._idle_seconds(now))
            return []

    def _idle_seconds(self, now: float) -> float | None:
        if not self._queue.pending:
            return None
        due = self._queue.next_due
        return max(_SHORTEST_IDLE_SECONDS, self._paused_until - now, 0.0 if due is None else due - now)

    def _post(self, batch: Sequence[Entry]) -> Mapping[str, Refusal]:
        try:
            return self._sink.post([entry.record for entry in batch], self._post_seconds)
        except Exception as error:
            faults.record(f"posting scores to {self.name}", error)
            return {entry.record.id: Refusal("internal") for entry in batch}

    def _settle_all(self, batch: Sequence[Entry], refusals: Mapping[str, Refusal]) -> dict[str, str]:
        """Enter what became of *batch*; returns what there is to say about it, by reason."""
        try:
            return self._settle(batch, refusals)
        except Exception as error:  # a sink of somebody else's may return anything
            faults.record(f"posting scores to {self.name}", error)
            for entry in batch:
                self._queue.failed(entry, "internal")
            return {}

    def _settle(self, batch: Sequence[Entry], refusals: Mapping[str, Refusal]) -> dict[str, str]:
        complaints: dict[str, str] = {}
        suspected = len(batch) > 1 and all(_may_be_anothers(refusals.get(entry.record.id)) for entry in batch)
        for entry in batch:
            refusal = refusals.get(entry.record.id)
            if refusal is None:
                self._queue.posted(entry)
            elif suspected:
                entry.alone = True
                self._queue.wait(entry, self._clock())
            elif refusal.again and self._clock() - entry.born < self._patience:
                self._again(entry, refusal)
            else:
                if refusal.busy:
                    self._paused_until = max(self._paused_until, self._clock() + _LONGEST_PAUSE_SECONDS)
                self._queue.failed(entry, refusal.reason)
                complaints[refusal.reason] = f"{refusal.reason}: {refusal.detail}" if refusal.detail else refusal.reason
        return complaints

    def _again(self, entry: Entry, refusal: Refusal) -> None:
        entry.tries += 1
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(entry.tries - 1, 10))
        pause *= random.uniform(0.8, 1.2)
        if self._hurried:
            pause = min(pause, _HURRIED_PAUSE_SECONDS)
        until = self._clock() + pause
        if refusal.after_s is not None:
            until = self._clock() + min(max(refusal.after_s, 0.0), _LONGEST_TOLD_SECONDS)
        if refusal.busy and refusal.after_s is not None:
            self._told_until = max(self._told_until, until)
        if refusal.busy:
            self._paused_until = max(self._paused_until, until)
        self._queue.wait(entry, until)

    def _warn(self, reason: str, what: str, why: str = "") -> None:
        faults.warn_once(
            f"scores for {self.name}: {reason}",
            "a score could not be posted to %s (%s%s); it is in spans, events and metrics all the same. Every further "
            "loss is counted in ragtrace.stats().sinks",
            self.name,
            what,
            f": {why}" if why else "",
        )


def _may_be_anothers(refusal: Refusal | None) -> bool:
    return refusal is not None and not refusal.again and refusal.reason in _NOT_ALL_THE_SAME
