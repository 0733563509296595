"""Locks that another thread held when the process forked, of imports and connections: nothing of ours waits for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from ragtrace.testing import OpenAIServer
from tests.support.otlp import HttpReceiver, Receiver

ROOT: Final = Path(__file__).parents[2]
ENDS_S: Final = 240
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

IMPORTED: Final = """
import json, os, sys
import ragtrace, ragtrace.alerts
from tests.support import wild

class Recording:
    imported = []
    def find_spec(self, name, path=None, target=None):
        self.imported.append(name)

def everything():
    for call in wild.CALLS:
        call("where?")
    ragtrace.flush(5.0)

ragtrace.configure(service="s", {settings})
sys.meta_path.insert(0, Recording())
everything()
child = os.fork()
everything()
ragtrace.shutdown(5.0)
os.write(1, (json.dumps(Recording.imported) + "\\n").encode())
if child:
    os.waitpid(child, 0)
"""
CONFIGURATIONS: Final = {
    "files": "limits=ragtrace.Limits(spool=os.environ['FILES'] + 'spool'), store=os.environ['FILES'] + 'store'",
    "judge": "judge=ragtrace.OpenAIJudge('m', base_url=os.environ['MODEL'], api_key='k')",
    "phoenix": "exporter='phoenix'",
    "alerts": "alerts=[ragtrace.Alert('consistency', below=0.99, min_calls=1, mean_calls_between_false_alarms=10, "
    "notify=ragtrace.alerts.Slack(os.environ['PHOENIX_COLLECTOR_ENDPOINT']))]",
}


def run(program: str, receiver: Receiver, **environ: str) -> list[Any]:
    """What each process of *program* printed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, **receiver.environ, **environ},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("settings", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_all_that_is_ever_needed_is_loaded_when_it_is_configured(
    http_receiver: HttpReceiver, tmp_path: Path, settings: str
) -> None:
    """Neither a parent nor its child imports anything for its calls, its scores or its telemetry."""
    with OpenAIServer() as model:
        imported = run(
            IMPORTED.format(settings=settings),
            http_receiver,
            FILES=f"{tmp_path}/",
            MODEL=model.url,
            PHOENIX_COLLECTOR_ENDPOINT=http_receiver.endpoint,
        )
    assert imported == [[], []]


STUCK: Final = """
import json, os, signal, sys, threading
import ragtrace
from tests.support import wild

parent = os.getpid()

class Stuck:
    def find_spec(self, name, path=None, target=None):
        if os.getpid() == parent:
            threading.Event().wait()  # as long as the parent lives, and for ever in the child

def everything():
    for call in wild.CALLS:
        call("where?")
    ragtrace.flush(5.0)

def stuck(event, _):
    if event == "subprocess.Popen":  # which the library asks what machine this is, once, while it holds a lock
        Stuck().find_spec(event)

ragtrace.configure(service="s", {settings})
sys.meta_path.insert(0, Stuck())
sys.addaudithook(stuck)
busy = threading.Thread(target=everything, daemon=True)
busy.start()
busy.join(5.0)
child = os.fork()
if child == 0:
    signal.alarm(45)  # a child that hangs does not outlive the test
    everything()
    print(json.dumps([ragtrace.shutdown(30.0), ragtrace.stats().scored]), flush=True)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)
"""


def test_a_child_works_whose_parent_was_importing_when_it_forked(receiver: Receiver) -> None:
    """Another thread of the parent was in the middle of whatever a first call, score or export imports."""
    assert run(STUCK.format(settings=""), receiver) == [[True, 6]]


def test_a_child_is_judged_whose_parent_was_making_its_first_request_when_it_forked(receiver: Receiver) -> None:
    """Another thread of the parent was in the middle of whatever a first request to a model imports or looks up."""
    judge = "judge=ragtrace.OpenAIJudge('m', base_url=os.environ['MODEL'], api_key='k')"
    with OpenAIServer() as model:
        settings = f"screen=None, {judge}, sampling=ragtrace.Sampling(rate=1.0)"
        assert run(STUCK.format(settings=settings), receiver, MODEL=model.url) == [[True, 6]]


BUSY: Final = """
import os, signal, sys, weakref
import ragtrace
from tests.support.watched import ask

ragtrace.configure(service="s")
ask("where?")
ragtrace.flush(5.0)
known = [finalizer.peek() for finalizer in list(weakref.finalize._registry)]
idle = [arguments[0] for _, close, arguments, _ in known if close.__module__ == "urllib3.connectionpool"]
for queue in idle:
    queue.mutex.acquire()  # as a thread does that takes a connection
child = os.fork()
if child == 0:
    signal.alarm(20)  # a child that hangs is killed by it
    ask("where?")
    sys.exit(0)
for queue in idle:
    queue.mutex.release()
print([len(idle) > 0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])].__repr__().lower(), flush=True)
"""


def test_a_child_ends_whose_parent_was_exporting_when_it_forked(http_receiver: HttpReceiver) -> None:
    """The library closes idle connections at exit, also those of the parent, whose locks may be held for ever."""
    assert run(BUSY, http_receiver) == [[True, 0]]
