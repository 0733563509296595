"""A run of `ragtrace score HISTORY.db` that is killed: the next one goes on with the calls that are not judged yet."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from time import time
from typing import Final

import pytest

from ragtrace.history.writing import QueuedCall
from tests.support.history import call_of, fill

CALLS: Final = 12
TIMEOUT_S: Final = 240.0


def score(path: Path, killed_at: int) -> subprocess.CompletedProcess[str]:
    """One run, one call at a time; 0: it is not killed."""
    judge = "tests.support.offline_judge:MortalJudge"
    command = [sys.executable, "-m", "ragtrace", "score", str(path), "--judge", judge, "--concurrency", "1", "--json"]
    environ = {**os.environ, "KILLED_AT": str(killed_at)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_run_is_continued(tmp_path: Path) -> None:
    """Nothing that was judged is judged again, but for the calls that were under way."""
    rng, path = random.Random(1), tmp_path / "history.db"
    fill(path, [QueuedCall(call_of(rng, f"well said {n}."), (), None, time() - 60) for n in range(CALLS)])
    assert score(path, killed_at=6).returncode == -signal.SIGKILL
    done = score(path, killed_at=0)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["in_period"] == found["judged"] + found["calls"] == CALLS
    assert found["judged"] in (4, 5)
