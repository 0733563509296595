"""The demo beside backends: Phoenix, Prometheus and Alertmanager, where installed, are started for it and stay up.

    python examples/demo_backends.py [--questions 400] [--seed 7] [--json]

Phoenix gets the spans with their scores as annotations, Prometheus the metrics with the rules of ragtrace's kit, and
Alertmanager the alerts. What is not installed is named, with how to install it. Ctrl-C stops and deletes everything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from ragtrace.alerts import Alertmanager
from ragtrace.cli.demo_command import as_text, count_on_stderr, no_progress
from ragtrace.core.errors import RagtraceError
from ragtrace.demo.demo_run import SERVICE, Destinations, Options, Progress, from_environment, running_demo
from ragtrace.demo.outcome import Outcome

_START_S = 300.0
"""Seconds that a server may take to start. Phoenix takes 11 s on an idle machine, for a new database, and over 90 s on
a busy one with a slow disk; a server that cannot start ends, and is not waited for."""
_STOP_S = 10.0
_POLL_S = 0.2
_SCRAPE_INTERVAL = "2s"
"""Interval of scrapes and rule evaluations; the usual 30 s would be half of a demo."""
_ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals of a supervisor and of a closed terminal, which by default end Python and leave its children running."""


@dataclass(slots=True)
class Server:
    """Backend server that the demo runs as a child process, with its own directory for data and log."""

    name: str
    install: str
    """Instruction for the user on how to install the server."""
    path: str | None
    """Path of the program; None if it is not installed."""
    arguments: Sequence[str]
    environ: Mapping[str, str]
    port: int
    ready: str
    """URL path that answers with a 2xx status once the server is up."""
    log: Path
    problem: str = ""
    """Reason why the server does not run, and what to do; empty: no problem."""
    url: str | None = None
    """URL of the server; None while the server does not run."""
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server program, or set `problem` if it is not installed or cannot be started."""
        if self.path is None:
            self.problem = f"not installed; {self.install}"
        if self.path is None or self.problem:
            return
        try:
            with self.log.open("wb") as output:
                self._process = subprocess.Popen(
                    [self.path, *self.arguments],
                    env=self.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.log.parent,
                    start_new_session=True,  # Ctrl-C reaches ragtrace alone; the server's children end with it
                )
        except OSError as error:  # for instance, the program is for another kind of machine
            self.problem = f"{self.path} cannot be started: {error}; {self.install}"

    def await_ready(self) -> None:
        """Wait until the backend server answers and set `url`, or stop the server and set `problem`."""
        if self._process is None:
            return
        address, deadline = f"http://{_address(self.port)}", time.monotonic() + _START_S
        while not _answers(address + self.ready):
            if self.wait_for_end(_POLL_S):
                self.problem = f"it ended with status {self._process.returncode} while starting"
            elif time.monotonic() > deadline:
                self.problem = f"it did not answer within {_START_S:g} s"
            if self.problem:
                words = self.log.read_text("utf-8", "replace").split()
                self.problem += f": ... {' '.join(words)[-300:]} (log: {self.log})"
                self.stop()
                return
        self.url = address

    def wait_for_end(self, wait: float = 0.0) -> bool:
        """Wait at most *wait* seconds for the server's process to end, and return whether it has ended."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=wait)
                return True
        return False

    def stop(self) -> None:
        """Terminate the server's process and its children, and kill them after `_STOP_S` seconds."""
        try:
            self._send_signal(signal.SIGTERM)
            self.wait_for_end(_STOP_S)
        finally:
            self._send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
            self.wait_for_end(_STOP_S)

    def _send_signal(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, number)
                else:
                    self._process.send_signal(number)


class Backends:
    """Backend servers of the demo: Phoenix, Prometheus and Alertmanager.

    A server that is not running has an explanation why not.

    Args:
        work: empty folder for their data and logs.
    """

    def __init__(self, work: Path) -> None:
        with ExitStack() as stack:
            free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(5)]
            port, grpc_port, prometheus_port, alertmanager_port, self._page_port = (
                int(each.getsockname()[1]) for each in free
            )
        for name in ("phoenix", "prometheus", "alertmanager"):
            (work / name).mkdir()
        self.phoenix = _phoenix(work / "phoenix", port, grpc_port)
        self.alertmanager = _alertmanager(work / "alertmanager", alertmanager_port)
        self.prometheus = _prometheus(work / "prometheus", prometheus_port, alertmanager_port, self._page_port)
        self.servers = (self.phoenix, self.prometheus, self.alertmanager)

    def destinations(self) -> Destinations:
        """Return the exporters of the demo: spans and scores go to Phoenix, metrics to Prometheus."""
        from ragtrace_exporters.phoenix import phoenix
        from ragtrace_exporters.prometheus import prometheus

        usual = from_environment()
        signals, endpoint = usual.signals, usual.endpoint
        if self.prometheus.url:
            page = {"RAGTRACE_PROMETHEUS_PORT": str(self._page_port), "RAGTRACE_PROMETHEUS_HOST": "127.0.0.1"}
            signals = prometheus({**os.environ, **page})
        if self.phoenix.url:
            endpoint = self.phoenix.url
            # An explicit environment: the user's keys and endpoints are for another Phoenix.
            own = phoenix({"PHOENIX_COLLECTOR_ENDPOINT": endpoint, "PHOENIX_PROJECT_NAME": SERVICE})
            resource = {**signals.resource, **own.resource}
            signals = replace(signals, spans=own.spans, scores=own.scores, dialects=own.dialects, resource=resource)
        notify = (Alertmanager(self.alertmanager.url),) if self.alertmanager.url else ()
        return Destinations(signals, endpoint, notify)

    def wait_until_stopped(self) -> None:
        """Block until Ctrl-C, SIGTERM or SIGHUP, or until all backend servers have ended."""
        running = [server for server in self.servers if server.url]
        try:
            if running:
                print("staying up until Ctrl-C", file=sys.stderr, flush=True)
            while running:
                for server in [each for each in running if each.wait_for_end(_POLL_S)]:
                    running.remove(server)
                    print(f"{server.name} has ended; its log: {server.log}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("stopping the backends", file=sys.stderr, flush=True)


def _phoenix(folder: Path, port: int, grpc_port: int) -> Server:
    """Return the Phoenix server of the demo, from the newest installed version or from PATH.

    Installed versions are virtual environments under `RAGTRACE_SERVICES_DIR`.
    """
    services = Path(os.environ.get("RAGTRACE_SERVICES_DIR") or Path.home() / ".cache" / "ragtrace-services")
    installed = [path for path in services.glob("arize-phoenix-*/bin/phoenix") if os.access(path, os.X_OK)]
    newest = max(installed, key=lambda path: [*map(int, re.findall(r"\d+", path.parts[-3]))], default=None)
    # Without the user's Phoenix and OpenTelemetry settings, which are for other servers and databases.
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("PHOENIX_", "OTEL_"))}
    environ = usual | {
        "PHOENIX_WORKING_DIR": str(folder),
        "TMPDIR": str(folder),  # Phoenix leaves a folder among the temporary files
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    install = "pip install arize-phoenix, in a virtual environment whose bin is on PATH"
    path = str(newest) if newest else shutil.which("phoenix")
    return Server("Phoenix", install, path, ["serve"], environ, port, "/healthz", folder / "log.txt")


def _prometheus(folder: Path, port: int, alertmanager_port: int, page_port: int) -> Server:
    """Return the Prometheus server, configured to scrape *page_port* and to apply the recording and alerting rules."""
    for rules in (files("ragtrace_exporters") / "kits" / "prometheus").iterdir():
        if rules.name.endswith(".rules.yml"):
            text = re.sub(r"(?m)^(\s*interval:) \S+$", rf"\1 {_SCRAPE_INTERVAL}", rules.read_text("utf-8"))
            (folder / rules.name).write_text(text, encoding="utf-8")
    config = {
        "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), _SCRAPE_INTERVAL),
        "rule_files": ["*.rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [_address(alertmanager_port)]}]}]},
        # The job has the name of the service, by which the rules tell services apart.
        "scrape_configs": [{"job_name": SERVICE, "static_configs": [{"targets": [_address(page_port)]}]}],
    }
    flags = (f"--storage.tsdb.path={folder / 'data'}",)
    arguments = [_config_flag(folder, config), f"--web.listen-address={_address(port)}", *flags]
    install = "apt-get install prometheus (Debian, Ubuntu), brew install prometheus, or prometheus.io/download"
    path = shutil.which("prometheus")
    server = Server("Prometheus", install, path, arguments, os.environ, port, "/-/ready", folder / "log.txt")
    if path and find_spec("opentelemetry.exporter.prometheus") is None:
        server.problem = (
            "not started: ragtrace needs the library opentelemetry-exporter-prometheus to serve metrics; pip install"
            " 'ragtrace-otel[prometheus]'"
        )
    return server


def _alertmanager(folder: Path, port: int) -> Server:
    """Return the Alertmanager server, configured to show alerts on its web page and to send none."""
    config = {"route": {"receiver": "page", "group_wait": "1s"}, "receivers": [{"name": "page"}]}
    flags = f"--storage.path={folder / 'data'}", "--cluster.listen-address="
    arguments = [_config_flag(folder, config), f"--web.listen-address={_address(port)}", *flags]
    install = "apt-get install prometheus-alertmanager (Debian, Ubuntu), or prometheus.io/download"
    path = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    return Server("Alertmanager", install, path, arguments, os.environ, port, "/-/ready", folder / "log.txt")


@contextmanager
def running_backends(options: Options, progress: Progress) -> Generator[tuple[Outcome, Backends], None, None]:
    """Context manager that runs the backend servers for the demo's telemetry, and stops them at the end.

    Logs and data of the backends are in a temporary folder, which is kept if one of them failed.
    """
    work = Path(tempfile.mkdtemp(prefix="ragtrace-demo-"))
    backends, failed = Backends(work), False
    try:
        with ExitStack() as stack:
            for number in _ENDING_SIGNALS:
                stack.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
            for server in backends.servers:
                stack.callback(server.stop)
                server.start()
            for number, server in enumerate(backends.servers):
                progress("Starting backends", number, len(backends.servers))
                server.await_ready()
            failed = any(server.log.exists() and not server.url for server in backends.servers)
            yield stack.enter_context(running_demo(options, progress, backends.destinations())), backends
            failed = failed or any(server.url and server.wait_for_end() for server in backends.servers)
    finally:
        if not failed:
            shutil.rmtree(work, ignore_errors=True)


def _answers(url: str) -> bool:
    """Return whether a local server answers an HTTP GET of *url* with a success status, without using a proxy."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5.0):
            return True
    except (OSError, HTTPException):
        return False


def _address(port: int) -> str:
    return f"127.0.0.1:{port}"


def _config_flag(folder: Path, config: Mapping[str, object]) -> str:
    path = folder / "config.yml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return f"--config.file={path}"


def main() -> int:
    """Run the demo beside the backends until they are stopped, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=400, help="number of questions (default 400)")
    parser.add_argument("--seed", type=int, default=7, help="choice of questions (default 7)")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: that of `ragtrace demo`, and `backends`"
    )
    given = parser.parse_args()
    progress = no_progress if given.json else count_on_stderr
    try:
        with running_backends(Options(given.questions, given.seed), progress) as (outcome, backends):
            listed = [{"name": each.name, "url": each.url, "problem": each.problem} for each in backends.servers]
            if given.json:
                print(json.dumps({**outcome.as_json(), "backends": listed}), flush=True)
            else:
                urls = (f"backend  {each['name']}: {each['url'] or each['problem']}\n" for each in listed)
                print(as_text(outcome), *urls, sep="", end="", flush=True)
            backends.wait_until_stopped()
    except RagtraceError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
