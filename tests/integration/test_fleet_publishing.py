"""Publishing batches of calls to real brokers: each call is known to be stored or not, even if the broker is killed."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import ragtrace
from ragtrace.fleet import publisher
from ragtrace.fleet.broker import Broker as Client
from ragtrace.fleet.broker import QueueFullError
from ragtrace.fleet.call_message import CallMessage, read_message, write_message
from ragtrace.system.faults import faults
from tests.support.brokers import Broker, rabbitmq_broker, redis_broker
from tests.support.fleet import handed_over
from tests.support.otlp import HttpReceiver
from tests.support.watched import ask

pytestmark = pytest.mark.integration

MAKE = {"rabbitmq": rabbitmq_broker, "redis": redis_broker}
WAIT_S = 60.0
BATCH = 50


@pytest.fixture(params=["rabbitmq", "redis"])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker of its own that the test starts and kills, of each kind."""
    with MAKE[request.param](tmp_path) as described:
        yield described


@pytest.fixture(scope="module", params=["rabbitmq", "redis"])
def shared_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that runs, of each kind."""
    with MAKE[request.param](tmp_path_factory.mktemp(request.param)) as described, described.started():
        yield described


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """A broker that runs and holds nothing, of each kind."""
    yield shared_broker
    shared_broker.empty()


def queued(broker: Broker) -> list[CallMessage]:
    """Take all calls out of the queue."""
    return [read_message(body) for body in broker.take_all()]


def numbers(messages: list[CallMessage]) -> Counter[int]:
    """How often each call is among *messages*, by its trace id."""
    return Counter(message.unscored.call.span.trace_id for message in messages if message.unscored.call.span)


def test_a_batch_arrives_in_order(broker: Broker) -> None:
    """Every call of it is read as it was written."""
    assert broker.publish(map(handed_over, range(1, 200))) == [None] * 199
    assert list(numbers(queued(broker))) == list(range(1, 200))


def test_each_call_that_a_full_queue_refuses_is_known(broker: Broker) -> None:
    """The broker stores some calls of a batch and refuses others; the connection stays open."""

    async def publish(client: Client) -> list[Exception | None]:
        errors = await client.publish([write_message(handed_over(number)) for number in range(1, 1_001)])
        assert (await client.depths()).calls == errors.count(None)
        return errors

    errors = broker.ask(publish, most_calls=100)
    assert {type(error) for error in errors} == {type(None), QueueFullError}
    assert set(numbers(queued(broker))) == {number for number, error in enumerate(errors, 1) if error is None}


def test_a_call_for_a_queue_that_was_deleted_is_not_lost(broker: Broker) -> None:
    """RabbitMQ would confirm and drop it: it is refused, and the queue declared again. Redis makes the queue anew."""

    async def publish(client: Client) -> None:
        await client.publish([write_message(handed_over(1))])
        await asyncio.to_thread(broker.empty)
        while await client.publish([write_message(handed_over(2))]) != [None]:
            pass

    broker.ask(publish)
    assert set(numbers(queued(broker))) == {2}


def test_no_confirmed_call_is_lost_when_the_broker_is_killed(mortal: Broker) -> None:
    """Killed while batches are published, it has what it confirmed after a restart, and nothing else is counted."""
    stored: set[int] = set()
    failed: set[int] = set()
    published = threading.Condition()

    async def publish(client: Client) -> None:
        for first in range(1, 100_000, BATCH):
            batch = range(first, first + BATCH)
            errors = await client.publish([write_message(handed_over(number)) for number in batch])
            ends = list(zip(batch, errors, strict=True))
            with published:
                stored.update(number for number, error in ends if error is None)
                failed.update(number for number, error in ends if error is not None)
                published.notify()
            if failed:
                return

    with mortal.started():
        publishing = threading.Thread(target=mortal.ask, args=(publish,), daemon=True)
        publishing.start()
        with published:
            assert published.wait_for(lambda: len(stored) >= 5 * BATCH, WAIT_S)
        mortal.kill()
        publishing.join(WAIT_S)
    assert failed
    assert not stored & failed
    with mortal.started():
        found = set(numbers(queued(mortal)))
    assert stored <= found <= stored | failed


def test_calls_are_accounted_for_when_the_broker_is_killed(mortal: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application whose broker is killed and started again hands over every call, and counts each one once."""
    count = 400
    with HttpReceiver() as otlp:
        for name, value in otlp.environ.items():
            monkeypatch.setenv(name, value)
        faults.clear()
        ragtrace.configure(fleet=mortal.url, screen=None, sampling=ragtrace.Sampling(rate=1.0))
        with mortal.started():
            for number in range(count):
                ask(f"How tall is tower {number}?")
                if number == count // 2:
                    otlp.wait_for(lambda _: ragtrace.stats().handed_over >= BATCH, WAIT_S)
                    mortal.kill()
        with mortal.started():
            assert ragtrace.flush(WAIT_S)
            tally = ragtrace.stats().evaluators["fleet"]
            assert (tally.offered, tally.handed_over, tally.pending, tally.dropped) == (count, count, 0, {})
            assert ragtrace.shutdown(WAIT_S)
            assert len(numbers(queued(mortal))) == count


def test_a_flush_does_not_wait_for_a_batch_to_fill(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are an hour apart; a flush has the calls published all the same, and a shutdown, too."""
    monkeypatch.setattr(publisher, "_BATCH_SECONDS", 3600.0)
    ragtrace.configure(fleet=broker.url, screen=None, sampling=ragtrace.Sampling(rate=1.0))
    for number in range(3):
        ask(f"How tall is tower {number}?")
        assert ragtrace.flush(WAIT_S)
    ask("How tall is the last tower?")
    assert ragtrace.shutdown(WAIT_S)
    assert len(numbers(queued(broker))) == 4
