"""Finished steps and calls on their way from the application's threads to the worker: queued, deferred or dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from opentelemetry.trace import NonRecordingSpan

from ragtrace.core.step import Step
from ragtrace.core.types import RagCall
from ragtrace.history.spool_codec import ClaimedCall
from ragtrace.instrument.call_builder import CallBuilder
from ragtrace.system.faults import faults

_ITEM_BYTES: Final = 2_000
"""Of an item without its texts: steps, spans, a waiting task."""
_MOST_DEFERRED_STEPS: Final = 8
"""Steps of a call with more steps are queued at once: its root would bring too much work at a time."""


@dataclass(slots=True, eq=False)
class WorkItem:
    """Item of the worker's queue: a finished step to write as a span, or a call to write and to score."""

    step: Step
    builder: CallBuilder | None = None
    is_call: bool = False
    open: set[str] = field(default_factory=set[str])
    """Ids of the evaluators for which the ledger still has this call as pending."""
    dropped: str = ""
    """Why the call is not scored, wholly or by some evaluators; a span not written yet is ended as it is."""
    announced: int = 0
    """Number of evaluations whose events and metrics went out before the judge was asked."""
    call: RagCall | None = None
    """The call, once the processor has built it."""
    probability: float | None = None
    """Inclusion probability with which the judge was to see the call, once the sampler has decided."""
    spooled: int | None = None
    """Number of the call in the spool file, if it comes from there; its span has ended in another process."""
    job: Callable[[], Awaitable[None]] | None = None
    """Coroutine function to await on the worker's event loop, instead of a step."""

    @classmethod
    def of_spooled(cls, claimed: ClaimedCall) -> WorkItem:
        """Return a call that was claimed from the spool as an item without a span to write."""
        unscored = claimed.unscored
        step = Step()
        step.workflow = unscored.call.workflow
        step.response_id, step.ended, step.written = unscored.response_id, True, True
        step.span = None if unscored.call.span is None else NonRecordingSpan(unscored.call.span)
        return cls(
            step,
            is_call=True,
            open=set(unscored.open),
            call=unscored.call,
            probability=unscored.probability,
            spooled=claimed.number,
        )

    def claim_open(self) -> tuple[str, ...]:
        """Remove all evaluators from `open` and return them: from now on only the caller settles them in the ledger."""
        claimed: list[str] = []
        for evaluator in sorted(self.open):
            with suppress(KeyError):  # each removal is atomic: the worker may be at it too
                self.open.remove(evaluator)
                claimed.append(evaluator)
        return tuple(claimed)

    def claim_deferred(self) -> list[WorkItem]:
        """Return the deferred steps of this call as items, each of them to one caller only."""
        if not self.is_call or self.builder is None:
            return []
        return [WorkItem(step, self.builder) for step in tuple(self.builder.steps) if step.detach()]


def item_bytes(item: WorkItem) -> int:
    """Return the bytes that *item* keeps alive; a step counts with its own item or, later, with its call."""
    total = _ITEM_BYTES + step_bytes(item.step)
    if item.is_call and item.builder is not None:
        for step in (*item.builder.steps, *item.builder.orphans):
            if step.joined and not step.written:
                total += _ITEM_BYTES + step_bytes(step)
            elif step.written and step is not item.step:
                total += step_bytes(step)
    return total


def step_bytes(step: Step) -> int:
    """Return the bytes of the texts of *step*; 0 as long as it has not ended."""
    if step.bytes is None and step.ended:
        step.complete()
        total = getsizeof(step.query) + getsizeof(step.answer)
        for document in step.documents or ():
            total += getsizeof(document.text)
        for message in () if step.prompt is None else step.prompt.messages:
            total += getsizeof(message.text)
        step.bytes = total
    return step.bytes or 0


class DeferredSteps:
    """Ended steps that wait for the root of their call, so that a request queues one item instead of several.

    Measured: queueing is a good part of what a short step costs. Deferred steps are in no queue: before the queue is
    drained, `claim_all` must be queued. Safe from any thread.
    """

    def __init__(self) -> None:
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Forget all steps after a fork: they are the parent's."""
        self._calls: set[CallBuilder] = set()
        self._swept = False

    def defer(self, builder: CallBuilder, step: Step) -> bool:
        """Keep *step* until the root of its call ends; return False if the caller must queue it now."""
        if not self._swept or len(builder.steps) > _MOST_DEFERRED_STEPS:  # no worker sweeps yet, or too many
            return False
        step.joined = True
        self._calls.add(builder)
        # Only now: a thread that closed, or ended the root, before we looked may have missed the step, or claimed it.
        return not ((builder.root.ended or self._closed) and step.detach())

    def root_ended(self, builder: CallBuilder) -> None:
        """Leave the deferred steps of *builder* to the item of its root."""
        self._calls.discard(builder)

    def claim_all(self) -> list[tuple[CallBuilder, Step]]:
        """Return every deferred step, to be queued by the caller."""
        self._swept = True
        claimed: list[tuple[CallBuilder, Step]] = []
        for builder in tuple(self._calls):
            self._calls.discard(builder)  # first: a step that is deferred now brings it back
            claimed += [(builder, step) for step in tuple(builder.steps) if step.detach()]
        return claimed

    def close(self) -> None:
        """Defer no further step."""
        self._closed = True


class DroppedSpans:
    """Count of spans for which the queue had no room: noted by an append on the request thread, counted later."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all spans after a fork: they are the parent's."""
        self._uncounted: deque[None] = deque()
        self._counted = 0

    def add(self, step: Step) -> None:
        """Drop the span of *step*."""
        self._uncounted.append(None)
        step.release_context()

    def add_call(self, builder: CallBuilder) -> None:
        """Drop the spans of a whole call: that of its root and those of its deferred steps."""
        for step in builder.steps:
            if step is builder.root or step.detach():
                self.add(step)
            step.clear_texts()
        builder.close()

    def count(self) -> int:
        """Return the number of spans dropped so far; new ones are counted as faults, and the first is logged."""
        new = 0
        with suppress(IndexError):  # several threads may count at a time
            while True:
                self._uncounted.pop()
                new += 1
        self._counted += new
        if new:
            faults.warn_once(
                "lost spans: queue full",
                "spans could not be queued and were lost; every further loss is counted in ragtrace.stats().faults. "
                "Raise capacity= or queue_bytes=",
                count=new,
            )
        return self._counted
