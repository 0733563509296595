"""What the application's threads hand to the background."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from sys import getsizeof

from opentelemetry.trace import NonRecordingSpan

from ragtrace.core.step import Step
from ragtrace.core.types import RagCall
from ragtrace.history.spool_codec import ClaimedCall
from ragtrace.instrument.call_builder import CallBuilder

_ITEM_BYTES = 2_000
"""Of an item without its texts: steps, spans, a waiting task."""


def _none_open() -> set[str]:
    return set()


@dataclass(slots=True, eq=False)
class Finished:
    """Work for the background: a step to write, and if it is the root of a call, that call to score."""

    step: Step
    assembly: CallBuilder | None = None
    is_call: bool = False
    open: set[str] = field(default_factory=_none_open)
    """Evaluators whose books still have this call as pending."""
    dropped: str = ""
    """Why the call was lost, wholly or for some evaluators: what is not written yet is ended as it is."""
    announced: int = 0
    """Evaluations that have been announced before the judge was asked."""
    call: RagCall | None = None
    """The call, once it has been put together."""
    probability: float | None = None
    """With which the judge was to see it, once that was decided."""
    spooled: int | None = None
    """Its number in the spool file, if it comes from there; its span has long ended."""
    errand: Callable[[], Awaitable[None]] | None = None
    """Not a step at all: something to be done on this event loop."""

    def take(self) -> tuple[str, ...]:
        """Take over who has not decided about the call: nobody else will settle it for them any more."""
        taken: list[str] = []
        for evaluator in sorted(self.open):
            with suppress(KeyError):  # each removal is atomic: the background may be at it too
                self.open.remove(evaluator)
                taken.append(evaluator)
        return tuple(taken)


def weight(work: Finished) -> int:
    """Bytes that *work* keeps alive. A step counts with its own item, or when that is done, with its call."""
    total = _ITEM_BYTES + step_bytes(work.step)
    if work.is_call and work.assembly is not None:
        for step in (*work.assembly.steps, *work.assembly.orphans):
            if step.joined and not step.written:
                total += _ITEM_BYTES + step_bytes(step)
            elif step.written and step is not work.step:
                total += step_bytes(step)
    return total


def step_bytes(step: Step) -> int:
    """Bytes of the texts of *step*; 0 as long as it has not ended."""
    if step.bytes is None and step.ended:
        step.complete()
        total = getsizeof(step.query) + getsizeof(step.answer)
        for document in step.documents or ():
            total += getsizeof(document.text)
        for message in () if step.prompt is None else step.prompt.messages:
            total += getsizeof(message.text)
        step.bytes = total
    return step.bytes or 0


def claimed_work(claimed: ClaimedCall) -> Finished:
    """Return a call out of the spool as work, without a span to write."""
    kept = claimed.unscored
    step = Step("trace", workflow=kept.call.workflow)
    step.response_id, step.ended, step.written = kept.response_id, True, True
    step.span = None if kept.call.span is None else NonRecordingSpan(kept.call.span)
    work = Finished(step, None, True, set(kept.open))
    work.call, work.probability, work.spooled = kept.call, kept.probability, claimed.number
    return work
