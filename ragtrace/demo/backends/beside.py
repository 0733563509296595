"""The backends that run beside the demo: started together, told apart from those that are missing, stopped together."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ragtrace.alerts import Alertmanager
from ragtrace.core.types import Signals
from ragtrace.demo.backends.interrupts import Interrupts
from ragtrace.demo.backends.process import Server, ServerError, free_ports
from ragtrace.demo.backends.servers import ALERTMANAGER, PHOENIX, PROGRAMS, PROMETHEUS, Ports, Program, found, missing
from ragtrace.demo.outcome import Backend
from ragtrace.demo.run import SERVICE, Progress
from ragtrace.demo.spans import Servers

_STAGE: Final = "Starting backends"


@dataclass(slots=True)
class Beside:
    """What became of each backend."""

    ports: Ports
    work: Path
    running: dict[str, Server] = field(default_factory=dict[str, Server])
    """By name; those that answered."""
    problems: dict[str, str] = field(default_factory=dict[str, str])
    """By name: why it does not run."""

    def url(self, program: Program) -> str | None:
        """Of *program*; None if it does not run."""
        server = self.running.get(program.name)
        return server.launch.url if server else None

    def listed(self) -> list[Backend]:
        """All, in the order of the report."""
        return [Backend(each.name, self.url(each), self.problems.get(each.name, "")) for each in PROGRAMS]

    def servers(self) -> Servers:
        """What the demo's telemetry and its alert are sent to."""
        base = self.url(ALERTMANAGER)
        return Servers(self._signals, self.url(PHOENIX), (Alertmanager(base),) if base else ())

    def _signals(self) -> Signals:
        """Spans and scores for Phoenix, metrics for Prometheus; the rest where the OpenTelemetry variables say."""
        from ragtrace_exporters.otlp import otlp
        from ragtrace_exporters.phoenix import phoenix
        from ragtrace_exporters.prometheus import prometheus

        signals = otlp(os.environ)
        if self.url(PROMETHEUS):
            page = {"RAGTRACE_PROMETHEUS_PORT": str(self.ports.page), "RAGTRACE_PROMETHEUS_HOST": "127.0.0.1"}
            signals = prometheus({**os.environ, **page, "RAGTRACE_PROMETHEUS_DIR": str(self.work / "page")})
        base = self.url(PHOENIX)
        if base:
            # Nothing of the user's own: keys and endpoints in the environment are for another Phoenix.
            there = phoenix({"PHOENIX_COLLECTOR_ENDPOINT": base, "PHOENIX_PROJECT_NAME": SERVICE})
            signals = replace(
                signals,
                spans=there.spans,
                scores=there.scores,
                dialects=there.dialects,
                resource={**signals.resource, **there.resource},
            )
        return signals


@contextmanager
def beside(progress: Progress, interrupts: Interrupts) -> Generator[Beside, None, None]:
    """Every backend that is installed, running until the block ends; a failure to start is told and is no error.

    Their logs and data are in a temporary folder that is kept if one of them failed.
    """
    ports = Ports(*free_ports(5))
    work = Path(tempfile.mkdtemp(prefix="ragtrace-demo-"))
    backends = Beside(ports, work)
    failed = False
    try:
        with ExitStack() as stack:
            started = _started(backends, stack, interrupts)
            failed = _awaited(backends, started, progress)
            yield backends
            failed = failed or bool(ended(backends))
    finally:
        if not failed:
            shutil.rmtree(work, ignore_errors=True)


def ended(backends: Beside) -> list[str]:
    """Names of the backends that ran and do not any more."""
    return [name for name, server in backends.running.items() if server.ended()]


def _started(backends: Beside, stack: ExitStack, interrupts: Interrupts) -> dict[str, Server]:
    """All that are installed, at once: the slowest one takes as long as all."""
    started: dict[str, Server] = {}
    for program in PROGRAMS:
        path = found(program)
        problem = missing(program)
        if problem or path is None:
            backends.problems[program.name] = problem
            continue
        folder = backends.work / program.name.lower()
        folder.mkdir()
        try:
            launch = program.launch(path, folder, backends.ports)
            with interrupts.held():
                server = started[program.name] = Server(launch)
                stack.callback(server.stop)
        except OSError as error:  # not for this machine, for instance
            backends.problems[program.name] = f"{path} cannot be started: {error}; {program.install}"
    return started


def _awaited(backends: Beside, started: dict[str, Server], progress: Progress) -> bool:
    """Wait for all to answer; whether one failed."""
    for number, (name, server) in enumerate(started.items()):
        progress(_STAGE, number, len(started))
        try:
            server.await_ready()
        except ServerError as error:
            backends.problems[name] = str(error)
            server.stop()
        else:
            backends.running[name] = server
    progress(_STAGE, len(started), len(started))
    return len(backends.running) < len(started)
