"""However a process ends that scores calls of the spool: no call is judged again, and no score goes out twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest

import ragtrace
from ragtrace.history.spool import Spool
from ragtrace.runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.otlp import HttpReceiver
from tests.support.scored import EVERY
from tests.support.watched import GOOD, WAIT_S, WaitingJudge, ask, watch

ROOT = Path(__file__).parents[1]
SCORE_ID = "ragtrace.eval.score_id"


@pytest.fixture
def path(tmp_path: Path) -> str:
    faults.clear()
    return str(tmp_path / "calls.db")


@pytest.fixture
def sending(http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> HttpReceiver:
    """Where telemetry goes, and only when it is flushed."""
    for name, value in {
        **http_receiver.environ,
        "OTEL_BLRP_SCHEDULE_DELAY": "3600000",
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
    }.items():
        monkeypatch.setenv(name, value)
    return http_receiver


def keep(path: str, calls: int) -> None:
    """A process whose judge does not answer before the end."""
    judge = WaitingJudge(name="judge")
    watch(screen=None, judge=judge, sampling=EVERY, spool=path, metrics=["faithfulness"])
    for number in range(calls):
        ask(f"question {number}?")
    assert judge.begun.wait(WAIT_S)
    ragtrace.shutdown(timeout=0.5)
    assert ragtrace.stats().dropped == {"spooled": calls}


def score(path: str) -> FakeJudge:
    """Another process, in so far as it knows nothing of the one before; returns its judge."""
    judge = FakeJudge(GOOD, name="judge")
    ragtrace.configure(service="s", screen=None, judge=judge, sampling=EVERY, spool=path, metrics=["faithfulness"])
    return judge


def take_up(path: str, scored: int) -> None:
    """Have the calls in the file judged by the runtime, and wait until their scores are noted, without a flush."""
    runtime = current()
    assert runtime is not None
    assert runtime.insides.revival is not None
    keep_back()
    runtime.insides.revival.take_up()
    wait_until(lambda: Spool(path).contents().scored == scored)
    assert runtime.worker.wait_idle(WAIT_S)


def keep_back() -> None:
    """The runtime has what is scored delivered a moment later, which no test could rely on to come or not to come."""
    runtime = current()
    assert runtime is not None
    assert runtime.insides.revival is not None
    vars(runtime.insides.revival)["_delivering"] = True


def wait_until(condition: Callable[[], object]) -> None:
    never = threading.Event()
    deadline = monotonic() + WAIT_S
    while not condition():
        assert monotonic() < deadline
        never.wait(0.02)


def scores(receiver: HttpReceiver) -> Counter[str]:
    return Counter(str(log.attributes[SCORE_ID]) for log in receiver.logs)


def carriers(receiver: HttpReceiver) -> int:
    return sum(span.name == "evaluate guide" for span in receiver.spans)


def test_scores_that_could_not_be_delivered_are_delivered_by_the_next_process(path: str, sending: HttpReceiver) -> None:
    """Nobody judges the calls again, and they stay in the accounts of the process that did."""
    keep(path, 3)
    judge = score(path)
    take_up(path, 3)
    with sending.refusing():
        assert not ragtrace.shutdown(timeout=0.3)
    first = ragtrace.stats().evaluators["judge"]
    assert (len(judge.calls), first.offered, first.scored) == (3, 3, 3)
    assert Spool(path).contents().scored == 3
    heir = score(path)
    assert ragtrace.flush()
    assert (len(heir.calls), ragtrace.stats().evaluators) == (0, {})
    assert list(scores(sending).values()) == [1] * 3
    assert carriers(sending) == 3
    assert Spool(path).contents().calls == 0


def test_metrics_do_not_count_a_score_that_is_sent_again(path: str, sending: HttpReceiver) -> None:
    """The process that computed it has."""
    keep(path, 1)
    score(path)
    take_up(path, 1)
    with sending.refusing():
        ragtrace.shutdown(timeout=0.3)
    captured = watch(screen=None, judge=FakeJudge(GOOD, name="judge"), spool=path, metrics=["faithfulness"])
    assert ragtrace.flush()
    assert len(captured.events) == 1
    assert "ragtrace.eval.score" not in captured.metrics()


def test_scores_that_may_have_arrived_are_not_sent_again(path: str, sending: HttpReceiver) -> None:
    """A backend that takes them and does not answer before the end: counted, as nobody knows."""
    keep(path, 2)
    score(path)
    take_up(path, 2)
    with sending.hanging():
        assert not ragtrace.shutdown(timeout=0.3)
    assert ragtrace.stats().faults["spool: delivery not confirmed"] == 2
    sending.wait_for(lambda got: len(got.logs) == 2)
    heir = score(path)
    assert ragtrace.flush()
    assert (len(heir.calls), list(scores(sending).values())) == (0, [1] * 2)


def test_a_shutdown_without_any_time_sends_nothing_twice(path: str, sending: HttpReceiver) -> None:
    """What did not go in the moment that it has goes with the next."""
    keep(path, 5)
    score(path)
    take_up(path, 5)
    ragtrace.shutdown(timeout=0.0)
    heir = score(path)
    assert ragtrace.flush()
    assert (heir.calls, set(scores(sending).values())) == ([], {1})


def test_scores_wait_for_a_file_that_is_locked(path: str, sending: HttpReceiver) -> None:
    """They go out when they are safe: else another process might judge the call meanwhile."""
    keep(path, 1)
    judge = score(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        runtime = current()
        assert runtime is not None
        assert runtime.insides.revival is not None
        keep_back()
        runtime.insides.revival.take_up()
        other.execute("BEGIN IMMEDIATE")
        wait_until(lambda: judge.calls)
        assert not ragtrace.flush(timeout=1.0)
        assert sending.logs == ()
        other.execute("ROLLBACK")
    wait_until(lambda: Spool(path).contents().scored == 1)
    assert ragtrace.flush()
    assert (len(judge.calls), list(scores(sending).values())) == (1, [1])


def test_what_the_spool_cannot_take_in_time_is_lost_and_not_stored_later(path: str) -> None:
    """The accounts say so, at the end of the shutdown and for good."""
    judge = WaitingJudge(name="judge")
    watch(screen=None, judge=judge, sampling=EVERY, spool=path, metrics=["faithfulness"])
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began, others = monotonic(), set(threading.enumerate())
        ragtrace.shutdown(timeout=0.2)
        assert monotonic() - began < 1.0
        other.execute("ROLLBACK")
    tally = ragtrace.stats().evaluators["judge"]
    assert (tally.dropped, tally.pending) == ({"not_spooled": 1}, 0)
    for thread in set(threading.enumerate()) - others:  # one of them may still be waiting for the file
        thread.join(WAIT_S)
    assert Spool(path).contents().calls == 0


def test_a_judge_that_answers_after_the_end_changes_nothing(path: str) -> None:
    """A call that it could not be torn away from is in the file by then, and is the next process's."""
    judge = WaitingJudge(name="judge", blocking=True)
    captured = watch(screen=None, judge=judge, sampling=EVERY, spool=path, metrics=["faithfulness"])
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    runtime = current()
    ragtrace.shutdown(timeout=0.3)
    judge.open()
    assert runtime is not None
    assert runtime.worker.wait_idle(WAIT_S)
    assert (captured.events, Spool(path).contents().calls) == ([], 1)
    assert (runtime.stats().scored, runtime.stats().dropped) == (0, {"spooled": 1})


# --- real processes --------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, os, random, signal, sys, threading
import ragtrace
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD

kind, seed, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
draw = random.Random(seed)
wait = threading.Event().wait
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

def note(what, call):
    with open(log, "a") as file:
        file.write(f"{what} {call.span.trace_id}\\n")

class Judge(FakeJudge):
    async def judge(self, call):
        note("asked", call)
        await asyncio.sleep(draw.random() * 0.05)
        judgement = await super().judge(call)
        note("answered", call)
        return judgement

ragtrace.configure(
    service="s",
    screen=None,
    judge=Judge(GOOD, name="judge"),
    sampling=ragtrace.Sampling(rate=1.0),
    judge_concurrency=2,
    metrics=["faithfulness"],
)
print("up", flush=True)
flush = threading.Thread(target=ragtrace.flush, args=(30.0 if kind == "all" else draw.random(),), daemon=True)
flush.start()
if kind == "all":
    flush.join()
elif kind == "exit":
    wait(draw.random() * 0.4)
elif kind == "shutdown":
    wait(draw.random() * 0.4)
    ragtrace.shutdown(timeout=draw.choice([0.0, 0.05, 0.2]))
else:
    wait(60)
"""


class Processes:
    """One after the other, with the same spool and backend."""

    def __init__(self, path: str, receiver: HttpReceiver, log: Path) -> None:
        delay = {"OTEL_BLRP_SCHEDULE_DELAY": "100"}
        self._environ = {**os.environ, **receiver.environ, **delay, "RAGTRACE_SPOOL": path}
        self._log = log

    def run(self, kind: str, seed: int) -> None:
        """A process that comes to its end by *kind*: all (it scores everything), exit, shutdown, SIGTERM or SIGKILL."""
        command = [sys.executable, "-c", PROGRAM, kind, str(seed), str(self._log)]
        with subprocess.Popen(command, cwd=ROOT, env=self._environ, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            if kind.startswith("SIG"):
                threading.Event().wait(random.Random(seed).random() * 0.4)
                process.send_signal(getattr(signal, kind))
            process.wait(60)

    def noted(self, what: str) -> Counter[str]:
        """How often a judge was asked, or answered, by trace id."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        return Counter(trace for event, trace in lines if event == what)


@pytest.fixture
def processes(path: str, tmp_path: Path, http_receiver: HttpReceiver) -> Processes:
    return Processes(path, http_receiver, tmp_path / "log")


def test_impatient_processes_score_each_call_once(path: str, processes: Processes, http_receiver: HttpReceiver) -> None:
    """Whether they exit, are shut down in no time or are asked to end by a signal."""
    keep(path, 20)
    for number, kind in enumerate(("shutdown", "SIGTERM", "exit")):
        processes.run(kind, number)
    processes.run("all", 0)
    assert set(scores(http_receiver).values()) == {1}
    assert len(scores(http_receiver)) == 20
    assert Spool(path).contents().calls == 0


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_a_call_that_was_scored_is_not_judged_again_after_a_kill(
    path: str, processes: Processes, http_receiver: HttpReceiver
) -> None:
    """Nothing is lost, and what is sent again has the same score id. Only what the judge had in hand, two calls at a
    time, or had answered a moment ago is judged again.
    """
    keep(path, 20)
    for seed in range(3):
        processes.run("SIGKILL", seed)
    processes.run("all", 0)
    assert len(scores(http_receiver)) == 20
    assert sum(processes.noted("asked").values()) <= 20 + 3 * 4
    assert Spool(path).contents().calls == 0
