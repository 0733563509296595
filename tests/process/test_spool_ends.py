"""However a process ends that scores calls of the spool, no call is lost, and a score that is repeated keeps its id."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.fleet.spool import QUARANTINE_TRIES, Spool
from ragtrace.runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.monitoring import wait_until
from tests.support.otlp import HttpReceiver
from tests.support.posting import ScriptedSink
from tests.support.scored import EVERY
from tests.support.watched import GOOD, WAIT_S, WaitingJudge, ask, eventually, watch

ROOT = Path(__file__).parents[2]
SCORE_ID = "ragtrace.eval.score_id"
KILLS = int(os.environ.get("RAGTRACE_TEST_KILLS", "5"))
"""At random moments; 200 take about four minutes."""


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


SCORING: Final[dict[str, Any]] = {"screen": None, "sampling": EVERY, "metrics": ["faithfulness"]}


def keep(path: str, calls: int) -> None:
    """A process whose judge does not answer before the end."""
    judge = WaitingJudge(name="judge")
    watch(**SCORING, judge=judge, limits=ragtrace.Limits(spool=path))
    for number in range(calls):
        ask(f"question {number}?")
    assert judge.begun.wait(WAIT_S)
    ragtrace.shutdown(timeout=4.0)  # a part of it is for storing calls, also on a busy machine
    assert ragtrace.stats().dropped == {"spooled": calls}


def score(path: str) -> FakeJudge:
    """Another process, in so far as it knows nothing of the one before; returns its judge."""
    judge = FakeJudge(GOOD, name="judge")
    ragtrace.configure(**SCORING, service="s", judge=judge, limits=ragtrace.Limits(spool=path))
    return judge


def scores(receiver: HttpReceiver) -> Counter[str]:
    return Counter(str(log.attributes[SCORE_ID]) for log in receiver.logs)


def in_history(path: str) -> int:
    with closing(sqlite3.connect(path)) as database:
        (calls,) = database.execute("SELECT count(DISTINCT number) FROM results").fetchone()
    return int(calls)


def test_scores_that_could_not_be_delivered_are_found_again_by_the_next_process(
    path: str, sending: HttpReceiver
) -> None:
    """The calls stay in the file; the scores have the ids that they had the first time."""
    keep(path, 3)
    judge = score(path)
    with sending.refusing():
        assert not ragtrace.flush(timeout=1.0)
        assert eventually(lambda: len(judge.calls) == 3)
        assert not ragtrace.shutdown(timeout=0.3)
    assert len(judge.calls) == 3
    assert Spool(path).contents().calls == 3
    heir = score(path)
    assert ragtrace.flush()
    assert len(heir.calls) == 3
    assert len(scores(sending)) == 3
    assert Spool(path).contents().calls == 0


def test_an_orderly_end_sends_nothing_twice(path: str, sending: HttpReceiver) -> None:
    """What the flush of the shutdown has delivered goes out of the file with it."""
    keep(path, 5)
    score(path)
    runtime = current()
    assert runtime is not None
    assert runtime.worker.wait_idle(WAIT_S)
    assert ragtrace.flush()
    assert ragtrace.shutdown()
    heir = score(path)
    assert ragtrace.flush()
    assert (heir.calls, set(scores(sending).values())) == ([], {1})


def test_calls_stay_in_the_spool_until_the_history_has_their_scores(path: str, tmp_path: Path) -> None:
    """Telemetry alone is not enough: a kill would take what the history has not written yet."""
    keep(path, 3)
    store = str(tmp_path / "history.db")
    watch(**SCORING, judge=FakeJudge(GOOD, name="judge"), limits=ragtrace.Limits(spool=path), store=store)
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not ragtrace.flush(timeout=1.5)
        assert eventually(lambda: ragtrace.stats().scored == 3)
        assert (ragtrace.stats().scored, Spool(path).contents().calls) == (3, 3)
        other.execute("ROLLBACK")
    assert ragtrace.flush()
    assert (in_history(store), Spool(path).contents().calls) == (3, 0)


def test_calls_stay_in_the_spool_until_the_score_sink_has_their_scores(path: str) -> None:
    """The thread that confirms deliveries sees when it has."""
    keep(path, 3)
    sink = ScriptedSink()
    sink.gate.clear()
    exporter = ragtrace.types.Signals(spans=InMemorySpanExporter(), scores=sink, immediate=True)
    ragtrace.configure(
        **SCORING, judge=FakeJudge(GOOD, name="judge"), limits=ragtrace.Limits(spool=path), exporter=exporter
    )
    assert not ragtrace.flush(timeout=1.5)
    assert eventually(lambda: ragtrace.stats().scored == 3)
    assert (ragtrace.stats().scored, Spool(path).contents().calls) == (3, 3)
    sink.gate.set()
    # Longer than the ten seconds after which deliveries are confirmed again, if the confirmation before was too early.
    wait_until(lambda: Spool(path).contents().calls == 0, 3 * WAIT_S, "the calls are deleted")
    assert len(sink.taken) == 3


def test_a_shutdown_without_any_time_loses_nothing(path: str, sending: HttpReceiver) -> None:
    """What did not go in the moment that it has is scored by the next process."""
    keep(path, 5)
    score(path)
    ragtrace.flush(timeout=0.05)
    ragtrace.shutdown(timeout=0.0)
    score(path)
    assert ragtrace.flush()
    assert len(scores(sending)) == 5


@pytest.mark.parametrize(
    ("timeout", "late_s", "until"),
    [
        pytest.param(2.0, 0.2, "counted", id="until_all_is_counted"),
        pytest.param(2.0, 0.2, "soon", id="within_the_shutdown"),
        pytest.param(4.0, 0.8, "returned", id="beyond_the_shutdown"),
    ],
)
def test_calls_whose_commit_outlasts_the_deadline_are_spooled_only_if_they_are_in_the_file(
    path: str, timeout: float, late_s: float, until: str
) -> None:
    """Another program writes, so that storing begins late, and one reads, for which a commit waits without a log."""
    Spool(path).prepare("test")
    storing, screen = threading.Event(), WaitingJudge(name="screen", blocking=True)
    watch(
        screen=screen,
        limits=ragtrace.Limits(spool=path),
        redact=ragtrace.Redact(function=lambda text: (storing.set(), text)[1]),
    )
    ask("question 0?")
    assert screen.begun.wait(WAIT_S)
    storing.clear()
    for number in range(1, 4):
        ask(f"question {number}?")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer, closing(sqlite3.connect(path)) as reader:
        assert writer.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM calls").fetchone()
        writer.execute("BEGIN IMMEDIATE")
        shutdown = threading.Thread(target=ragtrace.shutdown, args=(timeout,))
        shutdown.start()
        assert storing.wait(WAIT_S)
        threading.Event().wait(late_s)
        writer.execute("ROLLBACK")
        if until == "counted":
            wait_until(lambda: ragtrace.stats().pending == 0, WAIT_S, "every call is accounted for")
        else:
            shutdown.join(0.3 if until == "soon" else WAIT_S)
        reader.execute("ROLLBACK")
    shutdown.join(WAIT_S)
    screen.open()
    wait_until(lambda: ragtrace.stats().pending == 0, WAIT_S, "every call is accounted for")
    dropped = ragtrace.stats().dropped
    assert sum(dropped.values()) == ragtrace.stats().offered == 4
    assert Spool(path).contents().calls == dropped.get("spooled", 0)


@pytest.mark.timing
def test_what_the_spool_cannot_take_in_time_is_lost_and_not_stored_later(path: str) -> None:
    """The accounts say so, at the end of the shutdown and for good."""
    judge = WaitingJudge(name="judge")
    watch(**SCORING, judge=judge, limits=ragtrace.Limits(spool=path))
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began, others = monotonic(), set(threading.enumerate())
        ragtrace.shutdown(timeout=0.2)
        assert monotonic() - began < WAIT_S / 2
        other.execute("ROLLBACK")
    tally = ragtrace.stats().evaluators["judge"]
    assert (tally.dropped, tally.pending) == ({"not_spooled": 1}, 0)
    for thread in set(threading.enumerate()) - others:  # one of them may still be waiting for the file
        thread.join(WAIT_S)
    assert Spool(path).contents().calls == 0


def test_a_judge_that_answers_after_the_end_changes_nothing(path: str) -> None:
    """A call that it could not be torn away from is in the file by then, and is the next process's."""
    judge = WaitingJudge(name="judge", blocking=True)
    captured = watch(**SCORING, judge=judge, limits=ragtrace.Limits(spool=path))
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    runtime = current()
    ragtrace.shutdown(timeout=2.0)
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

kind, seed = sys.argv[1], int(sys.argv[2])
draw = random.Random(seed)
wait = threading.Event().wait
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

class Judge(FakeJudge):
    async def judge(self, call):
        await asyncio.sleep(draw.random() * 0.05)
        return await super().judge(call)

ragtrace.configure(
    service="s",
    screen=None,
    judge=Judge(GOOD, name="judge", limits=ragtrace.JudgeLimits(concurrency=2)),
    sampling=ragtrace.Sampling(rate=1.0),
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
    for _ in range(600):
        wait(0.1)  # a signal that comes just before a wait is handled after it
"""


class Processes:
    """One after the other, with the same spool and backend."""

    def __init__(self, path: str, receiver: HttpReceiver) -> None:
        delay = {"OTEL_BLRP_SCHEDULE_DELAY": "100"}
        self.store = path.replace("calls", "history")
        stores = {"RAGTRACE_SPOOL": path, "RAGTRACE_STORE": self.store}
        self._environ = {**os.environ, **receiver.environ, **delay, **stores}

    def run(self, kind: str, seed: int) -> None:
        """A process that comes to its end by *kind*: all (it scores everything), exit, shutdown, SIGTERM or SIGKILL."""
        command = [sys.executable, "-c", PROGRAM, kind, str(seed)]
        with subprocess.Popen(command, cwd=ROOT, env=self._environ, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            if kind.startswith("SIG"):
                threading.Event().wait(random.Random(seed).random() * 0.4)
                process.send_signal(getattr(signal, kind))
            process.wait(60)


@pytest.fixture
def processes(path: str, http_receiver: HttpReceiver) -> Processes:
    return Processes(path, http_receiver)


def test_no_call_is_lost_by_impatient_processes(path: str, processes: Processes, http_receiver: HttpReceiver) -> None:
    """Whether they exit, are shut down in no time or are asked to end by a signal."""
    keep(path, 20)
    for number, kind in enumerate(("shutdown", "SIGTERM", "exit")):
        processes.run(kind, number)
    processes.run("all", 0)
    assert len(scores(http_receiver)) == 20
    assert Spool(path).contents().calls == 0


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_no_call_is_lost_by_kills(path: str, processes: Processes, http_receiver: HttpReceiver) -> None:
    """A score that is sent again has the same id: there are never more ids than calls. The history has all of them."""
    keep(path, 20)
    for seed in range(KILLS):
        processes.run("SIGKILL", seed)
    processes.run("all", 0)
    assert len(scores(http_receiver)) == 20
    assert len({log.span_id for log in http_receiver.logs}) == 20
    assert in_history(processes.store) == 20
    with closing(sqlite3.connect(path)) as database:
        left = database.execute("SELECT number, owner, lease - ?, tries FROM calls", (time(),)).fetchall()
    # A call that was being scored at so many kills waits in the file for its next try.
    assert [row for row in left if row[3] < QUARANTINE_TRIES] == []
