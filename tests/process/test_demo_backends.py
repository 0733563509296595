"""The demo beside backends, with stand-ins for the servers: what is missing, what fails, and that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragtrace.cli import main
from ragtrace.demo.demo_run import RELEASE_NAME
from ragtrace.demo.generator import ExtractiveModel
from ragtrace.system.terminal import FAILURE, INTERRUPTED, OK
from tests.support.monitoring import wait_until

TIMEOUT = 240.0
ALERTMANAGER = "alertmanager"

# A server with a child of its own, like Phoenix's; it writes down both process ids.
STAND_IN = """\
import http.server, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
with open(os.environ["STAND_IN_PIDS"], "a") as file:
    file.write(f"{os.getpid()} {child.pid}\\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(STATUS)
        self.end_headers()
        self.wfile.write(b"[]")
address = next(each for each in sys.argv if "web.listen-address" in each).partition("=")[2]
http.server.HTTPServer(("127.0.0.1", int(address.rpartition(":")[2])), Handler).serve_forever()
"""
BROKEN = "import sys; sys.exit('unknown flag of a broken server')"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Variables of a machine on which no backend is installed."""
    steering = ("OTEL_", "RAGTRACE_", "OPENAI_", "PHOENIX_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
    usual = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    for name in ("bin", "services", "temporary"):
        (tmp_path / name).mkdir()
    return usual | {
        "PATH": str(tmp_path / "bin"),
        "RAGTRACE_SERVICES_DIR": str(tmp_path / "services"),
        "TMPDIR": str(tmp_path / "temporary"),
        "STAND_IN_PIDS": str(tmp_path / "pids"),
    }


def install(environ: dict[str, str], name: str, source: str) -> None:
    """Put a program *name* on the PATH."""
    path = Path(environ["PATH"]) / name
    path.write_text(f"#!{sys.executable}\n{source}", encoding="utf-8")
    path.chmod(0o755)


def command(*options: str) -> list[str]:
    """The command that runs a short demo with its backends."""
    return [sys.executable, "examples/demo_backends.py", "--questions", "8", *options]


@contextmanager
def started(environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A running demo, killed at the end whatever became of it."""
    process = subprocess.Popen(
        command(), env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT)


def pids(environ: dict[str, str]) -> list[int]:
    """Processes of the stand-ins that were started so far."""
    path = Path(environ["STAND_IN_PIDS"])
    return [int(pid) for pid in path.read_text(encoding="utf-8").split()] if path.exists() else []


def alive(pid: int) -> bool:
    """Whether it runs; a process that has ended and was not waited for does not."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, encoding="utf-8", check=False)
    return bool(found.stdout.strip()) and not found.stdout.startswith("Z")


def test_without_any_backend_the_demo_runs_and_says_what_is_missing(environ: dict[str, str]) -> None:
    """It does not stay up for nothing; each missing server is named with how to install it."""
    done = subprocess.run(
        command("--json"), env=environ, capture_output=True, encoding="utf-8", timeout=TIMEOUT, check=False
    )
    assert done.returncode == OK, done.stderr
    printed = json.loads(done.stdout)
    assert printed["report"]["calls"] == 8
    problems = {each["name"]: each["problem"] for each in printed["backends"]}
    assert [each["url"] for each in printed["backends"]] == [None, None, None]
    assert "pip install arize-phoenix" in problems["Phoenix"]
    assert "apt-get install prometheus" in problems["Prometheus"]
    assert "apt-get install prometheus-alertmanager" in problems["Alertmanager"]
    assert list(Path(environ["TMPDIR"]).iterdir()) == []


def test_a_server_that_does_not_start_is_reported_with_its_log(environ: dict[str, str]) -> None:
    """The demo runs all the same, and the log is there to be read."""
    install(environ, ALERTMANAGER, BROKEN)
    done = subprocess.run(
        command("--json"), env=environ, capture_output=True, encoding="utf-8", timeout=TIMEOUT, check=False
    )
    assert done.returncode == OK, done.stderr
    problem = json.loads(done.stdout)["backends"][2]["problem"]
    assert "ended with status 1 while starting" in problem
    assert "unknown flag of a broken server" in problem
    log = Path(problem.partition("(log: ")[2].rstrip(")"))
    assert "unknown flag" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_stays_up_until_a_signal_and_leaves_nothing(environ: dict[str, str], number: signal.Signals) -> None:
    """Servers, their own children and the folder of their data are gone; that is the normal end."""
    install(environ, ALERTMANAGER, STAND_IN.replace("STATUS", "200"))
    with started(environ) as process:
        assert process.stderr is not None
        assert next(line for line in process.stderr if "staying up" in line)
        assert all(map(alive, pids(environ)))
        process.send_signal(number)
        assert process.wait(timeout=TIMEOUT) == OK
    assert len(pids(environ)) == 2
    assert not any(map(alive, pids(environ)))
    assert list(Path(environ["TMPDIR"]).iterdir()) == []


def test_ctrl_c_while_servers_start_leaves_nothing(environ: dict[str, str]) -> None:
    """Also those that do not answer yet are stopped; the status is that of an interrupted command."""
    install(environ, ALERTMANAGER, STAND_IN.replace("STATUS", "503"))
    with started(environ) as process:
        wait_until(lambda: len(pids(environ)) == 2, TIMEOUT, "the stand-in has started")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=TIMEOUT) == INTERRUPTED
    assert not any(map(alive, pids(environ)))


def test_a_demo_that_cannot_run_stops_the_servers(environ: dict[str, str]) -> None:
    """An error of the demo itself is printed, and the servers are stopped."""
    install(environ, ALERTMANAGER, STAND_IN.replace("STATUS", "200"))
    wrong = environ | {"RAGTRACE_HOLD_SECONDS": "soon"}
    done = subprocess.run(command(), env=wrong, capture_output=True, encoding="utf-8", timeout=TIMEOUT, check=False)
    assert done.returncode == FAILURE
    assert "RAGTRACE_HOLD_SECONDS" in done.stderr
    assert len(pids(environ)) == 2
    assert not any(map(alive, pids(environ)))


def test_a_server_that_ends_later_is_reported(environ: dict[str, str]) -> None:
    """With its log; without any server left there is nothing to stay for."""
    install(environ, ALERTMANAGER, STAND_IN.replace("STATUS", "200"))
    with started(environ) as process:
        assert process.stderr is not None
        assert next(line for line in process.stderr if "staying up" in line)
        os.kill(pids(environ)[0], signal.SIGKILL)
        assert "Alertmanager has ended; its log: " in next(process.stderr)
        assert process.wait(timeout=TIMEOUT) == OK
    assert not any(map(alive, pids(environ)))


def test_the_store_compares_the_release_with_what_was_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ragtrace report` reads what `--store` kept."""
    store = tmp_path / "calls.db"
    assert main(["demo", "--questions", "12", "--json", "--store", str(store)]) == OK
    capsys.readouterr()
    compared = f"{ExtractiveModel.name}:{RELEASE_NAME}"
    assert main(["report", str(store), "--compare", compared, "--format", "markdown"]) == OK
    text = capsys.readouterr().out
    assert "| Metric | extractive | extractive\\-simulated |" in text
    assert "12 calls" in text
