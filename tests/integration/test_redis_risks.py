"""Settings of Redis with which a fleet loses queued calls: doctor and worker say so, with a real Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
import redis

from ragtrace.diagnosis.examination import diagnose_environment
from ragtrace.diagnosis.report import Diagnosis
from tests.support.brokers import Broker, redis_broker
from tests.support.fleet import running_worker

pytestmark = pytest.mark.integration
WAIT_S = 60.0
KEPT = {"appendonly": "yes", "appendfsync": "always", "maxmemory": "0", "maxmemory-policy": "noeviction"}
NOT_IN_A_FILE = "appendonly no; calls that wait are lost when Redis restarts"


@pytest.fixture(scope="module")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Redis for the tests of this file."""
    with redis_broker(tmp_path_factory.mktemp("redis")) as described, described.started():
        yield described


@pytest.fixture
def client(running_redis: Broker) -> Iterator[redis.Redis]:
    """A client of the Redis, which has the recommended settings and allows all commands."""
    with redis.Redis.from_url(running_redis.url) as connected:
        connected.acl_setuser("default", enabled=True, categories=["+@all"])
        for name, value in KEPT.items():
            connected.config_set(name, value)
        yield connected


def diagnosed(broker: Broker) -> Diagnosis:
    """What the doctor finds with the Redis as broker."""
    return diagnose_environment({"RAGTRACE_FLEET": broker.url}, timeout=WAIT_S)


def seen(found: Diagnosis) -> tuple[bool, str]:
    """Whether the doctor is content with the settings of Redis, and what it saw."""
    ((ok, text),) = [(check.ok, check.seen) for check in found.checks if check.what == "fleet queue"]
    return ok, text


def test_recommended_settings_are_no_problem(client: redis.Redis, running_redis: Broker) -> None:
    """The doctor shows them."""
    text = "appendonly yes, appendfsync always, maxmemory 0, maxmemory-policy noeviction"
    assert seen(diagnosed(running_redis)) == (True, text)


@pytest.mark.parametrize(
    ("settings", "shown", "meaning", "advice"),
    [
        ({"appendonly": "no"}, "appendonly no", "lost when Redis restarts", "set appendonly yes"),
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy allkeys-lru", "the queue among them", "noeviction"),
        ({"maxmemory-policy": "volatile-ttl"}, "maxmemory-policy volatile-ttl", "claims of calls", "noeviction"),
    ],
)
def test_settings_that_lose_calls_are_a_problem(
    client: redis.Redis, running_redis: Broker, settings: dict[str, str], shown: str, meaning: str, advice: str
) -> None:
    """It says what was seen, what it means and what to do."""
    for name, value in {"maxmemory": "100mb", **settings}.items():
        client.config_set(name, value)
    found = diagnosed(running_redis)
    assert seen(found) == (False, shown)
    (problem,) = [each for each in found.problems if each.startswith("fleet queue")]
    assert meaning in problem
    assert advice in problem


def test_without_a_limit_of_memory_nothing_is_evicted(client: redis.Redis, running_redis: Broker) -> None:
    """The policy alone is no problem."""
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert seen(diagnosed(running_redis))[0]


def test_settings_that_are_not_shown_are_no_problem(client: redis.Redis, running_redis: Broker) -> None:
    """A managed Redis refuses `CONFIG GET`: the doctor says that it does not know."""
    client.config_set("appendonly", "no")
    client.acl_setuser("default", enabled=True, commands=["-config"])
    ok, text = seen(diagnosed(running_redis))
    assert ok
    assert text.startswith("unknown whether Redis keeps queued calls")


def test_a_worker_warns_once(client: redis.Redis, running_redis: Broker, tmp_path: Path) -> None:
    """When it starts, and only if there is something to warn of."""
    with running_worker(tmp_path, running_redis.url, "http://127.0.0.1:1", {}, name="content"):
        pass
    client.config_set("appendonly", "no")
    log, until = tmp_path / "worried.log", monotonic() + WAIT_S
    with running_worker(tmp_path, running_redis.url, "http://127.0.0.1:1", {}, name="worried"):
        while NOT_IN_A_FILE not in log.read_text():
            assert monotonic() < until
    assert log.read_text().count("the broker has") == 1
    assert "the broker has" not in (tmp_path / "content.log").read_text()
