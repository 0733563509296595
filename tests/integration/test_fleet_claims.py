"""Claims of calls by concurrent processes, in a real Redis and in a SQLite file: each call is claimed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from ragtrace.fleet.claims import RedisClaims
from tests.support.claim_worker import claims_of_workers
from tests.support.fleet import claim
from tests.support.redis_server import redis_server

pytestmark = pytest.mark.integration
WORKERS = 4
CALLS = 200
CALL = "a" * 32


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_concurrent_workers_claim_each_call_once(store: str, redis_url: str, tmp_path: Path) -> None:
    """Four processes ask for the same calls at the same time; each call is claimed by exactly one of them."""
    url = redis_url if store == "redis" else f"sqlite:///{tmp_path / 'claims.db'}"
    assert claims_of_workers(url, WORKERS, CALLS) == dict.fromkeys(range(CALLS), 1)


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
