"""The budget that workers share by a real Redis: eight processes keep it, and a Retry-After holds all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.fleet.budget import BudgetLimits, BudgetReader, JudgeBudget
from ragtrace.system.faults import faults
from tests.support.budget_worker import most_in_window, requests_of_workers
from tests.support.redis_server import redis_server
from tests.support.services import free_ports

pytestmark = pytest.mark.integration
WORKERS = 8
SECONDS = 5.0
RETRY_AFTER_S = 1.5
TOLERANCE = 1.02
LATE_S = 0.1
"""Longest time between the grant of a request and its time stamp, for which a busy machine may stop a worker."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.mark.timing
def test_eight_workers_keep_their_budget(store: str) -> None:
    """Over any window eight workers send at most 1.02 of the requests, and spend at most 1.02 of the US dollars."""
    limits = {"per_minute": 60, "minute_seconds": 2, "usd_per_day": 0.2, "day_seconds": 60}
    requests = requests_of_workers(store, WORKERS, SECONDS, limits)
    assert len({one.worker for one in requests}) > 1
    assert 0.5 * 60 <= most_in_window([(one.at, 1.0) for one in requests], 2.0 - LATE_S) <= TOLERANCE * 60
    assert 0.8 * 0.2 <= most_in_window([(one.at, one.usd) for one in requests], 60.0) <= TOLERANCE * 0.2


@pytest.mark.timing
def test_a_retry_after_seen_by_one_worker_holds_all(store: str) -> None:
    """From 100 ms after one worker was sent a Retry-After until its end, no worker sends a request."""
    requests = requests_of_workers(f"{store[:-1]}1", WORKERS, 2 * RETRY_AFTER_S, {"per_minute": 1e5}, RETRY_AFTER_S)
    (refused,) = [one for one in requests if one.retry_after]
    assert [one for one in requests if refused.at + 0.1 < one.at < refused.at + RETRY_AFTER_S] == []
    assert sum(one.at > refused.at + RETRY_AFTER_S for one in requests) > WORKERS


def test_no_request_is_sent_while_redis_is_away(tmp_path: Path) -> None:
    """Without Redis a request waits until its deadline and fails with the reason; it goes on as Redis is back."""

    async def scenario(port: int) -> None:
        url = f"redis://127.0.0.1:{port}/0"
        budget = JudgeBudget(BudgetLimits(per_minute=600), url, judge="j")
        before = faults.counts().get("judge budget: Redis does not answer", 0)
        with pytest.raises(JudgeError, match="store of the judge's budget does not answer"):
            await budget.reserve(monotonic() + 0.5)
        await budget.pause(1.0)
        assert faults.counts()["judge budget: Redis does not answer"] == before + 1
        with redis_server(tmp_path, port):
            assert not isinstance(await budget.reserve(monotonic() + 5.0), float)
        with pytest.raises(JudgeError, match="does not answer"):
            await budget.reserve(monotonic() + 0.5)
        await budget.aclose()

    with free_ports(1) as ports:
        asyncio.run(scenario(ports[0]))
    faults.clear()


def test_what_is_left_of_the_budget_is_read(store: str) -> None:
    """Of each budget the share that no worker has drawn."""
    limits = BudgetLimits(per_minute=10, usd_per_day=1.0)

    async def spend(budget: JudgeBudget) -> None:
        for _ in range(3):
            reserved = await budget.reserve(monotonic() + 5.0)
            assert not isinstance(reserved, (int, float))
            reserved.settle(Cost(1, 10, 10, 0.1))
        await budget.aclose()

    reader = BudgetReader(limits, store, judge="left")
    assert reader.remaining() == {"requests": 1.0, "usd": 1.0}
    asyncio.run(spend(JudgeBudget(limits, store, judge="left")))
    left = reader.remaining()
    assert left["requests"] == pytest.approx(0.7)
    assert 0.6 <= left["usd"] <= 0.7
