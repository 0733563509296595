"""State and dead letters of a fleet, for the `ragtrace fleet` commands."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import time

from ragtrace.fleet.broker import Broker, DeadLetter
from ragtrace.fleet.call_message import DEADLINE_SECONDS, MessageError, read_message, write_message


@dataclass(frozen=True, slots=True)
class FleetState:
    """Snapshot of a fleet's queues and workers."""

    calls: int
    """Number of calls in the queue that no worker has taken."""
    dead_letters: int
    oldest_seconds: float | None
    """Seconds for which the oldest call of the queue has waited; None: the queue is empty, or RabbitMQ's."""
    consumers: int
    """Number of workers that take calls from the queue."""


async def read_state(broker: Broker) -> FleetState:
    """Read the state of the fleet from *broker*.

    Raises:
        Exception: the broker cannot be reached.
    """
    depths, oldest = await broker.depths(), await broker.oldest()
    waited: float | None = None
    if oldest is not None:
        try:
            waited = max(0.0, time() - read_message(oldest).published)
        except MessageError:  # of a stranger: it becomes a dead letter
            waited = None
    return FleetState(depths.calls, depths.dead_letters, waited, await broker.worker_count())


async def retry_dead_letters(broker: Broker, most: int) -> Counter[str]:
    """Put dead letters back into the queue of calls to be judged again, oldest first.

    A letter leaves its queue when the broker has confirmed the call, so that none is lost; one that no call can be read
    from stays.

    Args:
        broker: the broker.
        most: most letters to look at.

    Returns:
        The number of calls that were put back, by the reason for which they were dead letters; those that stay are
        counted as `kept`.

    Raises:
        Exception: the broker cannot be reached, or the queue is full; the letters that were not put back stay.
    """
    done: Counter[str] = Counter()

    async def put_back(letter: DeadLetter) -> bool:
        try:
            call = read_message(letter.body)
        except MessageError:
            done["kept"] += 1
            return False
        now = time()
        again = call._replace(published=now, deadline=now + DEADLINE_SECONDS, tries=0)
        (error,) = await broker.publish([write_message(again)])
        if error is not None:
            raise error
        done[letter.reason] += 1
        return True

    waiting = (await broker.depths()).dead_letters  # letters that come meanwhile are left for the next time
    await broker.visit_dead_letters(min(most, waiting), put_back)
    return done
