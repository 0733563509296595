"""A fleet whose processes are killed and restarted: what the backend has accounts for every call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import rabbitmq_broker, redis_broker
from tests.support.fleet_chaos import Plan, run_chaos, unreliable
from tests.support.judge_server import JudgeServer
from tests.support.otlp import HttpReceiver

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", ["rabbitmq", "redis"])
def test_no_call_is_lost_or_counted_twice_while_processes_are_killed(kind: str, tmp_path: Path) -> None:
    """A worker is killed, broker and gateway are restarted, the judge fails now and then: the identity holds."""
    plan = Plan(calls=300, faults=[(0.4, "kill worker"), (0.55, "restart gateway"), (0.7, "restart broker")])
    make: Any = {"rabbitmq": rabbitmq_broker, "redis": redis_broker}[kind]
    judge = JudgeServer(unreliable(1, after=0.2))
    with make(tmp_path) as broker, judge, HttpReceiver(keep_alive=True) as otlp:
        fleet, found = run_chaos(tmp_path, broker, judge.url, otlp, plan, seed=1)
    assert found.broken == [], found
    assert (len(found.accepted), found.missing) == (300, 0)
    assert set(fleet.exits) == {0}


def test_what_a_killed_gateway_held_is_what_its_last_counts_leave_open(tmp_path: Path) -> None:
    """Calls that wait for further spans are not scored; the backend can tell from the counts how many at most."""
    plan = Plan(calls=100, faults=[(0.8, "kill gateway")], workers=1)
    judge = JudgeServer(unreliable(1, after=0.0))
    with redis_broker(tmp_path) as broker, judge, HttpReceiver(keep_alive=True) as otlp:
        _, found = run_chaos(tmp_path, broker, judge.url, otlp, plan, seed=1)
    assert found.broken == [], found
    assert 0 < found.missing <= found.open_at_gateways
