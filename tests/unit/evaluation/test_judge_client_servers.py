"""Judges behind a real server, in a watched application: whatever it does, each call is settled once, with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Document, Judgement, RagCall
from ragtrace.evaluation.judge_client import JudgeClient
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support.http_judge import HttpJudge
from tests.support.judge_server import (
    DROPPED,
    FAILED,
    GARBAGE,
    HANGS,
    HUGE,
    NONSENSE,
    JudgeServer,
    Reply,
    labels,
    refused_url,
    too_many,
)
from tests.support.watched import GOOD, WAIT_S, WaitingJudge, ask, limited, watch

EVERY = ragtrace.Sampling(rate=1.0)
CALL = RagCall(query="where?", contexts=(Document("Paris is a big city."),), answer="Paris is big.")
CALLS = 6


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


@pytest.fixture
def serve() -> Iterator[Callable[..., JudgeServer]]:
    """Starts judge servers, and stops them afterwards."""
    servers: list[JudgeServer] = []

    def start(*rule: Any) -> JudgeServer:
        servers.append(JudgeServer(*rule).__enter__())
        return servers[-1]

    yield start
    ragtrace.shutdown(5.0)
    for server in servers:
        server.__exit__(None, None, None)


def watch_judge(judge: ragtrace.judges.Judge, **settings: Any) -> Captured:
    return watch(screen=None, judge=judge, sampling=EVERY, **settings)


def settled(calls: int = CALLS) -> ragtrace.types.Stats:
    """Make *calls* different calls; the accounts when all is over."""
    for n in range(calls):
        ask(f"question {n}")
    assert ragtrace.flush(WAIT_S)
    stats = ragtrace.stats()
    tally = next(iter(stats.evaluators.values()))
    assert (tally.offered, tally.settled, tally.pending) == (calls, calls, 0)
    return stats


@pytest.mark.parametrize(
    ("replies", "reason", "asked"),
    [
        ((labels(),), "", CALLS),
        ((labels(after=0.05),), "", CALLS),
        ((too_many(0.1), labels()), "", None),
        ((FAILED, labels()), "", CALLS + 1),
        ((DROPPED, labels()), "", CALLS + 1),
        ((too_many(60),), "unavailable", None),
        ((too_many(60, date=True),), "unavailable", None),
        ((FAILED,), "unavailable", None),
        ((DROPPED,), "unavailable", None),
        ((HANGS,), "timeout", CALLS),
        ((GARBAGE,), "unparsable", CALLS),
        ((NONSENSE,), "unparsable", CALLS),
        ((HUGE,), "unparsable", CALLS),
        ((Reply(401),), "unavailable", CALLS),
    ],
    ids="good slow 429_once 500_once dropped_once 429_for_long 429_until_a_date 500 dropped hangs garbage nonsense huge"
    " 401".split(),
)
def test_whatever_the_server_does_each_call_is_settled_once(
    serve: Callable[..., JudgeServer], replies: tuple[Reply, ...], reason: str, asked: int | None
) -> None:
    """Scored, or failed with the reason; and no more is asked than makes sense."""
    server = serve(*replies)
    # Only where it is the point: on a busy machine an answer may take longer than a second.
    watch_judge(limited(HttpJudge(server.url), timeout=1.0 if reason == "timeout" else WAIT_S))
    stats = settled()
    assert (stats.scored, stats.failed) == ((CALLS, {}) if not reason else (0, {reason: CALLS}))
    assert stats.faults == {}
    assert len(server.requests) == asked or (asked is None and len(server.requests) <= 4 * CALLS)


def test_a_server_that_refuses_connections_is_unavailable() -> None:
    """Every call says so."""
    watch_judge(limited(HttpJudge(refused_url()), timeout=1.0))
    assert settled().failed == {"unavailable": CALLS}


@pytest.mark.parametrize("date", [False, True], ids=["seconds", "date"])
def test_no_request_comes_before_the_server_wants_one(serve: Callable[..., JudgeServer], date: bool) -> None:
    """Retry-After may be seconds or a date, which has whole seconds only."""
    server = serve(too_many(2.0 if date else 0.4, date=date), labels())
    watch_judge(limited(HttpJudge(server.url), concurrency=1))
    assert settled(4).scored == 4
    first, *others = [request.at for request in server.requests]
    assert len(others) == 4
    assert min(others) - first >= (0.9 if date else 0.4)


def test_a_server_sees_no_more_requests_at_a_time_than_it_may(serve: Callable[..., JudgeServer]) -> None:
    """`JudgeLimits(concurrency=)` holds on the wire."""
    server = serve(labels(after=0.02))
    watch_judge(limited(HttpJudge(server.url), concurrency=3))
    assert settled(20).scored == 20
    assert server.most_in_flight == 3


def test_a_burst_longer_than_a_calls_time_is_judged_whole(serve: Callable[..., JudgeServer]) -> None:
    """Calls wait for their turn where it costs them none of their time."""
    server = serve(labels(after=0.1))
    watch_judge(limited(HttpJudge(server.url), concurrency=1, timeout=2.0))  # 20 times what a call takes here
    began = monotonic()
    assert settled(30).scored == 30
    assert monotonic() - began > 2.5


def test_a_server_that_came_back_is_asked_again(serve: Callable[..., JudgeServer]) -> None:
    """An open circuit closes after a probe; what came in between has failed at once."""
    server = serve(lambda request: FAILED if request.number < 10 else labels())
    judge = HttpJudge(server.url, keep_alive=True)
    clock = [0.0]

    async def main() -> None:
        judge_client = JudgeClient(judge, timeout=WAIT_S, clock=lambda: monotonic() + clock[0])
        calls = [replace(CALL, query=f"question {n}") for n in range(24)]
        failed = await asyncio.gather(*(judge_client.ask(call) for call in calls[:10]), return_exceptions=True)
        assert all(isinstance(outcome, JudgeError) for outcome in failed)
        assert judge_client.state == "open"
        asked = len(server.requests)
        with pytest.raises(JudgeError, match="circuit is open"):
            await judge_client.ask(calls[10])
        assert len(server.requests) == asked
        clock[0] += 5.0
        assert isinstance(await judge_client.ask(calls[11]), Judgement)
        assert judge_client.state == "closed"
        await asyncio.gather(*(judge_client.ask(call) for call in calls[12:]))
        await judge.close()

    asyncio.run(main())


def test_identical_calls_of_an_application_are_judged_once(serve: Callable[..., JudgeServer]) -> None:
    """Each has its scores, marked as such, and costs nothing but the first."""
    server = serve(labels(after=0.02))
    captured = watch_judge(HttpJudge(server.url))
    for _ in range(5):
        ask("the same")
    assert ragtrace.flush(WAIT_S)
    assert (len(server.requests), ragtrace.stats().scored) == (1, 5)
    points = captured.metrics()["ragtrace.eval.tokens"].data_points
    assert sum(point.value for point in points) == 10


def test_a_shutdown_while_a_judge_is_waited_for_loses_nothing_silently(serve: Callable[..., JudgeServer]) -> None:
    """Calls that wait for a Retry-After, for a place or for an answer are counted as dropped, within the time."""
    server = serve(too_many(20), HANGS)
    watch_judge(limited(HttpJudge(server.url), concurrency=2, timeout=60.0))
    for n in range(CALLS):
        ask(f"question {n}")
    began = monotonic()
    assert not ragtrace.shutdown(0.3)
    assert monotonic() - began < WAIT_S / 2  # the server says to wait for 20 s
    stats = ragtrace.stats()
    assert (stats.dropped, stats.pending) == ({"shutdown": CALLS}, 0)
    assert stats.faults.keys() <= {"dropped: shutdown"}  # on a busy machine spans are not written in this time, either


def test_a_plain_function_as_judge_does_not_hold_up_the_background() -> None:
    """The screen's scores come while it blocks."""

    class Blocking(WaitingJudge):
        def judge(self, call: RagCall) -> Judgement:  # type: ignore[override]
            self.begun.set()
            self._opened.wait(WAIT_S)
            return GOOD

    judge = Blocking(name="blocking")
    watch(screen=FakeJudge(GOOD, name="screen"), judge=judge, sampling=EVERY)
    ask("one")
    assert judge.begun.wait(WAIT_S)
    ask("two")
    assert not ragtrace.flush(0.1)
    assert ragtrace.stats().evaluators["screen"].scored == 2
    judge.open()
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().evaluators["blocking"].scored == 2


def test_the_circuit_of_each_judge_is_a_gauge() -> None:
    """1 for the state that it is in; a screen that only computes has none."""
    captured = watch(judge=FakeJudge(GOOD, name="judge"), sampling=EVERY)
    points = captured.metrics()["ragtrace.judge.state"].data_points
    seen = {(p.attributes["ragtrace.evaluator.id"], p.attributes["ragtrace.judge.state"]): p.value for p in points}
    assert seen == {("judge", "closed"): 1, ("judge", "open"): 0, ("judge", "half_open"): 0}


def test_how_a_judge_stands_can_be_asked() -> None:
    """For whoever wants to know why a call was not scored."""
    watch(judge=FakeJudge(JudgeError("unavailable", retry_after=50), name="judge"), sampling=EVERY)
    ask("one")
    assert ragtrace.flush(WAIT_S)
    runtime = current()
    assert runtime is not None
    standing = runtime.judge_statuses()["judge"]
    assert (standing.state, standing.asked, standing.in_flight) == ("closed", 1, 0)
    assert 0 < standing.waits_s <= 50
