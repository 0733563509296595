"""Real servers as child processes: from where `.ci/run services` puts them, awaited until ready, stopped by the test.

A test that needs a missing server is skipped with the reason, or fails if RAGTRACE_REQUIRE_SERVICES=1.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

START_S: Final = 300.0
"""Phoenix takes 11 s on an idle machine; continuous integration is not idle, and its disk may be slow."""
STOP_S: Final = 15.0
POLL_S: Final = 0.1
LOG_LINES: Final = 40


@dataclass(frozen=True)
class Phoenix:
    """A running Arize Phoenix."""

    http: str
    """Base URL of its OTLP/HTTP, REST and GraphQL."""
    grpc: str
    """Endpoint of its OTLP/gRPC."""


def folder() -> Path:
    """Where the servers' virtual environments are."""
    return Path(os.environ.get("RAGTRACE_SERVICES_DIR") or Path.home() / ".cache" / "ragtrace-services")


def require(program: str, package: str = "") -> str:
    """Path of *program*: a script, a file of the Python *package* or a path in its newest environment, else on PATH.

    Skips the test if there is none, or fails it where the services are required.
    """
    places = (f"bin/{program}", f"lib/python*/site-packages/{package}/{program}", program)
    environments = sorted(folder().glob(f"{package}-*"), key=_version, reverse=True) if package else []
    installed = [path for environment in environments for place in places for path in environment.glob(place)]
    found = str(installed[0]) if installed else shutil.which(program)
    if found:
        return found
    reason = f"no {program} under {folder()} or on PATH; run: .ci/run services"
    if os.environ.get("RAGTRACE_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _version(environment: Path) -> tuple[int, ...]:
    """The version in `name-1.2.3`."""
    return tuple(int(part) for part in environment.name.rpartition("-")[2].split(".") if part.isdigit())


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """*count* ports that were free a moment ago, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        ports = [int(each.getsockname()[1]) for each in sockets]
    yield ports


@contextmanager
def running(
    argv: Sequence[str], *, environ: Mapping[str, str], log: Path, ready: Callable[[], bool]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; its output goes to *log*, of which a failure shows the end.

    Raises:
        AssertionError: it exited, or was not ready within `START_S` seconds.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            start_new_session=True,  # so that its own children can be stopped with it
        )
        try:
            _await_ready(process, argv[0], ready, log)
            yield process
        finally:
            _stop(process)


def answers(url: str) -> bool:
    """Whether GET *url* gives a 2xx."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(200 <= response.status < 300)
    except (urllib.error.URLError, OSError):
        return False


def _await_ready(process: subprocess.Popen[bytes], name: str, ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        try:
            code = process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() < deadline:
                continue
            raise AssertionError(f"{name} was not ready within {START_S:g} s; its log ends:\n{_end(log)}") from None
        raise AssertionError(f"{name} exited with {code} while starting; its log ends:\n{_end(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=STOP_S)
        except ProcessLookupError:
            process.wait(timeout=STOP_S)
            return
        except subprocess.TimeoutExpired:
            continue
        return


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])


@contextmanager
def phoenix(work: Path) -> Iterator[Phoenix]:
    """A Phoenix of our own, with an empty database under *work*."""
    program = require("phoenix", "arize-phoenix")
    with free_ports(2) as (http_port, grpc_port):
        environ = {
            "PHOENIX_WORKING_DIR": str(work),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(http_port),
            "PHOENIX_GRPC_PORT": str(grpc_port),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        }
        base = f"http://127.0.0.1:{http_port}"
        argv = [program, "serve"]
        with running(argv, environ=environ, log=work / "phoenix.log", ready=lambda: answers(f"{base}/healthz")):
            yield Phoenix(http=base, grpc=f"http://127.0.0.1:{grpc_port}")


@contextmanager
def mlflow(work: Path) -> Iterator[str]:
    """Base URL of an MLflow tracking server of our own, with an empty database under *work*."""
    program = require("mlflow", "mlflow")
    with free_ports(1) as (port,):
        base = f"http://127.0.0.1:{port}"
        argv = [program, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        argv += [
            "--backend-store-uri",
            f"sqlite:///{work}/mlflow.db",
            "--artifacts-destination",
            str(work / "artifacts"),
        ]
        environ = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # a process that imports MLflow a second time
        with running(argv, environ=environ, log=work / "mlflow.log", ready=lambda: answers(f"{base}/health")):
            yield base


@dataclass(frozen=True)
class Server:
    """A running server program: its base URL, and its first process, which the test may stop or freeze."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def terminate(self, within: float = STOP_S) -> tuple[int, float]:
        """Send SIGTERM to the first process, as a supervisor does; its exit code and the seconds that it took.

        Raises:
            AssertionError: it was still there after *within* seconds.
        """
        began = time.monotonic()
        self.process.terminate()
        try:
            code = self.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running {within:g} s after SIGTERM; its log ends:\n{_end(self.log)}") from None
        return code, time.monotonic() - began


@contextmanager
def web_server(argv: Callable[[int], Sequence[str]], *, environ: Mapping[str, str], work: Path) -> Iterator[Server]:
    """A web server in *work* that this interpreter can run.

    Args:
        argv: given a port, the arguments behind `python -m`.
    """
    with free_ports(1) as (port,):
        log = work / "server.log"
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", *argv(port)]
        with running(command, environ=environ, log=log, ready=lambda: answers(f"{url}/ready")) as process:
            yield Server(url, process, log)


@contextmanager
def rotel(target: str, work: Path) -> Iterator[Server]:
    """The collector Rotel, which takes OTLP/HTTP at its URL and passes everything on to *target* by OTLP/HTTP."""
    program = require("rotel-agent", "rotel")
    with free_ports(2) as (http_port, grpc_port):
        environ = {
            "ROTEL_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{http_port}",
            "ROTEL_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{grpc_port}",
            "ROTEL_EXPORTER": "otlp",
            "ROTEL_OTLP_EXPORTER_ENDPOINT": target,
            "ROTEL_OTLP_EXPORTER_PROTOCOL": "http",
        }
        log = work / "rotel.log"
        with running([program, "start"], environ=environ, log=log, ready=lambda: _listens(http_port)) as process:
            yield Server(f"http://127.0.0.1:{http_port}", process, log)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
