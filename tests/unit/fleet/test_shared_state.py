"""What a worker shares, by its broker, its store and its settings."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, RagCall
from ragtrace.evaluation.sampling import Sampling
from ragtrace.evaluation.scoring import Evaluator
from ragtrace.fleet.shared_state import SharedState, share_state
from ragtrace.testing import FakeJudge

RABBITMQ, REDIS = "amqp://127.0.0.1:1//", "redis://127.0.0.1:1/0"


def shared(
    broker: str, store: str | None = None, sampling: Sampling | None = None, tokens: float | None = None
) -> tuple[Evaluator, SharedState]:
    """State of a worker with that broker and store."""
    evaluator = Evaluator(FakeJudge(Judgement()), (), timeout=0.05)
    state = share_state(
        evaluator, sampling or Sampling(), broker=broker, store=store, tokens_per_day=tokens, claim_seconds=60
    )
    return evaluator, state


def test_a_broker_that_is_redis_is_the_store() -> None:
    """Budget, Retry-After and claims are kept in it; without limits there is nothing to read."""
    evaluator, state = shared(REDIS)
    assert evaluator.judge_client.shared_limits is state.budget is not None
    assert state.reader is None
    assert shared(REDIS, tokens=1_000)[1].reader is not None


def test_rabbitmq_alone_shares_nothing() -> None:
    """Without a store and a budget the judge is limited by its own gate only."""
    evaluator, state = shared(RABBITMQ)
    assert evaluator.judge_client.shared_limits is state.budget is state.reader is None


def test_without_redis_a_worker_has_its_share(caplog: pytest.LogCaptureFixture) -> None:
    """The budget is divided by the number of workers, and a warning says so."""
    call = RagCall("where?", (), "here")

    async def judged(evaluator: Evaluator) -> int:
        calls = [replace(call, query=f"{number}?") for number in range(10)]
        asked = await asyncio.gather(*map(evaluator.judge_client.ask, calls), return_exceptions=True)
        return sum(isinstance(each, Judgement) for each in asked)

    with caplog.at_level(logging.WARNING):
        evaluator, state = shared(RABBITMQ, sampling=Sampling(per_minute=12, replicas=4))
    assert state.reader is None
    assert "1/4 of it" in caplog.text
    assert asyncio.run(judged(evaluator)) == 3


def test_a_redis_beside_rabbitmq_is_the_store() -> None:
    """It has the claims, the budget and a Retry-After, as a broker that is Redis has."""
    evaluator, state = shared(RABBITMQ, REDIS, tokens=1_000)
    assert evaluator.judge_client.shared_limits is state.budget is not None
    assert state.reader is not None
    assert state.claims.claim_all([(None, "x", "")]) == ["unknown"]
    assert state.claims.counts == {"unknown": 1}
    assert not shared(RABBITMQ)[1].claims.has_store


@pytest.mark.parametrize("store", ["nothing", "postgresql+psycopg://ann:QUITE@host/db", "sqlite:////tmp/claims.db"])
def test_a_wrong_store_is_refused(store: str) -> None:
    """The message says what can be written, and shows no credentials."""
    with pytest.raises(SettingsError, match="redis://redis:6379/0") as refused:
        shared(RABBITMQ, store)
    assert "QUITE" not in str(refused.value)


def test_a_redis_that_cannot_be_read_is_refused_without_its_password() -> None:
    """Where it is the store of a fleet whose broker is another."""
    with pytest.raises(SettingsError, match="the store") as refused:
        shared(RABBITMQ, store="redis://ann:QUITE@host:port/0")
    assert "QUITE" not in str(refused.value)
