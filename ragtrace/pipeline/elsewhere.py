"""Where calls go that this process does not score itself: nowhere, unless a feature has a place for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ragtrace.core.part import Part
from ragtrace.evaluation.sampling import QueueLoad
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.call_preparation import CallPreparation
from ragtrace.pipeline.judging import Judging
from ragtrace.pipeline.unscored_calls import UnscoredCalls
from ragtrace.pipeline.work_items import WorkItem
from ragtrace.pipeline.worker import Worker


@dataclass(frozen=True, slots=True)
class Engine:
    """What a processor of calls has that those who give it calls need."""

    worker: Worker[WorkItem]
    preparation: CallPreparation
    outcomes: CallOutcomes
    evaluators: frozenset[str]
    """Ids of the evaluators that are configured."""
    capacity: int
    """Most calls that wait to be scored."""


class Elsewhere:
    """Other processes that judge sampled calls, or score those that a shutdown leaves: there are none.

    A subclass knows some.
    """

    evaluator: str = ""
    """Id under which the outcomes of calls are counted that others judge in place of a judge here; empty: none does."""
    judge_turns: int = 0
    """Most earlier turns of a conversation that their judge is shown."""

    load: QueueLoad | None = None
    """How full the queue of their calls is, so that less is sampled; None: that is not known."""

    @property
    def parts(self) -> Sequence[Part]:
        """Parts of the runtime that bring calls there."""
        return ()

    def hurried(self) -> AbstractContextManager[None]:
        """Hand calls over without waiting for fuller batches, while a flush or a shutdown waits in a `with` block."""
        return nullcontext()

    def judging(self, outcomes: CallOutcomes) -> Judging | None:
        """Return the stage that hands sampled calls over, or None if nobody judges them elsewhere."""
        return None

    def unscored_calls(self, engine: Engine) -> UnscoredCalls:
        """Return what becomes of calls that a shutdown leaves unscored."""
        return UnscoredCalls(engine.outcomes)
