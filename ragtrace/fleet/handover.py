"""Handing sampled RAG calls over to a fleet, whose workers judge them in other processes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ragtrace.core.ledger import FLEET
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.fleet.call_message import CallMessage
from ragtrace.fleet.spooling import Spooling
from ragtrace.pipeline.call_ends import TOO_LARGE
from ragtrace.pipeline.call_outcomes import CallOutcomes
from ragtrace.pipeline.work_items import CallItem
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.fleet.publisher import FleetPublisher

_SPOOL_SECONDS: Final = 1.0
"""Longest wait for other writers of the spool file, when a call that the broker does not take is stored."""
_MOST_REMEMBERED: Final = 10_000
"""Most spooled calls that are known to be this process's own: as many as the spool file holds at a time. Calls leave
the file oldest first, so one that is forgotten has mostly been handed over by another process."""


class FleetHandover:
    """Judging by a fleet: sampled calls go into its queue, or into the spool file while the broker is away.

    Used on the worker's event loop alone, as the publisher is; only the writing to the spool file is left to a thread
    of the loop's executor.

    Args:
        publisher: puts calls into the queue.
        outcomes: counts what becomes of each call.
        spooling: stores calls in the spool file; None: there is none, and calls wait for the broker.
    """

    evaluator = FLEET

    def __init__(self, publisher: FleetPublisher, outcomes: CallOutcomes, spooling: Spooling | None) -> None:
        self._publisher, self._outcomes, self._spooling = publisher, outcomes, spooling
        self._spooled = OrderedDict[str, None]()
        """Identities of the latest calls that this process has stored and not handed over since.

        They only tell a shutdown which of the calls that were counted as spooled are not missing any more. So a call
        that is forgotten is published and counted like any other, and the shutdown names it as spooled nevertheless.
        """
        self.recovered = 0
        """Number of calls that were counted as spooled and not forgotten, and handed over later by this process."""

    @property
    def is_away(self) -> bool:
        """Whether the broker cannot be reached, so that calls of the spool file have to wait there."""
        return self._publisher.is_away

    async def judge(
        self,
        work: CallItem,
        call: RagCall,
        decision: SamplingDecision,
        evaluations: list[Evaluation],
        on_begin: Callable[[], object] | None,
    ) -> None:
        """Publish a sampled RAG call to the queue of the fleet, and count its outcome.

        While the broker cannot be reached, store the call in the spool file, if there is one.
        """
        del evaluations, on_begin  # no evaluator is asked here
        probability = decision.probability
        unscored = UnscoredCall(call, (FLEET,), work.step.response_id, probability, decision.reason)
        spoolable = self._spooling is not None and work.spool_row is None
        result = await self._publisher.publish(CallMessage.of(unscored), spoolable=spoolable)
        if result == "away" and self._spooling is not None:
            add = partial(self._spooling.add, [work], [unscored], _SPOOL_SECONDS)
            await asyncio.get_running_loop().run_in_executor(None, add)
            if work.is_spooled:
                self._spooled[unscored.identity] = None
                if len(self._spooled) > _MOST_REMEMBERED:  # those that another process hands over are not removed below
                    self._spooled.popitem(last=False)
                work.dropped_in_handling = "spooled"
                self._outcomes.count(work, FLEET, "dropped", "spooled", probability=probability)
                return
            # Not spoolable, the call waits for the broker: the result is never "away" again.
            result = await self._publisher.publish(CallMessage.of(unscored), spoolable=False)
        if result == "published":
            work.published = self._outcomes.count(work, FLEET, "handed_over", probability=probability)
            if unscored.identity in self._spooled:
                del self._spooled[unscored.identity]
                self.recovered += 1
            return
        self._publisher.count_unjudged(call.workflow)
        work.dropped_in_handling = TOO_LARGE.reason
        self._outcomes.count(work, FLEET, TOO_LARGE.outcome, TOO_LARGE.reason, probability=probability)
        faults.warn_once(
            "dropped: too large for the fleet",
            "the texts of a call are too large for the queue of the fleet (4 MiB), and it is counted as dropped "
            "(too_large) in ragtrace.stats(), as every further one is. Lower Limits(max_chars=)",
        )

    def count_unjudged(self, call: RagCall) -> None:
        """Have the next message to the fleet say that *call* happened, and that it is not judged."""
        self._publisher.count_unjudged(call.workflow)
