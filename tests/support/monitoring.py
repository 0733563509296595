"""Prometheus, Alertmanager and a receiver of its notifications, started by a test."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kits import KITS
from tests.support.services import answers, free_ports, require, running

_POLL_S = 0.2
_OF_GO = {"GOGC": "400"}
"""Environment variable of programs in Go: their memory is collected more seldom, which saves processor time."""


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def _get(self, path: str, **parameters: object) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as response:
            return json.load(response)["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every series, now."""
        found = self._get("query", query=expr)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def range(
        self, expr: str, seconds: float, step: float = 1.0
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """The same over the last *seconds*, as points in time."""
        now = time.time()
        found = self._get("query_range", query=expr, start=now - seconds, end=now, step=step)["result"]
        return [(one["metric"], [(float(at), float(value)) for at, value in one["values"]]) for one in found]

    def samples(self, expr: str, at: float) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """What was fetched: every sample, with its time, of a range of series that ends *at*: `up[5m]`."""
        found = self._get("query", query=expr, time=at)["result"]
        return [(one["metric"], [(float(when), float(value)) for when, value in one["values"]]) for one in found]

    def at(self, expr: str, when: float) -> list[tuple[dict[str, str], float]]:
        """As `query`, then."""
        found = self._get("query", query=expr, time=when)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def exemplars(self, expr: str) -> list[dict[str, str]]:
        """Labels of the exemplars of the last minutes."""
        now = time.time()
        found = self._get("query_exemplars", query=expr, start=now - 600, end=now)
        return [exemplar["labels"] for series in found for exemplar in series["exemplars"]]

    def exemplar_points(self, expr: str) -> list[tuple[float, float]]:
        """Time and value of the exemplars of the last minutes."""
        now = time.time()
        found = self._get("query_exemplars", query=expr, start=now - 600, end=now)
        return [(float(each["timestamp"]), float(each["value"])) for series in found for each in series["exemplars"]]

    def wait_for(self, expr: str, seconds: float = 60.0) -> list[tuple[dict[str, str], float]]:
        """The series of *expr* as soon as there are some."""
        return wait_until(lambda: self.query(expr), seconds, expr)


def wait_until(condition: Callable[[], Any], seconds: float, what: str, *, every: float = _POLL_S) -> Any:
    """The first true value of *condition*, asked *every* so many seconds; fails after *seconds*.

    A request of *condition* that a server refuses or does not answer is a "not yet": a server under load may still be
    starting. The failure after *seconds* has the last of them as its cause.
    """
    pause, deadline = threading.Event(), time.monotonic() + seconds
    refused: OSError | None = None
    while time.monotonic() < deadline:
        try:
            found = condition()
        except OSError as error:
            found, refused = None, error
        if found:
            return found
        pause.wait(every)
    raise AssertionError(f"not within {seconds:g} s: {what}") from refused


@dataclass
class Webhook:
    """What Alertmanager told us, in order: alert name and status."""

    url: str = ""
    told: list[tuple[str, str]] = field(default_factory=list)
    descriptions: dict[str, str] = field(default_factory=dict)
    """The newest of each alert."""

    def has(self, name: str, status: str) -> bool:
        """Whether it told of that."""
        return (name, status) in self.told


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Receives notifications."""
    found = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in body["alerts"]:
                found.descriptions[alert["labels"]["alertname"]] = alert["annotations"]["description"]
                found.told.append((alert["labels"]["alertname"], alert["status"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def alertmanager(work: Path, told: Webhook) -> Iterator[str]:
    """Address of an Alertmanager with the kit's inhibition that tells *told* at once."""
    program = require("prometheus-alertmanager")
    route = {
        "receiver": "test",
        "group_wait": "1s",
        "group_interval": "1s",
        "repeat_interval": "1h",
        "group_by": ["..."],
    }
    receivers = [{"name": "test", "webhook_configs": [{"url": told.url, "send_resolved": True}]}]
    shipped = yaml.safe_load((KITS / "prometheus" / "alertmanager.yml").read_text(encoding="utf-8"))
    config = {"route": route, "receivers": receivers, "inhibit_rules": shipped["inhibit_rules"]}
    (work / "alertmanager.yml").write_text(json.dumps(config))
    with free_ports(1) as (port,):
        argv = [
            program,
            f"--config.file={work}/alertmanager.yml",
            f"--storage.path={work}/am",
            "--cluster.listen-address=",
        ]
        argv.append(f"--web.listen-address=127.0.0.1:{port}")
        url = f"http://127.0.0.1:{port}"
        with running(argv, environ=_OF_GO, log=work / "am.log", ready=lambda: answers(f"{url}/-/ready")):
            yield f"127.0.0.1:{port}"


@contextmanager
def prometheus(
    work: Path,
    targets: Sequence[str],
    rules: Mapping[str, Any],
    *,
    interval: str = "1s",
    alerts_to: str = "",
    job: str = "guide-service",
    receives: bool = False,
) -> Iterator[Prometheus]:
    """A Prometheus with an empty database that fetches *targets* as one *job*, or *receives* OTLP; JSON is YAML."""
    program = require("prometheus")
    flags = _otlp_flags(program) if receives else []
    for name, groups in rules.items():
        (work / name).write_text(json.dumps({"groups": groups}))
    config: dict[str, Any] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(work / name) for name in rules],
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": list(targets)}]}],
    }
    if alerts_to:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alerts_to]}]}]}
    (work / "prometheus.yml").write_text(json.dumps(config))
    with free_ports(1) as (port,):
        argv = [program, f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/tsdb"]
        argv += [f"--web.listen-address=127.0.0.1:{port}", "--rules.alert.resend-delay=1s", *flags]
        url = f"http://127.0.0.1:{port}"
        with running(argv, environ=_OF_GO, log=work / "prometheus.log", ready=lambda: answers(f"{url}/-/ready")):
            yield Prometheus(url)


def _otlp_flags(program: str) -> list[str]:
    """Flags with which *program* receives OTLP and keeps exemplars; skips the test if it has no receiver."""
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    text = shown.stdout + shown.stderr
    if "web.enable-otlp-receiver" in text:  # from 3.0 on
        return ["--web.enable-otlp-receiver", "--enable-feature=exemplar-storage"]
    if "otlp-write-receiver" in text:
        return ["--enable-feature=otlp-write-receiver,exemplar-storage"]
    pytest.skip("this Prometheus has no OTLP receiver: that came with 2.47, and Debian's packages are built without it")


@dataclass
class Application:
    """A running `tests.support.exposed`."""

    process: subprocess.Popen[bytes]

    def share(self, text: str) -> None:
        """Invent so many of the answers from now on."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()

    def kill(self) -> None:
        """As the system does for want of memory."""
        self.process.kill()
        self.process.wait(timeout=10)

    def finish(self) -> None:
        """Let it shut down."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=20)


@contextmanager
def application(work: Path, port: int, **environ: str) -> Iterator[Application]:
    """The application, with its page at *port*, or with EXPORTER="otlp" none."""
    import os

    variables = {"RAGTRACE_PROMETHEUS_PORT": str(port), **environ}
    with (work / f"application-{time.monotonic_ns()}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.exposed"],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )
        try:
            yield Application(process)
        finally:
            process.kill()
            process.wait(timeout=10)
            if process.stdin is not None:
                process.stdin.close()
