"""Items of the worker's queue: a finished step, a RAG call to be scored, or a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from opentelemetry.trace import NonRecordingSpan

from ragtrace.core.step import CallBuilder, Step
from ragtrace.pipeline.call_ends import ReasonIfAny

if TYPE_CHECKING:
    from ragtrace.core.types import RagCall
    from ragtrace.core.unscored_call import UnscoredCall

_ITEM_BYTES = 2_000
"""Memory of an item without texts: the step, the span, and a task that waits for the judge."""


@dataclass(slots=True, eq=False)
class StepItem:
    """Finished step, whose span is to be written."""

    step: Step
    builder: CallBuilder | None = None
    """Builder of the RAG call that the step is part of; None for a retrieval outside any call."""
    dropped: ReasonIfAny = ""
    """Reason why the span gets no content, or empty; written by the thread that has the item."""

    @property
    def bytes(self) -> int:
        """Memory in bytes that the item keeps alive."""
        return _ITEM_BYTES + self.step.text_bytes()


@dataclass(slots=True, eq=False)
class CallItem:
    """RAG call that is to be scored, with its root step."""

    step: Step
    builder: CallBuilder | None = None
    """Builder of the call; None for a call that another process has traced."""
    pending_evaluators: set[str] = field(default_factory=set[str])
    """Ids of the evaluators without an outcome for this call in the ledger yet."""
    # Two reasons with one writer each, as a shutdown may drop a call while the worker's thread drops it, too: for an
    # evaluator, the one that takes it out of `pending_evaluators` first counts. With one reason, a worker's thread that
    # was stopped between its look and its write would have replaced what a shutdown has counted, and the span would say
    # something else than the counts.
    dropped_in_handling: ReasonIfAny = ""
    """Reason why the queue, the worker or the fleet did not take the call, or empty; written by the thread that has the
    item: the one that offers it, then the worker's."""
    dropped_at_shutdown: ReasonIfAny = ""
    """Reason under which a shutdown has counted the call for an evaluator, or empty; also one for which no evaluator
    would have seen the call, such as `call_failed`. Written by threads of the shutdown alone, one after the other, once
    it has claimed the evaluator. It outweighs `dropped_in_handling`."""
    n_sent_early: int = 0
    """Number of evaluations whose events and metrics were sent before the judge was asked."""
    call: RagCall | None = None
    """Built and redacted call; None until the processor has built it."""
    probability: float | None = None
    """Probability with which the call is sampled for the judge, from 0 to 1; None until the sampler has decided."""
    sampling_reason: str = ""
    """Reason of the sampler's decision, for instance `always_rule`; empty until it has decided, or where not known."""
    published: bool = False
    """Whether the call has been published to the queue of a fleet, whose workers judge it (outcome `handed_over`)."""
    spool_row: int | None = None
    """Row number of a call that was claimed from the spool file, whose span has ended already; None for any other call.

    A call that this process stored in the file has the reason "spooled" in `dropped` instead.
    """
    is_spooled: bool = False
    """Whether this process has stored the call in the spool file."""

    @property
    def dropped(self) -> ReasonIfAny:
        """Reason why evaluators do not score the call, or empty; a span that is not written yet then gets no content.

        A call that is stored in the spool file counts as dropped, too, with the reason "spooled": every call that this
        process was offered ends here with one outcome, and the process that claims it counts it as offered again.
        """
        return self.dropped_at_shutdown or self.dropped_in_handling

    @classmethod
    def from_unscored(cls, unscored: UnscoredCall) -> CallItem:
        """Create the item for scoring a RAG call that another process has traced and redacted."""
        step = Step()
        step.workflow = unscored.call.workflow
        step.response_id, step.ended, step.written = unscored.response_id, True, True
        step.span = None if unscored.call.span is None else NonRecordingSpan(unscored.call.span)
        return cls(
            step,
            pending_evaluators=set(unscored.pending_evaluators),
            call=unscored.call,
            probability=unscored.probability,
            sampling_reason=unscored.reason,
        )

    def claim_pending_evaluators(self) -> tuple[str, ...]:
        """Claim the evaluators that have not scored the RAG call yet, and return their ids.

        From then on only the caller counts the call's outcomes at these evaluators.
        """
        claimed: list[str] = []
        for evaluator in sorted(self.pending_evaluators):
            with suppress(KeyError):  # each removal is atomic: the worker may remove the same id
                self.pending_evaluators.remove(evaluator)
                claimed.append(evaluator)
        return tuple(claimed)

    def claim_deferred_steps(self) -> list[StepItem]:
        """Claim the steps of this RAG call whose spans were deferred, and return them as items.

        Every step is returned to one caller only.
        """
        if self.builder is None:
            return []
        return [StepItem(step, self.builder) for step in list(self.builder.steps) if step.detach()]

    @property
    def bytes(self) -> int:
        """Memory in bytes that the item keeps alive, including the texts of the call's steps."""
        total = _ITEM_BYTES + self.step.text_bytes()
        if self.builder is not None:
            for step in (*self.builder.steps, *self.builder.orphans):
                if step.joined and not step.written:
                    total += _ITEM_BYTES + step.text_bytes()
                elif step.written and step is not self.step:
                    total += step.text_bytes()
        return total


@dataclass(slots=True, eq=False)
class Job:
    """Coroutine function that is to be called on the worker's event loop."""

    run: Callable[[], Awaitable[None]]

    @property
    def bytes(self) -> int:
        """Memory in bytes that the item keeps alive."""
        return _ITEM_BYTES


SpanItem: TypeAlias = StepItem | CallItem
"""Item with a span to write."""
WorkItem: TypeAlias = StepItem | CallItem | Job
