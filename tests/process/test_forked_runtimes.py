"""The runtime of a forked child: built from the configuration at its first use, with nothing of its parent's in it.

Each test runs a program in a process of its own, which forks. What a fork promises, the tests that guard it, and the
code that keeps it:

- A child waits for no lock of its parent, and has none of its figures, queued calls, conversations or cached
  judgements: `test_a_child_begins_with_empty_books...`. `_leave_parents` in `ragtrace/runtime/current_runtime.py` sets
  the parent's runtime aside, and `RuntimeFactory.build` makes the child's; `PerProcess` in `ragtrace/system/forks.py`
  is for what outlives a runtime.
- A child that never uses ragtrace has no thread of ours: `test_a_child_that_never_uses...`. `current` in
  `current_runtime.py` builds at the first use.
- Threads that come first at the same time share one runtime, and a span of another instrumentation is a first use, too:
  `test_threads_that_use...` and `test_the_first_span...`. `_build_own` in `current_runtime.py`, and `wake` there.
- No call is lost, none is scored twice, and what waits in a parent's queue takes no memory in its descendants:
  `test_in_a_chain_of_forks...` and `test_a_child_that_configures_itself_or_shuts_down...`. `Worker.forget_queued` in
  `ragtrace/pipeline/worker.py`.
- A child that cannot build its runtime runs untraced, and counts that: `test_a_child_whose_runtime_cannot_be_built...`.
- A child may configure itself, and one of a parent that was shut down has no runtime: `test_a_child_may_configure...`.
  `install` in `current_runtime.py`.

A call during which a process forks is in `test_forked_calls.py`, what children export in `test_forked_exports.py`, and
locks of Python and of other libraries in `test_forked_imports.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

HEADER: Final = """
import faulthandler, gc, json, os, signal, sys, threading, weakref
import ragtrace
from ragtrace.alerts import Alerting
from ragtrace.runtime import current_runtime
from ragtrace.testing import Captured, FakeJudge
from tests.support.locks import hold_all, own_locks, release_all
from tests.support.watched import GOOD, WAIT_S, WaitingJudge, ask

def tell(*values):
    os.write(1, (json.dumps(values) + "\\n").encode())

def fork():
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    else:
        signal.alarm(100)
    return child == 0

faulthandler.register(signal.SIGALRM, chain=True)
signal.alarm(200)
"""
"""Begin of all programs: `tell` prints a line for the test, and `fork` returns True in the child, and False in the
parent when the child has ended well. A process that waits for ever says where its threads are."""


def told(program: str, *args: str) -> list[Any]:
    """What the processes of *program* told."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HEADER + program, *args],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# The parent scores calls, and one thread of it holds every lock of ragtrace while another one forks. The child looks at
# its books, scores a call, and goes on with a conversation of the parent; then the parent does the same again.
BOOKS: Final = """
def state():
    runtime, stats = current_runtime.current(), ragtrace.stats()
    alerts = [row.state for row in runtime.parts.get(Alerting).states() if row.on]
    [judge] = runtime.judge_statuses().values()
    return {"offered": stats.offered, "scored": stats.scored, "estimated": ragtrace.estimate("hallucinated").n,
            "alerts": alerts, "outcomes": len(runtime.outcomes.last()), "asked": judge.asked,
            "faults": dict(stats.faults)}

def converse():
    with ragtrace.call("And why?", session="one") as call:
        call.answered("Because.")
    assert ragtrace.flush(WAIT_S)
    earlier = judge.calls[-1].earlier_turns
    tell("turns", None if earlier is None else len(earlier))

judge = FakeJudge(GOOD)
ragtrace.configure(
    service="s", exporter=Captured().signals, judge=judge,
    metrics=["consistency", "hallucinated"], sampling=ragtrace.Sampling(rate=1.0), store=sys.argv[1],
    alerts=[ragtrace.Alert("hallucinated", above=0.5, min_calls=3, mean_calls_between_false_alarms=100)],
)
for number in range(5):
    ask(f"question {number}?")
assert ragtrace.flush(WAIT_S)
tell("parent", state())
converse()
names, held = zip(*own_locks(current_runtime.current()))
tell("held", names)
is_held, may_end = threading.Event(), threading.Event()

def hold():
    hold_all(held)
    is_held.set()
    may_end.wait()
    release_all(held)

holder = threading.Thread(target=hold)
holder.start()
assert is_held.wait(WAIT_S)
try:
    if fork():
        tell("child before", state())
        ask("question 1?")
        assert ragtrace.flush(WAIT_S)
        tell("child after", state())
        converse()
        assert ragtrace.shutdown(WAIT_S)
        os._exit(0)
finally:  # else a failure of the child would hold the parent until its time is up
    may_end.set()
    holder.join()
tell("parent again", state())
converse()
assert ragtrace.shutdown(WAIT_S)
"""


STATES: Final = ("parent", "child before", "child after", "parent again")
AMONG_LOCKS: Final = {
    *("Alerting._lock", "BaselineLearner._lock", "DaemonPool._guard", "HistoryRecorder._lock", "Instruments._opening"),
    *("ItemQueue.lock", "Ledger._lock", "Outbox._changed", "RunningMoments._lock", "SpanCalls._lock"),
    *("_Counts.lock", "ragtrace.runtime.current_runtime._lock", "ragtrace.system.forks._lock"),
}
"""Some of the locks that are held at the fork. Were one of them not found, the search would have lost its way."""


def test_a_child_begins_with_empty_books_and_no_lock_of_its_parent_held(tmp_path: Path) -> None:
    """Counts, sums, alerts, outcomes, conversations and the judge's cache are the parent's alone."""
    lines = told(BOOKS, str(tmp_path / "history.db"))
    [held] = (names for name, names in lines if name == "held")
    assert set(held) >= AMONG_LOCKS
    states = {name: state for name, state in lines if name in STATES}
    turns_of_parent, turns_of_child, turns_of_parent_again = (turns for name, turns in lines if name == "turns")
    assert books(states["parent"]) == {"offered": 10, "scored": 10, "estimated": 5}
    assert books(states["parent again"]) == {"offered": 12, "scored": 12, "estimated": 6}
    assert (turns_of_parent, turns_of_child) == (None, None)
    assert turns_of_parent_again == 2  # in the parent, where the conversation goes on
    assert books(states["child before"]) == {"offered": 0, "scored": 0, "estimated": 0}
    assert states["child before"] == states["child before"] | {
        "alerts": ["no_data"], "outcomes": 0, "asked": 0, "faults": {}
    }  # fmt: skip
    assert books(states["child after"]) == {"offered": 2, "scored": 2, "estimated": 1}
    assert states["child after"]["outcomes"] == 2
    assert states["child after"]["asked"] == 1  # as the judge's answer to the parent is not remembered


def books(state: dict[str, Any]) -> dict[str, int]:
    """What a process has counted of calls, and of those with an estimate."""
    return {name: state[name] for name in ("offered", "scored", "estimated")}


# One child does nothing, and tells which threads it has; the other only shuts down.
UNUSED: Final = """
ragtrace.configure(service="s", exporter="none")
ask("parent")
if fork():
    threads = [thread.name for thread in threading.enumerate()]
    tell(current_runtime.installed is None, threads)
    sys.exit(0)
if fork():
    assert ragtrace.shutdown(0.0)
    tell(current_runtime.installed is None, ragtrace.stats().offered)
    sys.exit(0)
"""


def test_a_child_that_never_uses_ragtrace_builds_nothing() -> None:
    """It has no thread of ours, and ends without a shutdown; nor does a shutdown build a runtime to shut down."""
    assert told(UNUSED) == [[True, ["MainThread"]], [True, 0]]


# Four generations, each of which forks while its judge is in the middle of a call and three more are queued. The
# youngest ends first. Each tells how many steps of its ancestors it still keeps in memory, and what it has scored.
CHAIN: Final = """
judge = WaitingJudge(GOOD, blocking=True)
ragtrace.configure(service="s", exporter=Captured().signals, screen=judge)
parents_steps = []
for generation in range(4):
    judge.begun.clear()
    ask("judged now")
    current_runtime.current()
    gc.collect()
    left = sum(step() is not None for step in parents_steps)
    assert judge.begun.wait(WAIT_S)
    for _ in range(3):
        ask("queued")
    parents_steps += [weakref.ref(item.step) for item, _ in current_runtime.current().worker.queue._unweighed]
    if generation == 3 or not fork():
        judge.open()
        ended = ragtrace.shutdown(WAIT_S)
        tell(generation, left, len(parents_steps), ended, ragtrace.stats().scored, ragtrace.stats().pending)
        os._exit(0)
"""


def test_in_a_chain_of_forks_each_scores_its_own_calls_and_keeps_none_of_its_ancestors() -> None:
    """Though their workers were in the middle of one: what waited there takes no memory in the descendants."""
    ends = told(CHAIN)
    assert [generation for generation, *_ in ends] == [3, 2, 1, 0]
    for generation, left, queued, *books in ends:
        assert (left, books) == (0, [True, 4, 0]), generation
        assert queued >= 3 * (generation + 1)


# Eight threads of a child make its first calls at the same moment.
THREADS: Final = """
ragtrace.configure(service="s", exporter=Captured().signals, judge=None)
ask("parent")
if fork():
    start, runtimes = threading.Barrier(8), set()

    def use():
        start.wait()
        ask("child")
        runtimes.add(id(current_runtime.current()))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ragtrace.shutdown(WAIT_S)
    tell(len(runtimes), ragtrace.stats().offered, ragtrace.stats().scored)
    os._exit(0)
"""


def test_threads_that_use_ragtrace_first_at_the_same_time_share_one_runtime() -> None:
    """No call of any of them is lost."""
    assert told(THREADS) == [[1, 8, 8]]


# The id of a judge, which every runtime asks for, is an error in another process than the one that made the judge.
FAILING: Final = """
class Immovable(FakeJudge):
    home = os.getpid()

    @property
    def id(self):
        if os.getpid() != self.home:
            raise RuntimeError("this judge does not survive a fork")
        return "immovable"

    @id.setter
    def id(self, name):
        pass

ragtrace.configure(service="s", exporter=Captured().signals, judge=Immovable(GOOD))
if fork():
    tell(ask("child"), dict(ragtrace.stats().faults))
    os._exit(0)
"""


def test_a_child_whose_runtime_cannot_be_built_runs_untraced() -> None:
    """The failure is counted once, then each step that is not recorded; the application does not notice."""
    [(answer, faults)] = told(FAILING)
    assert answer
    assert faults == {"start in a forked process": 1, "not configured": 3}


# Somebody presses Ctrl-C during a child's first use of ragtrace, in the middle of the building of its runtime.
INTERRUPTED: Final = """
class Interrupted(FakeJudge):
    home, is_over = os.getpid(), False

    @property
    def id(self):
        if os.getpid() != self.home and not self.is_over:
            self.is_over = True
            raise KeyboardInterrupt
        return "interrupted"

    @id.setter
    def id(self, name):
        pass

ragtrace.configure(service="s", exporter=Captured().signals, judge=Interrupted(GOOD))
if fork():
    try:
        ask("child")
        tell("not interrupted")
    except KeyboardInterrupt:
        assert ask("child again")
    assert ragtrace.shutdown(WAIT_S)
    tell(ragtrace.stats().offered, dict(ragtrace.stats().faults))
    os._exit(0)
"""


def test_a_child_whose_first_use_is_interrupted_has_a_runtime_at_the_next() -> None:
    """The interruption reaches the application, and leaves nothing half built."""
    assert told(INTERRUPTED) == [[2, {}]]


# One child configures ragtrace itself. The other is forked after the parent has shut ragtrace down.
AFTERWARDS: Final = """
ragtrace.configure(service="s", exporter=Captured().signals, judge=None)
ask("parent")
if fork():
    ragtrace.configure(service="s", exporter=Captured().signals, judge=None)
    ask("child")
    assert ragtrace.shutdown(WAIT_S)
    tell(ragtrace.stats().offered)
    os._exit(0)
assert ragtrace.shutdown(WAIT_S)
if fork():
    tell(ask("after the shutdown"), ragtrace.stats().offered, ragtrace.shutdown(WAIT_S))
    os._exit(0)
"""


def test_a_child_may_configure_itself_and_one_of_an_ended_parent_has_no_runtime() -> None:
    """The former has its own settings, the latter runs untraced as its parent does."""
    [[own], (answer, offered, ended)] = told(AFTERWARDS)
    assert (own, bool(answer), offered, ended) == (1, True, 0, True)


# The parent's worker is in the middle of a call, and more are queued. One child configures ragtrace, another shuts it
# down, neither of which builds a runtime from the parent's; both tell how many of the queued steps are still in memory.
LEFT: Final = """
judge = WaitingJudge(GOOD, blocking=True)
ragtrace.configure(service="s", exporter=Captured().signals, screen=judge)
ask("judged now")
assert judge.begun.wait(WAIT_S)
for _ in range(3):
    ask("queued")
steps = [weakref.ref(item.step) for item, _ in current_runtime.current().worker.queue._unweighed]
for leave in (lambda: ragtrace.configure(service="s", exporter=Captured().signals), ragtrace.shutdown):
    if fork():
        leave()
        gc.collect()
        tell(len(steps) >= 3, sum(step() is not None for step in steps))
        os._exit(0)
judge.open()
assert ragtrace.shutdown(WAIT_S)
tell(ragtrace.stats().scored, 0)
"""


def test_a_child_that_configures_itself_or_shuts_down_keeps_no_call_of_its_parent() -> None:
    """What waits in the parent's queue is the parent's, and takes no memory in the child."""
    assert told(LEFT) == [[True, 0], [True, 0], [4, 0]]


# Nothing is decorated: a workflow makes spans of LangChain's instrumentation, in the child and, if "used", in the
# parent.
SPANS: Final = """
from opentelemetry import trace

ragtrace.configure(service="s", exporter=Captured().signals, evaluate_spans=True, judge=None)
tracer = trace.get_tracer("openinference.instrumentation.langchain")
KIND = "openinference.span.kind"

def request():
    with tracer.start_as_current_span("chain") as root:
        root.set_attributes({KIND: "CHAIN", "input.value": "How tall is the tower?"})
        with tracer.start_as_current_span("retriever") as span:
            span.set_attributes({KIND: "RETRIEVER", "retrieval.documents.0.document.content": "It is 330 metres tall."})
        with tracer.start_as_current_span("llm") as span:
            span.set_attributes({KIND: "LLM", "llm.output_messages.0.message.role": "assistant"})
            span.set_attribute("llm.output_messages.0.message.content", "It is 330 metres tall.")
        root.set_attribute("output.value", "It is 330 metres tall.")

if sys.argv[1] == "used":
    request()
if fork():
    request()
    was_built = current_runtime.installed is not None
    tell("child", was_built, ragtrace.flush(WAIT_S), ragtrace.stats().scored)
    os._exit(0)
tell("parent", True, ragtrace.flush(WAIT_S), ragtrace.stats().scored)
"""


@pytest.mark.parametrize("parent", ["used", "unused"])
def test_the_first_span_of_another_instrumentation_builds_the_runtime_of_a_child(parent: str) -> None:
    """Nothing in it is decorated; each process scores the calls in the spans of its own."""
    assert told(SPANS, parent) == [["child", True, True, 1], ["parent", True, True, int(parent == "used")]]
