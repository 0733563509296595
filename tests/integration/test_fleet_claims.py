"""Claims of calls by concurrent processes, in Redis, PostgreSQL and a SQLite file: each call is claimed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest
from opentelemetry.trace import SpanContext

from ragtrace.fleet.claims import RedisClaims, SqlClaims, WorkerClaims
from ragtrace.system.faults import faults
from tests.support.claim_worker import claims_of_workers
from tests.support.fleet import claim
from tests.support.postgres import Postgres, postgres_server
from tests.support.redis_server import redis_server

pytestmark = pytest.mark.integration
WORKERS = 4
CALLS = 200
CALL = "a" * 32
OTHER = "b" * 32


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def running_postgres() -> Iterator[Postgres]:
    """One PostgreSQL for the tests of this file."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres(running_postgres: Postgres) -> Postgres:
    """A PostgreSQL without a table of claims."""
    running_postgres.empty()
    return running_postgres


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_concurrent_workers_claim_each_call_once(store: str, redis_url: str, tmp_path: Path) -> None:
    """Four processes ask for the same calls at the same time; each call is claimed by exactly one of them."""
    url = redis_url if store == "redis" else f"sqlite:///{tmp_path / 'claims.db'}"
    assert claims_of_workers(url, WORKERS, CALLS) == dict.fromkeys(range(CALLS), 1)


def test_concurrent_workers_claim_each_call_once_in_postgresql(postgres: Postgres) -> None:
    """The server is killed and started again meanwhile: no claim is lost, and no call is claimed twice."""
    claimed = claims_of_workers(postgres.url, WORKERS, CALLS // 2, postgres.restart)
    assert claimed == dict.fromkeys(range(CALLS // 2), 1)


def test_claims_outlast_a_restart_of_postgresql(postgres: Postgres) -> None:
    """Claims and confirmations are there again, and connections that broke are made anew."""
    with closing(SqlClaims(postgres.url)) as claims:
        assert [claim(claims, call, "one") for call in (CALL, OTHER)] == ["claimed", "claimed"]
        claims.confirm(OTHER)
        postgres.restart()
        assert [claim(claims, call, "two") for call in (CALL, OTHER)] == ["held", "done"]
        assert claims.holds(CALL, "one")


def test_a_frozen_postgresql_holds_no_call_up(postgres: Postgres) -> None:
    """It keeps its connections and does not answer: calls are judged without a claim when the time is over."""
    with closing(SqlClaims(postgres.url, timeout=0.5)) as store:
        worker = WorkerClaims(store, "judge", "1", 60)

        def outcome(call: int) -> str:
            [found] = worker.claim_all([(SpanContext(1, call, is_remote=True), "one", "")])
            return found

        assert outcome(1) == "claimed"
        with postgres.frozen():
            assert outcome(2) == "unknown"
        assert outcome(3) == "claimed"
        until = monotonic() + 10
        while store._engine.pool.checkedout() and monotonic() < until:  # the claim that was given up
            pass
    faults.clear()


def test_calls_that_are_claimed_again_are_no_errors_of_postgresql(postgres: Postgres) -> None:
    """The server logs no error for a call that another worker holds."""
    before = len(postgres.log())
    with closing(SqlClaims(postgres.url)) as claims:
        assert [claim(claims, CALL, owner) for owner in ("one", "two")] == ["claimed", "held"]
    assert "ERROR" not in postgres.log()[before:]


def test_claims_in_redis(redis_url: str) -> None:
    """A call is held until it is released; once confirmed it is done for everyone."""
    claims = RedisClaims(f"{redis_url[:-1]}1")
    assert [claim(claims, CALL, owner, 60) for owner in ("one", "two", "one")] == ["claimed", "held", "claimed"]
    claims.release(CALL, "two")
    assert claim(claims, CALL, "two", 60) == "held"
    claims.release(CALL, "one")
    assert claim(claims, CALL, "two", 60) == "claimed"
    assert claim(claims, CALL, "two again", 60, "two") == "claimed"
    assert [claims.holds(CALL, owner) for owner in ("two", "two again")] == [False, True]
    claims.confirm(CALL)
    claims.release(CALL, "two")
    assert [claim(claims, CALL, owner, 60) for owner in ("two", "three")] == ["done", "done"]


def test_a_claim_in_redis_expires(redis_url: str) -> None:
    """A worker that neither confirms nor releases loses the call when its time is over."""
    claims = RedisClaims(f"{redis_url[:-1]}2")
    claim(claims, CALL, "one", 0.05)
    until = monotonic() + 10
    while (state := claim(claims, CALL, "two", 60)) == "held" and monotonic() < until:
        pass
    assert state == "claimed"
