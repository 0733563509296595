"""The first judgement of a process does not stop the event loop, whatever has to be imported, read and compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import pytest

TIMEOUT_S: Final = 240.0
MEASURE: Final = """
import asyncio, json, sys
from time import process_time, thread_time
import ragtrace

async def judge_first(judge, text):
    call, longest, began = ragtrace.RagCall("Where?", (ragtrace.Document(text),), text), 0.0, process_time()
    task = asyncio.ensure_future(judge.judge(call))
    while not task.done():
        before = thread_time()
        await asyncio.sleep(0)
        longest = max(longest, thread_time() - before)
    print(json.dumps({"longest": longest, "total": process_time() - began, "raised": str(task.exception() or "")}))
"""
CLIENT: Final = f"""{MEASURE}
judge = ragtrace.DecisionJudge("m", base_url="http://127.0.0.1:1/v1", api_key="k")
asyncio.run(judge_first(judge, "The tower stands in Paris."))
"""
PATTERNS: Final = f"""{MEASURE}
text = "The tower stands in Paris. Прага - большой город. パリは大きいです。"
asyncio.run(judge_first(ragtrace.EmbeddedJudge(), text))
"""
IMPORT: Final = """
import asyncio, json, sys, threading
from importlib.machinery import PathFinder, SourceFileLoader
import ragtrace

reached, may_go_on = threading.Event(), threading.Event()
went_on = []

class SlowLoader(SourceFileLoader):
    def exec_module(self, module):
        reached.set()
        went_on.append(may_go_on.wait(10.0))
        super().exec_module(module)

class SlowFinder:
    def find_spec(self, name, path=None, target=None):
        if name != "openai._client":
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = SlowLoader(name, spec.origin)
        return spec

async def ask(judge):
    asked = asyncio.ensure_future(judge.judge(ragtrace.RagCall("Where?", (ragtrace.Document("Here."),), "Here.")))
    for _ in range(100):
        await asyncio.sleep(0)
    may_go_on.set()
    await asyncio.wait([asked])
    asked.exception()

judge = ragtrace.DecisionJudge("m", base_url="http://127.0.0.1:1/v1", api_key="k")
sys.meta_path.insert(0, SlowFinder())
threading.Thread(target=__import__, args=("openai",)).start()
reached.wait()
asyncio.run(ask(judge))
print(json.dumps(went_on))
"""


def printed(program: str) -> Any:
    """What *program* prints in a fresh process, as JSON."""
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timing
def test_the_client_of_a_judge_is_made_beside_the_event_loop() -> None:
    """The HTTP library is imported and the certificates are read on another thread, which takes more than 20 ms."""
    found = printed(CLIENT)
    assert found["raised"].startswith("unavailable")
    assert found["longest"] < 0.015


@pytest.mark.timing
def test_the_patterns_for_many_scripts_are_compiled_one_a_step() -> None:
    """Together they take 20 ms, and no step takes half of that."""
    found = printed(PATTERNS)
    assert found["raised"] == ""
    assert found["longest"] < found["total"] / 2


def test_an_event_loop_does_not_wait_for_an_import_of_another_thread() -> None:
    """The application imports openai at this moment, which can take a second: other tasks run meanwhile."""
    assert printed(IMPORT) == [True]
