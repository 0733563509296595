"""The budget of one worker: what is reserved, what is settled, and the share of a worker without Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import monotonic

import pytest

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Judgement, RagCall
from ragtrace.evaluation.judge_client import JudgeClient, Reservation
from ragtrace.fleet.budget import BudgetLimits, JudgeBudget
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.services import free_ports

CALL = RagCall(query="where?", contexts=None, answer="here")


async def reserve(budget: JudgeBudget) -> Reservation | None:
    """Reserve a request at once; None: the budget does not allow it."""
    try:
        reserved = await budget.reserve(monotonic())
    except JudgeError:
        return None
    assert not isinstance(reserved, (int, float))
    return reserved


async def granted(budget: JudgeBudget, cost: Cost, most: int) -> int:
    """Number of requests of that cost, one after the other, until the budget allows no more."""
    for number in range(most):
        reserved = await reserve(budget)
        if reserved is None:
            return number
        reserved.settle(cost)
    return most


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        (BudgetLimits(per_minute=7), 7),
        (BudgetLimits(per_minute=7.9), 7),
        (BudgetLimits(per_minute=0.1), 1),
        (BudgetLimits(usd_per_day=1.0), 99),  # the last cent is less than the mean with its last bits
        (BudgetLimits(tokens_per_day=50_000), 50),
        (BudgetLimits(per_minute=20, usd_per_day=0.1, tokens_per_day=5_000), 5),
        (BudgetLimits(), 120),
    ],
)
def test_a_budget_ends_after_its_amount(limits: BudgetLimits, requests: int) -> None:
    """Requests of one cent and 1,000 tokens are allowed until the first of the budgets is spent."""
    cost = Cost(1, 900, 100, 0.01)
    budget = JudgeBudget(limits, None, judge="j")
    found = asyncio.run(granted(budget, cost, 120))
    assert requests <= found <= requests + 1


def test_a_share_is_the_budget_divided_by_the_workers() -> None:
    """Each of four workers without a shared count has a quarter of every amount."""
    limits = BudgetLimits(per_minute=600, usd_per_day=2.0)
    assert limits.share_of(4) == replace(limits, per_minute=150, usd_per_day=0.5)


def test_the_first_request_is_settled_before_the_second() -> None:
    """While nothing is known about costs, only one request is under way: a guess for many would spend the day."""

    async def scenario() -> None:
        budget = JudgeBudget(BudgetLimits(usd_per_day=100.0), None, judge="j")
        first = await reserve(budget)
        assert first is not None
        assert await reserve(budget) is None
        first.settle(Cost(1, 10, 10, 0.001))
        assert await reserve(budget) is not None
        assert await reserve(budget) is not None

    asyncio.run(scenario())


def test_a_request_of_unknown_cost_keeps_its_reservation() -> None:
    """A judge that reports no cost is counted with the guess of 5 cents a request."""
    budget = JudgeBudget(BudgetLimits(usd_per_day=1.0), None, judge="j")
    assert asyncio.run(granted(budget, Cost(1, 10, 10, None), 120)) == 20


def test_a_spent_budget_makes_the_judge_unavailable() -> None:
    """The status of the client says for how long no request is allowed."""

    async def scenario() -> None:
        client = JudgeClient(FakeJudge(Judgement()), timeout=0.01)
        client.shared_limits = JudgeBudget(BudgetLimits(per_minute=1), None, judge="j")
        assert client.status.waits_s == 0
        await client.ask(CALL)
        assert client.status.waits_s == 0
        with pytest.raises(JudgeError, match="budget for a minute is spent"):
            await client.ask(replace(CALL, query="when?"))
        assert 0 < client.status.waits_s <= 1.1

    asyncio.run(scenario())


def test_without_limits_a_redis_that_is_away_holds_no_request() -> None:
    """Nothing is to be counted; that no Retry-After could be read is a fault. With a limit, no request is sent."""
    with free_ports(1) as (port,):
        away = f"redis://127.0.0.1:{port}/0"
    faults.clear()
    assert asyncio.run(granted(JudgeBudget(BudgetLimits(), away, judge="j"), Cost(1, 900, 100, 0.01), 20)) == 20
    assert faults.counts() == {"judge budget: reading a Retry-After": 1}
    assert asyncio.run(granted(JudgeBudget(BudgetLimits(per_minute=9), away, judge="j"), Cost(), 20)) == 0


def test_a_store_that_is_no_redis_is_refused() -> None:
    """The URL of a store that is no Redis is refused, and its password is not repeated."""
    with pytest.raises(SettingsError, match="redis://redis:6379/0") as caught:
        JudgeBudget(BudgetLimits(), "amqp://me:secret@host", judge="j")
    assert "secret" not in str(caught.value)


class RecordedLimits:
    """Shared limits that record what a client asks of them; a Retry-After of another process lasts at first."""

    def __init__(self, paused: float = 0.0) -> None:
        self._paused = paused
        self.reserved = 0
        self.settled: list[Cost] = []
        self.pauses: list[float] = []

    @property
    def seconds_closed(self) -> float:
        """How long the Retry-After lasts."""
        return self._paused

    async def reserve(self, deadline: float) -> Reservation | float:
        """A reservation, but the seconds of the Retry-After the first time."""
        if self._paused:
            paused, self._paused = self._paused, 0.0
            return paused
        self.reserved += 1
        return self

    def settle(self, cost: Cost) -> None:
        """Record the cost."""
        self.settled.append(cost)

    async def pause(self, seconds: float) -> None:
        """Record the Retry-After."""
        self.pauses.append(seconds)


def limited(judge: FakeJudge, limits: RecordedLimits, timeout: float = 5.0) -> JudgeClient:
    """Client of *judge* with shared limits."""
    client = JudgeClient(judge, timeout=timeout)
    client.shared_limits = limits
    return client


def test_a_client_settles_the_cost_of_each_request() -> None:
    """Each try reserves a request and settles its own cost; a repeated call is answered without one."""
    limits, judge = RecordedLimits(), FakeJudge(Judgement(n_calls=1, input_tokens=5, output_tokens=2, cost_usd=0.25))

    async def scenario() -> None:
        client = limited(judge, limits)
        await client.ask(CALL)
        await client.ask(CALL)

    asyncio.run(scenario())
    assert (limits.reserved, limits.settled) == (1, [Cost(1, 5, 2, 0.25)])


def test_a_client_shares_a_retry_after() -> None:
    """The Retry-After of a failed request is shared, and the request settled."""
    limits = RecordedLimits()
    judge = FakeJudge(JudgeError("unavailable", "HTTP 429", retry_after=60.0))
    with pytest.raises(JudgeError, match="429"):
        asyncio.run(limited(judge, limits).ask(CALL))
    assert (limits.pauses, limits.settled) == ([60.0], [Cost()])


def test_a_client_waits_for_the_retry_after_of_another_process() -> None:
    """A pause that ends before the deadline is waited for; a longer one fails the call without asking the judge."""
    judge = FakeJudge(Judgement())
    limits = RecordedLimits(paused=0.01)
    asyncio.run(limited(judge, limits).ask(CALL))
    assert limits.reserved == 1
    with pytest.raises(JudgeError, match="Retry-After lasts another"):
        asyncio.run(limited(judge, RecordedLimits(paused=60.0)).ask(CALL))
