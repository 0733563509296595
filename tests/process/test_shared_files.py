"""Spool and history that several processes open at once."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.types import RagCall
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.fleet.spool import Spool
from ragtrace.system.faults import faults

ROOT: Final = Path(__file__).parents[2]


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    faults.clear()
    return tmp_path / "history.db"


def rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(database.execute("SELECT count(*) FROM calls").fetchone()[0])


@needs_fork
@pytest.mark.parametrize("experiment", ["forked", "refused"])
def test_processes_that_share_a_history_lose_no_row(path: Path, experiment: str) -> None:
    """Whether children are forked while it is open, or one of them refuses to be configured for it again."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.store_workers", experiment, str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(path) == int(done.stdout)


def unscored(number: int, text: str = "there") -> UnscoredCall:
    span = SpanContext(number, number, is_remote=False, trace_flags=TraceFlags(1))
    return UnscoredCall(RagCall(query="where?", contexts=(), answer=text, span=span), ("judge",))


CLAIM_ALL = """
import sys
from ragtrace.fleet.spool import Spool
spool, mine = Spool(sys.argv[1]), []
sys.stdin.readline()
while taken := spool.claim(3, timeout=10):
    mine += [call.number for call in taken]
    spool.delete([call.number for call in taken], timeout=10)
print(*mine)
"""


def test_two_processes_at_once_never_claim_the_same(path: Path) -> None:
    """Together they claim all."""
    spool = Spool(str(path))
    spool.prepare("spool=")
    spool.add([unscored(number) for number in range(1, 201)])
    command = [sys.executable, "-c", CLAIM_ALL, str(path)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    shares = [process.communicate(timeout=240)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(int(number) for share in shares for number in share) == list(range(1, 201))
    assert spool.contents().calls == 0


def test_processes_that_start_at_once_share_the_file_they_make(tmp_path: Path) -> None:
    """None of them takes the half-made file for another program's, or fails for a lock of the others."""
    path = tmp_path / "spool.db"
    code = f"from ragtrace.fleet.spool import Spool; Spool({str(path)!r}).prepare('spool=')"
    started = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(6)]
    assert [process.communicate(timeout=240)[1].decode() for process in started] == [""] * 6
