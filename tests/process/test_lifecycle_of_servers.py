"""More ways in which programs run and end: event loops of all kinds, pools of threads, serverless, slow ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import pytest

import ragtrace
from ragtrace.fleet.spool import Spool
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.otlp import HttpReceiver
from tests.support.watched import ANSWER, GOOD, HALF, WAIT_S, WaitingJudge, ask, watch

ROOT = Path(__file__).parents[2]
EVERY = ragtrace.Sampling(rate=1.0)
LATE_S: Final = 0.3
"""How much later than promised a flush or a shutdown may be on a busy machine."""
ATTEMPTS: Final = 5


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


@ragtrace.retrieve(source="places")
async def search(query: str) -> list[str]:
    await asyncio.sleep(0)
    return ["Paris is a big city.", "Mars is a planet."]


@ragtrace.generate(model="tiny")
async def generate(question: str, docs: list[str]) -> str:
    await asyncio.sleep(0)
    return ANSWER


@ragtrace.trace(name="guide")
async def ask_async(question: str) -> str:
    return await generate(question, await search(question))


async def ask_many(calls: int) -> None:
    assert await asyncio.gather(*(ask_async(f"question {number}?") for number in range(calls))) == [ANSWER] * calls


def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    with contextlib.closing(loop):
        loop.run_until_complete(work)


# --- event loops -----------------------------------------------------------------------------------------------------


def test_on_uvloop_calls_are_scored_as_on_any_loop() -> None:
    """The application's loop is not ours: which one it is makes no difference."""
    uvloop = pytest.importorskip("uvloop")
    captured = watch(screen=FakeJudge(HALF, name="screen"))
    run_on(uvloop.new_event_loop(), ask_many(20))
    assert ragtrace.flush(WAIT_S)
    assert (len(captured.roots()), len(captured.spans), ragtrace.stats().scored) == (20, 60, 20)
    assert faults.counts() == {}


def test_a_flush_on_a_running_uvloop_does_not_deadlock() -> None:
    """It blocks that loop, as any synchronous call does; scoring has its own."""
    uvloop = pytest.importorskip("uvloop")
    watch(screen=FakeJudge(HALF, name="screen"))

    async def main() -> None:
        await ask_async("where?")
        assert ragtrace.flush(WAIT_S)

    run_on(uvloop.new_event_loop(), main())
    assert ragtrace.stats().scored == 1


def test_a_loop_inside_a_loop_is_two_loops() -> None:
    """As libraries do it that offer a synchronous face: `asyncio.run` on a thread of its own, awaited by the outer."""
    captured = watch(screen=FakeJudge(HALF, name="screen"))

    @ragtrace.trace(name="outer")
    async def outer(question: str) -> str:
        await asyncio.to_thread(asyncio.run, ask_many(1))
        return await generate(question, await search(question))

    asyncio.run(outer("where?"))
    assert ragtrace.flush(WAIT_S)
    spans = {span.name: span for span in captured.spans}
    assert ragtrace.stats().offered == 1, "the inner call ran in the context of the outer one, and belongs to it"
    assert len(captured.roots()) == 1
    assert captured.root().name == "invoke_workflow outer"
    inner, root = spans["invoke_workflow guide"].parent, captured.root().get_span_context()
    assert inner is not None
    assert root is not None
    assert inner.span_id == root.span_id


def test_what_is_pending_when_asyncio_run_ends_is_scored_all_the_same() -> None:
    """The loop of the application is closed; ours is not."""
    judge = WaitingJudge(name="judge")
    captured = watch(screen=None, judge=judge, sampling=EVERY)
    asyncio.run(ask_many(5))
    assert judge.begun.wait(WAIT_S)
    assert ragtrace.stats().pending == 5
    judge.open()
    assert ragtrace.flush(WAIT_S)
    assert (ragtrace.stats().scored, ragtrace.stats().pending, len(captured.roots())) == (5, 0, 5)


def test_one_loop_after_another() -> None:
    """As in tests and in scripts; nothing of ours is bound to the first."""
    watch(screen=FakeJudge(HALF, name="screen"))
    for _ in range(5):
        asyncio.run(ask_many(2))
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().scored == 10


def test_a_task_that_is_cancelled_with_its_loop_ends_its_span() -> None:
    """`asyncio.run` cancels what is left; the call is over then, and says how."""
    captured = watch(screen=FakeJudge(HALF, name="screen"))

    @ragtrace.trace(name="endless")
    async def endless(question: str) -> str:
        await asyncio.Event().wait()
        return question

    async def main() -> None:
        task = asyncio.create_task(endless("where?"))
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(main())
    assert ragtrace.flush(WAIT_S)
    [span] = captured.spans
    assert (span.attributes or {})["error.type"] == "asyncio.exceptions.CancelledError"
    assert ragtrace.stats().sampled_out == {"call_failed": 1}


# --- threads ---------------------------------------------------------------------------------------------------------


def test_calls_on_a_pool_of_threads_are_scored_after_the_pool_is_gone() -> None:
    """Each on its own thread, none of which is ours."""
    judge = WaitingJudge(name="judge")
    captured = watch(screen=None, judge=judge, sampling=EVERY)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, [f"question {number}?" for number in range(200)]))
    assert answers == [ANSWER] * 200
    judge.open()
    assert ragtrace.flush(WAIT_S)
    assert (ragtrace.stats().scored, len(captured.roots())) == (200, 200)
    questions = {str((span.attributes or {})["gen_ai.input.messages"]) for span in captured.roots()}
    assert len(questions) == 200


# --- the end of the interpreter --------------------------------------------------------------------------------------

PENDING = """
import asyncio, os, sys, threading
import ragtrace
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, ask

class Slow(FakeJudge):
    async def judge(self, call):
        await asyncio.sleep(float(os.environ["JUDGE_SECONDS"]))
        return await super().judge(call)

ragtrace.configure(
    service="s", screen=None, judge=Slow(GOOD, name="judge"), sampling=ragtrace.Sampling(rate=1.0),
    metrics=["faithfulness"],
)
for number in range(4):
    ask(f"question {number}?")
"""
ENDINGS = {
    "the end": ("", 0, ""),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "sys.exit with words": ("sys.exit('no more')", 1, "no more"),
    "an unhandled exception": ("raise LookupError('mine')", 1, "LookupError: mine"),
    "the end of asyncio.run": (
        "async def main():\n    ask('async?')\n    raise SystemExit(4)\nasyncio.run(main())",
        4,
        "",
    ),
    "another thread's exit": ("threading.Thread(target=sys.exit, args=(9,)).start()", 0, ""),
}


def run(program: str, environ: dict[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environ, "JUDGE_SECONDS": str(seconds)},
    )


@pytest.mark.parametrize(("ending", "code", "said"), ENDINGS.values(), ids=ENDINGS.keys())
def test_what_is_pending_when_the_interpreter_ends_is_still_scored(
    http_receiver: HttpReceiver, ending: str, code: int, said: str
) -> None:
    """The exit code and the output are the program's own."""
    done = run(PENDING + ending, http_receiver.environ, 0.4)
    assert done.returncode == code
    assert done.stderr == "" if not said else said in done.stderr
    calls = 5 if "asyncio.run" in ending else 4
    assert len(http_receiver.logs) == calls
    roots = [span for span in http_receiver.spans if span.name == "invoke_workflow guide"]
    assert [span.attributes["ragtrace.eval.status"] for span in roots] == ["ok"] * calls


def test_a_judge_that_hangs_at_the_end_costs_seconds_and_is_spooled(
    http_receiver: HttpReceiver, tmp_path: Path
) -> None:
    """The exit code is kept, the process ends before the judge, and the calls are in the file for the next process."""
    path = str(tmp_path / "calls.db")
    done = run(PENDING + "sys.exit(7)", {**http_receiver.environ, "RAGTRACE_SPOOL": path}, 3600)
    assert done.returncode == 7
    assert "4 spooled" in done.stderr
    assert Spool(path).contents().calls == 4
    roots = [span for span in http_receiver.spans if span.name == "invoke_workflow guide"]
    assert [span.attributes["ragtrace.eval.status"] for span in roots] == ["deferred"] * 4


# --- serverless ------------------------------------------------------------------------------------------------------


def test_a_flush_at_the_end_of_each_invocation_is_enough(
    http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty times: when it returns, nothing is pending and everything has arrived; the process may be frozen."""
    for name, value in http_receiver.environ.items():
        monkeypatch.setenv(name, value)
    ragtrace.configure(
        service="s", screen=FakeJudge(HALF, name="screen"), judge=FakeJudge(GOOD, name="judge"), sampling=EVERY
    )
    for invocation in range(1, 21):
        assert ask(f"question {invocation}?") == ANSWER
        assert ragtrace.flush()
        assert ragtrace.stats().pending == 0
        assert len(http_receiver.spans) == 3 * invocation
        assert len(http_receiver.logs) == 9 * invocation
        calls = http_receiver.latest_metrics()["ragtrace.calls"]
        offered = [point.value for point in calls.points if point.attributes["ragtrace.outcome"] == "offered"]
        assert offered == [invocation] * 2
    statuses = [span.attributes.get("ragtrace.eval.status") for span in http_receiver.spans]
    assert statuses.count("ok") == 20


# --- promises of time ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _hanging_judge(_: HttpReceiver) -> Iterator[None]:
    judge = WaitingJudge(name="judge")
    ragtrace.configure(service="s", screen=None, judge=judge, sampling=EVERY)
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    yield
    judge.open()


@contextlib.contextmanager
def _blocking_judge(_: HttpReceiver) -> Iterator[None]:
    judge = WaitingJudge(name="judge", blocking=True)
    ragtrace.configure(service="s", screen=None, judge=judge, sampling=EVERY)
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    yield
    judge.open()


@contextlib.contextmanager
def _hanging_exporter(receiver: HttpReceiver) -> Iterator[None]:
    ragtrace.configure(service="s", screen=FakeJudge(HALF, name="screen"))
    with receiver.hanging():
        ask("where?")
        yield


@contextlib.contextmanager
def _both(receiver: HttpReceiver) -> Iterator[None]:
    with receiver.hanging(), _hanging_judge(receiver):
        ask("and where else?")
        yield


Trouble = Callable[[HttpReceiver], contextlib.AbstractContextManager[None]]
TROUBLES: Final[tuple[Trouble, ...]] = (_hanging_judge, _blocking_judge, _hanging_exporter, _both)


@pytest.mark.timing
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("act", [ragtrace.flush, ragtrace.shutdown])
@pytest.mark.parametrize("timeout", [0.2, 0.6])
def test_flush_and_shutdown_keep_their_promise(
    http_receiver: HttpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Trouble,
    act: Callable[[float], bool],
    timeout: float,
) -> None:
    """Whatever hangs: they are back when they said, and say that it is not done."""
    for name, value in http_receiver.environ.items():
        monkeypatch.setenv(name, value)
    late: list[float] = []
    while len(late) < ATTEMPTS and min(late, default=LATE_S) >= LATE_S:  # the machine may stand still for a while
        with trouble(http_receiver):
            began = perf_counter()
            assert not act(timeout)
            late.append(perf_counter() - began - timeout)
            ragtrace.shutdown(0.0)
    assert min(late) < LATE_S, late


@pytest.mark.timing
@pytest.mark.parametrize("act", [ragtrace.flush, ragtrace.shutdown])
@pytest.mark.parametrize("timeout", [0.0, 0.1, 0.5])
def test_they_keep_it_to_the_tenth_of_a_second(
    http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch, act: Callable[[float], bool], timeout: float
) -> None:
    """With 300 calls in the queue, a judge and a backend that hang; the best of a few, as the machine may be busy."""
    for name, value in {**http_receiver.environ, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}.items():
        monkeypatch.setenv(name, value)
    late: list[float] = []
    for _ in range(ATTEMPTS):
        judge = WaitingJudge(name="judge")
        ragtrace.configure(service="s", screen=FakeJudge(HALF, name="screen"), judge=judge, sampling=EVERY)
        with http_receiver.hanging():
            for number in range(300):
                ask(f"question {number}?")
            began = perf_counter()
            assert not act(timeout)
            late.append(perf_counter() - began - timeout)
            ragtrace.shutdown(0.0)
        judge.open()
        if late[-1] < 0.1:
            break
    assert min(late) < 0.1, late


@pytest.mark.timing
def test_a_shutdown_that_spools_keeps_its_promise_too(tmp_path: Path) -> None:
    """With a thousand calls in hand; those that a starved machine had no time to store are counted as lost."""
    judge, path = WaitingJudge(name="judge"), tmp_path / "calls.db"
    threads = threading.active_count()
    watch(screen=None, judge=judge, sampling=EVERY, limits=ragtrace.Limits(spool=path))
    for number in range(1000):
        ask(f"question {number}?")
    assert judge.begun.wait(WAIT_S)
    began = perf_counter()
    assert not ragtrace.shutdown(2.0)
    assert perf_counter() - began < WAIT_S  # the judge hangs until the end of the test
    dropped = ragtrace.stats().dropped
    with contextlib.closing(sqlite3.connect(path)) as database:
        [(stored,)] = database.execute("SELECT count(*) FROM calls").fetchall()
    assert (dropped.get("spooled", 0), sum(dropped.values())) == (stored, 1000)
    assert set(dropped) <= {"spooled", "not_spooled"}
    assert threading.active_count() < threads + 20
