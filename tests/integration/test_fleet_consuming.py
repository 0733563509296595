"""Taking calls out of the queue of a fleet: what a worker gets when a broker or its queue is away, or comes back."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from ragtrace.fleet.broker import MOST_TRIES, DeadLetter, Delivery, QueueDepths
from ragtrace.fleet.broker import Broker as Client
from ragtrace.fleet.call_message import read_message, write_message
from ragtrace.fleet.dead_letters import retry_dead_letters
from ragtrace.system.faults import faults
from tests.support.brokers import Broker, rabbitmq_broker, redis_broker
from tests.support.fleet import handed_over
from tests.support.logged import logged

pytestmark = pytest.mark.integration

WAIT_S = 60.0


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def shared_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Run a broker for all tests of this file."""
    make = {"redis": redis_broker, "rabbitmq": rabbitmq_broker}[request.param]
    with make(tmp_path_factory.mktemp(request.param)) as described, described.started():
        yield described


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """Empty the queues of the broker."""
    faults.clear()
    shared_broker.empty()
    yield shared_broker
    faults.clear()


class Worker:
    """Consumer on a thread of its own, which acknowledges each call."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._changed = broker, threading.Condition()
        self.numbers: list[int] = []
        """Numbers of the calls in the order in which they came."""
        self.starts = 0
        """Times at which the broker began to deliver calls."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=broker.ask, args=(self._consume,), daemon=True)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def wait_for(self, *, starts: int = 0, calls: int = 0) -> None:
        """Wait until the consumer has begun so often, and has got so many calls."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.starts >= starts and len(self.numbers) >= calls, WAIT_S)

    async def _consume(self, client: Client) -> None:
        stop = asyncio.Event()
        ended = asyncio.ensure_future(asyncio.to_thread(self._end.wait))
        ended.add_done_callback(lambda _: stop.set())
        await client.consume(8, self._handle, stop, self._started)
        await ended

    async def _handle(self, delivery: Delivery) -> None:
        span = read_message(delivery.body).unscored.call.span
        assert span is not None
        await delivery.acknowledge()
        with self._changed:
            self.numbers.append(span.trace_id)
            self._changed.notify_all()

    def _started(self) -> None:
        with self._changed:
            self.starts += 1
            self._changed.notify_all()


def test_calls_come_in_their_order_and_each_once(broker: Broker) -> None:
    """An acknowledged call is in no queue any more."""
    broker.publish(map(handed_over, range(1, 101)))
    with Worker(broker) as worker:
        worker.wait_for(calls=100)
    assert worker.numbers == list(range(1, 101))
    assert broker.depths() == QueueDepths(0, 0)


@pytest.mark.parametrize("make", [redis_broker, rabbitmq_broker])
def test_a_worker_waits_for_a_broker_that_does_not_run_yet(
    make: Callable[[Path], AbstractContextManager[Broker]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes calls as soon as the broker runs, and again after the broker was killed; one line is logged of that."""
    with make(tmp_path) as broker, Worker(broker) as worker, ExitStack() as running:
        running.enter_context(broker.started())
        worker.wait_for(starts=1)
        broker.publish([handed_over(1)])
        worker.wait_for(calls=1)
        broker.kill()
        running.close()
        running.enter_context(broker.started())
        worker.wait_for(starts=2)
        broker.publish([handed_over(2)])
        worker.wait_for(calls=2)
    assert faults.counts()["fleet: taking calls"] > 0
    faults.clear()
    assert len(logged(caplog)) == 1


def test_a_worker_goes_on_when_its_queue_was_deleted(broker: Broker) -> None:
    """RabbitMQ then cancels the consumer without ending the connection; Redis knows the group no more."""
    with Worker(broker) as worker:
        worker.wait_for(starts=1)
        broker.empty()
        worker.wait_for(starts=2)
        broker.publish([handed_over(1)])
        worker.wait_for(calls=1)


def test_a_call_that_is_given_back_comes_again_with_the_same_id(broker: Broker) -> None:
    """The worker sees that it is no first delivery; on Redis it comes when nobody has renewed it for ten seconds."""
    seen: list[tuple[str, bool]] = []

    async def take(client: Client) -> None:
        stop = asyncio.Event()

        async def handle(delivery: Delivery) -> None:
            seen.append((delivery.id, delivery.redelivered))
            if len(seen) == 1:
                await delivery.give_back()
            else:
                stop.set()
                await delivery.acknowledge()

        await client.consume(1, handle, stop, list)

    broker.publish([handed_over(1)])
    broker.ask(take)
    assert seen == [(seen[0][0], False), (seen[0][0], True)]


async def lose_workers(client: Client) -> None:
    """Take the only call of the queue, and give it back, until it is a dead letter."""
    stop = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        assert delivery.lost_workers == 0  # RabbitMQ counts them
        await delivery.give_back()
        lost.append(delivery.id)
        if len(lost) == MOST_TRIES:
            stop.set()

    lost: list[str] = []
    await client.consume(1, handle, stop, list)


def test_a_dead_letter_of_rabbitmq_itself_is_read_and_retried(tmp_path: Path) -> None:
    """The third worker that was lost with a call was the last one; `ragtrace fleet retry` puts the call back."""
    with rabbitmq_broker(tmp_path) as broker, broker.started():
        broker.publish([handed_over(1)])
        broker.ask(lose_workers)
        body = write_message(handed_over(1)).encode()
        [letter] = broker.dead_letters()
        assert letter == DeadLetter(letter.body, "worker_lost")
        assert read_message(letter.body).unscored == read_message(body).unscored
        assert broker.ask(lambda client: retry_dead_letters(client, 10)) == Counter(worker_lost=1)
        assert broker.depths() == QueueDepths(1, 0)
