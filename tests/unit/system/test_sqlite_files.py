"""SQLite and forks: a child never waits for a lock that a thread of its parent held."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from ragtrace.system.sqlite_files import ForkGate
from tests.support.watched import WAIT_S

ROOT: Final = Path(__file__).parents[3]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


class Visitor(threading.Thread):
    """Goes in and stays until it is told to leave."""

    def __init__(self, gate: ForkGate) -> None:
        super().__init__(daemon=True)
        self._gate = gate
        self.is_in, self.may_leave = threading.Event(), threading.Event()

    def run(self) -> None:
        with self._gate.delay_forks():
            self.is_in.set()
            self.may_leave.wait(WAIT_S)


def test_a_fork_waits_until_nobody_is_inside() -> None:
    """The child then has every lock free, and may use SQLite."""
    gate = ForkGate(patience=WAIT_S)
    visitor = Visitor(gate)
    visitor.start()
    assert visitor.is_in.wait(WAIT_S)
    threading.Timer(0.05, visitor.may_leave.set).start()
    gate.before_fork()
    visitor.join(WAIT_S)
    gate.go_on(child=True)
    with gate.delay_forks():
        pass


@pytest.mark.timing
def test_a_fork_is_not_held_up_for_long() -> None:
    """In its child SQLite would hang: there it fails."""
    gate = ForkGate(patience=0.05)
    visitor = Visitor(gate)
    visitor.start()
    assert visitor.is_in.wait(WAIT_S)
    began = monotonic()
    gate.before_fork()
    assert monotonic() - began < WAIT_S / 2
    gate.go_on(child=True)
    with pytest.raises(sqlite3.OperationalError, match="was forked while SQLite was in use"), gate.delay_forks():
        pass
    visitor.may_leave.set()


def test_a_grandchild_cannot_use_either_what_its_parent_could_not() -> None:
    """The lock that is held for ever is handed on."""
    gate = ForkGate(patience=0.0)
    visitor = Visitor(gate)
    visitor.start()
    assert visitor.is_in.wait(WAIT_S)
    for _ in range(2):
        gate.before_fork()
        gate.go_on(child=True)
    with pytest.raises(sqlite3.OperationalError), gate.delay_forks():
        pass
    visitor.may_leave.set()


def test_nobody_comes_in_while_the_process_forks() -> None:
    """Afterwards the parent goes on as before."""
    gate = ForkGate()
    gate.before_fork()
    visitor = Visitor(gate)
    visitor.start()
    assert not visitor.is_in.wait(0.05)
    gate.go_on(child=False)
    assert visitor.is_in.wait(WAIT_S)
    visitor.may_leave.set()


def test_whoever_is_inside_may_go_in_again() -> None:
    """Also while a fork waits for them: else the two would wait for each other."""
    gate = ForkGate(patience=WAIT_S)
    with gate.delay_forks(), gate.delay_forks():
        pass
    gate.before_fork()
    gate.go_on(child=False)


FORKING: Final = """
import os, signal, sqlite3, sys, threading
from contextlib import closing
from ragtrace.system.sqlite_files import SQLiteFile, transaction, delay_forks

folder, over = sys.argv[1], threading.Event()
REFUSED, HANGS_S = 3, 60

def use(name):
    tables = "CREATE TABLE IF NOT EXISTS calls (body TEXT)"
    file = SQLiteFile(os.path.join(folder, name), "test", application=1, version=1, tables=tables)
    file.create()
    while True:
        with delay_forks(), closing(file.connect(5.0)) as database, transaction(database):
            database.execute("INSERT INTO calls (body) VALUES ('')")
        yield

def busy(name):
    for _ in use(name):
        if over.is_set():
            return

def child():
    signal.alarm(HANGS_S)  # a child that hangs is killed by it
    try:
        next(use("child.db"))
    except sqlite3.OperationalError as error:
        os._exit(REFUSED if "was forked while SQLite was in use" in str(error) else 1)
    os._exit(0)

next(use("first.db"))  # as `configure` does, before there are threads: from then on forks are announced
threads = [threading.Thread(target=busy, args=(f"{number}.db",)) for number in range(2)]
for thread in threads:
    thread.start()
used = 0
while used < 40:  # on a slow disk a fork may come too soon: its child must say so
    process = os.fork()
    if process == 0:
        child()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code not in (0, REFUSED):
        over.set()
        sys.exit(f"after {used} children that could use it: {code}")
    used += code == 0
over.set()
"""


@needs_fork
def test_a_child_can_use_sqlite_while_its_parent_does(tmp_path: Path) -> None:
    """Forks in the middle of transactions, until forty children have used it; without care every tenth child hangs.

    A fork waits for 0.2 s at most, which one thread in a transaction may exceed; none of its children may hang then.
    """
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
