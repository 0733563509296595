"""Calls on Redis whose worker is killed, paused or ended, or whose Redis is: each is judged soon, and counted once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from ragtrace.core import semconv
from ragtrace.fleet.broker import MOST_TRIES, Delivery, QueueDepths
from ragtrace.fleet.broker import Broker as Client
from ragtrace.fleet.claims import RedisClaims, WorkerClaims, claim_id
from ragtrace.fleet.judging import FleetJudge
from ragtrace.fleet.redis_streams import CALLS_KEY, GROUP
from ragtrace.fleet.scoring import FleetScoring
from ragtrace.runtime.current_runtime import current
from ragtrace.testing import FakeJudge
from tests.support.brokers import Broker, redis_broker
from tests.support.fleet import claim, handed_over, running_worker
from tests.support.judge_server import HANGS, JudgeServer, Reply, labels
from tests.support.otlp import HttpReceiver
from tests.support.watched import GOOD, watch

pytestmark = pytest.mark.integration

N_CALLS = 4
WAIT_S = 60.0
EXIT_S = 40.0
JUDGE_TIMEOUT_S = 60.0
"""Twice as long would be too late: a call of a worker that is gone does not wait for the judge's deadline."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A Redis that does not run yet."""
    with redis_broker(tmp_path) as described:
        yield described


def publish(broker: Broker) -> None:
    """Put calls with the numbers from 1 into the queue."""
    assert not any(broker.publish(handed_over(number) for number in range(1, N_CALLS + 1)))


def scores(otlp: HttpReceiver) -> dict[int, int]:
    """Number of scores of each call."""
    return Counter(int(log.trace_id, 16) for log in otlp.logs if "gen_ai.evaluation.score.value" in log.attributes)


def calls_taken_over(otlp: HttpReceiver) -> float:
    """Number of calls that workers judged, and did not count, as others had got them."""
    found = [metric for metric in otlp.metrics if metric.name == semconv.METRIC_CALLS]
    points = [point for metric in found for point in metric.points]
    return max((point.value for point in points if point.attributes.get(semconv.REASON) == "taken_over"), default=0)


def first_try_hangs(judge: JudgeServer) -> Reply:
    """Answer no request for a call before it is judged again."""
    return labels() if len(judge.requests) > N_CALLS else HANGS


def test_calls_of_a_killed_worker_are_judged_soon(broker: Broker, tmp_path: Path) -> None:
    """Also one that Redis had given to the worker and that had not arrived, and long before the judge's deadline."""
    with broker.started(), JudgeServer() as judge, HttpReceiver() as otlp, ExitStack() as stack:
        judge.rule = lambda _: first_try_hangs(judge)

        def start(name: str) -> int:
            worker = running_worker(
                tmp_path, broker.url, judge.url, otlp.environ, name=name, judge_timeout=JUDGE_TIMEOUT_S
            )
            return stack.enter_context(worker).pid

        publish(broker)
        killed = start("killed")
        otlp.wait_for(lambda _: len(judge.requests) == N_CALLS, WAIT_S)
        os.kill(killed, signal.SIGKILL)
        with redis.Redis.from_url(broker.url) as client:
            broker.publish([handed_over(N_CALLS + 1)])
            client.xreadgroup(GROUP, "killed", {CALLS_KEY: ">"})
            client.xadd(CALLS_KEY, {"of": "a stranger"})
        start("other")
        otlp.wait_for(lambda _: len(scores(otlp)) == N_CALLS + 1, WAIT_S)
        assert broker.depths() == QueueDepths(0, 1)
        assert broker.dead_letters()[0][:2] == (b"of a stranger", "malformed")


def test_calls_of_a_paused_worker_are_counted_once(broker: Broker, tmp_path: Path) -> None:
    """Another worker scores them meanwhile; the first one gets the judge's answers, too, and sends no scores."""
    with broker.started(), JudgeServer() as judge, HttpReceiver() as otlp, ExitStack() as stack:
        judge.rule = lambda _: labels(after=0.0 if len(judge.requests) > N_CALLS else 2.0)

        def start(name: str) -> int:
            worker = running_worker(
                tmp_path, broker.url, judge.url, otlp.environ, name=name, judge_timeout=JUDGE_TIMEOUT_S
            )
            return stack.enter_context(worker).pid

        publish(broker)
        paused = start("paused")
        otlp.wait_for(lambda _: len(judge.requests) == N_CALLS, WAIT_S)
        os.kill(paused, signal.SIGSTOP)
        start("other")
        try:
            otlp.wait_for(lambda _: len(scores(otlp)) == N_CALLS, WAIT_S)
        finally:
            os.kill(paused, signal.SIGCONT)
        otlp.wait_for(lambda _: calls_taken_over(otlp) == N_CALLS, WAIT_S)
        assert scores(otlp) == dict.fromkeys(range(1, N_CALLS + 1), 1)


def test_calls_of_a_living_worker_stay_with_it(broker: Broker, tmp_path: Path) -> None:
    """While Redis is killed and started again, and while the worker ends: the judge is asked once for each call."""
    seconds = 14.0  # longer than a call stays with a worker that does not live
    with ExitStack() as redis_running, JudgeServer(labels(after=seconds)) as judge, HttpReceiver() as otlp:
        redis_running.enter_context(broker.started())
        publish(broker)
        with ExitStack() as stack:
            first, _ = (
                stack.enter_context(
                    running_worker(tmp_path, broker.url, judge.url, otlp.environ, name=name, judge_timeout=seconds * 2)
                )
                for name in ("first", "second")
            )
            otlp.wait_for(lambda _: len(judge.requests) == N_CALLS, WAIT_S)
            broker.kill()
            redis_running.close()
            redis_running.enter_context(broker.started())
            first.terminate()
            assert first.wait(EXIT_S) == 0
            otlp.wait_for(lambda _: len(scores(otlp)) == N_CALLS, WAIT_S)
        assert len(judge.requests) == N_CALLS
        with redis.Redis.from_url(broker.url) as client:
            assert client.xlen(CALLS_KEY) == len(client.xinfo_consumers(CALLS_KEY, GROUP)) == 0


def test_judged_calls_are_counted_also_by_a_worker_with_a_screen(broker: Broker, tmp_path: Path) -> None:
    """The screen has the judge's metric, and scores no call in a worker."""

    def sums(moment: str) -> float:
        points = [point for metric in otlp.metrics if metric.name == semconv.METRIC_MOMENT for point in metric.points]
        known = {semconv.EVALUATION_NAME: "faithfulness", semconv.MOMENT: moment}
        found = [point.value for point in points if known.items() <= point.attributes.items()]
        return max(found, default=0)

    with broker.started(), JudgeServer() as judge, HttpReceiver() as otlp:
        publish(broker)
        with running_worker(tmp_path, broker.url, judge.url, otlp.environ, screen="tests.support.http_judge:screen"):
            otlp.wait_for(lambda _: sums("c") == N_CALLS, WAIT_S)
        assert (sums("n"), sums("w")) == (N_CALLS, 2 * N_CALLS)  # each was sampled with a probability of a half


@pytest.mark.parametrize(("scored", "letters"), [(False, 1), (True, 0)])
def test_a_call_that_workers_were_lost_with_is_a_dead_letter_unless_it_is_scored(
    broker: Broker, *, scored: bool, letters: int
) -> None:
    """After its third delivery nobody judges it again; a scored call, whose acknowledgement was lost, ends there."""
    with broker.started():
        judge = FakeJudge(GOOD)
        watch(screen=None, judge=judge)
        runtime, message = current(), handed_over(1)
        assert runtime is not None
        store, span = RedisClaims(broker.url), message.unscored.call.span
        claims = WorkerClaims(store, judge.id, judge.version, WAIT_S)
        handler = FleetJudge(runtime, FleetScoring.of(runtime), claims, timeout=WAIT_S)
        broker.publish([message])
        with redis.Redis.from_url(broker.url) as client:
            client.xgroup_create(CALLS_KEY, GROUP, id="0")
            [[_, [(entry, _)]]] = client.xreadgroup(GROUP, "lost", {CALLS_KEY: ">"})
            client.xclaim(CALLS_KEY, GROUP, "lost", 0, [entry], idle=int(WAIT_S * 1000), retrycount=MOST_TRIES)
        if scored:
            assert claims.claim_all([(span, f"{entry.decode()}:1", "")]) == ["claimed"]
            claims.confirm(span)

        async def deliver(client: Client) -> None:
            stop = asyncio.Event()

            async def handle(delivery: Delivery) -> None:
                stop.set()
                await handler.handle(delivery)

            await client.consume(1, handle, stop, list)

        broker.ask(deliver)
        assert broker.depths() == QueueDepths(0, letters)
        assert judge.calls == []
        assert claim(store, claim_id(span, judge.id, judge.version), "retried:1", WAIT_S) == (
            "done" if scored else "claimed"
        )
