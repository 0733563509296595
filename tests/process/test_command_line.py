"""The command line as a process of its own: what it prints, and how it ends when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ragtrace.system.terminal import INTERRUPTED, OK, READER_GONE
from tests.support.command_line import demo_arguments, model_servers, write_manual
from tests.support.model_server import ModelServer

TIMEOUT = 60.0
BLOCKED = "import sys; sys.modules['rich'] = None; from ragtrace.cli import main; sys.exit(main())"
"""Runs the command line as if rich were not installed."""


@pytest.fixture
def serve() -> Iterator[Callable[..., ModelServer]]:
    """Starts model servers and stops them after the test."""
    with model_servers() as start:
        yield start


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A directory with a short manual, quick to read."""
    return write_manual(tmp_path)


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what steers telemetry or colours, and with *more*."""
    steering = ("OTEL_", "RAGTRACE_", "OPENAI_", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "COLUMNS")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(steering)}, **more}


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process on Windows")
def test_control_c_ends_quietly(docs: Path, serve: Callable[..., ModelServer]) -> None:
    """Status 130, one line, no traceback: here in the middle of a model's answer."""
    server = serve(react=lambda: process.send_signal(signal.SIGINT))
    process = subprocess.Popen(
        [sys.executable, "-m", "ragtrace", *demo_arguments(docs, "--model", "tiny")],
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
        [sys.executable, "-m", "ragtrace", *demo_arguments(docs)],
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


def test_json_is_one_object(docs: Path) -> None:
    """Nothing else on standard output, nothing on standard error, and the documented keys."""
    done = run("-m", "ragtrace", *demo_arguments(docs, "--json"))
    assert (done.returncode, done.stderr) == (OK, "")
    found = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert set(found) == {
        *("documents", "model", "judge", "seed", "questions", "simulated_regression"),
        *("before", "after", "alerts", "worst", "stats", "sent_to", "seconds", "notes"),
    }
    assert found["before"]["calls"] + found["after"]["calls"] == found["questions"] == 8
    assert found["sent_to"]["endpoint"] is None


def test_the_standard_library_by_json() -> None:
    """The demo as it is first run, shortened: judged, with something invented and something caught."""
    done = run("-m", "ragtrace", "demo", "--json", "--questions", "40")
    assert (done.returncode, done.stderr) == (OK, "")
    found = json.loads(done.stdout)
    assert found["documents"]["passages"] > 3_000
    assert found["after"]["invented"] > 0
    assert (
        found["after"]["caught"]
        <= found["after"]["invented"]
        <= sum(found["simulated_regression"]["inventions"].values())
    )


def test_without_rich_the_report_is_plain(docs: Path) -> None:
    """The same content, no traceback."""
    done = run("-c", BLOCKED, *demo_arguments(docs))
    assert (done.returncode, done.stderr) == (OK, "")
    assert "SIMULATED" in done.stdout
    assert "nowhere: set OTEL_EXPORTER_OTLP_ENDPOINT" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_narrow_encoding_does_not_fail(docs: Path, encoding: str) -> None:
    """What it cannot show is replaced."""
    done = run("-m", "ragtrace", *demo_arguments(docs), env=environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0"))
    assert (done.returncode, done.stderr) == (OK, "")
