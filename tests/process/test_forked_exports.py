"""What forked children export: their own spans and figures, under an identity and connections of their own.

Figures and their identity are those of `OwnMeters` in `ragtrace/telemetry/export/own_meters.py`, of which each process
opens one; exporters and their connections are `PerProcess` values, in `ragtrace/telemetry/export/providers.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.otlp import HttpReceiver

ROOT: Final = Path(__file__).parents[2]


# The parent makes a call, whose telemetry has left when it forks; the child makes as many calls as the argument says.
FORK = """
import json, os, sys
import ragtrace
from tests.support.watched import ask
ragtrace.configure(service="s")
ask("parent")
ragtrace.flush()
if os.fork() == 0:
    for number in range(int(sys.argv[1])):
        ask("child")
    sys.exit(0)
os.wait()
"""


def fork(receiver: HttpReceiver, calls: int) -> None:
    """A parent that makes one call, and a child that makes *calls*."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(calls)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **receiver.environ},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def counts(receiver: HttpReceiver) -> list[int]:
    """The last count of faithfulness scores of each process."""
    latest: dict[str, int] = {}
    for metric in receiver.metrics:
        if metric.name == "ragtrace.eval.score":
            latest[metric.resource["service.instance.id"]] = metric.points[0].count or 0
    return sorted(latest.values())


@needs_fork
def test_a_child_exports_its_own_figures_only(http_receiver: HttpReceiver) -> None:
    """Under an identity of its own: counters of two processes under one would overwrite each other."""
    fork(http_receiver, 2)
    assert counts(http_receiver) == [1, 2]


@needs_fork
def test_a_child_that_does_nothing_exports_nothing(http_receiver: HttpReceiver) -> None:
    """Not even what its parent had measured."""
    fork(http_receiver, 0)
    assert counts(http_receiver) == [1]


@needs_fork
def test_a_child_opens_its_own_connections() -> None:
    """On one of its parent's the requests of two processes would mix."""
    with HttpReceiver(keep_alive=True) as receiver:
        fork(receiver, 0)
        parents = receiver.connections
    with HttpReceiver(keep_alive=True) as receiver:
        fork(receiver, 1)
        assert receiver.connections >= parents + 3
        questions = {
            json.loads(s.attributes["gen_ai.input.messages"])[0]["parts"][0]["content"]
            for s in receiver.spans
            if "gen_ai.input.messages" in s.attributes
        }
    assert {"parent", "child"} <= questions


# Parent and child make a call each, and compare the process id that the SDK's resource tells with their own.
FORKING: Final = """
import os
import ragtrace
from ragtrace.core.types import Signals
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.application import QUESTION, ask

exporter = InMemorySpanExporter()
ragtrace.configure(service="s", exporter=Signals(spans=exporter, immediate=True), screen=None)
child = os.fork()
ask(QUESTION)
ragtrace.flush()
pids = {span.resource.attributes.get("process.pid") for span in exporter.get_finished_spans()}
print("child" if child == 0 else "parent", pids == {os.getpid()}, flush=True)
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.newest
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_spans_of_a_forked_child_tell_of_the_child() -> None:
    """The SDK renews what a resource says of its process; light spans show what is true when they end."""
    environ = {"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", FORKING]
    result = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
    assert sorted(result.stdout.splitlines()) == ["child True", "parent True"]
