"""ragtrace's own meter provider: one for each process, each under an identity of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

GENERATIONS: Final = """
import json, os
import ragtrace.telemetry.export.providers  # imports first what the hooks of the SDK need at a fork
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from ragtrace.telemetry.export.own_meters import OwnMeters

reader = None
def open_reader():
    global reader
    reader = InMemoryMetricReader()
    return reader

first = Resource({"service.instance.id": "first"})
meters = OwnMeters(open_reader, first, lambda: first)
for generation in range(4):
    meters.get_meter("ours", "1").create_counter("things").add(1, {})
    [resource] = reader.get_metrics_data().resource_metrics
    value = resource.scope_metrics[0].metrics[0].data.data_points[0].value
    line = json.dumps([resource.resource.attributes["service.instance.id"], value, meters.identity])
    os.write(1, (line + "\\n").encode())
    if os.fork():
        os.wait()
        os._exit(0)
    assert meters.identity == ""
"""

FAILING: Final = """
import os
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from ragtrace.system.faults import faults
from ragtrace.telemetry.export.own_meters import OwnMeters, SharedMeters

parent = os.getpid()
def open_reader():
    assert os.getpid() == parent, "no reader here"
    return InMemoryMetricReader()

resource = Resource({"service.instance.id": "first"})
meters = OwnMeters(open_reader, resource, lambda: resource)
requests = SharedMeters(meters).get_meter("theirs").create_counter("requests")
if os.fork() == 0:
    requests.add(1)
    os.write(1, " ".join(faults.counts()).encode())
    os._exit(0)
os.wait()
"""


def run(program: str) -> str:
    """What the processes of *program* wrote."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    return done.stdout


def test_every_generation_has_another_identity_and_figures_of_its_own() -> None:
    """Each the child of the one before, and the SDK goes on naming the first, as older ones do."""
    lines = [json.loads(line) for line in run(GENERATIONS).splitlines()]
    identities = [identity for identity, _, _ in lines]
    assert [value for _, value, _ in lines] == [1, 1, 1, 1]
    assert [known for _, _, known in lines] == identities
    assert len(set(identities)) == 4


def test_a_child_without_a_meter_provider_gives_other_libraries_a_meter_that_does_nothing() -> None:
    """Their instruments are used on the application's threads, where nothing of ours may raise."""
    assert run(FAILING) == "metrics of a forked process"
