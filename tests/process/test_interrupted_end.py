"""A signal during the end of a process: what was not scored is kept and counted all the same."""

from __future__ import annotations

import _thread
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

import ragtrace
from ragtrace.testing import FakeJudge
from tests.support.scored import EVERY
from tests.support.watched import HALF, WAIT_S, WaitingJudge, ask, eventually, watch

ROOT: Final = Path(__file__).parents[2]
CALLS: Final = 20
DRAINING_S: Final = 0.3
"""After the first signal, of a drain that takes seconds."""

ENDING: Final = """
import signal, sys, ragtrace
from tests.support.scored import EVERY
from tests.support.watched import HALF, WaitingJudge, ask, watch
from ragtrace.testing import FakeJudge

def end(*_):
    print("signal", flush=True)
    sys.exit(3)

signal.signal(signal.SIGTERM, end)
limits = ragtrace.Limits(spool=sys.argv[1])
watch(screen=FakeJudge(HALF, name="screen"), judge=WaitingJudge(), sampling=EVERY, limits=limits)
for number in range(20):
    ask(f"question {number}?")
print("ready", flush=True)
while True:
    signal.pause()
"""


def spooled(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT count(*) FROM calls").fetchone()[0])


@pytest.mark.skipif(os.name != "posix", reason="no such signals on this system")
@pytest.mark.parametrize("signals", [1, 2, 4])
def test_every_call_is_spooled_however_often_the_process_is_told_to_end(tmp_path: Path, signals: int) -> None:
    """By a handler that calls `sys.exit`, also during the drain at exit."""
    path = tmp_path / "spool.db"
    with subprocess.Popen(
        [sys.executable, "-c", ENDING, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        between = threading.Event()
        for _ in range(signals):  # the last ones may come too late
            process.send_signal(signal.SIGTERM)
            between.wait(DRAINING_S)
        process.wait(WAIT_S)
    assert spooled(path) == CALLS


def interrupted_shutdown(spool: Path | None) -> None:
    """A shutdown during which somebody presses Ctrl-C."""
    judge = WaitingJudge()
    watch(screen=FakeJudge(HALF, name="screen"), judge=judge, sampling=EVERY, limits=ragtrace.Limits(spool=spool))
    for number in range(CALLS):
        ask(f"question {number}?")
    assert eventually(lambda: ragtrace.stats().evaluators["screen"].scored == CALLS)
    assert judge.begun.wait(WAIT_S)
    began = monotonic()
    timer = threading.Timer(DRAINING_S, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        ragtrace.shutdown(WAIT_S)
    assert monotonic() - began < WAIT_S / 2


@pytest.mark.parametrize("reason", ["spooled", "shutdown"])
def test_an_interrupted_shutdown_says_what_became_of_every_call(tmp_path: Path, reason: str) -> None:
    """The accounts are there, and a second shutdown does not claim that all went well."""
    path = tmp_path / "spool.db" if reason == "spooled" else None
    interrupted_shutdown(path)
    stats = ragtrace.stats()
    assert (stats.offered, stats.scored, stats.dropped, stats.pending) == (2 * CALLS, CALLS, {reason: CALLS}, 0)
    assert path is None or spooled(path) == CALLS
    assert not ragtrace.shutdown(WAIT_S)


def test_a_second_shutdown_waits_for_the_first() -> None:
    """And returns the same."""
    judge = WaitingJudge()
    watch(screen=None, judge=judge, sampling=EVERY)
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    said: list[bool] = []
    thread = threading.Thread(target=lambda: said.append(ragtrace.shutdown(WAIT_S)))
    thread.start()
    threading.Timer(DRAINING_S, judge.open).start()
    said.append(ragtrace.shutdown(WAIT_S))
    thread.join(WAIT_S)
    assert said == [True, True]
    assert ragtrace.stats().scored == 1
