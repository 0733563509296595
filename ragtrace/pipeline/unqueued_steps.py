"""Steps that are not in the worker's queue: deferred ones, dropped ones, and retrievals that wait for a generation."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ragtrace.core.part import Part
from ragtrace.core.step import CallBuilder, OrphanRetrievals, Step
from ragtrace.system.faults import faults

_MOST_DEFERRED_STEPS: Final = 8
"""Most deferred steps of a call: more would make its work item take the worker too long."""


class DeferredSteps(Part):
    """Store of finished steps that wait for the end of their RAG call, so that the call is queued as one item.

    Queueing was measured to be a good part of what a short step costs. Deferred steps are in no queue: before the queue
    is drained, `queue_all` must be called. Safe from any thread.

    Args:
        queue: queues a step of a call.
    """

    def __init__(self, queue: Callable[[CallBuilder, Step], None]) -> None:
        self._queue, self._closed = queue, False
        self._calls: set[CallBuilder] = set()
        self._swept = False

    def defer(self, builder: CallBuilder, step: Step) -> bool:
        """Store a finished step until its RAG call ends. Return False if the caller must queue the step now."""
        if not self._swept or len(builder.steps) > _MOST_DEFERRED_STEPS:  # no worker collects them yet, or too many
            return False
        step.joined = [None]
        self._calls.add(builder)
        # Checked last: a thread that has closed this store, or ended the root, may have missed or claimed the step.
        return not ((builder.root.ended or self._closed) and step.detach())

    def root_ended(self, builder: CallBuilder) -> None:
        """Remove the deferred steps of a RAG call whose root step has ended, because they are queued together with the
        call.

        Args:
            builder: the call.
        """
        self._calls.discard(builder)

    def tick(self) -> None:
        """Queue all deferred steps."""
        self.queue_all()

    def queue_all(self) -> None:
        """Remove all deferred steps from the store and queue them."""
        self._swept = True
        claimed: list[tuple[CallBuilder, Step]] = []
        for builder in list(self._calls):
            self._calls.discard(builder)  # before its steps are claimed: a step deferred later adds the call again
            claimed += [(builder, step) for step in list(builder.steps) if step.detach()]
        for builder, step in claimed:
            self._queue(builder, step)

    def queue_last(self) -> None:
        """Queue all deferred steps, and let every later step be queued at once."""
        self._closed = True
        self.queue_all()


class DroppedSpans(Part):
    """Counter of the spans that were dropped because the worker's queue was full.

    A request thread only appends to a queue, without a lock. What is in it is counted later, by the worker's tick, by a
    flush, and by each thread that reads the losses.
    """

    def __init__(self) -> None:
        self._uncounted: deque[None] = deque()
        """One entry for each dropped span that is not counted yet."""
        self._lock = threading.RLock()  # re-entrant: a signal handler may read the losses while this thread counts
        self._counted = 0

    def tick(self) -> None:
        """Count the new dropped spans."""
        self.count()

    def drop(self, step: Step) -> None:
        """Count the span of *step* as dropped, and release the step's context."""
        self._uncounted.append(None)
        step.release_context()

    def drop_call(self, builder: CallBuilder) -> None:
        """Count the root span of a RAG call and the spans of its deferred steps as dropped."""
        for step in builder.steps:
            # Spans from which a call was assembled are written by their own provider, and so not lost.
            if not step.written and (step is builder.root or step.detach()):
                self.drop(step)
            step.clear_texts()
        builder.close()

    def count(self) -> int:
        """Return the number of spans dropped so far. New ones are counted as faults, and the first is logged."""
        new = 0
        with self._lock:  # else one of two threads that count at a time would replace the sum of the other
            with suppress(IndexError):
                while True:
                    self._uncounted.pop()
                    new += 1
            self._counted += new
        if new:
            faults.warn_once(
                "lost spans: queue full",
                "spans could not be queued and were lost; every further loss is counted in ragtrace.stats().faults. "
                "Raise Limits(capacity=) or Limits(queue_bytes=)",
                count=new,
            )
        return self._counted


class OrphanLimit(Part):
    """Limit on the memory of retrievals that wait for a generation.

    Args:
        orphans: the retrievals.
        most_bytes: memory of their texts.
    """

    def __init__(self, orphans: OrphanRetrievals, most_bytes: int) -> None:
        self._orphans, self._most_bytes = orphans, most_bytes

    def tick(self) -> None:
        """Remove the oldest retrievals beyond the limit."""
        self._orphans.trim(self._most_bytes)
