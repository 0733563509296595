"""Applications whose threads gevent or eventlet has replaced by greenlets: their event loops are their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PATCHED: Final = {
    "gevent": """
from gevent import monkey
monkey.patch_all()
from gevent import joinall, sleep, spawn
""",
    "eventlet": """
import eventlet
eventlet.monkey_patch()
from eventlet import sleep, spawn

def joinall(greenlets):
    for each in greenlets:
        each.wait()
""",
}
LIBRARIES: Final = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"needs {name}")) for name in PATCHED
]
APPLICATION: Final = """
import asyncio, json, os, sys, threading
import greenlet
import ragtrace
from ragtrace.testing import Captured, OpenAIServer
from tests.support.watched import WAIT_S

DOCUMENT = "The Eiffel Tower is 330 metres tall."
turn = threading.Lock()  # two greenlets of one thread cannot both be in asyncio.run, with or without ragtrace

@ragtrace.retrieve
def search(query):
    sleep(0.001)  # a blocking client, in the midst of a coroutine
    return [DOCUMENT]

async def pieces():
    for _ in range(3):
        await asyncio.sleep(0.001)
        assert asyncio.get_running_loop() is asyncio.get_event_loop()
        yield DOCUMENT

async def answer(question):
    search(question)
    return " ".join([piece async for piece in pieces()])

@ragtrace.trace
def ask(question):
    with turn:
        return asyncio.run(answer(question))

def tell(*values):
    os.write(1, (json.dumps(values) + "\\n").encode())

def scored():
    flushed, stats = ragtrace.flush(WAIT_S), ragtrace.stats()
    return [flushed, {name: tally.scored for name, tally in stats.evaluators.items()}, stats.faults]
"""


def told(program: str) -> list[Any]:
    """What *program* told, as it is written."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT, env={**os.environ, "EVENTLET_HUB": "selects"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("library", LIBRARIES)
def test_event_loops_of_the_application_are_its_own(library: str) -> None:
    """While a judge is asked in the background, which begins within one of them."""
    program = """
with OpenAIServer(latency=0.005) as server:
    ragtrace.configure(
        exporter=Captured().signals,
        judge=ragtrace.OpenAIJudge("m", base_url=server.url, api_key="k"),
        metrics=["faithfulness", "consistency"],
        sampling=ragtrace.Sampling(1.0),
    )
    answers = []
    joinall([spawn(lambda: answers.append(ask("How tall is it?"))) for _ in range(30)])
    tell(len(answers), scored())

    async def elsewhere():
        await asyncio.sleep(0.02)
        return True

    tell([asyncio.run(elsewhere()) for _ in range(3)], ragtrace.shutdown(WAIT_S))
"""
    answers, scored = told(PATCHED[library] + APPLICATION + program)
    assert answers == [30, [True, {"embedded": 30, "openai": 30}, {}]]
    assert scored == [[True, True, True], True]


@pytest.mark.parametrize("library", LIBRARIES)
def test_scores_and_notifiers_on_loops_of_their_own_disturb_no_other(library: str) -> None:
    """They run while other greenlets begin, use and end their loops."""
    program = """
from ragtrace.alerts import Notice
from ragtrace.alerts.notifiers.notifier import FunctionNotifier

async def receive(notice):
    await asyncio.sleep(0.02)
    seen.append(notice)

async def elsewhere():
    for _ in range(10):
        await asyncio.sleep(0.001)
        search("How tall is it?")
    return asyncio.get_running_loop() is not None

seen, ended = [], []
with OpenAIServer(latency=0.02) as server:
    judge = ragtrace.OpenAIJudge("m", base_url=server.url, api_key="k")
    asked = spawn(lambda: seen.append(ragtrace.score(
        query="How tall is it?", answer=DOCUMENT, contexts=[DOCUMENT], judge=judge, metrics=["faithfulness"]
    )["faithfulness"].value))
    notified = spawn(lambda: FunctionNotifier(receive).send("notice", WAIT_S))
    for _ in range(5):
        ended.append(asyncio.run(elsewhere()))
    joinall([asked, notified])
tell(sorted(map(str, seen)), ended)
"""
    assert told(PATCHED[library] + APPLICATION + program) == [[["1.0", "notice"], [True] * 5]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_function_that_follows_the_greenlets_goes_on(library: str) -> None:
    """That of a profiler: it is called while ragtrace runs, and alone again after the shutdown."""
    program = """
switches = []
def profile(event, greenlets):
    switches.append(event)
greenlet.settrace(profile)
ragtrace.configure(exporter="none")
ask("How tall is it?")
tell(scored(), ragtrace.shutdown(WAIT_S), len(switches) > 10, greenlet.gettrace() is profile)
"""
    assert told(PATCHED[library] + APPLICATION + program) == [
        [[True, {"embedded": 1}, {}], True, True, True],
    ]


LATE: Final = """
import ragtrace.runtime.configure
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_threads_that_are_replaced_too_late_are_refused(library: str) -> None:
    """`configure` says what to do: ragtrace would wait with all greenlets for a thread that never runs."""
    program = """
try:
    ragtrace.configure(exporter="none")
except ragtrace.SettingsError as error:
    tell(str(error), ask("How tall is it?"))
"""
    [[said, answer]] = told(LATE + PATCHED[library] + APPLICATION + program)
    assert f"{library} has replaced Python's threads after ragtrace had been imported" in said
    assert answer.startswith("The Eiffel Tower")


@pytest.mark.parametrize("library", LIBRARIES)
def test_threads_may_be_replaced_before_anything_runs(library: str) -> None:
    """A decorated module may have been imported by then."""
    program = """
ragtrace.configure(exporter="none")
ask("How tall is it?")
tell(scored())
"""
    assert told("import ragtrace\nragtrace.trace\n" + PATCHED[library] + APPLICATION + program) == [
        [[True, {"embedded": 1}, {}]]
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_child_whose_threads_are_replaced_after_the_fork_runs_untraced(library: str) -> None:
    """As a server with preloaded applications may do it: the application answers, and the log says why no more."""
    program = (
        """
import os
import ragtrace
ragtrace.configure(exporter="none")
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
        + PATCHED[library]
        + APPLICATION
        + """
answer = ask("How tall is it?")
tell(answer.startswith("The Eiffel"), ragtrace.stats().faults["start in a forked process"], ragtrace.shutdown(1.0))
"""
    )
    assert told(program) == [[True, 1, True]]
