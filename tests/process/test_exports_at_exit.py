"""What a program that just exits has exported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.application import ANSWER
from tests.support.otlp import Receiver
from tests.support.telemetry import Span

ROOT: Final = Path(__file__).parents[2]


def _has_scores(receiver: Receiver) -> bool:
    return "ragtrace.eval.score" in receiver.latest_metrics()


def _by_role(receiver: Receiver) -> dict[str, Span]:
    """The three spans by what they do."""
    return {span.name.split()[0]: span for span in receiver.spans}


def test_a_program_that_just_exits_loses_nothing(receiver: Receiver) -> None:
    """Configured by its environment alone and never flushed: spans, scores, events and metrics all arrive."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.application"],
        env={**os.environ, **receiver.environ, "RAGTRACE_METRICS": "consistency,answered"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWER, "")
    receiver.wait_for(lambda got: len(got.spans) == 3 and len(got.logs) == 2 and _has_scores(got))
    assert _by_role(receiver)["invoke_workflow"].attributes["ragtrace.eval.status"] == "ok"


@pytest.mark.parametrize("use", ["ragtrace.trace(len)([])", ""], ids=["decorated", "only imported"])
@pytest.mark.parametrize("name", ["shutdown", "flush", "stats"])
def test_an_exit_handler_needs_no_configuration(name: str, use: str) -> None:
    """A script or migration of an application that configures nothing ends in silence."""
    program = (
        f"import atexit, threading, ragtrace\n{use}\natexit.register(lambda: print('done', bool(ragtrace.{name}())))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert (done.stdout, "Traceback" in done.stderr) == ("done True\n", False), done.stderr


SCORED: Final = "query='Where?', contexts=['The tower is in Paris.'], answer='In Paris.'"


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (f"ragtrace.score({SCORED})['consistency'].value", "1.0"),
        (f"len(ragtrace.evaluate([dict({SCORED})]).calls)", "1"),
        ("ragtrace.estimate('consistency').reason", "not_configured"),
        ("'not configured' in str(ragtrace.doctor())", "True"),
    ],
)
@pytest.mark.parametrize("use", ["ragtrace.trace(len)", "ragtrace.stats()"])
def test_an_exit_handler_may_ask_for_anything(call: str, shown: str, use: str) -> None:
    """Also where Python starts no thread any more, as it does from version 3.12 on."""
    program = f"import atexit, threading, ragtrace\n{use}\natexit.register(lambda: print({call}))\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, shown, "")


def test_what_cannot_begin_while_the_interpreter_exits_says_so() -> None:
    """Where nothing of ragtrace was used before the exit handler, which Python then refuses a pool of threads."""
    program = "import atexit, threading, ragtrace\natexit.register(lambda: ragtrace.doctor())\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "ragtrace was not used before the interpreter began to exit" in done.stderr
