"""Streams that are left in reference cycles: the garbage collector closes them wherever the application allocates."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import get_current

import ragtrace
from ragtrace.core.step import CallBuilder, Step
from ragtrace.pipeline.unqueued_steps import DeferredSteps
from ragtrace.system import collection
from ragtrace.system.faults import faults
from ragtrace.testing import Captured

APPLICATION = """
import asyncio, faulthandler, logging, sys, threading
from contextvars import ContextVar
faulthandler.enable()
faulthandler.dump_traceback_later(240, exit=True)  # says where it hangs
logging.disable(logging.CRITICAL)
import ragtrace
kind, streams = sys.argv[1], int(sys.argv[2])
guard = {"shadow": ragtrace.Guard("consistency", below=0.5, stream="after"),
         "held": ragtrace.Guard("consistency", below=0.5, budget_ms=50, stream="all", action="annotate")}.get(kind)
ragtrace.configure(service="left", exporter="none")

@ragtrace.retrieve
def search(query):
    return ["The tower is 330 metres tall."]

@ragtrace.trace(guard=guard)
def stream(question):
    try:
        search(question)
        yield "The tower is "
        yield "330 metres tall."
    finally:
        search("after it")

@ragtrace.trace
async def astream(question):
    search(question)
    yield "The tower is "
    yield "330 metres tall."

@ragtrace.trace
def lines(question):
    return map(str, ("The tower is ", "330 metres tall."))

class Box:
    def __del__(self):
        if kind == "finalizer":
            search("in a finalizer")

variables = [ContextVar(f"v{i}") for i in range(40)]

def work():
    for number in range(streams):
        box = Box()
        box.me = box
        if kind == "async":
            box.left = astream("How tall?")
            box.step = box.left.__anext__()
            try:
                box.step.send(None)
            except StopIteration:
                pass
        else:
            box.left = lines("How tall?") if kind == "iterator" else stream("How tall?")
            next(box.left)
        box = None
        token = variables[number % 40].set([number])  # others' variables, at whose allocations collections begin
        [[i] for i in range(number % 50)]
        if number % 2:
            variables[number % 40].reset(token)

threads = [threading.Thread(target=work) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("done", ragtrace.stats().faults.get("capture", 0))
ragtrace.shutdown(2)
"""
ANY_ALLOCATION = """
import faulthandler, gc, logging
from collections import deque
faulthandler.dump_traceback_later(120, exit=True)  # says which lock it waits for
logging.disable(logging.CRITICAL)
import ragtrace
from ragtrace.system.threads import run_in_background

@ragtrace.retrieve
def search(query):
    return ["The tower is 330 metres tall."]

@ragtrace.trace
def stream(question):
    search(question)
    yield "The tower is "
    yield "330 metres tall."

class Left:
    def __init__(self, held):
        self.me, self.held = self, held
    def __del__(self):  # the next collection finds the next stream
        if left:
            Left(left.popleft())

def configure():
    ragtrace.configure(service="left", exporter="none", limits=ragtrace.Limits(capacity=1000 + len(done)))

left, done = deque(), []
configure()
for act in (lambda: list(stream("How?")), ragtrace.stats, lambda: ragtrace.flush(0.2),
            lambda: run_in_background(int), lambda: ragtrace.shutdown(1), configure):
    configure()
    for _ in range(600):
        one = stream("How tall?")
        next(one)
        left.append(one)
    gc.set_threshold(1, 1_000_000, 1_000_000)  # a collection at nearly every allocation, on every thread
    Left(left.popleft())
    while left:
        act()
    gc.set_threshold(700, 10, 10)
    done.append(act)
print("done", len(done))
"""
KINDS = ("plain", "async", "iterator", "finalizer", "shadow", "held")
counts_collections = pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on nothing needs to be watched")


@pytest.mark.parametrize("kind", KINDS)
def test_streams_left_in_cycles_do_not_end_the_process(kind: str) -> None:
    """Their context is not attached by a finalizer, which may run inside another variable's change."""
    streams = "300" if kind == "held" else "4000"
    ended = subprocess.run([sys.executable, "-c", APPLICATION, kind, streams], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done 0\n"


def test_streams_that_are_collected_at_any_allocation_wait_for_no_lock() -> None:
    """Also at one under a lock that their end takes: of the queue, the counts, and the threads of the background."""
    ended = subprocess.run([sys.executable, "-c", ANY_ALLOCATION], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "done 6\n"


class Cycle:
    """Something unreachable that the collector finds only with what it holds."""

    def __init__(self, held: Any) -> None:
        self.me, self.held = self, held


@pytest.fixture
def captured() -> Iterator[Captured]:
    faults.clear()
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=None)
    yield captured
    ragtrace.shutdown()


def test_a_collected_stream_keeps_what_was_read(captured: Captured) -> None:
    """Whatever the order in which the collector finalizes the stream and the text that was gathered."""

    @ragtrace.trace(name="left")
    def stream(question: str) -> Iterator[str]:
        yield "Paris is "
        yield "big."

    left = stream("Where?")
    assert next(left) == "Paris is "
    Cycle(left)
    del left
    gc.collect()
    assert ragtrace.flush(5)
    assert not faults.counts().get("capture")
    assert "Paris is " in str(captured.spans[0].attributes)


@counts_collections
def test_a_finalizer_sees_the_context_of_the_application(captured: Captured) -> None:
    """As undecorated: neither the context nor the variables of the interrupted request change."""
    seen: list[object] = []
    variable: ContextVar[str] = ContextVar("variable")

    @ragtrace.trace(name="left")
    def stream(question: str) -> Iterator[str]:
        token = variable.set("of the stream")
        try:
            yield "Paris"
        finally:
            seen.append(get_current())
            variable.reset(token)  # fails in any other context than that in which it was set
            seen.append("reset")

    left = stream("Where?")
    next(left)
    Cycle(left)
    del left
    before = get_current()
    gc.collect()
    assert seen == [before, "reset"]
    assert collection.thread is None


@counts_collections
@pytest.mark.parametrize("how", ["function", "block", "carried"])
def test_what_a_finalizer_calls_joins_no_other_request(captured: Captured, how: str) -> None:
    """It is counted and said once, and runs as undecorated."""
    ran: list[object] = []

    @ragtrace.retrieve
    def search(query: str) -> list[str]:
        ran.append(trace.get_current_span())
        return ["Paris is a town."]

    def block(query: str) -> None:
        with ragtrace.call(query):
            ran.append(trace.get_current_span())

    act: Callable[[str], object] = {"function": search, "block": block, "carried": ragtrace.carry(search)}[how]

    class Finalized(Cycle):
        def __del__(self) -> None:
            act("Where?")

    @ragtrace.trace(name="ask")
    def ask(question: str) -> str:
        Finalized(None)
        gc.collect()
        return "Paris."

    ask("Where?")
    assert ragtrace.flush(5)
    assert len(ran) == 1
    assert [span.name for span in captured.spans] == ["invoke_workflow ask"]
    assert faults.counts()["called by the garbage collector"] == 1


def test_an_asynchronous_stream_without_a_loop_is_collected_in_silence(captured: Captured) -> None:
    """As undecorated: where the collector has closed the inner generator first, the outer one gives no piece."""

    @ragtrace.trace(name="left")
    async def stream(question: str) -> AsyncIterator[str]:
        yield "Paris is "
        yield "big."

    left = stream("Where?")
    with pytest.raises(StopIteration):
        left.__anext__().send(None)  # type: ignore[attr-defined]
    Cycle(left)
    del left
    gc.collect()  # what cannot be raised there is a warning, and so an error in tests
    assert ragtrace.flush(5)
    assert dict(captured.spans[0].attributes or {})["ragtrace.abandoned"] is True
    assert "Paris is " in str(captured.spans[0].attributes)


@counts_collections
def test_a_copy_of_what_others_change_survives_a_collection() -> None:
    """Finalizers may lengthen a collection while it is copied, as they run at the allocation of the copy."""
    queued: list[Step] = []
    steps = DeferredSteps(lambda _, step: queued.append(step))
    steps.queue_all()
    builders = [CallBuilder(root := Step(), [root, Step()]) for _ in range(100)]
    late = builders[50:]

    def finalizer(phase: str, _: dict[str, int]) -> None:
        if late:
            steps.defer(late[-1], late.pop().steps[1])

    before = gc.get_threshold()
    gc.callbacks.append(finalizer)
    try:
        while late:
            for builder in builders[:50]:  # more than are kept free by the interpreter, so that a copy is allocated
                assert steps.defer(builder, builder.steps[1])
            gc.set_threshold(1)
            steps.queue_all()
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(finalizer)
    steps.queue_all()
    assert set(map(id, queued)) == {id(builder.steps[1]) for builder in builders}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="objects have a dictionary from the beginning")
def test_what_threads_share_is_not_given_a_dictionary_later(captured: Captured) -> None:
    """Two threads that read `__dict__` first, at whose allocation the collector runs, release its values twice."""
    step = Step()
    step.joined = [None]
    before = _dictionaries(step)  # after thousands of steps with other fields, the interpreter gives it one at once
    assert step.detach()
    assert not step.detach()
    assert _dictionaries(step) == before
    with ragtrace.call("Where?"):
        span = trace.get_current_span()
        span.set_attribute("at", 1)
    assert ragtrace.flush(5)
    assert _dictionaries(span) == 0


def _dictionaries(shared: object) -> int:
    return sum(type(held) is dict for held in gc.get_referents(shared))


LOCKED_AT_THE_END = """
import os, sys, threading
import ragtrace
from ragtrace.system.faults import faults

@ragtrace.trace
def ask(question):
    return "Paris is big."

class Box:
    def __del__(self, ask=ask, faults=faults, is_finalizing=sys.is_finalizing, write=os.write):
        assert is_finalizing()
        faults.record("the end", ValueError())
        faults.log_once("the end", "the end")
        write(1, ask("Where?").encode())

holder = threading.Thread(target=faults._made.get().lock.acquire)
holder.start()
holder.join()
box = Box()
"""


def test_what_is_called_when_the_interpreter_ends_waits_for_no_thread_that_is_no_more() -> None:
    """A daemon thread may end while it holds the lock under which failures are counted: nobody ever leaves it."""
    ended = subprocess.run([sys.executable, "-c", LOCKED_AT_THE_END], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Paris is big.", "")
