"""The command line as a process that is interrupted, or whose reader goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ragtrace.system.terminal import INTERRUPTED, READER_GONE
from tests.support.model_server import ModelServer

TIMEOUT = 60.0


@pytest.fixture
def serve() -> Iterator[Callable[..., ModelServer]]:
    """Starts model servers and stops them after the test."""
    running: list[ModelServer] = []

    def start(**options: Any) -> ModelServer:
        server = ModelServer(**options)
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A directory with a short manual, quick to read."""
    sections = (
        f"# Part {name}\n\nThe {name} part lasts {number} years. Clean the {name} part with water.\n"
        for number, name in enumerate(("pump", "valve", "filter", "motor", "gauge", "hose"), start=2)
    )
    (tmp_path / "manual.md").write_text("\n".join(sections), encoding="utf-8")
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what steers telemetry or colours, and with *more*."""
    steering = ("OTEL_", "RAGTRACE_", "OPENAI_", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "COLUMNS")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(steering)}, **more}


def demo(docs: Path, *options: str) -> list[str]:
    """The arguments of a short demo over *docs*."""
    return ["demo", "--docs", str(docs), "--questions", "8", *options]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process on Windows")
def test_control_c_ends_quietly(docs: Path, serve: Callable[..., ModelServer]) -> None:
    """Status 130, one line, no traceback: here in the middle of a model's answer."""
    server = serve(react=lambda: process.send_signal(signal.SIGINT))
    process = subprocess.Popen(
        [sys.executable, "-m", "ragtrace", *demo(docs, "--model", "tiny")],
        env=environment(OPENAI_BASE_URL=server.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == INTERRUPTED
    assert errors == "ragtrace: interrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently on Windows")
def test_a_reader_that_goes_away_is_no_error(docs: Path) -> None:
    """As with `ragtrace demo | head -0`: no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ragtrace", *demo(docs)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(TIMEOUT) == READER_GONE
    assert errors == ""
