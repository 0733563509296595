"""Claims of calls in Redis: one worker has a call, until it confirms, releases, is gone or its time is over."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import redis
from opentelemetry.trace import SpanContext

from ragtrace.fleet.claims import KEPT_SECONDS, RedisClaims, WorkerClaims
from ragtrace.system.faults import faults
from tests.support.brokers import Broker, redis_broker
from tests.support.claim_worker import claims_of_workers
from tests.support.fleet import claim

pytestmark = pytest.mark.integration
WORKERS = 4
CALLS = 200
CALL = "a" * 32
OTHER = "b" * 32
SPAN = SpanContext(1, 1, is_remote=True)


@pytest.fixture(scope="module")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Redis for the tests of this file that leave it running."""
    with redis_broker(tmp_path_factory.mktemp("redis")) as described, described.started():
        yield described


@pytest.fixture
def url(running_redis: Broker) -> str:
    """URL of an empty Redis."""
    running_redis.empty()
    return running_redis.url


@pytest.fixture
def claims(url: str) -> RedisClaims:
    """Claims in an empty Redis."""
    return RedisClaims(url)


def remaining_seconds(url: str) -> float:
    """Return the time after which the only key of a Redis expires."""
    client: Any = redis.Redis.from_url(url)
    with client:
        [key] = client.keys()
        return float(client.pttl(key)) / 1000


def test_a_claimed_call_is_held(claims: RedisClaims) -> None:
    """Another message does not get it; the same one does, when it is delivered again."""
    assert [claim(claims, CALL, owner, 60) for owner in ("one", "two", "one")] == ["claimed", "held", "claimed"]


def test_a_claim_is_taken_over(claims: RedisClaims) -> None:
    """By a further delivery of the same message only; the earlier one learns that it has lost the call."""
    assert claim(claims, CALL, "one:1") == "claimed"
    assert claim(claims, CALL, "two:1", 60, "two:") == "held"
    assert claims.holds(CALL, "one:1")
    assert claim(claims, CALL, "one:2", 60, "one:") == "claimed"
    assert [claims.holds(CALL, owner) for owner in ("one:1", "one:2")] == [False, True]
    claims.confirm(CALL)
    assert not claims.holds(CALL, "one:2")


def test_a_confirmed_call_is_done_for_everyone(claims: RedisClaims, url: str) -> None:
    """Its owner is refused, too, for as long as the call may come again."""
    claim(claims, CALL, "one", 60)
    claims.confirm(CALL)
    assert [claim(claims, CALL, owner, 60) for owner in ("one", "two")] == ["done", "done"]
    assert KEPT_SECONDS - 60 < remaining_seconds(url) <= KEPT_SECONDS


def test_several_calls_are_confirmed_at_once(claims: RedisClaims) -> None:
    """All calls of a delivery, and no other."""
    others = OTHER, "c" * 32
    for call in (CALL, *others):
        claim(claims, call, "one", 60)
    claims.confirm(CALL, others[0])
    assert [claim(claims, call, "two", 60) for call in (CALL, *others)] == ["done", "done", "held"]


def test_a_released_call_is_free(claims: RedisClaims) -> None:
    """Only its owner can release it, and not after confirming."""
    claim(claims, CALL, "one", 60)
    claims.release(CALL, "two")
    assert claim(claims, CALL, "two", 60) == "held"
    claims.release(CALL, "one")
    assert claim(claims, CALL, "two", 60) == "claimed"
    claims.confirm(CALL)
    claims.release(CALL, "two")
    assert claim(claims, CALL, "three", 60) == "done"


def test_a_claim_expires(claims: RedisClaims) -> None:
    """A worker that neither confirms nor releases loses the call when its time is over."""
    claim(claims, CALL, "one", 0.05)
    until = monotonic() + 10
    while (state := claim(claims, CALL, "two", 60)) == "held" and monotonic() < until:
        pass
    assert state == "claimed"


def test_a_claim_lasts_for_its_time(claims: RedisClaims, url: str) -> None:
    """Redis deletes it then: its memory does not grow with calls that cannot come again."""
    claim(claims, CALL, "one", 60)
    assert 30 < remaining_seconds(url) <= 60


def test_a_worker_counts_its_claims(claims: RedisClaims) -> None:
    """A call that is queued twice is claimed once, and done when the first message is."""
    worker = WorkerClaims(claims, "judge", "1", 60)
    assert worker.claim_all([(SPAN, "one", ""), (None, "other", ""), (SPAN, "two", "")]) == [
        "claimed",
        "unknown",
        "held",
    ]
    worker.confirm(SPAN)
    assert worker.claim_all([(SPAN, "two", "")]) == ["done"]
    assert worker.counts == {"claimed": 1, "held": 1, "done": 1, "unknown": 1}


def test_concurrent_workers_claim_each_call_once(url: str) -> None:
    """Four processes ask for the same calls at the same time; each call is claimed by exactly one of them."""
    assert claims_of_workers(url, WORKERS, CALLS) == dict.fromkeys(range(CALLS), 1)


def test_concurrent_workers_claim_each_call_once_while_redis_is_killed(tmp_path: Path) -> None:
    """Redis is started again meanwhile: no claim is lost, and no call is claimed twice."""
    with redis_broker(tmp_path) as broker, ExitStack() as starts:
        starts.enter_context(broker.started())

        def restart() -> None:
            broker.kill()
            starts.enter_context(broker.started())

        claimed = claims_of_workers(broker.url, WORKERS, CALLS // 2, restart)
    assert claimed == dict.fromkeys(range(CALLS // 2), 1)


def test_claims_outlast_a_kill_of_redis(tmp_path: Path) -> None:
    """Claims and confirmations are there again, and connections that broke are made anew."""
    with redis_broker(tmp_path) as broker:
        claims = RedisClaims(broker.url)
        with broker.started():
            assert [claim(claims, call, "one") for call in (CALL, OTHER)] == ["claimed", "claimed"]
            claims.confirm(OTHER)
            broker.kill()
        with broker.started():
            assert [claim(claims, call, "two") for call in (CALL, OTHER)] == ["held", "done"]
            assert claims.holds(CALL, "one")


def test_a_frozen_redis_holds_no_call_up(running_redis: Broker, url: str) -> None:
    """It keeps its connections and does not answer: calls are judged without a claim when the time is over."""
    worker = WorkerClaims(RedisClaims(f"{url}?socket_timeout=0.5"), "judge", "1", 60)

    def outcome(call: int) -> str:
        [found] = worker.claim_all([(SpanContext(1, call, is_remote=True), "one", "")])
        return found

    assert outcome(1) == "claimed"
    assert running_redis.process is not None
    running_redis.process.send_signal(signal.SIGSTOP)
    try:
        assert outcome(2) == "unknown"
    finally:
        running_redis.process.send_signal(signal.SIGCONT)
    assert outcome(3) == "claimed"
    faults.clear()
