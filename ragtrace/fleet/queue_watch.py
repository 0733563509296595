"""Monitor of the queue depths of a fleet, read every two seconds, for metrics and for adaptive sampling."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ragtrace.fleet.broker import Broker, QueueDepths
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.evaluation.sampling import QueueLoad

LOOK_SECONDS: Final = 2.0


class QueueWatch:
    """Reader of the queue depths of a fleet, every few seconds.

    Args:
        broker: the broker.
        load: is given each depth of the queue of calls; None: sampling does not follow it.
        seconds: time between two looks.
    """

    def __init__(self, broker: Broker, load: QueueLoad | None = None, seconds: float = LOOK_SECONDS) -> None:
        self._broker, self._load, self._seconds = broker, load, seconds
        self.depths: QueueDepths | None = None
        """Last depths that were read; None while the broker cannot be reached."""

    async def run(self) -> None:
        """Read the queue depths until the task is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._seconds)

    async def look(self) -> None:
        """Read the queue depths once."""
        try:
            self.depths = await self._broker.depths()
        except Exception as error:
            self.depths = None
            faults.warn_once(
                "fleet: looking at the queues",
                "the broker of the fleet does not say how many calls wait (%s): sampling keeps to the number seen "
                "last; every further failure is counted in ragtrace.stats().faults",
                type(error).__name__,
            )
        else:
            if self._load is not None:
                self._load.depth = self.depths.calls
