"""Watching of the queues of a fleet, at kombu's broker in memory."""

from __future__ import annotations

from typing import Any

from ragtrace.evaluation.sampling import QueueLoad
from ragtrace.fleet.broker import CALLS, DEAD_LETTERS, CallBroker
from ragtrace.fleet.queue_watch import QueueDepths, QueueWatch
from ragtrace.system.faults import faults
from tests.support.watched import WAIT_S


class FilledBroker(CallBroker):
    """A broker in memory whose queues hold so many messages."""

    def __init__(self, calls: int, dead_letters: int) -> None:
        super().__init__("memory://")
        self._counts = {CALLS: calls, DEAD_LETTERS: dead_letters}

    def connect(self) -> Any:
        """Connect, and fill the queues anew."""
        connection = super().connect()
        for name, count in self._counts.items():
            channel = connection.channel()
            channel.queue_declare(name)
            channel.queue_purge(name)
            for number in range(count):
                connection.Producer(channel).publish({"n": number}, routing_key=name)
        return connection


class AwayBroker(CallBroker):
    """A broker that cannot be reached."""

    def connect(self) -> Any:
        """Fail."""
        raise ConnectionError("away")


def watched(broker: CallBroker, load: QueueLoad | None = None) -> QueueDepths | None:
    """Depths that a watch has seen at its first look."""
    watch = QueueWatch(broker, load, seconds=60)
    watch.start()
    assert watch.looked.wait(WAIT_S)
    watch.stop(WAIT_S)
    return watch.depths


def test_depths_are_those_of_the_broker() -> None:
    """Messages that wait are counted in both queues."""
    assert watched(FilledBroker(3, 1)) == QueueDepths(3, 1)


def test_a_watch_gives_the_depth_to_sampling() -> None:
    """The load of the queue follows what the watch has seen."""
    load = QueueLoad(100)
    watched(FilledBroker(5, 0), load)
    assert load.depth == 5


def test_a_broker_that_is_away_has_no_depth() -> None:
    """The failure is counted; no number stands for the depth."""
    before = faults.counts().get("fleet: looking at the queues", 0)
    assert watched(AwayBroker("amqp://nowhere")) is None
    assert faults.counts()["fleet: looking at the queues"] == before + 1
    faults.clear()
