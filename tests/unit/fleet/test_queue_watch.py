"""Watching of the queues of a fleet."""

from __future__ import annotations

import asyncio

from ragtrace.evaluation.sampling import QueueLoad
from ragtrace.fleet.broker import QueueDepths
from ragtrace.fleet.queue_watch import QueueWatch
from ragtrace.system.faults import faults
from tests.support.kept_calls import KeepingBroker


def watched(broker: KeepingBroker, load: QueueLoad | None = None) -> QueueDepths | None:
    """Depths that a watch has seen at its first look."""
    watch = QueueWatch(broker, load)
    asyncio.run(watch.look())
    return watch.depths


def test_depths_are_those_of_the_broker() -> None:
    """Messages that wait are counted in both queues."""
    assert watched(KeepingBroker(found=QueueDepths(3, 1))) == QueueDepths(3, 1)


def test_a_watch_gives_the_depth_to_sampling() -> None:
    """The load of the queue follows what the watch has seen."""
    load = QueueLoad(100)
    watched(KeepingBroker(found=QueueDepths(5, 0)), load)
    assert load.depth == 5


def test_a_broker_that_is_away_has_no_depth() -> None:
    """The failure is counted; no number stands for the depth."""
    before = faults.counts().get("fleet: looking at the queues", 0)
    assert watched(KeepingBroker(found=None)) is None
    assert faults.counts()["fleet: looking at the queues"] == before + 1
    faults.clear()
