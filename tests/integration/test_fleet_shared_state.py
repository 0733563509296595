"""What workers of a fleet share, with real brokers: calls that are queued twice are judged once, budgets are kept."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.core import semconv
from ragtrace.diagnosis import diagnose_environment
from ragtrace.fleet.broker import Broker as Client
from ragtrace.fleet.broker import DeadLetter, Delivery, QueueFullError
from ragtrace.fleet.call_message import write_message
from ragtrace.gateway.serving import GatewaySettings, serve
from tests.support.brokers import Broker, rabbitmq_broker, redis_broker
from tests.support.fleet import handed_over, running_worker
from tests.support.judge_server import JudgeServer, labels
from tests.support.otlp import HttpReceiver
from tests.support.redis_server import redis_server
from tests.support.watched import ask

pytestmark = pytest.mark.integration

WAIT_S = 60.0
CALLS = 15


def publish_twice(broker: Broker) -> None:
    """Put each call into the queue two times, as an application does that has got no confirmation."""
    assert not any(broker.publish(handed_over(number) for number in range(1, CALLS + 1) for _ in range(2)))


async def bury_all(client: Client) -> None:
    """Make each call of the queue a dead letter."""
    stop = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        await delivery.bury(DeadLetter(delivery.body, "judge"))
        stop.set()

    await client.consume(1, handle, stop, list)


def claims(otlp: HttpReceiver) -> dict[str, float]:
    """Claims of all workers by outcome; a worker exports sums, so the latest of each counts."""
    found: dict[tuple[str, str], float] = {}
    for metric in otlp.metrics:
        if metric.name == semconv.METRIC_FLEET_CLAIMS:
            for point in metric.points:
                outcome = str(point.attributes[semconv.OUTCOME])
                found[str(metric.resource["service.instance.id"]), outcome] = point.value
    return {outcome: sum(v for (_, o), v in found.items() if o == outcome) for _, outcome in found}


@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
def test_calls_that_are_queued_twice_are_judged_once(kind: str, tmp_path: Path) -> None:
    """Two workers find each call claimed or done, by the broker's Redis or by one beside RabbitMQ."""
    make: Any = redis_broker if kind == "redis" else rabbitmq_broker
    with make(tmp_path) as broker, broker.started(), JudgeServer(labels(after=0.2)) as judge, HttpReceiver() as otlp:
        publish_twice(broker)
        with ExitStack() as stack:
            store = [] if kind == "redis" else ["--store", stack.enter_context(redis_server(tmp_path))]
            for name in ("first", "second"):
                worker = running_worker(tmp_path, broker.url, judge.url, otlp.environ, name=name, options=store)
                stack.enter_context(worker)
            otlp.wait_for(lambda _: claims(otlp).get("done", 0) == CALLS, WAIT_S)
        assert len(judge.requests) == CALLS
        assert claims(otlp)["claimed"] == CALLS
        names = {metric.name for metric in otlp.metrics}
        assert names >= {semconv.METRIC_FLEET_QUEUE, semconv.METRIC_FLEET_DEAD_LETTERS, semconv.METRIC_FLEET_WORKERS}


@pytest.mark.parametrize("refused", [True, False])
def test_calls_are_judged_while_the_store_is_away(refused: bool, tmp_path: Path) -> None:
    """It refuses connections, or takes them and never answers: without a budget, each call is judged unclaimed."""
    with ExitStack() as stack:
        away = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        options = ["--store", f"redis://127.0.0.1:{away.getsockname()[1]}/0?socket_timeout=0.5"]
        if refused:
            away.close()
        broker = stack.enter_context(stack.enter_context(redis_broker(tmp_path)).started())
        judge, otlp = stack.enter_context(JudgeServer(labels())), stack.enter_context(HttpReceiver())
        broker.publish(handed_over(number) for number in range(1, CALLS + 1))
        stack.enter_context(running_worker(tmp_path, broker.url, judge.url, otlp.environ, options=options))
        otlp.wait_for(lambda _: claims(otlp).get("unknown", 0) == CALLS and len(judge.requests) == CALLS, WAIT_S)
        assert claims(otlp) == {"unknown": CALLS}


def test_a_worker_keeps_the_budget_of_tokens(tmp_path: Path) -> None:
    """With the day's tokens spent, calls wait in the queue and become no dead letters; the metric shows it."""
    with redis_broker(tmp_path) as broker, broker.started(), JudgeServer(labels()) as judge, HttpReceiver() as otlp:
        broker.publish(handed_over(number) for number in range(1, CALLS + 1))

        def left() -> list[float]:
            found = [metric for metric in otlp.metrics if metric.name == semconv.METRIC_FLEET_BUDGET]
            return [point.value for metric in found for point in metric.points]

        options = ["--tokens-per-day", "5"]  # less than one call: the first may be judged all the same
        with running_worker(
            tmp_path, broker.url, judge.url, otlp.environ, judge_timeout=1, concurrency=2, options=options
        ):
            otlp.wait_for(lambda _: left()[-1:] == [0.0], WAIT_S)
            # Some were put back, and claimed again.
            otlp.wait_for(lambda _: claims(otlp).get("claimed", 0) > CALLS, WAIT_S)
        assert len(judge.requests) < CALLS
        assert broker.depths().dead_letters == 0


def test_doctor_shows_what_the_queues_hold(tmp_path: Path) -> None:
    """The broker answers with the number of calls and of dead letters."""
    with redis_broker(tmp_path) as described, described.started():
        described.ask(lambda client: client.publish(["no call"]))
        described.ask(bury_all)
        described.publish([handed_over(1)])
        environ = {"RAGTRACE_FLEET": described.url, "RAGTRACE_FLEET_STORE": described.url}
        checks = {check.what: check for check in diagnose_environment(environ).checks}
    assert checks["fleet"].seen == "1 calls wait for a judge, 0 workers, 1 dead letters (ragtrace fleet status)"
    assert checks["fleet store"].seen == "answers"


def test_a_gateway_reports_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So its depth is known, too, where no worker runs."""

    def depths(otlp: HttpReceiver) -> list[float | None]:
        found = [metric for metric in otlp.metrics if metric.name == semconv.METRIC_FLEET_QUEUE]
        return [point.value for metric in found for point in metric.points]

    async def scenario(broker: str, otlp: HttpReceiver) -> None:
        stop, listening = asyncio.Event(), asyncio.Event()
        ragtrace.configure(fleet=broker, screen=None, sampling=ragtrace.Sampling(rate=1.0))
        settings = GatewaySettings(http_port=0, grpc_port=0, forward=False)
        serving = asyncio.ensure_future(serve(settings, stop, started=lambda *_: listening.set()))
        await listening.wait()
        ask("How tall is the tower?")  # the first call starts the watch of the queue
        await asyncio.to_thread(otlp.wait_for, lambda _: 1 in depths(otlp), WAIT_S)
        stop.set()
        assert await serving

    with redis_broker(tmp_path) as described, described.started(), HttpReceiver() as otlp:
        for name, value in {**otlp.environ, "OTEL_METRIC_EXPORT_INTERVAL": "300"}.items():
            monkeypatch.setenv(name, value)
        asyncio.run(scenario(described.url, otlp))
        ragtrace.shutdown()


async def fill_and_put_back(client: Client) -> None:
    """Fill a queue of three calls, and have a worker put back one after its place is taken."""
    texts = [write_message(handed_over(number)) for number in range(1, 5)]
    assert await client.publish(texts[:3]) == [None] * 3
    (error,) = await client.publish(texts[3:])
    assert isinstance(error, QueueFullError)
    assert "is full" in str(error)
    stop = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        stop.set()
        assert await client.publish(texts[3:]) == [None]
        await delivery.replace(texts[0])

    await client.consume(1, handle, stop, list)


def test_a_full_queue_refuses_further_calls(tmp_path: Path) -> None:
    """A call of an application is refused; a worker may put back what it has taken out."""
    with redis_broker(tmp_path) as described, described.started():
        described.ask(fill_and_put_back, most_calls=3)
        assert described.depths().calls == 4
