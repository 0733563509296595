"""The demo of gateway, queue and workers runs, shows each score, and leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.services import require

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[2]
END_S: Final = 150.0


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start the demo in a session of its own, whose processes can be counted."""
    require("redis-server")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGTRACE_"))}
    command = [sys.executable, "examples/fleet_demo.py", *arguments]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def children_of_the_demo(output: str) -> list[str]:
    """Return the command lines of processes that have the broker's port, which the output names."""
    (port,) = set(re.findall(r"redis://127\.0\.0\.1:(\d+)", output))
    lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if port in line:
            lines.append(line)
    return lines


def test_each_call_is_scored_by_a_worker() -> None:
    """The application has no ragtrace, the gateway has no judge."""
    demo = start("--calls", "8", "--seconds", "100")
    output, errors = demo.communicate(timeout=END_S)
    assert demo.returncode == 0, errors
    assert "8 calls asked, 8 judged (worker-" in output, output
    assert len(set(re.findall(r"^worker-[12]: consistency \S+  ([0-9a-f]{32})$", output, re.MULTILINE))) == 8
    assert children_of_the_demo(output) == []


def test_an_interrupt_ends_it() -> None:
    """Ctrl-C while the questions are asked: everything is stopped, and what has arrived is counted."""
    demo = start("--calls", "2000", "--seconds", "100")
    assert demo.stdout is not None
    shown = ""
    while "OTLP/HTTP on" not in shown:
        line = demo.stdout.readline()
        assert line, demo.communicate()
        shown += line
    demo.send_signal(signal.SIGINT)
    output, errors = demo.communicate(timeout=END_S)
    assert demo.returncode == 0, errors
    assert "stopping" in output
    assert "calls asked" in output
    assert children_of_the_demo(shown) == []
