"""The command line as a process of its own: what it prints, and how it ends when it is interrupted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ragtrace.system.terminal import INTERRUPTED, OK, READER_GONE
from tests.support.command_line import demo_arguments
from tests.support.history import Simulated, fill, made

TIMEOUT = 240.0
BLOCKED = "import sys; sys.modules['rich'] = None; from ragtrace.cli import main; sys.exit(main())"
"""Runs the command line as if rich were not installed."""


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what steers telemetry or colours, and with *more*."""
    steering = ("OTEL_", "RAGTRACE_", "OPENAI_", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "COLUMNS")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(steering)}, **more}


class InterruptingBackend(ThreadingHTTPServer):
    """OTLP backend that interrupts the process which sends to it once, in the middle of the first request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _InterruptingHandler)
        self.process: subprocess.Popen[str] | None = None
        self.started = threading.Event()
        self.interrupts = [signal.SIGINT]


class _InterruptingHandler(BaseHTTPRequestHandler):
    server: InterruptingBackend

    def do_POST(self) -> None:
        self.server.started.wait(TIMEOUT)
        assert self.server.process is not None
        # Not for a second request: the process may send what is left while it ends, and Python prints a traceback of an
        # interruption then.
        with suppress(IndexError):
            self.server.process.send_signal(self.server.interrupts.pop())
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process on Windows")
def test_control_c_ends_quietly() -> None:
    """Status 130, one line, no traceback: here while the first telemetry is sent."""
    with InterruptingBackend() as backend:
        threading.Thread(target=backend.serve_forever, args=(0.02,), daemon=True).start()
        backend.process = subprocess.Popen(
            [sys.executable, "-m", "ragtrace", *demo_arguments()],
            env=environment(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{backend.server_port}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        backend.started.set()
        _, errors = backend.process.communicate(timeout=TIMEOUT)
        backend.shutdown()
    assert backend.process.returncode == INTERRUPTED
    assert errors == "ragtrace: interrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process on Windows")
def test_control_c_ends_the_pages_of_a_history(tmp_path: Path) -> None:
    """Without a traceback: here while the report of the first page is made, which is begun at the start."""
    now, rng, path = time.time(), random.Random(1), tmp_path / "history.db"
    fill(path, [made(now - 20 * number, Simulated(), rng) for number in range(4_000)])
    process = subprocess.Popen(
        [sys.executable, "-m", "ragtrace", "open", str(path), "--port", "0"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    with urllib.request.urlopen(address, timeout=TIMEOUT) as page:  # the server listens for the signal now
        assert page.status == 200
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, errors) == (OK, "")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently on Windows")
def test_a_reader_that_goes_away_is_no_error() -> None:
    """As with `ragtrace demo | head -0`: no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ragtrace", *demo_arguments()],
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


# --- output ---------------------------------------------------------------------------------------------------------


def run(*command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with *command* and return what it printed."""
    return subprocess.run(
        [sys.executable, *command],
        env=env or environment(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=TIMEOUT,
        check=False,
    )


def test_json_is_one_object() -> None:
    """Nothing else on standard output, nothing on standard error, and the documented keys."""
    done = run("-m", "ragtrace", *demo_arguments("--json"))
    assert (done.returncode, done.stderr) == (OK, "")
    found = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert set(found) == {
        *("documents", "seed", "questions", "simulated_regression", "alerts", "stats", "sent_to", "seconds", "report"),
    }
    assert found["report"]["calls"] == found["questions"] == 8
    assert found["sent_to"]["endpoint"] is None


def test_the_standard_library_by_json() -> None:
    """The demo as it is first run, shortened: judged, with something invented and something caught."""
    done = run("-m", "ragtrace", "demo", "--json", "--questions", "40")
    assert (done.returncode, done.stderr) == (OK, "")
    found = json.loads(done.stdout)
    assert found["documents"]["passages"] > 3_000
    regression = found["simulated_regression"]
    assert 0 < regression["located"] <= regression["caught"] <= len(regression["inventions"])


def test_without_rich_the_report_is_plain() -> None:
    """The same content, no traceback."""
    done = run("-c", BLOCKED, *demo_arguments())
    assert (done.returncode, done.stderr) == (OK, "")
    assert "SIMULATED" in done.stdout
    assert "nowhere: set OTEL_EXPORTER_OTLP_ENDPOINT" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_narrow_encoding_does_not_fail(encoding: str) -> None:
    """What it cannot show is replaced."""
    done = run("-m", "ragtrace", *demo_arguments(), env=environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0"))
    assert (done.returncode, done.stderr) == (OK, "")
