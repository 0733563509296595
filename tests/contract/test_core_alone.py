"""The core stands alone: its folders, copied without any slice, do the main job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ragtrace.testing import OpenAIServer
from tests.contract.test_layers import FACE, FLOORS, PACKAGE, SLICES, TABLE
from tests.support.otlp import HttpReceiver

APPLICATION: Final = """
import sys

import ragtrace

assert ragtrace.__file__.startswith(sys.argv[1]), ragtrace.__file__
judge = ragtrace.OpenAIJudge("local", base_url=sys.argv[2], api_key="none")
ragtrace.configure(service="alone", judge=judge, sampling=ragtrace.Sampling(rate=1.0))


@ragtrace.retrieve
def search(question: str) -> list[str]:
    return ["The Eiffel Tower is in Paris."]


@ragtrace.generate
def answer(question: str, docs: list[str]) -> str:
    return "The Eiffel Tower is in Berlin."


@ragtrace.trace
def ask(question: str) -> str:
    return answer(question, search(question))


ask("Where is the Eiffel Tower?")
assert ragtrace.flush(20)
stats = ragtrace.stats()
assert stats.scored == 2 and not stats.faults, stats
slices = set(sys.argv[3].split())
found = sorted(name for name in sys.modules if name.startswith("ragtrace.") and name.split(".")[1] in slices)
assert not found, found
assert ragtrace.shutdown(20)
"""


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """Folder with a copy of the package that has the core and nothing else."""
    package = tmp_path / "ragtrace"
    rooms = frozenset().union(*FLOORS) - {"face"}
    package.mkdir()
    for room in rooms:
        shutil.copytree(PACKAGE / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FACE:
        shutil.copy(PACKAGE / f"{name}.py", package)
    assert not [name for name in (*SLICES, f"{TABLE}.py") if (package / name).exists()]
    return tmp_path


def test_a_call_is_decorated_scored_and_exported_without_any_slice(alone: Path) -> None:
    """By the embedded judge and by a chat model at a server, and sent to a collector."""
    with HttpReceiver() as collector, OpenAIServer() as model:
        done = subprocess.run(
            [sys.executable, "-c", APPLICATION, str(alone), model.url, " ".join(SLICES)],
            env={**os.environ, **collector.environ, "PYTHONPATH": str(alone)},
            cwd=alone,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"invoke_workflow ask", "retrieval", "chat"}
    attributes = spans["invoke_workflow ask"].attributes
    assert attributes["ragtrace.eval.status"] == "ok"
    assert attributes["ragtrace.eval.consistency.score"] < 1
    assert attributes["ragtrace.eval.faithfulness.score"] == 0
    assert {event.event_name for event in collector.logs} == {"gen_ai.evaluation.result"}
    assert {"ragtrace.calls", "ragtrace.eval.score"} <= {metric.name for metric in collector.metrics}


def test_what_a_slice_has_is_not_there(alone: Path) -> None:
    """With the error of any other name that a module has not."""
    program = """
import ragtrace
for name in ("Guard", "Alert", "doctor", "testing", "nothing"):
    try:
        getattr(ragtrace, name)
    except AttributeError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(alone)},
        cwd=alone,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    names = ("Guard", "Alert", "doctor", "testing", "nothing")
    assert done.stdout.splitlines() == [f"module 'ragtrace' has no attribute '{name}'" for name in names]
