"""`ragtrace score` killed or interrupted: nothing that was judged is lost, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from ragtrace.system.terminal import INTERRUPTED, OK
from tests.support.judge_server import JudgeServer, Reply, Request, labels
from tests.support.offline_judge import WordyJudge

ROOT: Final = Path(__file__).parents[2]


TIMEOUT: Final = 240.0


SERVED: Final = "tests.support.offline_judge:served"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test in a directory of its own, with a judge that was not asked yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(WordyJudge, "asked", 0)


def call(answer: str | None, **more: Any) -> dict[str, Any]:
    return {"query": "Where is it?", "contexts": ["It is here."], "answer": answer, **more}


def write(*calls: dict[str, Any] | str) -> None:
    """calls.jsonl of these; a string is a line as it is."""
    lines = (line if isinstance(line, str) else json.dumps(line) for line in calls)
    Path("calls.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def start(server: JudgeServer, out: str) -> subprocess.Popen[str]:
    """The command as a process of its own, with a judge behind *server*."""
    return subprocess.Popen(
        [sys.executable, "-m", "ragtrace", "score", "calls.jsonl", "--out", out, "--judge", SERVED, "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "JUDGE_URL": server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end; the summary."""
    output, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, errors) == (OK, "")
    found: dict[str, Any] = json.loads(output)
    return found


class Halting:
    """Answers after 20 ms, by what was asked; says when it has been asked *count* times."""

    def __init__(self, count: int) -> None:
        self.count, self.reached = count, threading.Event()

    def __call__(self, request: Request) -> Reply:
        if request.number + 1 >= self.count:
            self.reached.set()
        invented = sum(request.body) % 3 == 0
        return labels("not_found" if invented else "supported", after=0.02)


def most_often(requests: Iterable[Request]) -> Counter[int]:
    """How many calls were asked once, twice ..."""
    return Counter(Counter(request.body for request in requests).values())


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL on Windows")
@pytest.mark.parametrize("out", ["scores.jsonl", "scores.csv"])
def test_killed_run_is_resumed(out: str) -> None:
    """A killed run that is started again gives the same bytes and judges at most the calls in flight twice."""
    write(*(call(f"Answer {number % 360}.", id=number) for number in range(400)))
    with JudgeServer(Halting(1)) as server:
        undisturbed = finish(start(server, f"other-{out}"))
        assert most_often(server.requests) == {1: 360}
    halting = Halting(180)
    with JudgeServer(halting) as server:
        process = start(server, out)
        assert halting.reached.wait(TIMEOUT)
        process.kill()
        process.communicate(timeout=TIMEOUT)
        assert process.returncode == -signal.SIGKILL
        assert not Path(out).exists()
        resumed = finish(start(server, out))
        asked = most_often(server.requests)
    assert Path(out).read_bytes() == Path(f"other-{out}").read_bytes()
    assert not Path(f"{out}.part").exists()
    assert set(asked) <= {1, 2}
    assert asked[2] <= 16
    assert resumed["resumed"] >= 140
    assert resumed["metrics"] == undisturbed["metrics"]
    assert resumed["calls"] == 400


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process on Windows")
def test_control_c_keeps_what_was_judged() -> None:
    """Ctrl-C ends with status 130 and two lines, and the same command goes on."""
    write(*(call(f"Answer {number}.") for number in range(200)))
    halting = Halting(50)
    with JudgeServer(halting) as server:
        process = start(server, "scores.jsonl")
        assert halting.reached.wait(TIMEOUT)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == INTERRUPTED
        assert errors.splitlines()[-1] == "ragtrace: interrupted"
        assert "Traceback" not in errors
        assert finish(start(server, "scores.jsonl"))["resumed"] >= 10
